"""What the atoms of a dictionary mean, in words and images: one record an edge."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from hcep.errors import HierarchyError, near_matches, quoted
from hcep.hierarchy import Hierarchy

#: Joiners that some scripts need inside words; all other invisible characters only ever mislead.
_JOINERS = "\u200c\u200d"

Source = Literal["summary", "phrase", "gloss", "exemplars"]


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
    parent, child : str
        The synsets whose difference the atom is.
    phrases : tuple of Phrase
        The nearest of a pool, the nearest first; empty where none were compared, or the atom is zero.
    summary : str or None
        A language model's 3 to 10 words.
    exemplars, contrast : tuple of Exemplar
        Images below the parent that lie furthest along the atom, and furthest against it.
    gloss : str or None
        Definition of the child.
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
        if self.summary:
            return "summary"
        if self.phrases:
            return "phrase"
        if self.gloss:
            return "gloss"
        return "exemplars" if self.exemplars else None

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

    Attributes
    ----------
    atoms : tuple of AtomName
        In the order of the hierarchy's edges; some may be left out.
    encoder : str or None
        Whose text space the phrases were compared in.
    template : str or None
        What the phrases were put into before they were embedded, such as ``"a photo of {}"``.
    centered : bool
        Whether the mean of the pool was subtracted.
    llm : str or None
        The language model of the summaries.

    Examples
    --------
    >>> from hcep.explain.naming import AtomName, AtomNames, Phrase
    >>> bear = AtomName("bear", "polar bear", (Phrase("thick white fur", 0.31),), gloss="white bear of Arctic regions")
    >>> names = AtomNames((bear,))
    >>> names.meaning("bear", "polar bear")
    'thick white fur'
    >>> names["bear", "polar bear"].source
    'phrase'
    """

    atoms: tuple[AtomName, ...]
    encoder: str | None = None
    template: str | None = None
    centered: bool = False
    llm: str | None = None

    def __post_init__(self) -> None:
        found = {(atom.parent, atom.child): atom for atom in self.atoms}
        if len(found) < len(self.atoms):
            raise HierarchyError("atoms must hold each parent and child once; an edge is named twice")
        object.__setattr__(self, "_by_edge", found)

    @property
    def by_edge(self) -> Mapping[tuple[str, str], AtomName]:
        """Records by (parent, child)."""
        found: Mapping[tuple[str, str], AtomName] = self.__dict__["_by_edge"]
        return found

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
        of = newer if compared else self
        return AtomNames(
            tuple(merged.values()), of.encoder, of.template, of.centered, newer.llm or (None if compared else self.llm)
        )

    def ordered(self, hierarchy: Hierarchy) -> AtomNames:
        """The records in the order of the hierarchy's edges.

        Raises
        ------
        HierarchyError
            When an edge is not the hierarchy's.
        """
        known = set(hierarchy.edges)
        strange = [f"{p} → {c}" for p, c in self.by_edge if (p, c) not in known]
        if strange:
            raise HierarchyError(f"{quoted(strange)}: the hierarchy has no such edge, so there is no such atom")
        return replace(self, atoms=tuple(self.by_edge[edge] for edge in hierarchy.edges if edge in self.by_edge))


def with_glosses(names: AtomNames, glosses: Mapping[str, str]) -> AtomNames:
    """The names with the definition of each child that has one in `glosses`."""
    atoms = (replace(atom, gloss=glosses.get(atom.child, atom.gloss)) for atom in names)
    return replace(names, atoms=tuple(atoms))


def chosen_edges(hierarchy: Hierarchy, synsets: Iterable[str] | None = None) -> tuple[tuple[str, str], ...]:
    """Edges whose child is one of `synsets`, given by id or display name; all edges where it is None.

    Raises
    ------
    HierarchyError
        When there is no such synset, or it is the root, which no atom leads to.
    """
    if synsets is None:
        return hierarchy.edges
    by_name: dict[str, list[str]] = {}
    for synset in hierarchy.ids:
        by_name.setdefault(hierarchy.name(synset).casefold(), []).append(synset)
    wanted: set[str] = set()
    for name in synsets:
        found = [name] if name in hierarchy else by_name.get(name.casefold(), [])
        if not found:
            known = [*hierarchy.ids, *map(hierarchy.name, hierarchy.ids)]
            raise HierarchyError(f"no synset {name!r} in the hierarchy.{near_matches(name, known)}")
        if found == [hierarchy.root]:
            raise HierarchyError(f"{name!r} is the root: no atom leads to it; name one of the synsets below")
        wanted.update(found)
    return tuple(edge for edge in hierarchy.edges if edge[1] in wanted)


def odd_character(text: str) -> str | None:
    """The first character that has no place in a phrase: a control or formatting one, a line's end, half a pair."""
    odd = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
    return next((c for c in text if unicodedata.category(c) in odd and c not in _JOINERS), None)
