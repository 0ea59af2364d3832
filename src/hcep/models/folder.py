"""The files of a model's folder, which are replaced all or none, even if the process dies.

New files are written beside the old ones, as ``<name>.new``. As soon as ``model.json.new`` exists, the new model
counts: readers then prefer the ``.new`` files, and the next save completes the renames. A file that ``model.json`` does
not list is not part of the model. Writers wait for each other. Readers keep the files of one save open, so that they
see either the old model or the new one, whatever is saved meanwhile.
"""

import os
import weakref
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from hcep import _files
from hcep._files import sync_folder
from hcep.errors import quoted
from hcep.models.schema import ATOMS, ATOMS_FORMAT, CARD, DOCUMENT, FORMAT, HIERARCHY, TENSORS, ModelError

#: In the order of the renames: the document comes last.
NAMES = (TENSORS, HIERARCHY, ATOMS, CARD, DOCUMENT)
_NEW = ".new"
_UNFINISHED = ".part"
#: A larger file is refused unread.
MAX_BYTES = 1 << 33
#: Seconds that a save waits for another one to end.
PATIENCE = 60.0


def writing(folder: Path) -> AbstractContextManager[None]:
    """Keep other writers out while a model is read, changed and saved; a save inside uses the same lock."""
    return _files.locked(folder, "another process is saving to", ModelError, PATIENCE, again=True)


def write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write the files of a model; an existing model is replaced in one step, other files are never overwritten."""
    if folder.exists() and not folder.is_dir():
        raise ModelError(f"cannot save to {str(folder)!r}: it is a file, not a folder")
    with writing(folder):
        _refuse_strangers(folder)
        update_folder(folder, files)
        # The names of the old model's atoms, which do not hold for the new one.
        if ATOMS not in files and _has_names(folder):
            (folder / ATOMS).unlink()


def update_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Replace the document and some other files of a model in one step; the rest stays."""
    assert DOCUMENT in files
    with writing(folder):
        if ATOMS in files and _locate(folder, ATOMS).exists() and not _has_names(folder):
            raise ModelError(
                f"cannot save to {str(folder)!r}: its {ATOMS} does not belong to a model; move it elsewhere"
            )
        written = [name for name in NAMES if name in files]
        try:
            _complete(folder)
            _discard(folder)
            for name in written:
                with (folder / (name + _UNFINISHED)).open("wb") as file:
                    file.write(files[name])
                    file.flush()
                    os.fsync(file.fileno())
            for name in written:
                os.replace(folder / (name + _UNFINISHED), folder / (name + _NEW))
        except OSError as error:
            with suppress(OSError):  # the folder may be read-only by now
                _discard(folder)
            raise ModelError(f"cannot save to {str(folder)!r}: {error.strerror}") from error
        except BaseException:
            _discard(folder)
            raise
        _complete(folder)


class ModelFiles:
    """The files of the newest complete model in a folder, kept open until they are read."""

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise ModelError(f"no model at {str(folder)!r}: the folder does not exist")
        self.folder = folder
        self._open: dict[str, int] = {}
        weakref.finalize(self, _close, self._open)
        for _ in range(1000):
            _close(self._open)
            document = _identity(folder)
            self._open |= {name: opened for name in NAMES if (opened := _opened(folder, name)) is not None}
            if _identity(folder) == document:  # no other save came between
                return
        raise ModelError(f"{str(folder)!r} is being overwritten repeatedly; try again later")

    @property
    def names(self) -> list[str]:
        """The names of the files that were not read yet."""
        return list(self._open)

    def size(self, name: str) -> int:
        if name not in self._open:
            raise ModelError(f"no complete model at {str(self.folder)!r}: the file {name} is missing")
        return os.fstat(self._open[name]).st_size

    def read(self, name: str) -> bytes:
        """The content of a file; each file can be read once."""
        if (size := self.size(name)) > MAX_BYTES:
            raise ModelError(f"{name}: {size:,} bytes in {str(self.folder)!r}, too large for a model")
        try:
            with os.fdopen(self._open.pop(name), "rb") as file:
                return file.read()
        except OSError as error:
            raise ModelError(f"{name}: cannot be read in {str(self.folder)!r} ({error.strerror})") from None


def _opened(folder: Path, name: str) -> int | None:
    for _ in range(2):  # it may be renamed before it is opened
        path = _locate(folder, name)
        try:
            if path.is_file():
                return os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        except FileNotFoundError:
            continue
        except OSError as error:
            raise ModelError(f"{name}: cannot be read in {str(folder)!r} ({error.strerror})") from None
    return None


def _close(descriptors: dict[str, int]) -> None:
    while descriptors:
        os.close(descriptors.popitem()[1])


def _identity(folder: Path) -> tuple[int, ...] | None:
    """What tells the document of one save from that of another; it survives a rename."""
    for _ in range(2):
        try:
            status = _locate(folder, DOCUMENT).stat()
            return status.st_ino, status.st_mtime_ns, status.st_size
        except FileNotFoundError:
            continue
    return None


def _has_names(folder: Path) -> bool:
    """Whether there is a file with names of atoms in our format, even an old or damaged one."""
    path = _locate(folder, ATOMS)
    return path.is_file() and f'"{ATOMS_FORMAT}"'.encode() in path.read_bytes()


def _is_pending(folder: Path) -> bool:
    return (folder / (DOCUMENT + _NEW)).exists()


def _locate(folder: Path, name: str) -> Path:
    pending = folder / (name + _NEW)
    return pending if _is_pending(folder) and pending.exists() else folder / name


def _complete(folder: Path) -> None:
    """Complete the renames of a save whose document is written."""
    if not _is_pending(folder):
        return
    sync_folder(folder)
    for name in NAMES:
        if (folder / (name + _NEW)).exists():
            os.replace(folder / (name + _NEW), folder / name)
    sync_folder(folder)


def _discard(folder: Path) -> None:
    """Remove the files of a save that ended before its document was written."""
    if _is_pending(folder):
        return
    for path in (folder / (name + ending) for name in NAMES for ending in (_UNFINISHED, _NEW)):
        if path.exists():
            path.unlink()


def _refuse_strangers(folder: Path) -> None:
    document = _locate(folder, DOCUMENT)
    if document.is_file():
        if f'"{FORMAT}"'.encode() not in document.read_bytes():
            raise ModelError(
                f"cannot save to {str(folder)!r}: its {DOCUMENT} does not belong to a model; give a new folder"
            )
        return
    there = [name for name in NAMES if (folder / name).exists()]
    if there:
        raise ModelError(
            f"cannot save to {str(folder)!r}: it has {quoted(there)} but no model, and saving would overwrite it; "
            "give a new folder"
        )
