"""A model's folder: its files replaced all or none, whenever the process dies.

New files are written beside the old ones, as ``<name>.new``. The moment ``model.json.new`` is there the new model
counts: what follows are renames that any reader looks through and the next save completes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from hcep.errors import quoted
from hcep.models.fields import ModelError
from hcep.models.schema import CARD, DOCUMENT, FORMAT, HIERARCHY, TENSORS

#: In the order of the renames; the document's comes last.
NAMES = (TENSORS, HIERARCHY, CARD, DOCUMENT)
_NEW = ".new"
_UNFINISHED = ".part"


def write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write the files of a model; an existing model is replaced in one step.

    Raises
    ------
    ModelError
        When `folder` is a file, or holds a file of one of these names that is not part of a saved model.
    """
    _refuse_strangers(folder)
    folder.mkdir(parents=True, exist_ok=True)
    _complete(folder)
    try:
        for name in NAMES:
            _write(folder / (name + _UNFINISHED), files[name])
        for name in NAMES:
            os.replace(folder / (name + _UNFINISHED), folder / (name + _NEW))
    except BaseException:
        _discard(folder)
        raise
    _complete(folder)


def read_file(folder: Path, name: str) -> bytes:
    """One file of the newest complete model in the folder.

    Raises
    ------
    ModelError
        When there is no such folder or file, or it cannot be read.
    """
    if not folder.is_dir():
        raise ModelError(f"no model at {str(folder)!r}: there is no such folder")
    path = _locate(folder, name)
    if not path.is_file():
        raise ModelError(f"no complete model at {str(folder)!r}: the file {name} is missing")
    try:
        return path.read_bytes()
    except OSError as error:
        raise ModelError(f"{name}: cannot be read in {str(folder)!r} ({error.strerror})") from None


def _is_pending(folder: Path) -> bool:
    return (folder / (DOCUMENT + _NEW)).exists()


def _locate(folder: Path, name: str) -> Path:
    pending = folder / (name + _NEW)
    return pending if _is_pending(folder) and pending.exists() else folder / name


def _complete(folder: Path) -> None:
    """Make the renames of a save that has its document; none are left of one that has not."""
    if not _is_pending(folder):
        return
    _sync_folder(folder)
    for name in NAMES:
        if (folder / (name + _NEW)).exists():
            os.replace(folder / (name + _NEW), folder / name)
    _sync_folder(folder)


def _discard(folder: Path) -> None:
    if not _is_pending(folder):
        for name in NAMES:
            (folder / (name + _UNFINISHED)).unlink(missing_ok=True)
            (folder / (name + _NEW)).unlink(missing_ok=True)


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    if os.name != "posix":  # elsewhere a folder has no descriptor to sync
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _refuse_strangers(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise ModelError(f"cannot save to {str(folder)!r}: it is a file; give a folder")
    document = _locate(folder, DOCUMENT)
    if document.is_file():
        if f'"{FORMAT}"'.encode() not in document.read_bytes():
            raise ModelError(f"cannot save to {str(folder)!r}: its {DOCUMENT} is of another kind; give a new folder")
        return
    there = [name for name in NAMES if (folder / name).exists()]
    if there:
        raise ModelError(
            f"cannot save to {str(folder)!r}: it has {quoted(there)} but no model, and saving would overwrite that; "
            "give a new folder"
        )
