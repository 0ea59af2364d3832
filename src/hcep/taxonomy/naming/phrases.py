"""Candidate phrases for atoms: read from files, taken from WordNet's definitions, embedded by a text tower."""

import re
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike

import numpy as np
from numpy.typing import NDArray

from hcep._files import regular
from hcep._progress import progress as progress_bar
from hcep.embeddings import Encoder
from hcep.errors import HCEPError, quote
from hcep.hierarchy import Hierarchy
from hcep.hierarchy.imagenet import imagenet_hierarchy, synset_gloss, synset_lemmas
from hcep.models.atom_names import odd_character

MAX_PHRASES, MAX_CHARACTERS = 200_000, 300
#: Texts per call of the encoder, which is also how often a progress bar moves.
BATCH = 256


def read_phrases(path: str | PathLike[str], *, max_phrases: int = MAX_PHRASES) -> tuple[str, ...]:
    """Read candidate phrases from a UTF-8 text file with one phrase per line.

    Lines that start with ``#`` and phrases that differ from an earlier one in case alone are skipped. Raises HCEPError,
    with the line number, when a line is too long or contains control characters.

    >>> from pathlib import Path
    >>> lines = ["# colours", "white fur", "", "White  fur", "long neck"]
    >>> _ = Path("phrases.txt").write_text(chr(10).join(lines))
    >>> read_phrases("phrases.txt")
    ('white fur', 'long neck')
    """
    try:
        lines = regular(path).read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise HCEPError(f"cannot read phrases from {str(path)!r}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise HCEPError(f"{path} is not UTF-8 text ({error.reason} at byte {error.start:,})") from None
    phrases: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        phrase = " ".join(line.split())
        if not phrase or phrase.startswith("#"):
            continue
        if len(phrase) > MAX_CHARACTERS:
            n = len(phrase)
            raise HCEPError(f"{path}, line {number:,}: a phrase of {n:,} characters; the limit is {MAX_CHARACTERS}")
        if odd := odd_character(phrase):
            raise HCEPError(f"{path}, line {number:,}: a control character, {quote(odd)}; remove it")
        phrases.setdefault(phrase.casefold(), phrase)
        if len(phrases) > max_phrases:
            raise HCEPError(f"{path} has more than {max_phrases:,} phrases; use fewer, or raise max_phrases")
    if not phrases:
        raise HCEPError(f"{path} has no phrases; expected one phrase per line")
    return tuple(phrases.values())


def merge_pools(*pools: Iterable[str]) -> tuple[str, ...]:
    """The phrases of several pools, each once; the first spelling of a phrase is kept."""
    phrases: dict[str, str] = {}
    for phrase in (phrase for pool in pools for phrase in pool):
        phrases.setdefault(" ".join(phrase.casefold().split()), phrase)
    return tuple(phrases.values())


def gloss_phrases(glosses: Iterable[str]) -> tuple[str, ...]:
    """Definitions as candidates: the part before the first semicolon."""
    heads = (" ".join(text.split(";")[0].split())[:MAX_CHARACTERS] for text in glosses)
    return merge_pools(head for head in heads if head)


def wordnet_words(hierarchy: Hierarchy) -> tuple[dict[str, str], dict[str, Sequence[str]]]:
    """WordNet's definitions (without examples) and lemmas, for the concepts whose ids are WordNet ids of ImageNet's."""
    # By id alone: a user's own "crane" need not be WordNet's.
    wnids = {concept: hierarchy.class_of(concept) for concept in hierarchy}
    if not any(re.fullmatch(r"n\d{8}", wnid) for wnid in wnids.values()):
        return {}, {}
    wnids = {concept: wnid for concept, wnid in wnids.items() if wnid in imagenet_hierarchy()}
    glosses = {concept: synset_gloss(wnid).split('; "')[0] for concept, wnid in wnids.items()}
    return glosses, {concept: synset_lemmas(wnid) for concept, wnid in wnids.items()}


def names_of(hierarchy: Hierarchy, concepts: Iterable[str], aliases: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Every name of some concepts: display names, names merged into them, and aliases such as lemmas."""
    names: dict[str, None] = {}
    for concept in concepts:
        label = hierarchy.class_of(concept)
        own = [concept, label] if label in hierarchy else [concept]
        names |= dict.fromkeys(hierarchy.name(c) for c in own)
        names |= dict.fromkeys(name for _, name in hierarchy.merged(concept))
        names |= dict.fromkeys(alias for c in own for alias in aliases.get(c, ()))
    return tuple(names)


def embed_phrases(
    encoder: Encoder, phrases: Sequence[str], *, template: str = "{}", progress: bool = False
) -> NDArray[np.float32]:
    """Embed phrases with an encoder's text tower, (n_phrases, n_dims).

    `template` is the text around each phrase, such as ``"a photo of {}"``.
    """
    if template.count("{}") != 1:
        raise HCEPError(f"template must contain {{}} once, as in 'a photo of {{}}'; got {quote(template)}")
    if not encoder.has_text:
        raise HCEPError(
            f"encoder {quote(encoder.name)} has no text tower, so its embeddings cannot be compared with phrases; show "
            "images instead (exemplars(), `hcep interpret MODEL DATA`), or use phrases that another program embedded "
            "(name_atoms(), `hcep interpret --vocabulary` with their vectors)"
        )
    before, after = template.split("{}")
    parts = [np.empty((0, encoder.n_dims), dtype=np.float32)]
    with progress_bar("embedding phrases", len(phrases), progress) as advance:
        for start in range(0, len(phrases), BATCH):
            batch = phrases[start : start + BATCH]
            parts.append(encoder.encode_texts([f"{before}{phrase}{after}" for phrase in batch]))
            advance(len(batch))
    return np.concatenate(parts)
