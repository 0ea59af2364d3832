"""A model's folder: its files replaced all or none, whenever the process dies.

New files are written beside the old ones, as ``<name>.new``. The moment ``model.json.new`` is there the new model
counts: what follows are renames that any reader looks through and the next save completes. A file that the document
does not speak of is no part of the model, whatever its name. Writers wait for each other; readers hold the files of one
save open, so that they see the old model or the new one whatever is saved meanwhile.
"""

import os
import weakref
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from hcep import _files
from hcep._files import sync_folder
from hcep.errors import quoted
from hcep.models.schema import ATOMS, ATOMS_FORMAT, CARD, DOCUMENT, FORMAT, HIERARCHY, TENSORS, ModelError

#: In the order of the renames; the document's comes last.
NAMES = (TENSORS, HIERARCHY, ATOMS, CARD, DOCUMENT)
_NEW = ".new"
_UNFINISHED = ".part"
#: Bytes of a file that is read; a larger one is refused by its size.
MAX_BYTES = 1 << 33
#: Seconds that a save waits for another one.
PATIENCE = 60.0


def writing(folder: Path) -> AbstractContextManager[None]:
    """Keep other writers out, from what is read to what is saved; a save inside goes on with this lock."""
    return _files.locked(folder, "another process is saving to", ModelError, PATIENCE, again=True)


def write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write the files of a model; an existing model is replaced in one step, files of another kind are refused."""
    if folder.exists() and not folder.is_dir():
        raise ModelError(f"cannot save to {str(folder)!r}: it is a file; give a folder")
    with writing(folder):
        _refuse_strangers(folder)
        update_folder(folder, files)
        # The old model's, which the new document does not speak of.
        if ATOMS not in files and _has_names(folder):
            (folder / ATOMS).unlink()


def update_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Replace some files of a model, its document among them, in one step; the others stay."""
    assert DOCUMENT in files
    with writing(folder):
        if ATOMS in files and _locate(folder, ATOMS).exists() and not _has_names(folder):
            raise ModelError(f"cannot save to {str(folder)!r}: its {ATOMS} is of another kind; move it away")
        written = [name for name in NAMES if name in files]
        _complete(folder)
        _discard(folder)
        try:
            for name in written:
                with (folder / (name + _UNFINISHED)).open("wb") as file:
                    file.write(files[name])
                    file.flush()
                    os.fsync(file.fileno())
            for name in written:
                os.replace(folder / (name + _UNFINISHED), folder / (name + _NEW))
        except BaseException:
            _discard(folder)
            raise
        _complete(folder)


class ModelFiles:
    """The files of the newest complete model in a folder, held open until they are read."""

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise ModelError(f"no model at {str(folder)!r}: there is no such folder")
        self.folder = folder
        self._open: dict[str, int] = {}
        weakref.finalize(self, _close, self._open)
        for _ in range(1000):
            _close(self._open)
            document = _identity(folder)
            self._open |= {name: found for name in NAMES if (found := _opened(folder, name)) is not None}
            if _identity(folder) == document:  # not saved anew between two of them
                return
        raise ModelError(f"{str(folder)!r} is saved again and again; try later")

    def size(self, name: str) -> int:
        if name not in self._open:
            raise ModelError(f"no complete model at {str(self.folder)!r}: the file {name} is missing")
        return os.fstat(self._open[name]).st_size

    def read(self, name: str) -> bytes:
        """The content of a file, once."""
        if (size := self.size(name)) > MAX_BYTES:
            raise ModelError(f"{name}: {size:,} bytes in {str(self.folder)!r}, too large for a model")
        try:
            with os.fdopen(self._open.pop(name), "rb") as file:
                return file.read()
        except OSError as error:
            raise ModelError(f"{name}: cannot be read in {str(self.folder)!r} ({error.strerror})") from None


def _opened(folder: Path, name: str) -> int | None:
    for _ in range(2):  # it may be renamed between the look and the opening
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
    """What tells one save's document from another's; a rename leaves it."""
    for _ in range(2):
        try:
            status = _locate(folder, DOCUMENT).stat()
            return status.st_ino, status.st_mtime_ns, status.st_size
        except FileNotFoundError:
            continue
    return None


def _has_names(folder: Path) -> bool:
    """Whether there is a file of atom names, and it is one of ours, if only an old or damaged one."""
    path = _locate(folder, ATOMS)
    return path.is_file() and f'"{ATOMS_FORMAT}"'.encode() in path.read_bytes()


def _is_pending(folder: Path) -> bool:
    return (folder / (DOCUMENT + _NEW)).exists()


def _locate(folder: Path, name: str) -> Path:
    pending = folder / (name + _NEW)
    return pending if _is_pending(folder) and pending.exists() else folder / name


def _complete(folder: Path) -> None:
    """Make the renames of a save that has its document; none are left of one that has not."""
    if not _is_pending(folder):
        return
    sync_folder(folder)
    for name in NAMES:
        if (folder / (name + _NEW)).exists():
            os.replace(folder / (name + _NEW), folder / name)
    sync_folder(folder)


def _discard(folder: Path) -> None:
    """Remove what a save that has no document left: it would else count with the next one's."""
    if _is_pending(folder):
        return
    for path in (folder / (name + ending) for name in NAMES for ending in (_UNFINISHED, _NEW)):
        if path.exists():
            path.unlink()


def _refuse_strangers(folder: Path) -> None:
    document = _locate(folder, DOCUMENT)
    if document.is_file():
        if f'"{FORMAT}"'.encode() not in document.read_bytes():
            raise ModelError(f"cannot save to {str(folder)!r}: its {DOCUMENT} is of another kind; give a new folder")
        return
    there = [name for name in NAMES if (folder / name).exists()]
    if there:
        told = f"cannot save to {str(folder)!r}: it has {quoted(there)} but no model, and saving would overwrite that; "
        raise ModelError(told + "give a new folder")
