"""What the atoms of a dictionary mean, in words and images: one record per edge."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from hcep.errors import HierarchyError, quoted
from hcep.hierarchy import Hierarchy

Source = Literal["summary", "phrase", "gloss", "exemplars"]
#: Categories of characters that have no place in a phrase, but for the joiners that some scripts need inside words.
_ODD, _JOINERS = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"), "\u200c\u200d"


def odd_character(text: str) -> str | None:
    """The first character that only misleads: a control or formatting one, a line's end, half a pair."""
    return next((c for c in text if unicodedata.category(c) in _ODD and c not in _JOINERS), None)


@dataclass(frozen=True)
class Phrase:
    """A candidate phrase and the cosine of its embedding to the atom, rounded to six decimals."""

    text: str
    score: float


@dataclass(frozen=True)
class Exemplar:
    """An image below the parent and its projection on the atom: 0 at the parent's embedding, 1 at the child's."""

    id: str
    projection: float


@dataclass(frozen=True)
class AtomName:
    """What is known of the meaning of one atom.

    Attributes
    ----------
    parent, child : the synsets whose difference the atom is
    phrases : the nearest of a pool, the nearest first; empty where none were compared, or the atom is zero
    summary : a language model's 3 to 10 words
    exemplars, contrast : images below the parent that lie furthest along the atom, and furthest against it
    gloss : definition of the child
    """

    parent: str
    child: str
    phrases: tuple[Phrase, ...] = ()
    summary: str | None = None
    exemplars: tuple[Exemplar, ...] = ()
    contrast: tuple[Exemplar, ...] = ()
    gloss: str | None = None

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

    def updated(self, newer: AtomName) -> AtomName:
        """This record with what `newer` has in its place; a summary of phrases that changed is dropped."""
        stale = bool(newer.phrases) and newer.phrases != self.phrases
        return replace(
            self,
            phrases=newer.phrases or self.phrases,
            summary=newer.summary or (None if stale else self.summary),
            exemplars=newer.exemplars or self.exemplars,
            contrast=newer.contrast or (() if newer.exemplars else self.contrast),
            gloss=newer.gloss or self.gloss,
        )


@dataclass(frozen=True)
class AtomNames:
    """Names of a dictionary's atoms.

    >>> bear = AtomName("bear", "polar bear", (Phrase("thick white fur", 0.31),), gloss="white bear of Arctic regions")
    >>> names = AtomNames((bear,))
    >>> names.meaning("bear", "polar bear")
    'thick white fur'
    >>> names["bear", "polar bear"].source
    'phrase'

    Attributes
    ----------
    atoms : in the order of the hierarchy's edges; some may be left out
    encoder : whose text space the phrases were compared in
    template : what the phrases were put into before they were embedded, such as ``"a photo of {}"``
    centered : whether the mean of the pool was subtracted
    llm : the language model of the summaries
    """

    atoms: tuple[AtomName, ...]
    encoder: str | None = None
    template: str | None = None
    centered: bool = False
    llm: str | None = None

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

    def updated(self, newer: AtomNames) -> AtomNames:
        """Both, where `newer` has the last word; atoms that it leaves out stay as they are."""
        merged = dict(self.by_edge)
        for edge, atom in newer.by_edge.items():
            merged[edge] = merged[edge].updated(atom) if edge in merged else atom
        compared = any(atom.phrases for atom in newer)
        llm = newer.llm or (None if compared else self.llm)
        return replace(newer if compared else self, atoms=tuple(merged.values()), llm=llm)

    def ordered(self, hierarchy: Hierarchy) -> AtomNames:
        """The records in the order of the hierarchy's edges.

        Raises HierarchyError: when an edge is not the hierarchy's.
        """
        known = set(hierarchy.edges)
        strange = [f"{p} → {c}" for p, c in self.by_edge if (p, c) not in known]
        if strange:
            raise HierarchyError(f"{quoted(strange)}: the hierarchy has no such edge, so there is no such atom")
        return replace(self, atoms=tuple(self.by_edge[edge] for edge in hierarchy.edges if edge in self.by_edge))
