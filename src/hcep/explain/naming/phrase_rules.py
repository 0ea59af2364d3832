"""What an answer of a language model must be before it is shown as the meaning of an atom."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

from hcep.hierarchy import Hierarchy
from hcep.hierarchy.names import singular
from hcep.models.atom_names import odd_character

MIN_WORDS, MAX_WORDS = 3, 10
#: Longer than ten long words.
MAX_CHARACTERS = 160

_LIST_ITEM = re.compile(r"^\s*(?:[-–—•·+]\s+|\(?\d{1,3}[.):]\s*|\(?[a-z][.)]\s+)", re.IGNORECASE)
#: What a bare phrase does not have, in the order in which it is told.
_NOT_BARE = {
    _LIST_ITEM: "is an item of a list and not a bare phrase",
    re.compile(r"[\"“”„«»`*#_<>\[\]{}|~\\=]|^['‘].*['’]$|https?:|www\."): "has quotation marks or markup",
    re.compile(
        r"^(?:i(?= )|i['’]m|sorry|sure|certainly|okay|here|as an?|cannot|unable|the answer)\b", re.IGNORECASE
    ): "speaks to the reader and is not a bare phrase",
    re.compile(r"[:;]"): "has a label or several parts, with a colon or semicolon",
    re.compile(r"[!?…]|\.\s|\.\."): "is a sentence or several, not one phrase",
}
_ABOUT_THE_TASK = {"category", "synset", "hypernym", "hyponym", "taxonomy", "embedding", "subclass"}


def cleaned(answer: str) -> str:
    """The answer without what is around a phrase: spaces at the ends and a full stop."""
    text = unicodedata.normalize("NFC", answer).strip()
    return text[:-1].rstrip() if text.endswith(".") and not text.endswith("..") else text


def violation(
    phrase: str, names: Iterable[str], *, min_words: int = MIN_WORDS, max_words: int = MAX_WORDS
) -> str | None:
    """Why a phrase is not accepted, as the end of "it …"; None where nothing is wrong.

    Parameters
    ----------
    phrase : after `cleaned`
    names : names of the two synsets, which the phrase may not use in any case, plural or spelling

    Examples
    --------
    >>> from hcep.explain.naming.phrase_rules import violation
    >>> violation("thick white fur and small ears", ["bear", "polar bear"])
    >>> violation("White-furred BEARS on the ice", ["bear", "polar bear"])
    "uses the name 'bear'"
    >>> violation("white fur", ["bear"])
    'has 2 words where 3 to 10 are asked for'
    """
    form = _wrong_form(phrase)
    if form is not None:
        return form
    n_words = sum(any(c.isalnum() for c in word) for word in phrase.split())
    if not min_words <= n_words <= max_words:
        return f"has {n_words} words where {min_words} to {max_words} are asked for"
    used = next((name for name in names if uses_name(phrase, name)), None)
    if used is not None:
        return f"uses the name {used!r}"
    about = sorted(_ABOUT_THE_TASK & set(map(singular, _words(phrase))))
    return f"speaks of the task ({about[0]!r}) and not of what can be seen" if about else None


def _wrong_form(phrase: str) -> str | None:
    if not phrase:
        return "is empty"
    if len(phrase.splitlines()) > 1:
        return "has several lines"
    odd = odd_character(phrase)
    if odd is not None:
        return f"has a control character, {odd!r}"
    if len(phrase) > MAX_CHARACTERS:
        return f"has {len(phrase):,} characters, where {MAX_CHARACTERS} are the limit"
    return next((reason for pattern, reason in _NOT_BARE.items() if pattern.search(phrase)), None)


def without_marker(line: str) -> str:
    """A line of a list without its bullet or number."""
    return _LIST_ITEM.sub("", line, count=1)


def uses_name(phrase: str, name: str) -> bool:
    """Whether a phrase has a name in it: in any case, singular or plural, its words joined, hyphenated or apart.

    Examples
    --------
    >>> from hcep.explain.naming.phrase_rules import uses_name
    >>> uses_name("a row of lumber-mills", "lumbermill"), uses_name("a bearded face", "bear")
    (True, False)
    """
    said, wanted = _words(phrase), _words(name)
    if not wanted:
        return False
    joined, parts = singular("".join(wanted)), list(map(singular, wanted))
    for start in range(len(said)):
        windows = (said[start:stop] for stop in range(start + 1, min(start + 4, len(said)) + 1))
        apart = list(map(singular, said[start : start + len(wanted)])) == parts
        if apart or any(singular("".join(window)) == joined for window in windows):
            return True
    return False


def names_of(hierarchy: Hierarchy, synsets: Iterable[str], aliases: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Every name of some synsets: display names, those of the chains merged into them, and aliases (lemmas)."""
    found: dict[str, None] = {}
    for synset in synsets:
        label = hierarchy.class_of(synset)
        own = [synset, label] if label in hierarchy else [synset]
        found |= dict.fromkeys(hierarchy.name(s) for s in own)
        found |= dict.fromkeys(name for _, name in hierarchy.merged(synset))
        found |= dict.fromkeys(alias for s in own for alias in aliases.get(s, ()))
    return tuple(found)


def _words(text: str) -> list[str]:
    plain = unicodedata.normalize("NFKC", text).casefold().replace("_", " ")
    return re.findall(r"\w+", re.sub(r"['’]s\b", "", plain))
