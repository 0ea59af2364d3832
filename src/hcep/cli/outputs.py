"""Files a command writes: whole or not at all, and never over another one unasked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hcep.errors import HCEPError


def refuse_existing(option: str, path: Path | None, force: bool) -> None:
    """Refuse a file that is there already, before any work is done.

    Raises
    ------
    HCEPError
        When the file exists and `force` is false, or the path is a folder.
    """
    if path is None:
        return
    if path.is_dir():
        raise HCEPError(f"{option}: {str(path)!r} is a folder; give the name of a file")
    if path.exists() and not force:
        raise HCEPError(f"{option}: {str(path)!r} is there already; pass --force to replace it, or give another name")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A place beside `path` to write to; it becomes `path` when all is written, and vanishes when that fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file, whole or not at all; the text ends in one newline."""
    with replacing(path) as partial:
        partial.write_text(text.rstrip("\n") + "\n", encoding="utf-8")
