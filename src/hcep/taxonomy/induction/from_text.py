"""A hierarchy from text: Hearst's patterns in a corpus, the strongest evidence first."""

from __future__ import annotations

import gzip
import re
import tomllib
import zlib
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from hcep.errors import HCEPError, HierarchyError, quote
from hcep.hierarchy.graph import Hierarchy
from hcep.hierarchy.names import singular
from hcep.taxonomy.induction.induced import Fault, Induced, LeafNames, TextEvidence, normal_form

Pair = tuple[str, str]  # below, above
Corpus = Iterable[str] | str | PathLike[str]
#: Characters of a line that are read, and of an example sentence that is kept.
MAX_LINE, MAX_EXAMPLE = 20_000, 300
TOKEN = re.compile(r"[A-Za-z0-9][\w'’&-]*|[,;:()]")
CUE = re.compile(r"such |other |including|especially|particularly|notably| of ", re.IGNORECASE)
SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n")


#: Maximum words of a phrase, and tokens of a sentence.
MAX_WORDS, MAX_TOKENS = 4, 200
_WORDS = tomllib.loads(Path(__file__).with_name("hearst.toml").read_text("utf-8"))
DETERMINERS, FOLLOWED_BY_LIST, KINDS = (frozenset(_WORDS[k].split()) for k in ("determiners", "before_lists", "kinds"))
NO_NOUNS = DETERMINERS.union(_WORDS["no_nouns"].split())


def induce_from_text(
    leaves: Iterable[str],
    lines: Corpus,
    *,
    root: str = "entity",
    vocabulary: Iterable[str] | None = None,
    min_count: int = 2,
    max_parents: int | None = 1,
) -> Induced:
    """Find a hierarchy over some classes in a text that mentions them, with `evidence` for every edge.

    Classes that no sentence places become children of the root.

    Parameters
    ----------
    leaves : the class names
    root : a name for what all classes are
    lines : the corpus, as lines or as a path (also ``.gz``), read line by line; a sentence must not span lines
    vocabulary : the names that inner concepts may have. By default any noun may be one, by its last word: "motor
        vehicles" count as "vehicle".
    min_count : number of sentences that an edge needs
    max_parents : maximum number of parents, the strongest first; None keeps all and returns a DAG
    """
    for name, value, none in (("min_count", min_count, ""), ("max_parents", max_parents, "None or ")):
        if (value is not None or not none) and (not isinstance(value, int) or value < 1):
            raise HCEPError(f"{name} must be {none}a positive integer, got {quote(value)}")
    names = LeafNames(leaves, root)
    reader = _PairReader(names, vocabulary)
    is_empty = True
    for line in read_lines(lines):
        reader.add(line)
        is_empty = is_empty and not line.strip()
    above = _strongest(reader.counts, min_count, set(names.leaves), max_parents)
    reached = _reached(names.leaves, above)
    edges = [(below, parent) for below in reached for parent in above.get(below, ())]
    tops = [synset for synset in reached if not above.get(synset)]
    everything = [*((names.root, top) for top in tops), *((parent, below) for below, parent in edges)]
    missing = tuple(leaf for leaf in names.leaves if not above.get(leaf))
    evidence = {
        (pair[1], pair[0]): TextEvidence(reader.counts[pair], tuple(reader.patterns[pair]), reader.examples[pair])
        for pair in edges
    }
    too_few = "no pattern with enough evidence mentions any class; lower min_count (-P min_count=1 on the command line)"
    problems = [] if edges else [Fault("empty", "the corpus is empty: it has no text" if is_empty else too_few)]
    tree = Hierarchy.from_edges(everything, root=names.root)
    return Induced(tree, not missing, missing, tuple(problems), evidence=evidence)


class _PairReader:
    """Counts the (below, above) pairs of a corpus."""

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
        for sentence in filter(str.strip, SENTENCE_END.split(line[:MAX_LINE])):
            for phrase, listed, pattern in matches(sentence):
                above = self._name(phrase)
                for below in map(self._name, listed):
                    if above and below and above != below:
                        self.counts[below, above] += 1
                        self.patterns.setdefault((below, above), {})[pattern] = None
                        self.examples.setdefault((below, above), " ".join(sentence.split())[:MAX_EXAMPLE])

    def _name(self, phrase: NounPhrase) -> str | None:
        """The longest known name in a phrase, at its reliable end; else its noun, if any noun is allowed."""
        words = phrase.words
        n = len(words)
        for size in range(min(n, self._longest), 0, -1):
            for start in range(n - size if phrase.whole else 0, n - size + 1):
                form = normal_form(" ".join(words[start : start + size]))
                if form in self._known:
                    return self._known[form]
        noun = singular(phrase.head)
        # "Cats are a kind of entity" has no information: everything is below the root.
        return noun if self._open and noun != self._root and len(noun) > 2 else None


def _strongest(
    counts: Mapping[Pair, int], min_count: int, leaves: set[str], max_parents: int | None
) -> dict[str, list[str]]:
    """The parents of each concept: an acyclic choice of pairs, the strongest first."""
    enough = {pair: n for pair, n in counts.items() if n >= min_count and pair[1] not in leaves}
    candidates: dict[str, list[str]] = {}
    for below, parent in enough:
        candidates.setdefault(below, []).append(parent)
    # Only what may lie above a leaf, which is usually a small part of a corpus.
    near = [(below, parent) for below in _reached(leaves, candidates) for parent in candidates.get(below, ())]
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
    """The starts and everything above them, without duplicates."""
    reached = list(dict.fromkeys(starts))
    seen = set(reached)
    for concept in reached:  # grows while it is walked
        fresh = [parent for parent in above.get(concept, ()) if parent not in seen]
        seen.update(fresh)
        reached += fresh
    return reached


def read_lines(corpus: Corpus) -> Iterator[str]:
    """The lines of a corpus; a file is read in pieces of bounded size."""
    if not isinstance(corpus, str | PathLike):
        for line in corpus:
            if not isinstance(line, str):
                raise HCEPError(f"lines must be a path or an iterable of strings; got a {type(line).__name__} in it")
            yield line
        return
    opened: Any = gzip.open if str(corpus).lower().endswith(".gz") else open
    try:
        with opened(corpus, "rt", encoding="utf-8", errors="replace") as file:
            # A line of a gigabyte must not fill the memory: it comes in parts.
            yield from iter(lambda: file.readline(MAX_LINE), "")
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise HierarchyError(f"cannot read the corpus {str(corpus)!r}: {reason}") from None


class NounPhrase(NamedTuple):
    """Words that may name one thing; `whole` if they certainly end with the noun, not with a verb."""

    words: tuple[str, ...]
    whole: bool

    @property
    def head(self) -> str:
        """The likely noun: the last word, or the first plural if the phrase may not be whole."""
        plurals = () if self.whole else (word for word in self.words if singular(word) != word)
        return next(iter(plurals), self.words[-1])


def matches(sentence: str) -> Iterator[tuple[NounPhrase, tuple[NounPhrase, ...], str]]:
    """The patterns in a sentence: a phrase, the phrases below it, and the name of the pattern.

    Phrases are recognised by word lists and endings, without a tagger; errors are few and counts decide.
    """
    if not CUE.search(sentence):  # most sentences have no pattern
        return
    tokens = [token.lower() for token in TOKEN.findall(sentence)][:MAX_TOKENS]
    above: NounPhrase | None
    below: tuple[NounPhrase, ...]
    tokens += ["", ""]  # so that no step has to check for the end of the sentence
    for i, (token, following) in enumerate(pairwise(tokens)):
        above, below, pattern = None, (), token
        if token == "such" and following == "as":
            above, below, pattern = _before(tokens, i), _list_after(tokens, i + 2), "such as"
        elif token == "such":
            above, end = _after(tokens, i + 1)
            above = NounPhrase(above.words, True) if above else None
            below, pattern = _list_after(tokens, end + 1) if tokens[end] == "as" else (), "such … as"
        elif token in ("and", "or") and following == "other":
            above, below, pattern = _after(tokens, i + 2)[0], _list_before(tokens, i), f"{token} other"
        elif token in FOLLOWED_BY_LIST:
            above, below = _before(tokens, i), _list_after(tokens, i + 1)
        elif token in ("is", "are"):  # a cat is a kind of animal; cats are types of animals
            at = _skip(tokens, i + 1, DETERMINERS)
            if tokens[at] in KINDS and tokens[at + 1] == "of":
                above, below, pattern = _after(tokens, at + 2)[0], _list_before(tokens, i), f"{tokens[at]} of"
        if above and below:
            yield above, below, pattern


def _is_word(token: str) -> bool:
    return token[:1].isalnum() and token not in NO_NOUNS and not token.isdigit()


def _skip(tokens: list[str], at: int, words: Container[str]) -> int:
    """The position of the first token that is not one of some words."""
    while tokens[at] in words:
        at += 1
    return at


def _before(tokens: list[str], end: int) -> NounPhrase | None:
    """The phrase that ends just before a position; a comma may stand between."""
    end -= end > 0 and tokens[end - 1] in (",", ":", "(")
    start = end
    while start > max(0, end - MAX_WORDS) and _is_word(tokens[start - 1]):
        start -= 1
    return NounPhrase(tuple(tokens[start:end]), True) if start < end else None


def _after(tokens: list[str], start: int) -> tuple[NounPhrase | None, int]:
    """The phrase that starts at a position, without determiners, and its end."""
    start = end = _skip(tokens, start, DETERMINERS)
    while end - start < MAX_WORDS and _is_word(tokens[end]):
        end += 1
    # Before a comma or "and" a phrase is whole; elsewhere it may include a verb.
    whole = tokens[end] in (",", ";", ":", "(", ")", "and", "or", "as")
    return (NounPhrase(tuple(tokens[start:end]), whole) if start < end else None), end


def _list_after(tokens: list[str], start: int) -> tuple[NounPhrase, ...]:
    start += tokens[start] in (",", ":")
    phrases: list[NounPhrase] = []
    while tokens[start] != "other":
        phrase, end = _after(tokens, start)
        if phrase is None:
            break
        phrases.append(phrase)
        start = end + (tokens[end] == ",")
        start += tokens[start] in ("and", "or")
        if start == end:
            break
    return tuple(phrases)


def _list_before(tokens: list[str], end: int) -> tuple[NounPhrase, ...]:
    phrases: list[NounPhrase] = []
    while phrase := _before(tokens, end):
        phrases.append(phrase)
        end -= (tokens[end - 1] in (",", ":", "(")) + len(phrase.words)
        while end > 0 and tokens[end - 1] in DETERMINERS:
            end -= 1
        if end == 0 or tokens[end - 1] not in (",", "and", "or"):
            break
        end -= tokens[end - 1] in ("and", "or")
    return tuple(phrases[::-1])
