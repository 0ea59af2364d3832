"""A hierarchy from text: what Hearst's patterns say in a corpus, the strongest evidence first."""

from __future__ import annotations

import gzip
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from os import PathLike
from typing import Any

from hcep.errors import HCEPError, HierarchyError
from hcep.hierarchy.graph import Hierarchy
from hcep.hierarchy.names import singular
from hcep.induction.hearst import Phrase, matches, sentences
from hcep.induction.induced import Evidence, Fault, Induced
from hcep.induction.leaf_names import LeafNames, normal_form

Pair = tuple[str, str]  # below, above
Corpus = Iterable[str] | str | PathLike[str]
#: Characters of a line that are read, and of an example that is kept.
MAX_LINE, MAX_EXAMPLE = 20_000, 300


def induce_from_text(
    leaves: Iterable[str],
    lines: Corpus,
    *,
    root: str = "entity",
    vocabulary: Iterable[str] | None = None,
    min_count: int = 2,
    max_parents: int | None = 1,
) -> Induced:
    """Find a hierarchy above some classes in a text that mentions them.

    Raises HCEPError: a corpus that cannot be read, options out of range.

    Parameters
    ----------
    leaves : the classes
    lines : the corpus, read once and line by line; a path may end in ``.gz``. A sentence must not run over lines.
    root : what all classes are
    vocabulary : iterable of str; names that inner synsets may have. Without it any noun may be one, by its last word:
        "motor vehicles" count as "vehicle".
    min_count : sentences that an edge needs
    max_parents : parents that a synset keeps, the strongest first; None keeps all and returns a DAG

    Returns
    -------
    Induced
        With `evidence` for every edge but those from the root. Classes that no sentence places hang from the root.

    References
    ----------
    Hearst, M. A. (1992). Automatic acquisition of hyponyms from large text corpora. *COLING*.

    Notes
    -----
    Patterns: *X such as A, B and C*; *such X as A*; *A and (or) other X*; *X including (especially) A*; *A is a kind
    (type, sort, form) of X*. Pairs are counted; in descending order of count (ties by name) each becomes an edge unless
    it closes a cycle. An edge that only shortens a longer way is left out, then each synset keeps its `max_parents`
    strongest. Memory grows with the number of different pairs, not with the corpus.

    Examples
    --------
    >>> from hcep.induction import induce_from_text
    >>> corpus = ["Mammals such as cats and dogs.", "Animals such as birds.", "Mammals are a kind of animal."]
    >>> found = induce_from_text(["cat", "dog", "bird", "car"], corpus, min_count=1)
    >>> found.hierarchy.print_tree()
    entity
    ├── car
    └── animal
        ├── mammal
        │   ├── cat
        │   └── dog
        └── bird
    >>> found.missing, found.evidence["mammal", "cat"].example
    (('car',), 'Mammals such as cats and dogs.')
    """
    if not isinstance(min_count, int) or min_count < 1:
        raise HCEPError(f"min_count must be a whole number of at least 1, got {min_count!r}")
    if max_parents is not None and (not isinstance(max_parents, int) or max_parents < 1):
        raise HCEPError(f"max_parents must be None or a whole number of at least 1, got {max_parents!r}")
    names = LeafNames(leaves, root)
    reader = _PairReader(names, vocabulary)
    is_empty = True
    for line in read_lines(lines):
        reader.add(line)
        is_empty = is_empty and not line.strip()
    above = _strongest(reader.counts, min_count, set(names.leaves), max_parents)
    return _induced(above, names, reader, is_empty)


class _PairReader:
    """Counts of (below, above) pairs while a corpus goes by."""

    def __init__(self, names: LeafNames, vocabulary: Iterable[str] | None) -> None:
        self.counts: Counter[Pair] = Counter()
        self.patterns: dict[Pair, dict[str, None]] = {}
        self.examples: dict[Pair, str] = {}
        self._root = normal_form(names.root)
        known = [*(vocabulary or ()), *names.leaves]
        self._known = {normal_form(name): name for name in known}
        self._open = vocabulary is None
        self._longest = max((len(form.split()) for form in self._known), default=1)

    def add(self, line: str) -> None:
        for sentence in sentences(line[:MAX_LINE]):
            for found in matches(sentence):
                above = self._name(found.above)
                for phrase in found.below:
                    below = self._name(phrase)
                    if above and below and above != below:
                        self._count((below, above), found.pattern, sentence)

    def _count(self, pair: Pair, pattern: str, sentence: str) -> None:
        self.counts[pair] += 1
        self.patterns.setdefault(pair, {})[pattern] = None
        self.examples.setdefault(pair, " ".join(sentence.split())[:MAX_EXAMPLE])

    def _name(self, phrase: Phrase) -> str | None:
        """The longest known name in a phrase, at the side that is sure; else its noun, where any is allowed."""
        words = phrase.words
        n = len(words)
        for size in range(min(n, self._longest), 0, -1):
            starts = range(n - size if phrase.whole else 0, n - size + 1)
            for start in starts:
                form = normal_form(" ".join(words[start : start + size]))
                if form in self._known:
                    return self._known[form]
        noun = singular(phrase.head)
        # A sentence that says "cats are a kind of entity" says nothing: everything is below the root.
        return noun if self._open and noun != self._root and len(noun) > 2 else None


def _strongest(
    counts: Mapping[Pair, int], min_count: int, leaves: set[str], max_parents: int | None
) -> dict[str, list[str]]:
    """Parents of each synset: an acyclic choice of the pairs, the strongest of them first."""
    enough = {pair: n for pair, n in counts.items() if n >= min_count and pair[1] not in leaves}
    said: dict[str, list[str]] = {}
    for below, parent in enough:
        said.setdefault(below, []).append(parent)
    # Only what may lie above a leaf: as a rule a small part of what a corpus says.
    near = [(below, parent) for below in _reached(leaves, said) for parent in said.get(below, ())]
    above: dict[str, list[str]] = {}
    for below, parent in sorted(near, key=lambda pair: (-enough[pair], pair)):
        if below not in _reached([parent], above):
            above.setdefault(below, []).append(parent)
    kept: dict[str, list[str]] = {}
    for below, parents in above.items():
        indirect = {q for p in parents for q in _reached([p], above)[1:]}
        kept[below] = [parent for parent in parents if parent not in indirect][:max_parents]
    return kept


def _reached(starts: Iterable[str], above: Mapping[str, list[str]]) -> list[str]:
    """The starts and all that is above them, each once."""
    found = dict.fromkeys(starts)
    waiting = list(found)
    for at in waiting:  # grows while it is walked
        fresh = [parent for parent in above.get(at, ()) if parent not in found]
        found.update(dict.fromkeys(fresh))
        waiting += fresh
    return waiting


def _induced(above: Mapping[str, list[str]], names: LeafNames, reader: _PairReader, is_empty: bool) -> Induced:
    reached = _reached(names.leaves, above)
    edges = [(below, parent) for below in reached for parent in above.get(below, ())]
    tops = [synset for synset in reached if not above.get(synset)]
    everything = [*((names.root, top) for top in tops), *((parent, below) for below, parent in edges)]
    missing = tuple(leaf for leaf in names.leaves if not above.get(leaf))
    evidence = {
        (pair[1], pair[0]): Evidence(reader.counts[pair], tuple(reader.patterns[pair]), reader.examples[pair])
        for pair in edges
    }
    unheard = "no pattern with enough evidence mentions any class; lower min_count (--min-count on the command line)"
    problems = [] if edges else [Fault("empty", "the corpus is empty: it holds no text" if is_empty else unheard)]
    return Induced(
        Hierarchy.from_edges(everything, root=names.root), not missing, missing, tuple(problems), evidence=evidence
    )


def read_lines(corpus: Corpus) -> Iterator[str]:
    """The lines of a corpus, of a file never more than a bounded part at a time."""
    if not isinstance(corpus, str | PathLike):
        for line in corpus:
            if not isinstance(line, str):
                raise HCEPError(f"lines must be a path or an iterable of strings; it gave a {type(line).__name__}")
            yield line
        return
    opened: Any = gzip.open if str(corpus).lower().endswith(".gz") else open
    try:
        with opened(corpus, "rt", encoding="utf-8", errors="replace") as file:
            # One line of a gigabyte must not fill the memory: it comes in parts.
            yield from iter(lambda: file.readline(MAX_LINE), "")
    except (OSError, EOFError, zlib.error) as error:
        raise HierarchyError(
            f"cannot read the corpus {str(corpus)!r}: {getattr(error, 'strerror', None) or error}"
        ) from None
