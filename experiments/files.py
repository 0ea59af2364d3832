"""Write files completely or not at all, so that a stopped run never leaves half a file behind."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path next to `path` that replaces it when the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield partial
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text in one step."""
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")
