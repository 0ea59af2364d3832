"""What the atoms of a dictionary mean, in words and images: one record per edge, saved in ``atoms.json``."""

import json
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from types import GenericAlias
from typing import Annotated, Any, Literal, Self

import msgspec
from msgspec import Meta, Struct

from hcep._checks import Finite, convert_record
from hcep.errors import HierarchyError, quote, quoted
from hcep.hierarchy import Hierarchy
from hcep.models.folder import update_folder
from hcep.models.loading import read_model
from hcep.models.schema import ATOMS, ATOMS_FORMAT, DOCUMENT, ModelError, file_record, json_object, seal

VERSION = 1
#: Most characters of a phrase, summary or gloss in a file.
MAX_TEXT = 4000
Source = Literal["summary", "phrase", "gloss", "exemplars"]
#: Categories of characters that may not be in a phrase, and the joiners that some scripts need inside words.
_ODD, _JOINERS = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"), "\u200c\u200d"
_Words = Annotated[str, Meta(min_length=1, max_length=MAX_TEXT, description=f"a text of 1 to {MAX_TEXT:,} characters")]


def odd_character(text: str) -> str | None:
    """The first control or formatting character, line break or lone surrogate in a text."""
    return next((c for c in text if unicodedata.category(c) in _ODD and c not in _JOINERS), None)


@dataclass(frozen=True)
class Phrase:
    """A candidate phrase and the cosine of its embedding to the atom, rounded to six decimals."""

    text: _Words
    score: Annotated[float, Meta(ge=-1, le=1, description="a finite number of at least -1 and at most 1")]


@dataclass(frozen=True)
class Exemplar:
    """An image below the parent and its projection on the atom: 0 at the parent's embedding, 1 at the child's."""

    id: str
    projection: Finite


@dataclass(frozen=True)
class AtomName:
    """The meaning of one atom, as far as it is known."""

    #: The synsets whose difference the atom is.
    parent: str
    child: str
    #: Nearest phrases of a pool, the nearest first; empty if none were compared or the atom is zero.
    phrases: tuple[Phrase, ...] = ()
    summary: _Words | None = None  # 3 to 10 words by a language model
    #: Images below the parent that lie furthest along the atom, and furthest against it.
    exemplars: tuple[Exemplar, ...] = ()
    contrast: tuple[Exemplar, ...] = ()
    gloss: _Words | None = None  # the child's definition

    @property
    def meaning(self) -> str | None:
        """The summary, otherwise the nearest phrase, otherwise the gloss."""
        return self.summary or (self.phrases[0].text if self.phrases else None) or self.gloss

    @property
    def source(self) -> Source | None:
        """The kind of `meaning`; "exemplars" if there are only images, None if there is nothing."""
        known: dict[Source, object] = {
            "summary": self.summary, "phrase": self.phrases, "gloss": self.gloss, "exemplars": self.exemplars
        }  # fmt: skip
        return next((source for source, value in known.items() if value), None)

    def updated(self, newer: Self) -> Self:
        """This record, updated with the values of `newer`; a summary of phrases that have changed is dropped."""
        stale = bool(newer.phrases) and newer.phrases != self.phrases
        known: dict[str, Any] = {n: getattr(newer, n) or getattr(self, n) for n in ("phrases", "exemplars", "gloss")}
        known["summary"] = newer.summary or (None if stale else self.summary)
        return replace(self, **known, contrast=newer.contrast or (() if newer.exemplars else self.contrast))


@dataclass(frozen=True)
class AtomNames:
    """Names of a dictionary's atoms."""

    atoms: tuple[AtomName, ...]  # in the order of the hierarchy's edges; some may be missing
    encoder: _Words | None = None  # encoder of the phrases
    template: _Words | None = None  # text around each phrase, such as "a photo of {}"
    centered: bool = False  # whether the mean of the pool was subtracted
    llm: _Words | None = None  # language model of the summaries

    def __post_init__(self) -> None:
        if len(self.by_edge) < len(self.atoms):
            raise HierarchyError("atoms must list each pair of parent and child once; an edge occurs twice")

    @cached_property
    def by_edge(self) -> Mapping[tuple[str, str], AtomName]:
        """Records by (parent, child)."""
        return {(atom.parent, atom.child): atom for atom in self.atoms}

    def __len__(self) -> int:
        return len(self.atoms)

    def __iter__(self) -> Iterator[AtomName]:
        return iter(self.atoms)

    def __getitem__(self, edge: tuple[str, str]) -> AtomName:
        return self.by_edge[edge]

    def meaning(self, parent: str, child: str) -> str | None:
        """The words for an atom, or None."""
        atom = self.by_edge.get((parent, child))
        return None if atom is None else atom.meaning

    def updated(self, newer: Self) -> Self:
        """These names, updated with those of `newer`; atoms that it does not have stay as they are."""
        merged = dict(self.by_edge)
        for edge, atom in newer.by_edge.items():
            merged[edge] = merged[edge].updated(atom) if edge in merged else atom
        compared = any(atom.phrases for atom in newer)
        llm = newer.llm or (None if compared else self.llm)
        return replace(newer if compared else self, atoms=tuple(merged.values()), llm=llm)

    def ordered(self, hierarchy: Hierarchy) -> Self:
        """The records in the order of the hierarchy's edges."""
        known = set(hierarchy.edges)
        unknown = [f"{p} → {c}" for p, c in self.by_edge if (p, c) not in known]
        if unknown:
            raise HierarchyError(f"{quoted(unknown)}: the hierarchy has no such edge, so there is no such atom")
        return replace(self, atoms=tuple(self.by_edge[edge] for edge in hierarchy.edges if edge in self.by_edge))


def save_atom_names(names: AtomNames, folder: str | PathLike[str]) -> Path:
    """Save names of atoms with a saved model, in one step; names that it already has are replaced.

    Only ``atoms.json`` and the document with its checksum are written. ModelError is raised if there is no model, if a
    name belongs to an edge that it does not have, or if a text has control characters.
    """
    model = read_model(folder)
    update_folder(model.folder, sealed_names(model.file(DOCUMENT), dump_names(names, model.hierarchy)))
    return model.folder


def sealed_names(text: bytes, names: bytes) -> dict[str, bytes]:
    """The files of the names and of the document, with their checksum added to the document's text."""
    document = json.loads(text)
    document["files"][ATOMS] = msgspec.to_builtins(file_record(names))
    return {ATOMS: names, DOCUMENT: seal(document)}


def dump_names(names: AtomNames, hierarchy: Hierarchy) -> bytes:
    """The content of ``atoms.json``, checked by reading it back."""
    document: dict[str, Any] = {"format": ATOMS_FORMAT, "version": VERSION, **asdict(replace(names, atoms=()))}
    try:
        document["atoms"] = [asdict(atom) for atom in names.ordered(hierarchy)]
        data = (json.dumps(document, ensure_ascii=False, indent=1) + "\n").encode("utf-8")
        parse_names(data, hierarchy)
    except (ModelError, HierarchyError, TypeError, UnicodeEncodeError) as error:
        raise ModelError(f"these names cannot be saved: {error}") from None
    return data


def parse_names(data: bytes, hierarchy: Hierarchy) -> AtomNames:
    """Read ``atoms.json``; check every field, and that the hierarchy has its edges."""
    document = json_object(ATOMS, data)
    convert_record(document, _File, ATOMS, ModelError)
    form, version = document["format"], document["version"]
    if form != ATOMS_FORMAT:
        raise ModelError(f'{ATOMS}: format must be "{ATOMS_FORMAT}", got {quote(form)}')
    if version != VERSION:
        raise ModelError(f"{ATOMS}: this release of hcep reads version {VERSION}, got {version}")
    try:
        return msgspec.convert(document, AtomNames).ordered(hierarchy)
    except (HierarchyError, msgspec.ValidationError) as error:
        raise ModelError(f"{ATOMS}: {error}") from None


class _NamesRecord(Struct, forbid_unknown_fields=True):
    """An object with texts that are shown to people, so that they may not contain control characters."""

    def __post_init__(self) -> None:
        for name in ("text", "summary", "gloss", "encoder", "template", "llm"):
            text = getattr(self, name, None)
            if text is not None and odd_character(text) is not None:
                raise ValueError(f"{name} must be a text without control characters, got {quote(text)}")


def _record(kind: Any, more: Mapping[str, Any] = {}, **lists: Any) -> Any:
    """The record of a dataclass in a file: every field, even those with a default, and `more`, but no others."""
    types = {field.name: field.type for field in fields(kind)} | dict(more)
    types |= {name: GenericAlias(list, (inner,)) for name, inner in lists.items()}
    return msgspec.defstruct(kind.__name__, list(types.items()), bases=(_NamesRecord,))


_Image = _record(Exemplar)
_Atom = _record(AtomName, phrases=_record(Phrase), exemplars=_Image, contrast=_Image)
_File = _record(AtomNames, {"format": str, "version": int}, atoms=_Atom)
