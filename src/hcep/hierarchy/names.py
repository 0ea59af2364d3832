"""English names: articles, singulars, and pairs of names that differ only in spelling."""

import re
import tomllib
import unicodedata
from collections.abc import Iterable, Iterator
from itertools import combinations
from os.path import commonprefix
from pathlib import Path

import numpy as np

#: Shorter names that differ in one letter, such as "cat" and "bat", are not suspicious.
MIN_LETTERS = 8
#: Longer names are sentences, whose deletions would fill memory; more names that differ alike follow a system.
MAX_LETTERS, MAX_ALIKE = 100, 50
_WORDS = tomllib.loads(Path(__file__).with_name("plurals.toml").read_text("utf-8"))


def singular(word: str) -> str:
    """The singular of a lower-case English noun, by rules and a short list; other words stay as they are."""
    if word in _WORDS["alone"]:
        return str(_WORDS["alone"][word])
    if word in _WORDS["singular"] or word.endswith(("ss", "us", "is")):
        return word
    irregular = next((ending for ending in _WORDS["endings"] if word.endswith(ending)), None)
    if irregular:
        return f"{word.removesuffix(irregular)}{_WORDS['endings'][irregular]}"
    if len(word) < 4 or not word.endswith("s"):
        return word
    if word.endswith("ies"):
        return word[:-3] + "y" if len(word) > 4 else word[:-1]
    return word[:-2] if word.endswith(("sses", "shes", "ches", "xes", "zes", "oes")) else word[:-1]


def with_article(name: str) -> str:
    """A name with "a" or "an"; without if it is a plural, uncountable, Latin, a single proper noun or has digits.

    >>> [with_article(name) for name in ("palace", "Arctic fox", "hourglass", "unicycle", "sunglasses", "Rosa canina")]
    ['a palace', 'an Arctic fox', 'an hourglass', 'a unicycle', 'sunglasses', 'Rosa canina']
    """
    return ("" if _stands_alone(name) else "an " if _VOWEL.match(name) else "a ") + name


#: Starts of names that are spoken with a vowel.
_VOWEL = re.compile(r"(?!uni(?!n)|us[aeiou]|uk|ut[aeio]|eu|one\b)[aeiou]|hour|honest|heir", re.IGNORECASE)
#: Endings of the second word of Latin names, and of first words that are English adjectives instead.
_LATIN = ("us", "um", "is", "ae", "a", "i", "ens", "ans", "or", "os", "ale", "ides", "oides", "ax", "ix")
_ADJECTIVE = ("an", "ese", "ish", "ic", "ine")


def _stands_alone(name: str) -> bool:
    words = name.split()
    head = words[: words.index("of")] if "of" in words[1:] else words  # "a chest of drawers"
    last = head[-1].lower() if head else ""
    if not name[:1].isalpha() or re.search(r"[\d_]", name) or last in _WORDS["uncountable"] or singular(last) != last:
        return True
    if not name[0].isupper() or name.isupper():
        return False
    is_latin = last.endswith(_LATIN) and last not in _WORDS["not_latin"] and not words[0].endswith(_ADJECTIVE)
    is_latin = is_latin or last in _WORDS["latin"] or last == words[0].lower()  # Lynx lynx
    return len(words) == 1 or (words[1:] == [word.lower() for word in words[1:]] and is_latin)


def tidy(name: str) -> str:
    """The name without spaces around it and without repeated spaces inside."""
    return " ".join(name.split())


def loose_key(name: str) -> str:
    """A name without case, and with one space for any blanks, underscores and hyphens; accents in one form."""
    return re.sub(r"[\s_-]+", " ", unicodedata.normalize("NFC", name).casefold()).strip()


def spelling_key(name: str) -> str:
    """A name without case, accents, punctuation, spaces and the ending of a plural."""
    letters = unicodedata.normalize("NFKD", name.casefold())
    plain = "".join(c for c in letters if not unicodedata.combining(c))
    words = re.findall(r"\w+", plain.replace("_", " "))
    if not words or set(name) & set("+#<>=%"):
        return plain  # "C++" and "C" differ only in signs
    return "".join([*words[:-1], singular(words[-1])])


def same_but_for_spelling(names: Iterable[str]) -> list[tuple[str, str]]:
    """Pairs of names with the same key, except for names that differ only in case."""
    by_key: dict[str, list[str]] = {}
    for name in names:
        by_key.setdefault(spelling_key(name), []).append(name)
    pairs = (pair for alike in by_key.values() for pair in combinations(alike[:MAX_ALIKE], 2))
    return [(a, b) for a, b in pairs if a.casefold() != b.casefold()]


def nearly_same(names: Iterable[str]) -> list[tuple[str, str]]:
    """Pairs of long names whose keys differ in one letter: missing, added, changed, or two swapped.

    Two such keys share a key with one letter deleted (or one is that key), so only names with a common deletion are
    compared: time grows with the letters, not with the pairs. Digits stay: names that differ in one are not misspelled.
    """
    by_key: dict[str, str] = {}
    for name in names:
        by_key.setdefault(spelling_key(name), name)
    long_keys = [key for key in by_key if MIN_LETTERS <= len(key) <= MAX_LETTERS]
    pairs = sorted({pair for keys in _buckets(long_keys) for pair in combinations(keys, 2)})
    return [(by_key[long_keys[i]], by_key[long_keys[j]]) for i, j in pairs if _is_slip(long_keys[i], long_keys[j])]


def _buckets(keys: list[str]) -> Iterator[list[int]]:
    """Positions of keys that share a deletion, or of which one is a deletion of the other, in ascending order.

    By hash, because few of a million deletions are needed again; collisions are sorted out by the full comparison.
    """
    n_shorter: list[int] = []

    def deletions() -> Iterator[int]:
        for key in keys:
            shorter = {key, *(key[:i] + key[i + 1 :] for i, c in enumerate(key) if not c.isdigit())}
            n_shorter.append(len(shorter))
            yield from map(hash, shorter)

    hashes = np.fromiter(deletions(), dtype=np.int64)
    order = np.argsort(hashes, kind="stable")
    owner = np.repeat(np.arange(len(keys)), n_shorter)[order]
    starts = np.flatnonzero(np.diff(hashes[order], prepend=hashes[order][:1] - 1))
    ends = np.append(starts[1:], len(owner))
    alike = (ends - starts > 1) & (ends - starts <= MAX_ALIKE)
    for start, end in zip(starts[alike].tolist(), ends[alike].tolist(), strict=True):
        yield owner[start:end].tolist()


def _is_slip(a: str, b: str) -> bool:
    """Whether two keys that share a deletion differ in one place, and not in digits."""
    for _ in range(2):  # first without the common start, then without the common end
        start = len(commonprefix([a, b]))  # noqa: RUF071 # letters are what is meant
        a, b = a[start:][::-1], b[start:][::-1]
    one_place = max(len(a), len(b)) <= 1 or (len(a) == 2 and a == b[::-1])
    return one_place and not any(c.isdigit() for c in a + b)
