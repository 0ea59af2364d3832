"""Files that are written whole or not at all, and never over another one unasked; the folder for what can be remade."""

import logging
import os
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hcep.errors import HCEPError

logger = logging.getLogger(__name__)
#: Half-written files of this process, which a forced exit removes.
_UNFINISHED: set[Path] = set()
_HELD = threading.local()


def refuse_existing(
    path: str | os.PathLike[str] | None, force: bool = False, option: str = "output", how: str = "--force"
) -> None:
    """Refuse a folder, or a file that is there, before any work; `option` and `how` are what users call these."""
    if path is None:
        return
    if Path(path).is_dir():
        raise HCEPError(f"{option}: {str(path)!r} is a folder; give the name of a file")
    if not force and os.path.lexists(path):
        raise HCEPError(f"{option}: {str(path)!r} is there already; pass {how} to replace it, or give another name")


@contextmanager
def replacing(path: str | os.PathLike[str], error: type[HCEPError] = HCEPError) -> Iterator[Path]:
    """A place beside `path` to write to; it becomes `path` when all is written, and vanishes when that fails.

    Folders above are made; the permissions of a file that is replaced stay. Raises HCEPError: or `error`: when the
    place cannot be written.
    """
    target = Path(path)
    partial = target.with_name(f".{target.name[:100]}.{secrets.token_hex(4)}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            _UNFINISHED.add(partial)
            yield partial
            if target.exists():
                partial.chmod(target.stat().st_mode & 0o777)
            with partial.open("rb") as file:  # on disk before the name points to it: a power cut leaves old or new
                os.fsync(file.fileno())
            os.replace(partial, target)
        finally:
            partial.unlink(missing_ok=True)
            _UNFINISHED.discard(partial)
    except OSError as failure:
        raise error(f"cannot write {str(path)!r}: {failure.strerror or failure}") from None


def write_bytes(path: str | os.PathLike[str], data: bytes, error: type[HCEPError] = HCEPError) -> None:
    with replacing(path, error) as partial:
        partial.write_bytes(data)


def write_text(path: str | os.PathLike[str], text: str, error: type[HCEPError] = HCEPError) -> None:
    """Write UTF-8 in one step; what UTF-8 cannot hold (a file name of other bytes) becomes a question mark."""
    write_bytes(path, text.encode("utf-8", errors="replace"), error)


def cache_folder(*parts: str) -> Path:
    """Where things that can be made again are kept: ``HCEP_CACHE``, or the platform's place for the user's caches."""
    from platformdirs import user_cache_path

    own = os.environ.get("HCEP_CACHE")
    return (Path(own) if own else user_cache_path("hcep", appauthor=False)).joinpath(*parts)


def remove_unfinished() -> None:
    """Remove what this process has half written; for an exit that runs no other clean-up."""
    for partial in list(_UNFINISHED):
        partial.unlink(missing_ok=True)


@contextmanager
def locked(
    folder: Path, busy: str, error: type[HCEPError] = HCEPError, patience: float = 0.0, again: bool = False
) -> Iterator[None]:
    """Be the only writer of a folder, which is made; the system lets go of the lock however the process ends.

    `busy` is what the `error` says where another writer has it for more than `patience` seconds; `again` is whether a
    thread that holds the lock already goes on with it.
    """
    held: set[Path] = _HELD.__dict__.setdefault("folders", set())
    try:
        folder.mkdir(parents=True, exist_ok=True)
        place = folder.resolve()
    except OSError as failure:
        raise error(f"cannot make the folder {str(folder)!r}: {failure.strerror or failure}") from None
    try:
        import fcntl
    except ImportError:  # not on Windows
        yield
        return
    if again and place in held:
        yield
        return
    descriptor, end = os.open(place, os.O_RDONLY), time.monotonic() + patience
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= end:
                    raise error(f"{busy} {str(folder)!r}: wait for it or stop it") from None
                time.sleep(0.01)
            except OSError:  # a network file system without locks
                logger.info("%s cannot be locked: take care that only one run writes to it", folder)
                break
        held.add(place)
        yield
    finally:
        held.discard(place)
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Bring a folder's entries to disk, where the platform lets a folder be opened."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
