"""``atoms.json``: names of a model's atoms, kept with the model and sealed like its other files."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

from hcep.errors import HierarchyError
from hcep.explain.naming import AtomName, AtomNames, Exemplar, Phrase
from hcep.explain.naming.atom_names import odd_character
from hcep.hierarchy import Hierarchy
from hcep.models.fields import Fields, ModelError
from hcep.models.folder import read_file, update_folder
from hcep.models.loading import check_content, parse_hierarchy
from hcep.models.schema import (
    ATOMS,
    ATOMS_FORMAT,
    DOCUMENT,
    HIERARCHY,
    file_record,
    json_object,
    parse_document,
    seal,
)

VERSION = 1
#: Longest phrase, summary or gloss that is taken from a file, in characters.
MAX_TEXT = 4000

Item = TypeVar("Item")


def save_atom_names(names: AtomNames, folder: str | PathLike[str]) -> Path:
    """Keep names of atoms with a saved model; names that are there already are replaced.

    Parameters
    ----------
    names : AtomNames
        Of atoms of this model; some may be left out.
    folder : path
        A model that `save_model` wrote. Only ``atoms.json`` and the document that seals it are written, in one step:
        a process that dies leaves the old names or the new ones.

    Raises
    ------
    ModelError
        When there is no model, a name is of an edge it does not have, or a text has control characters.

    Examples
    --------
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
    """
    place = Path(folder)
    document = read_file(place, DOCUMENT)
    parse_document(document)
    hierarchy = _sealed_hierarchy(place)
    data = dump_names(names, hierarchy)
    parsed = json.loads(document)
    parsed["files"][ATOMS] = asdict(file_record(data))
    update_folder(place, {ATOMS: data, DOCUMENT: seal(parsed)})
    return place


def load_atom_names(folder: str | PathLike[str]) -> AtomNames | None:
    """Read the names of a saved model's atoms; None where it has none.

    Raises
    ------
    ModelError
        As `load_model`, for these files; names of edges that the model does not have.
    """
    place = Path(folder)
    record = parse_document(read_file(place, DOCUMENT)).files.get(ATOMS)
    if record is None:
        return None
    data = read_file(place, ATOMS)
    check_content(ATOMS, file_record(data), record)
    return parse_names(data, _sealed_hierarchy(place))


def _sealed_hierarchy(folder: Path) -> Hierarchy:
    data = read_file(folder, HIERARCHY)
    check_content(HIERARCHY, file_record(data), parse_document(read_file(folder, DOCUMENT)).files[HIERARCHY])
    return parse_hierarchy(data)


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

    Raises
    ------
    ModelError
        Text that is not JSON, another format or version, a field that is unknown, missing or of a wrong type or range,
        a text with control characters, an edge that the hierarchy does not have.
    """
    document = json_object(ATOMS, data)
    fields = Fields(ATOMS, "", document, ("format", "version", "atoms", "encoder", "template", "centered", "llm"))
    if fields.text("format") != ATOMS_FORMAT:
        fields.fail("format", f'"{ATOMS_FORMAT}"')
    if fields.integer("version") != VERSION:
        fields.fail("version", f"{VERSION}, which this release of hcep reads")
    atoms = _list(fields, "atoms", _atom)
    try:
        names = AtomNames(
            atoms,
            encoder=_words_or_none(fields, "encoder"),
            template=_words_or_none(fields, "template"),
            centered=fields.boolean("centered"),
            llm=_words_or_none(fields, "llm"),
        )
        return names.ordered(hierarchy)
    except HierarchyError as error:
        raise ModelError(f"{ATOMS}: {error}") from None


def _atom(path: str, value: object) -> AtomName:
    fields = Fields(ATOMS, path, value, ("parent", "child", "phrases", "summary", "exemplars", "contrast", "gloss"))
    return AtomName(
        parent=fields.text("parent"),
        child=fields.text("child"),
        phrases=_list(fields, "phrases", _phrase),
        summary=_words_or_none(fields, "summary"),
        exemplars=_list(fields, "exemplars", _exemplar),
        contrast=_list(fields, "contrast", _exemplar),
        gloss=_words_or_none(fields, "gloss"),
    )


def _phrase(path: str, value: object) -> Phrase:
    fields = Fields(ATOMS, path, value, ("text", "score"))
    return Phrase(_words(fields, "text"), float(fields.number("score", -1.0, 1.0)))


def _exemplar(path: str, value: object) -> Exemplar:
    fields = Fields(ATOMS, path, value, ("id", "projection"))
    return Exemplar(fields.text("id"), float(fields.number("projection", -float("inf"))))


def _list(fields: Fields, key: str, read: Callable[[str, object], Item]) -> tuple[Item, ...]:
    rows = fields.values[key]
    if not isinstance(rows, list):
        fields.fail(key, "a list")
    at = f"{fields.path}.{key}" if fields.path else key
    return tuple(read(f"{at}[{i}]", row) for i, row in enumerate(rows))


def _words(fields: Fields, key: str) -> str:
    """A text that people are shown: not empty, not endless, nothing in it that a terminal obeys."""
    text = fields.text(key)
    if not 0 < len(text) <= MAX_TEXT:
        fields.fail(key, f"a text of 1 to {MAX_TEXT:,} characters")
    if odd_character(text) is not None:
        fields.fail(key, "a text without control characters")
    return text


def _words_or_none(fields: Fields, key: str) -> str | None:
    return None if fields.is_null(key) else _words(fields, key)
