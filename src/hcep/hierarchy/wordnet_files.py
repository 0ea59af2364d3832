"""WordNet's data and index files: where they are, and what they say."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hcep.errors import HierarchyError

VERSION = re.compile(rb"WordNet (\d+\.\d+) Copyright")
DATA_LINE = re.compile(rb"(\d{8}) \d\d [nvasr] ([0-9a-f]{2}) ")
HYPERNYM = re.compile(rb"@i? (\d{8}) [nv] 0000")


@dataclass(frozen=True)
class Tables:
    """A parsed database on arrays: synset i has the lemmas, gloss and hypernyms of row i.

    Attributes
    ----------
    offsets : (n_synsets,) int32, ascending
    pointer, hypernyms : int32
        Offsets of the hypernyms of row i: ``hypernyms[pointer[i] : pointer[i + 1]]``.
    lemmas : list of str
        Those of a synset apart by tabs, words joined by underscores.
    words, sense_pointer, senses
        Offsets of the senses of word i, the most frequent first: ``senses[sense_pointer[i] : sense_pointer[i + 1]]``.
    """

    version: str
    offsets: NDArray[np.int32]
    pointer: NDArray[np.int32]
    hypernyms: NDArray[np.int32]
    lemmas: list[str]
    glosses: list[str]
    words: list[str]
    sense_pointer: NDArray[np.int32]
    senses: NDArray[np.int32]


def find(database: str | os.PathLike[str] | None, pos: str) -> Path:
    """The folder with the files of a part of speech.

    Raises
    ------
    HierarchyError
        When it is not there, with the places looked in.
    """
    if database is not None:
        given = Path(database)
        for folder in (given, given / "dict"):
            if _has(folder, pos):
                return folder
        raise HierarchyError(f"database {str(given)!r} does not hold data.{pos} and index.{pos} of WordNet")
    places = list(dict.fromkeys(usual_places()))
    for folder in places:
        if _has(folder, pos):
            return folder
    raise HierarchyError(
        "no WordNet database found; install one (Debian: apt install wordnet; Python: nltk.download('wordnet')) or "
        f"pass database=, a folder with data.{pos} and index.{pos}. Looked in {', '.join(map(str, places))}"
    )


def usual_places() -> Iterator[Path]:
    """Where a database may be: what the environment says, then the folders of the usual packages."""
    if os.environ.get("WNSEARCHDIR"):
        yield Path(os.environ["WNSEARCHDIR"])
    if os.environ.get("WNHOME"):
        yield Path(os.environ["WNHOME"]) / "dict"
    yield from map(
        Path,
        (
            "/usr/share/wordnet",
            "/usr/share/wordnet-3.0",
            "/usr/local/WordNet-3.0/dict",
            "/usr/local/share/wordnet",
            "/opt/WordNet-3.0/dict",
        ),
    )
    nltk = [*os.environ.get("NLTK_DATA", "").split(os.pathsep), *(f"{p}/nltk_data" for p in (Path.home(), sys.prefix))]
    shared = [f"{prefix}/nltk_data" for prefix in ("/usr/share", "/usr/local/share", "/usr/lib", "/usr/local/lib")]
    yield from (Path(place) / "corpora" / "wordnet" for place in (*nltk, *shared) if place)


def parse(data: bytes, index: bytes, folder: Path, pos: str) -> Tables:
    """Parse the two files in the layout of WordNet's manual page wndb(5)."""
    version = VERSION.search(data[:4_000])
    offsets, counts, hypernyms, lemmas, glosses = [], [], [], [], []
    for number, line in _lines(data):
        try:
            offset, names, above, gloss = _synset(line)
        except (ValueError, IndexError):
            raise _malformed(folder / f"data.{pos}", number, "offset, file, type, lemmas, pointers | gloss") from None
        offsets.append(offset)
        counts.append(len(above))
        hypernyms += above
        lemmas.append(names)
        glosses.append(gloss)
    words, n_senses, senses = [], [], []
    for number, line in _lines(index):
        try:
            word, found = _word(line)
        except (ValueError, IndexError):
            raise _malformed(folder / f"index.{pos}", number, "lemma, type, counts, pointers, offsets") from None
        words.append(word)
        n_senses.append(len(found))
        senses += found
    _require_whole(folder, pos, offsets, hypernyms, senses)
    return Tables(
        version[1].decode() if version else "of unknown version",
        np.array(offsets, dtype=np.int32),
        _pointer(counts),
        np.array(hypernyms, dtype=np.int32),
        lemmas,
        glosses,
        words,
        _pointer(n_senses),
        np.array(senses, dtype=np.int32),
    )


def _synset(line: bytes) -> tuple[int, str, list[int], str]:
    head, bar, gloss = line.partition(b" | ")
    start = DATA_LINE.match(head)
    if start is None or not bar:
        raise ValueError
    n_lemmas = int(start[2], 16)
    parts = head[start.end() :].split(b" ", 2 * n_lemmas)
    names = parts[: 2 * n_lemmas : 2]
    if not names or len(parts) <= 2 * n_lemmas:
        raise ValueError
    above = dict.fromkeys(map(int, HYPERNYM.findall(parts[-1])))
    return int(start[1]), _text(b"\t".join(names)), list(above), _text(gloss).strip()


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _word(line: bytes) -> tuple[str, list[int]]:
    parts = line.split()
    n_senses, n_pointers = int(parts[2]), int(parts[3])
    offsets = [int(part) for part in parts[6 + n_pointers :]]
    if len(offsets) != n_senses or not offsets:
        raise ValueError
    return _text(parts[0]), offsets


def _lines(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Lines after the licence, which is indented by two blanks."""
    for number, line in enumerate(content.split(b"\n"), 1):
        if line.strip() and not line.startswith(b"  "):
            yield number, line


def _require_whole(folder: Path, pos: str, offsets: list[int], hypernyms: list[int], senses: list[int]) -> None:
    if not offsets:
        raise HierarchyError(f"{str(folder / f'data.{pos}')!r} holds no synsets; is it a WordNet database?")
    if offsets != sorted(set(offsets)):
        raise HierarchyError(f"{str(folder / f'data.{pos}')!r}: synsets are not in the order of their offsets")
    strays = (set(hypernyms) | set(senses)) - set(offsets)
    if strays:
        raise HierarchyError(
            f"WordNet database in {str(folder)!r}: offset {min(strays):08d} is named but is no synset of data.{pos}; "
            f"data.{pos} and index.{pos} must be whole and of one version"
        )


def _malformed(file: Path, line: int, expected: str) -> HierarchyError:
    return HierarchyError(f"{str(file)!r}, line {line:,}: expected {expected}, as WordNet's database has it")


def _pointer(counts: list[int]) -> NDArray[np.int32]:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)


def _has(folder: Path, pos: str) -> bool:
    return (folder / f"data.{pos}").is_file() and (folder / f"index.{pos}").is_file()


def content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise HierarchyError(f"cannot read {str(file)!r}: {error.strerror}") from None
