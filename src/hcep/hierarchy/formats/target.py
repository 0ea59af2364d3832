"""Writing a file in one step: what was there stays whole until the new content is."""

from __future__ import annotations

import gzip
import os
import secrets
from pathlib import Path

from hcep.errors import HierarchyError


def write_whole(path: Path, text: str) -> None:
    """Write text in UTF-8, compressed where the path ends in ``.gz``; a failure leaves no file and no change.

    Raises
    ------
    HierarchyError
        Text that has no UTF-8 (a lone surrogate), or a place that cannot be written.
    """
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise HierarchyError(
            f"cannot write {str(path)!r}: a name holds {error.object[error.start]!r}, which is no character of UTF-8; "
            "rename the synset"
        ) from None
    write_bytes(path, gzip.compress(data, mtime=0) if path.suffix.lower() == ".gz" else data)


def write_bytes(path: Path, data: bytes) -> None:
    """Put `data` at `path` by renaming a finished file."""
    temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        try:
            temporary.write_bytes(data)
            if path.exists():
                temporary.chmod(path.stat().st_mode & 0o777)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise HierarchyError(f"cannot write {str(path)!r}: {error.strerror or error}") from None
