"""Candidate phrases: a file, a vocabulary, definitions; bounded, each once, and their embeddings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hcep._progress import progress as progress_bar
from hcep.errors import HCEPError, quoted
from hcep.hierarchy import Hierarchy
from hcep.models.atom_names import odd_character

if TYPE_CHECKING:
    from hcep.embeddings import Encoder

#: A pool has at most so many phrases, a phrase so many characters.
MAX_PHRASES = 200_000
MAX_CHARACTERS = 300
#: Texts given to the encoder at a time, which is also how often a progress bar moves.
BATCH = 256


def read_phrases(path: str | PathLike[str], *, max_phrases: int = MAX_PHRASES) -> tuple[str, ...]:
    """Read candidate phrases, one per line.

    Blank lines and lines that start with ``#`` are left out, spaces at the ends and runs of them inside are not kept, a
    phrase that came before (whatever its case) is not taken again. A vocabulary is such a file too. Raises HCEPError:
    the file is not there, not UTF-8, has no phrase or too many; a line is too long or has control characters. The
    message names the line.

    Examples
    --------
    >>> from pathlib import Path
    >>> from hcep.explain.naming import read_phrases
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
            raise HCEPError(
                f"{path}, line {number:,}: {len(phrase):,} characters; a phrase has at most {MAX_CHARACTERS}"
            )
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
    """Phrases and their embeddings from an .npz of ``phrases`` and ``embeddings``, for text towers that run elsewhere.

    Raises HCEPError: when the file cannot be read, lacks an array, or its embeddings have not `n_dims` dimensions.
    """
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

    Raises HCEPError: the encoder has no text tower, or the template no ``{}``.

    Parameters
    ----------
    encoder : one that has texts
    template : what a phrase is put into first, at its ``{}``, such as ``"a photo of {}"``
    progress : show a progress bar
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
