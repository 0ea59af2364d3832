"""WordNet's own database files: synsets, senses and glosses, and the hierarchy above any of them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from hcep.errors import HierarchyError, near_matches, quoted
from hcep.hierarchy.edges import VIRTUAL_ROOT, reach
from hcep.hierarchy.graph import Hierarchy
from hcep.hierarchy.wordnet_files import Entry, find, tables

Pos = Literal["noun", "verb"]

SYNSET_NAME = re.compile(r"(?P<lemma>.+)\.(?P<letter>[nvasr])\.(?P<number>\d{1,3})")
MAX_LISTED = 3


@dataclass(frozen=True)
class Sense:
    """One meaning of a word.

    Attributes
    ----------
    name : lemma, part of speech and number of the sense, such as ``"cat.n.01"``; 1 is the most frequent
    id : WordNet id, such as ``"n02121620"``
    gloss : WordNet's definition, without examples
    """

    name: str
    id: str
    gloss: str


class WordNet:
    """A WordNet database, for nouns or verbs.

    Parsed once: the result is kept in the user's cache folder (``$XDG_CACHE_HOME/hcep``, or ``HCEP_CACHE``). Raises
    HierarchyError: no database there, or files that are not WordNet's.

    Parameters
    ----------
    database : folder with WordNet's ``data.noun`` and ``index.noun``. When left out: ``$WNSEARCHDIR``,
        ``$WNHOME/dict``, the places where Debian, Princeton's archive and NLTK put it.
    pos : {"noun", "verb"}

    Examples
    --------
    .. code-block:: python

        wordnet = WordNet()
        wordnet.senses("crane")       # the bird, the machine, Stephen, Hart, ...
        wordnet.gloss("cat.n.01")     # 'feline mammal usually having thick soft fur ...'
        wordnet.hypernyms("n02121620")
    """

    def __init__(self, database: str | os.PathLike[str] | None = None, *, pos: Pos = "noun") -> None:
        if pos not in get_args(Pos):
            raise HierarchyError(f"pos must be 'noun' or 'verb', which have hypernyms; got {pos!r}")
        self.pos = pos
        self._letter = pos[0]
        self.folder: Path = find(database, pos)
        self._tables = tables(self.folder, pos)

    @property
    def version(self) -> str:
        """Version of the database as its licence tells it, such as ``"3.0"``; ImageNet's ids are of 3.0."""
        return self._tables.version

    def __len__(self) -> int:
        return len(self._tables.synsets)

    def __contains__(self, synset: object) -> bool:
        return isinstance(synset, str) and self._is_id(synset) and int(synset[1:]) in self._tables.synsets

    def __repr__(self) -> str:
        return f"WordNet({str(self.folder)!r}, pos={self.pos!r}, version {self.version}, {len(self):,} synsets)"

    def senses(self, word: str) -> tuple[Sense, ...]:
        """The meanings of a word, the most frequent first; case and the way words are joined do not matter.

        Raises HierarchyError: a word that WordNet does not have; near matches are listed.
        """
        lemma = self._lemma(word)
        if lemma is None:
            close = near_matches(_joined(word), self._near(word))
            raise HierarchyError(f"{word!r} is not in WordNet {self.version} as a {self.pos}.{close}")
        return tuple(
            Sense(f"{lemma}.{self._letter}.{i:02d}", self._id(offset), self.definition(self._id(offset)))
            for i, offset in enumerate(self._tables.senses[lemma], 1)
        )

    def id(self, synset: str, *, on_ambiguous: Literal["raise", "first"] = "raise") -> str:
        """The WordNet id of an id, a synset name or a word.

        Raises HierarchyError: unknown, of another version, or a word of several senses (they are listed) unless
        `on_ambiguous` is "first".
        """
        if on_ambiguous not in ("raise", "first"):
            raise HierarchyError(f"on_ambiguous must be 'raise' or 'first', got {on_ambiguous!r}")
        if not isinstance(synset, str) or not synset.strip():
            raise HierarchyError(f"expected a WordNet id, a synset name or a word, got {synset!r}")
        if self._is_id(synset):
            return self._checked(synset)
        name = SYNSET_NAME.fullmatch(synset.strip())
        if name:
            return self._numbered(synset, name)
        senses = self.senses(synset)
        if len(senses) > 1 and on_ambiguous == "raise":
            listed = "; ".join(f"{s.name} ({s.id}): {s.gloss}" for s in senses)
            raise HierarchyError(
                f"{synset!r} has {len(senses)} senses; ask for one by its name or id, or pass on_ambiguous='first' "
                f"(--first-sense on the command line) for the most frequent: {listed}"
            )
        return senses[0].id

    def name(self, synset: str) -> str:
        """First lemma of a synset, its words apart by blanks."""
        return self.lemmas(synset)[0]

    def lemmas(self, synset: str) -> tuple[str, ...]:
        """Every word of a synset, words apart by blanks."""
        return tuple(lemma.replace("_", " ") for lemma in self._entry(synset).lemmas)

    def gloss(self, synset: str) -> str:
        """What WordNet says of a synset: its definition and, after it, examples in quotes."""
        return self._entry(synset).gloss

    def definition(self, synset: str) -> str:
        """The gloss without the examples."""
        return self.gloss(synset).split('; "')[0]

    def hypernyms(self, synset: str) -> tuple[str, ...]:
        """Ids of the synsets above, those an instance belongs to (``@i``) among them, in WordNet's order."""
        return tuple(map(self._id, self._entry(synset).hypernyms))

    def closure(self, synsets: Iterable[str]) -> tuple[str, ...]:
        """Ids of the given synsets and of all above them, sorted."""
        given = {int(self.id(synset)[1:]) for synset in synsets}
        return tuple(map(self._id, sorted(given | reach(given, self._above))))

    def hierarchy(
        self, ids_or_words: Iterable[str] | None = None, *, on_ambiguous: Literal["raise", "first"] = "raise"
    ) -> Hierarchy:
        """The hierarchy above some synsets, or all of WordNet; see `Hierarchy.from_wordnet`."""
        if ids_or_words is None:
            return self._hierarchy(self._tables.synsets)
        if isinstance(ids_or_words, str):
            raise HierarchyError(f"ids_or_words must be several ids or words, got the string {ids_or_words!r}")
        wanted = self._ids(ids_or_words, on_ambiguous)
        return self._hierarchy(int(synset[1:]) for synset in self.closure(wanted)).with_classes(wanted)

    # -- private -----------------------------------------------------------------------------------

    def _ids(self, asked: Iterable[str], on_ambiguous: Literal["raise", "first"]) -> list[str]:
        """The id of each; what is wrong with several of them is told at once."""
        found: dict[str, None] = {}
        wrong: list[str] = []
        for one in asked:
            try:
                found[self.id(one, on_ambiguous=on_ambiguous)] = None
            except HierarchyError as error:
                wrong.append(str(error))
        if wrong:
            more = f"\n... and {len(wrong) - MAX_LISTED:,} more" if len(wrong) > MAX_LISTED else ""
            raise HierarchyError("\n".join(wrong[:MAX_LISTED]) + more)
        if not found:
            raise HierarchyError(
                "ids_or_words is empty (on the command line: no word, and none in the files given); give WordNet ids "
                "or words, or leave it out for all of WordNet"
            )
        return list(found)

    def _hierarchy(self, offsets: Iterable[int]) -> Hierarchy:
        synsets = list(offsets)
        edges = [(self._id(above), self._id(below)) for below in synsets for above in self._above(below)]
        tops = [self._id(offset) for offset in synsets if not self._above(offset)]
        if len(tops) > 1:  # verbs have many, some with nothing below
            edges = [(VIRTUAL_ROOT, top) for top in tops] + edges
        if not edges:
            raise HierarchyError(f"{quoted(tops)} is at the top of WordNet; give a synset below it")
        return Hierarchy.from_edges(edges, {self._id(offset): self.name(self._id(offset)) for offset in synsets})

    def _id(self, offset: int) -> str:
        return f"{self._letter}{offset:08d}"

    def _is_id(self, text: str) -> bool:
        return re.fullmatch(r"[nvasr]\d{8}", text) is not None

    def _checked(self, synset: str) -> str:
        if synset[0] != self._letter:
            raise HierarchyError(f"{synset!r} is not the id of a {self.pos}, such as {self._id(1740)!r}; see pos=")
        if int(synset[1:]) not in self._tables.synsets:
            cause = (
                f"; the ids of ImageNet are of WordNet 3.0 and this database is {self.version}, where they differ: "
                "pass database= with 3.0"
                if self.version != "3.0"
                else "; ids of other versions differ"
            )
            raise HierarchyError(f"{synset!r} is no synset of WordNet {self.version} in {str(self.folder)!r}{cause}")
        return synset

    def _numbered(self, synset: str, name: re.Match[str]) -> str:
        if name["letter"] != self._letter:
            raise HierarchyError(
                f"{synset!r} is not the name of a {self.pos}, such as 'cat.{self._letter}.01'; see pos="
            )
        senses = self.senses(name["lemma"])
        number = int(name["number"])
        if not 1 <= number <= len(senses):
            raise HierarchyError(f"{synset!r}: {name['lemma']!r} has senses 1 to {len(senses)} as a {self.pos}")
        return senses[number - 1].id

    def _entry(self, synset: str) -> Entry:
        return self._tables.synsets[int(self.id(synset)[1:])]

    def _above(self, offset: int) -> list[int]:
        return self._tables.synsets[offset].hypernyms

    def _lemma(self, word: str) -> str | None:
        """The word as the index has it; hyphens stand for blanks and the other way round."""
        joined = _joined(word)
        spellings = (joined, joined.replace("-", "_"), joined.replace("_", "-"), joined.replace("_", ""))
        return next((spelling for spelling in spellings if spelling in self._tables.senses), None)

    def _near(self, word: str) -> list[str]:
        # All of WordNet would take seconds: a typing error rarely changes the first letter or the length by much.
        joined = _joined(word)
        return [w for w in self._tables.senses if w[:1] == joined[:1] and abs(len(w) - len(joined)) < 4]


def _joined(word: str) -> str:
    """A word as WordNet writes it: lower case, joined by underscores."""
    return "_".join(word.lower().split())
