"""Phrases: candidates from a file, a vocabulary or definitions, and what a language model's must be to be shown."""

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcep._progress import progress as progress_bar
from hcep.embeddings import Encoder
from hcep.errors import HCEPError, quoted
from hcep.hierarchy import Hierarchy
from hcep.hierarchy.names import singular
from hcep.models.atom_names import odd_character

#: A pool has at most so many phrases, a phrase so many characters; an answer fewer, but more than ten long words.
MAX_PHRASES = 200_000
MAX_CHARACTERS, MAX_ANSWER = 300, 160
#: Texts given to the encoder at a time, which is also how often a progress bar moves.
BATCH = 256
MIN_WORDS, MAX_WORDS = 3, 10

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


def read_phrases(path: str | PathLike[str], *, max_phrases: int = MAX_PHRASES) -> tuple[str, ...]:
    """Read candidate phrases, one per line, each once whatever its case; lines that start with ``#`` are left out.

    Raises HCEPError: the file is not there, not UTF-8, has no phrase or too many; a line is too long or has control
    characters. The message names the line.

    >>> lines = ["# colours", "white fur", "", "White  fur", "long neck"]
    >>> _ = Path("phrases.txt").write_text(chr(10).join(lines))
    >>> read_phrases("phrases.txt")
    ('white fur', 'long neck')
    """
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise HCEPError(f"cannot read phrases from {str(path)!r}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise HCEPError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start:,})") from None
    found: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        phrase = " ".join(line.split())
        if not phrase or phrase.startswith("#"):
            continue
        if len(phrase) > MAX_CHARACTERS:
            n = len(phrase)
            raise HCEPError(f"{path}, line {number:,}: {n:,} characters; a phrase has at most {MAX_CHARACTERS}")
        odd = odd_character(phrase)
        if odd is not None:
            raise HCEPError(f"{path}, line {number:,}: a control character, {odd!r}; remove it")
        found.setdefault(phrase.casefold(), phrase)
        if len(found) > max_phrases:
            raise HCEPError(f"{path}: more than {max_phrases:,} phrases; give fewer, or raise max_phrases")
    if not found:
        raise HCEPError(f"{path}: no phrase in it; expected one a line")
    return tuple(found.values())


def read_embedded_phrases(path: str | PathLike[str], n_dims: int) -> tuple[tuple[str, ...], NDArray[Any]]:
    """Phrases and their embeddings from an .npz of ``phrases`` and ``embeddings``: a text tower may run elsewhere."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            missing = [name for name in ("phrases", "embeddings") if name not in archive.files]
            if missing:
                raise HCEPError(f"{path}: no array {quoted(missing)} in it; there are {quoted(archive.files)}")
            phrases, vectors = archive["phrases"], archive["embeddings"]
    except HCEPError:
        raise
    except (OSError, ValueError) as error:
        raise HCEPError(f"cannot read phrases from {str(path)!r}: {error}") from None
    if phrases.ndim != 1 or phrases.dtype.kind != "U":
        raise HCEPError(f"{path}: phrases must be a list of texts, got {phrases.dtype} of shape {phrases.shape}")
    if vectors.ndim == 2 and vectors.shape[1] != n_dims:
        raise HCEPError(
            f"{path}: embeddings of phrases have {vectors.shape[1]:,} dimensions, the model's {n_dims:,}; "
            "embed the phrases by the text tower of the model's encoder"
        )
    return tuple(phrases.tolist()), vectors


def gloss_phrases(glosses: Mapping[str, str] | Iterable[str]) -> tuple[str, ...]:
    """Definitions as candidates: the part before the first semicolon, which the rest only adds to."""
    texts = glosses.values() if isinstance(glosses, Mapping) else glosses
    heads = (" ".join(text.split(";")[0].split())[:MAX_CHARACTERS] for text in texts)
    return merge_pools(head for head in heads if head)


def merge_pools(*pools: Iterable[str]) -> tuple[str, ...]:
    """Phrases of several pools, each once whatever its case; the first that has it decides how it is written."""
    found: dict[str, str] = {}
    for phrase in (phrase for pool in pools for phrase in pool):
        found.setdefault(" ".join(phrase.casefold().split()), phrase)
    return tuple(found.values())


def wordnet_words(hierarchy: Hierarchy) -> tuple[dict[str, str], dict[str, Sequence[str]]]:
    """WordNet's definitions, without examples of use, and its lemmas of the synsets that have one of its ids."""
    # By id alone: a user's own "crane" need not be WordNet's.
    ids = {synset: hierarchy.class_of(synset) for synset in hierarchy.ids}
    ids = {synset: wnid for synset, wnid in ids.items() if re.fullmatch(r"n\d{8}", wnid)}
    if not ids:
        return {}, {}
    from hcep.datasets import imagenet_hierarchy, synset_gloss, synset_lemmas

    whole = imagenet_hierarchy()
    known = {synset: wnid for synset, wnid in ids.items() if wnid in whole}
    glosses = {synset: synset_gloss(wnid).split('; "')[0] for synset, wnid in known.items()}
    return glosses, {synset: synset_lemmas(wnid) for synset, wnid in known.items()}


def embed_phrases(
    encoder: Encoder, phrases: Sequence[str], *, template: str = "{}", progress: bool = False
) -> NDArray[np.float32]:
    """Embed phrases by an encoder's text tower, (n_phrases, n_dims).

    Parameters
    ----------
    template : what a phrase is put into first, at its ``{}``, such as ``"a photo of {}"``
    """
    if template.count("{}") != 1:
        raise HCEPError(
            f"template must hold {{}} once, where the phrase goes, such as 'a photo of {{}}'; got {template!r}"
        )
    if not encoder.has_text:
        raise HCEPError(
            f"encoder {encoder.name!r} has no text tower, so phrases cannot be compared with its embeddings; "
            "show atoms by images instead (exemplars(), `hcep interpret --images`), or compare phrases that another "
            "program embedded (name_atoms(), `hcep interpret --phrases` with an .npz)"
        )
    before, after = template.split("{}")
    parts = [np.empty((0, encoder.n_dims), dtype=np.float32)]
    with progress_bar("embedding phrases", len(phrases), progress) as advance:
        for start in range(0, len(phrases), BATCH):
            few = phrases[start : start + BATCH]
            parts.append(encoder.encode_texts([f"{before}{phrase}{after}" for phrase in few]))
            advance(len(few))
    return np.concatenate(parts)


def cleaned(answer: str) -> str:
    """The answer without what is around a phrase: spaces at the ends and a full stop."""
    text = unicodedata.normalize("NFC", answer).strip()
    return text[:-1].rstrip() if text.endswith(".") and not text.endswith("..") else text


def violation(
    phrase: str, names: Iterable[str], *, min_words: int = MIN_WORDS, max_words: int = MAX_WORDS
) -> str | None:
    """Why a phrase, `cleaned`, is not accepted, as the end of "it …"; None where nothing is wrong.

    `names` are those of the two synsets, which it may not use in any case, plural or spelling.

    >>> violation("thick white fur and small ears", ["bear", "polar bear"])
    >>> violation("White-furred BEARS on the ice", ["bear", "polar bear"])
    "uses the name 'bear'"
    >>> violation("white fur", ["bear"])
    'has 2 words where 3 to 10 are asked for'
    """
    wrong = _wrong_form(phrase)
    if wrong is not None:
        return wrong
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
    if len(phrase) > MAX_ANSWER:
        return f"has {len(phrase):,} characters, where {MAX_ANSWER} are the limit"
    return next((reason for pattern, reason in _NOT_BARE.items() if pattern.search(phrase)), None)


def without_marker(line: str) -> str:
    """A line of a list without its bullet or number."""
    return _LIST_ITEM.sub("", line, count=1)


def uses_name(phrase: str, name: str) -> bool:
    """Whether a phrase has a name in it: in any case, singular or plural, its words joined, hyphenated or apart.

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
