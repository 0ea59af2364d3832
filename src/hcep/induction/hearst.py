"""Hearst's patterns: sentences that say of one thing that it is a kind of another.

Words are told from phrases by lists and endings, no tagger: good enough where counts over a corpus decide.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from itertools import pairwise
from typing import NamedTuple

from hcep.hierarchy.names import singular

TOKEN = re.compile(r"[A-Za-z0-9][\w'’&-]*|[,;:()]")
CUE = re.compile(r"such |other |including|especially|particularly|notably| of ", re.IGNORECASE)
SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Most words of a phrase.
MAX_WORDS = 4
MAX_TOKENS = 200

DETERMINERS = _words("a an the some any many most several various certain all both these those such other")
ENDS = _words(
    """
    and or but nor as of in on at to for from by with without about into over under between among than that which
    who whom whose where when while if because so is are was were be been being am has have had do does did will
    would can could may might must shall should not no it its they them their he she his her we our you your i my me
    us this there here also only even just too very then thus such other including especially particularly notably
    like e.g known called live lives use used make made see saw found eat eats
    """
)
NO_NOUNS = ENDS | DETERMINERS
FOLLOWED_BY_LIST = frozenset(("including", "especially", "particularly", "notably"))
KINDS = frozenset(("kind", "kinds", "type", "types", "sort", "sorts", "form", "forms", "species", "breed", "breeds"))


class Phrase(NamedTuple):
    """Words that may name one thing; `whole` where they surely end with it and run into no verb."""

    words: tuple[str, ...]
    whole: bool

    @property
    def head(self) -> str:
        """The noun, as far as one can tell: the last word, or the first plural where the phrase may not be whole."""
        plurals = () if self.whole else (word for word in self.words if singular(word) != word)
        return next(iter(plurals), self.words[-1])


class Match(NamedTuple):
    """What a sentence says: each of `below` is a kind of `above`."""

    above: Phrase
    below: tuple[Phrase, ...]
    pattern: str


def sentences(line: str) -> Iterator[str]:
    """The sentences of a line of text."""
    return (part for part in SENTENCE_END.split(line) if part.strip())


def matches(sentence: str) -> Iterator[Match]:
    """Every pattern in a sentence.

    Examples
    --------
    >>> from hcep.induction.hearst import matches
    >>> [(m.above.head, [b.head for b in m.below]) for m in matches("Animals such as cats, dogs and frogs live here.")]
    [('animals', ['cats', 'dogs', 'frogs'])]
    """
    if not CUE.search(sentence):  # most sentences say nothing of the kind
        return
    tokens = [token.lower() for token in TOKEN.findall(sentence)][:MAX_TOKENS]
    above: Phrase | None
    below: tuple[Phrase, ...]
    tokens += ["", ""]  # no word: nothing has to look whether the sentence is over
    for i, (token, following) in enumerate(pairwise(tokens)):
        above, below, pattern = None, (), token
        if token == "such" and following == "as":
            above, below, pattern = _before(tokens, i), _list_after(tokens, i + 2), "such as"
        elif token == "such":
            above, end = _after(tokens, i + 1)
            above = Phrase(above.words, True) if above else None
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
            yield Match(above, below, pattern)


def _is_word(token: str) -> bool:
    return token[:1].isalnum() and token not in NO_NOUNS and not token.isdigit()


def _skip(tokens: list[str], at: int, words: Container[str]) -> int:
    """Where the first token that is none of some words stands."""
    while tokens[at] in words:
        at += 1
    return at


def _before(tokens: list[str], end: int) -> Phrase | None:
    """The phrase that ends right before a position, a comma between them allowed."""
    end -= end > 0 and tokens[end - 1] in (",", ":", "(")
    start = end
    while start > max(0, end - MAX_WORDS) and _is_word(tokens[start - 1]):
        start -= 1
    return Phrase(tuple(tokens[start:end]), True) if start < end else None


def _after(tokens: list[str], start: int) -> tuple[Phrase | None, int]:
    """The phrase that starts at a position, its determiners left out, and where it ends."""
    start = end = _skip(tokens, start, DETERMINERS)
    while end - start < MAX_WORDS and _is_word(tokens[end]):
        end += 1
    # Before a comma or "and" a phrase is whole; elsewhere a verb may have come along, with what follows it.
    whole = tokens[end] in (",", ";", ":", "(", ")", "and", "or", "as")
    return (Phrase(tuple(tokens[start:end]), whole) if start < end else None), end


def _list_after(tokens: list[str], start: int) -> tuple[Phrase, ...]:
    start += tokens[start] in (",", ":")
    found: list[Phrase] = []
    while tokens[start] != "other":
        phrase, end = _after(tokens, start)
        if phrase is None:
            break
        found.append(phrase)
        start = end + (tokens[end] == ",")
        start += tokens[start] in ("and", "or")
        if start == end:
            break
    return tuple(found)


def _list_before(tokens: list[str], end: int) -> tuple[Phrase, ...]:
    found: list[Phrase] = []
    while phrase := _before(tokens, end):
        found.append(phrase)
        end -= (tokens[end - 1] in (",", ":", "(")) + len(phrase.words)
        while end > 0 and tokens[end - 1] in DETERMINERS:
            end -= 1
        if end == 0 or tokens[end - 1] not in (",", "and", "or"):
            break
        end -= tokens[end - 1] in ("and", "or")
    return tuple(found[::-1])
