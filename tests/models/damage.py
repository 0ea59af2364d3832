"""Ways to damage a saved model, with and without making its checksums fit again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import safetensors.numpy

from hcep.models import ModelError, read_model
from hcep.models.atom_names import parse_names
from hcep.models.loading import SavedModel, load_model, parse_hierarchy
from hcep.models.saving import pack
from hcep.models.schema import HIERARCHY, OPTIONAL, SEALED, file_record, seal


def read_files(folder: Path) -> dict[str, bytes]:
    names = ("model.json", "hierarchy.json", "model.safetensors", "atoms.json")
    return {name: (folder / name).read_bytes() for name in names if (folder / name).exists()}


def resealed(
    files: dict[str, bytes], edit: Callable[[dict[str, Any]], Any] = lambda document: None
) -> dict[str, bytes]:
    """The files with their records and checksum made to fit, after an edit of the document."""
    document = json.loads(files["model.json"])
    document["files"] = {
        name: msgspec.to_builtins(file_record(files[name])) for name in (*SEALED, *OPTIONAL) if name in files
    }
    edit(document)
    return {**files, "model.json": seal(document)}


def edit_document(folder: Path, edit: Callable[[dict[str, Any]], Any]) -> Path:
    (folder / "model.json").write_bytes(resealed(read_files(folder), edit)["model.json"])
    return folder


def edit_arrays(folder: Path, edit: Callable[[dict[str, np.ndarray]], Any]) -> Path:
    arrays = safetensors.numpy.load((folder / "model.safetensors").read_bytes())
    edit(arrays)
    (folder / "model.safetensors").write_bytes(safetensors.numpy.save(arrays))
    return edit_document(folder, lambda document: None)


def edit_hierarchy(folder: Path, edit: Callable[[str], str]) -> Path:
    text = edit((folder / "hierarchy.json").read_text(encoding="utf-8"))
    (folder / "hierarchy.json").write_text(text, encoding="utf-8")
    return edit_document(folder, lambda document: None)


def put(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """An edit: set the field at a dotted path."""

    def edit(document: dict[str, Any]) -> None:
        *above, last = path.split("/")
        for key in above:
            document = document[key]
        document[last] = value

    return edit


def drop(path: str) -> Callable[[dict[str, Any]], None]:
    """An edit: remove the field at a dotted path."""

    def edit(document: dict[str, Any]) -> None:
        *above, last = path.split("/")
        for key in above:
            document = document[key]
        del document[last]

    return edit


def repacked_or_none(folder: Path) -> dict[str, bytes] | None:
    """What a folder loads to, as a model packs itself; None where the loader refuses it."""
    try:
        return pack(load_model(folder))
    except ModelError:
        return None


def is_refused(files: dict[str, bytes]) -> bool:
    """Whether the loader refuses the files; any exception but its own comes through."""
    try:
        _ = SavedModel(".", files).classifier
    except ModelError:
        return True
    return False


def names_or_none(folder: Path) -> object:
    """The names of atoms that a folder holds; False where the loader refuses them."""
    try:
        return read_model(folder).atom_names
    except ModelError:
        return False


def names_are_refused(files: dict[str, bytes], data: bytes) -> bool:
    """Whether names in these bytes are refused; any exception but the loader's own comes through."""
    try:
        parse_names(data, parse_hierarchy(files[HIERARCHY]))
    except ModelError:
        return True
    return False


def flipped(data: bytes, rng: np.random.Generator) -> bytes:
    """One to four bits of the data flipped."""
    damaged = bytearray(data)
    for place in rng.integers(len(data), size=rng.integers(1, 5)):
        damaged[place] ^= 1 << int(rng.integers(8))
    return bytes(damaged)


def truncated(data: bytes, rng: np.random.Generator) -> bytes:
    return data[: int(rng.integers(len(data)))]


def spliced(data: bytes, rng: np.random.Generator) -> bytes:
    """A stretch of the data replaced by another one, of another length."""
    a, b, c, d = np.sort(rng.integers(len(data), size=4))
    return data[:a] + data[c:d] + data[b:]
