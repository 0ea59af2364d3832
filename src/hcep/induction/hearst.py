"""Hearst's patterns: sentences that say of one thing that it is a kind of another.

Words are told from phrases by lists and endings, no tagger: good enough where counts over a corpus decide.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
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
    for i, token in enumerate(tokens):
        after = tokens[i + 1] if i + 1 < len(tokens) else ""
        found: Match | None = None
        if token == "such" and after == "as":
            found = _match(_before(tokens, i), _list_after(tokens, i + 2), "such as")
        elif token == "such":
            found = _such_above_as(tokens, i)
        elif token in ("and", "or") and after == "other":
            above, _ = _after(tokens, i + 2)
            found = _match(above, _list_before(tokens, i), f"{token} other")
        elif token in FOLLOWED_BY_LIST:
            found = _match(_before(tokens, i), _list_after(tokens, i + 1), token)
        elif token in ("is", "are") and after:
            found = _kind_of(tokens, i)
        if found:
            yield found


def _match(above: Phrase | None, below: tuple[Phrase, ...], pattern: str) -> Match | None:
    return Match(above, below, pattern) if above and below else None


def _such_above_as(tokens: list[str], i: int) -> Match | None:
    above, end = _after(tokens, i + 1)
    if above is None or end >= len(tokens) or tokens[end] != "as":
        return None
    return _match(Phrase(above.words, True), _list_after(tokens, end + 1), "such … as")


def _kind_of(tokens: list[str], i: int) -> Match | None:
    """``a cat is a kind of animal``, ``cats are types of animals``."""
    at = i + 1
    while at < len(tokens) and tokens[at] in DETERMINERS:
        at += 1
    if tokens[at : at + 1] == [] or tokens[at] not in KINDS or tokens[at + 1 : at + 2] != ["of"]:
        return None
    above, _ = _after(tokens, at + 2)
    return _match(above, _list_before(tokens, i), f"{tokens[at]} of")


def _is_word(token: str) -> bool:
    return token[0].isalnum() and token not in NO_NOUNS and not token.isdigit()


def _before(tokens: list[str], end: int) -> Phrase | None:
    """The phrase that ends right before a position, a comma between them allowed."""
    end -= end > 0 and tokens[end - 1] in (",", ":", "(")
    start = end
    while (
        start > 0 and end - start < MAX_WORDS and _is_word(tokens[start - 1]) and tokens[start - 1] not in DETERMINERS
    ):
        start -= 1
    return Phrase(tuple(tokens[start:end]), True) if start < end else None


def _after(tokens: list[str], start: int) -> tuple[Phrase | None, int]:
    """The phrase that starts at a position, its determiners left out, and where it ends."""
    while start < len(tokens) and tokens[start] in DETERMINERS:
        start += 1
    end = start
    while end < len(tokens) and end - start < MAX_WORDS and _is_word(tokens[end]):
        end += 1
    if start == end:
        return None, end
    # Before a comma or "and" a phrase is whole; elsewhere a verb may have come along, with what follows it.
    whole = end < len(tokens) and tokens[end] in (",", ";", ":", "(", ")", "and", "or", "as")
    return Phrase(tuple(tokens[start:end]), whole), end


def _list_after(tokens: list[str], start: int) -> tuple[Phrase, ...]:
    start += start < len(tokens) and tokens[start] in (",", ":")
    found: list[Phrase] = []
    while start < len(tokens):
        phrase, end = _after(tokens, start)
        if phrase is None or tokens[start] == "other":
            break
        found.append(phrase)
        start = _skip_separator(tokens, end)
        if start == end:
            break
    return tuple(found)


def _skip_separator(tokens: list[str], at: int) -> int:
    if at < len(tokens) and tokens[at] == ",":
        at += 1
    if at < len(tokens) and tokens[at] in ("and", "or"):
        at += 1
    return at


def _list_before(tokens: list[str], end: int) -> tuple[Phrase, ...]:
    found: list[Phrase] = []
    while end > 0:
        phrase = _before(tokens, end)
        if phrase is None:
            break
        found.append(phrase)
        end -= (tokens[end - 1] in (",", ":", "(")) + len(phrase.words)
        while end > 0 and tokens[end - 1] in DETERMINERS:
            end -= 1
        joined = end > 0 and tokens[end - 1] in (",", "and", "or")
        if not joined:
            break
        end -= tokens[end - 1] in ("and", "or")
    return tuple(found[::-1])
