"""``atoms.json``: names of a model's atoms, kept with the model and sealed like its other files."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from os import PathLike
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from hcep import _json
from hcep._json import Finite, shown
from hcep.errors import HierarchyError
from hcep.hierarchy import Hierarchy
from hcep.models.atom_names import AtomNames, odd_character
from hcep.models.folder import update_folder
from hcep.models.loading import read_model
from hcep.models.schema import ATOMS, ATOMS_FORMAT, DOCUMENT, ModelError, file_record, json_object, seal

VERSION = 1
#: Longest phrase, summary or gloss that is taken from a file, in characters.
MAX_TEXT = 4000


def save_atom_names(names: AtomNames, folder: str | PathLike[str]) -> Path:
    """Keep names of atoms with a saved model; names that are there already are replaced.

    Raises ModelError: when there is no model, a name is of an edge it does not have, or a text has control characters.

    >>> import tempfile
    >>> from hcep import HCEPClassifier
    >>> from hcep.datasets import make_hierarchical_concepts
    >>> from hcep.explain.naming import AtomName, AtomNames
    >>> from hcep.models import load_atom_names, save_atom_names, save_model
    >>> data = make_hierarchical_concepts(branching=3, depth=2, dim=10, noise=1e-3)
    >>> model = HCEPClassifier(data.hierarchy).fit(data.X, data.y)
    >>> parent, child = model.hierarchy_.edges[0]
    >>> names = AtomNames((AtomName(parent, child, summary="long curved neck"),))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = save_atom_names(names, save_model(model, folder))
    ...     load_atom_names(folder).meaning(parent, child)
    'long curved neck'

    Parameters
    ----------
    names : of atoms of this model; some may be left out
    folder : a model that `save_model` wrote. Only ``atoms.json`` and the document that seals it are written, in one
        step: a process that dies leaves the old names or the new ones
    """
    model = read_model(folder)
    update_folder(model.folder, sealed_names(model.file(DOCUMENT), dump_names(names, model.hierarchy)))
    return model.folder


def sealed_names(text: bytes, names: bytes) -> dict[str, bytes]:
    """The files of names of atoms and of a document, given as its text, that seals them."""
    document = json.loads(text)
    document["files"][ATOMS] = msgspec.to_builtins(file_record(names))
    return {ATOMS: names, DOCUMENT: seal(document)}


def load_atom_names(folder: str | PathLike[str]) -> AtomNames | None:
    """Read the names of a saved model's atoms; None where it has none.

    Raises ModelError: as `load_model`, for these files; names of edges that the model does not have.
    """
    return read_model(folder).atom_names


def dump_names(names: AtomNames, hierarchy: Hierarchy) -> bytes:
    """The content of ``atoms.json``, checked by reading it again."""
    document: dict[str, Any] = {"format": ATOMS_FORMAT, "version": VERSION, **asdict(replace(names, atoms=()))}
    try:
        document["atoms"] = [asdict(atom) for atom in names.ordered(hierarchy)]
        data = (json.dumps(document, ensure_ascii=False, indent=1) + "\n").encode("utf-8")
        parse_names(data, hierarchy)
    except (ModelError, HierarchyError, TypeError, UnicodeEncodeError) as error:
        raise ModelError(f"these names cannot be saved: {error}") from None
    return data


def parse_names(data: bytes, hierarchy: Hierarchy) -> AtomNames:
    """Read ``atoms.json`` and check every field.

    Raises ModelError: text that is not JSON, another format or version, a field that is unknown, missing or of a wrong
    type or range, a text with control characters, an edge that the hierarchy does not have.
    """
    document = json_object(ATOMS, data)
    found = _json.convert(document, _File, ATOMS, ModelError)
    if found.format != ATOMS_FORMAT:
        raise ModelError(f'{ATOMS}: format must be "{ATOMS_FORMAT}", got {shown(found.format)}')
    if found.version != VERSION:
        raise ModelError(f"{ATOMS}: version must be {VERSION}, which this release of hcep reads, got {found.version}")
    try:
        return msgspec.convert(document, AtomNames).ordered(hierarchy)
    except (HierarchyError, msgspec.ValidationError) as error:
        raise ModelError(f"{ATOMS}: {error}") from None


# -- what is in it -------------------------------------------------------------------------------------

_Words = Annotated[str, Meta(min_length=1, max_length=MAX_TEXT, description=f"a text of 1 to {MAX_TEXT:,} characters")]


class _Record(Struct, forbid_unknown_fields=True):
    """An object whose texts people are shown: nothing in them that a terminal obeys."""

    def __post_init__(self) -> None:
        for name in ("text", "summary", "gloss", "encoder", "template", "llm"):
            text = getattr(self, name, None)
            if text is not None and odd_character(text) is not None:
                raise ValueError(f"{name} must be a text without control characters, got {shown(text)}")


class _Phrase(_Record):
    text: _Words
    score: Annotated[float, Meta(ge=-1, le=1, description="a finite number of at least -1 and at most 1")]


class _Exemplar(_Record):
    id: str
    projection: Finite


class _Atom(_Record):
    parent: str
    child: str
    phrases: list[_Phrase]
    summary: _Words | None
    exemplars: list[_Exemplar]
    contrast: list[_Exemplar]
    gloss: _Words | None


class _File(_Record):
    format: str
    version: int
    atoms: list[_Atom]
    encoder: _Words | None
    template: _Words | None
    centered: bool
    llm: _Words | None
