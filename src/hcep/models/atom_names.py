"""What the atoms of a dictionary mean, in words and images: one record per edge; ``atoms.json`` keeps them."""

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

from hcep._checks import Finite, convert_record, short_repr
from hcep.errors import HierarchyError, quoted
from hcep.hierarchy import Hierarchy
from hcep.models.folder import update_folder
from hcep.models.loading import read_model
from hcep.models.schema import ATOMS, ATOMS_FORMAT, DOCUMENT, ModelError, file_record, json_object, seal

VERSION = 1
#: Longest phrase, summary or gloss that is taken from a file, in characters.
MAX_TEXT = 4000
Source = Literal["summary", "phrase", "gloss", "exemplars"]
#: Categories of characters that have no place in a phrase, but for the joiners that some scripts need inside words.
_ODD, _JOINERS = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"), "\u200c\u200d"
_Words = Annotated[str, Meta(min_length=1, max_length=MAX_TEXT, description=f"a text of 1 to {MAX_TEXT:,} characters")]


def odd_character(text: str) -> str | None:
    """The first character that only misleads: a control or formatting one, a line's end, half a pair."""
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
    """What is known of the meaning of one atom."""

    #: parent, child: the synsets whose difference the atom is
    parent: str
    child: str
    #: the nearest of a pool, the nearest first; empty where none were compared, or the atom is zero
    phrases: tuple[Phrase, ...] = ()
    summary: _Words | None = None  # a language model's 3 to 10 words
    #: exemplars, contrast: images below the parent that lie furthest along the atom, and furthest against it
    exemplars: tuple[Exemplar, ...] = ()
    contrast: tuple[Exemplar, ...] = ()
    gloss: _Words | None = None  # definition of the child

    @property
    def meaning(self) -> str | None:
        """The best words there are: the summary, else the nearest phrase, else the gloss."""
        return self.summary or (self.phrases[0].text if self.phrases else None) or self.gloss

    @property
    def source(self) -> Source | None:
        """What `meaning` is; "exemplars" where there are only images, None where there is nothing."""
        known: dict[Source, object] = {
            "summary": self.summary, "phrase": self.phrases, "gloss": self.gloss, "exemplars": self.exemplars
        }  # fmt: skip
        return next((source for source, found in known.items() if found), None)

    def updated(self, newer: Self) -> Self:
        """This record with what `newer` has in its place; a summary of phrases that changed is dropped."""
        stale = bool(newer.phrases) and newer.phrases != self.phrases
        known: dict[str, Any] = {n: getattr(newer, n) or getattr(self, n) for n in ("phrases", "exemplars", "gloss")}
        known["summary"] = newer.summary or (None if stale else self.summary)
        return replace(self, **known, contrast=newer.contrast or (() if newer.exemplars else self.contrast))


@dataclass(frozen=True)
class AtomNames:
    """Names of a dictionary's atoms."""

    atoms: tuple[AtomName, ...]  # in the order of the hierarchy's edges; some may be left out
    encoder: _Words | None = None  # whose text space the phrases were compared in
    template: _Words | None = None  # what the phrases were put into before they were embedded: "a photo of {}"
    centered: bool = False  # whether the mean of the pool was subtracted
    llm: _Words | None = None  # the language model of the summaries

    def __post_init__(self) -> None:
        if len(self.by_edge) < len(self.atoms):
            raise HierarchyError("atoms must hold each parent and child once; an edge is named twice")

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
        """The words for an atom; None where there are none."""
        atom = self.by_edge.get((parent, child))
        return None if atom is None else atom.meaning

    def updated(self, newer: Self) -> Self:
        """Both, where `newer` has the last word; atoms that it leaves out stay as they are."""
        merged = dict(self.by_edge)
        for edge, atom in newer.by_edge.items():
            merged[edge] = merged[edge].updated(atom) if edge in merged else atom
        compared = any(atom.phrases for atom in newer)
        llm = newer.llm or (None if compared else self.llm)
        return replace(newer if compared else self, atoms=tuple(merged.values()), llm=llm)

    def ordered(self, hierarchy: Hierarchy) -> Self:
        """The records in the order of the hierarchy's edges."""
        known = set(hierarchy.edges)
        strange = [f"{p} → {c}" for p, c in self.by_edge if (p, c) not in known]
        if strange:
            raise HierarchyError(f"{quoted(strange)}: the hierarchy has no such edge, so there is no such atom")
        return replace(self, atoms=tuple(self.by_edge[edge] for edge in hierarchy.edges if edge in self.by_edge))


def save_atom_names(names: AtomNames, folder: str | PathLike[str]) -> Path:
    """Keep names of atoms with a saved model, in one step; names that are there already are replaced.

    Only ``atoms.json`` and the document that seals it are written. Raises ModelError: when there is no model, a name is
    of an edge it does not have, or a text has control characters.
    """
    model = read_model(folder)
    update_folder(model.folder, sealed_names(model.file(DOCUMENT), dump_names(names, model.hierarchy)))
    return model.folder


def sealed_names(text: bytes, names: bytes) -> dict[str, bytes]:
    """The files of names of atoms and of a document, given as its text, that seals them."""
    document = json.loads(text)
    document["files"][ATOMS] = msgspec.to_builtins(file_record(names))
    return {ATOMS: names, DOCUMENT: seal(document)}


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
    """Read ``atoms.json`` and check every field, and that the hierarchy has its edges."""
    document = json_object(ATOMS, data)
    convert_record(document, _File, ATOMS, ModelError)
    form, version = document["format"], document["version"]
    if form != ATOMS_FORMAT:
        raise ModelError(f'{ATOMS}: format must be "{ATOMS_FORMAT}", got {short_repr(form)}')
    if version != VERSION:
        raise ModelError(f"{ATOMS}: version must be {VERSION}, which this release of hcep reads, got {version}")
    try:
        return msgspec.convert(document, AtomNames).ordered(hierarchy)
    except (HierarchyError, msgspec.ValidationError) as error:
        raise ModelError(f"{ATOMS}: {error}") from None


class _Record(Struct, forbid_unknown_fields=True):
    """An object whose texts people are shown: nothing in them that a terminal obeys."""

    def __post_init__(self) -> None:
        for name in ("text", "summary", "gloss", "encoder", "template", "llm"):
            text = getattr(self, name, None)
            if text is not None and odd_character(text) is not None:
                raise ValueError(f"{name} must be a text without control characters, got {short_repr(text)}")


def _record(kind: Any, more: Mapping[str, Any] = {}, **lists: Any) -> Any:
    """What a file holds for a dataclass: every field, also those with a default, and no others but `more`."""
    types = {field.name: field.type for field in fields(kind)} | dict(more)
    types |= {name: GenericAlias(list, (inner,)) for name, inner in lists.items()}
    return msgspec.defstruct(kind.__name__, list(types.items()), bases=(_Record,))


_Image = _record(Exemplar)
_Atom = _record(AtomName, phrases=_record(Phrase), exemplars=_Image, contrast=_Image)
_File = _record(AtomNames, {"format": str, "version": int}, atoms=_Atom)
