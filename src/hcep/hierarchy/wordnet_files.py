"""WordNet's data and index files: where they are, and what they say, kept in the user's cache once parsed."""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from hcep._files import cache_folder, write_bytes
from hcep.errors import HCEPError, HierarchyError

VERSION = re.compile(rb"WordNet (\d+\.\d+) Copyright")
DATA_LINE = re.compile(rb"(\d{8}) \d\d [nvasr] ([0-9a-f]{2}) ")
HYPERNYM = re.compile(rb"@i? (\d{8}) [nv] 0000")
LAYOUT = 2  # a change of the tables needs a new number
T = TypeVar("T")


class Entry(NamedTuple):
    """A synset: its words joined by underscores, the offsets of its hypernyms, its gloss."""

    lemmas: list[str]
    hypernyms: list[int]
    gloss: str


class Tables(msgspec.Struct):
    """A parsed database: synsets by offset, ascending; the senses of a word, the most frequent first."""

    version: str
    synsets: dict[int, Entry]
    senses: dict[str, list[int]]


def find(database: str | os.PathLike[str] | None, pos: str) -> Path:
    """The folder with the files of a part of speech."""
    places = list(dict.fromkeys(usual_places())) if database is None else [Path(database), Path(database, "dict")]
    for folder in places:
        if all((folder / f"{kind}.{pos}").is_file() for kind in ("data", "index")):
            return folder
    if database is not None:
        raise HierarchyError(f"database {str(places[0])!r} does not hold data.{pos} and index.{pos} of WordNet")
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
    usual = ("share/wordnet", "share/wordnet-3.0", "local/WordNet-3.0/dict", "local/share/wordnet")
    yield from map(Path, (*(f"/usr/{place}" for place in usual), "/opt/WordNet-3.0/dict"))
    nltk = [*os.environ.get("NLTK_DATA", "").split(os.pathsep), *(f"{p}/nltk_data" for p in (Path.home(), sys.prefix))]
    shared = [f"{prefix}/nltk_data" for prefix in ("/usr/share", "/usr/local/share", "/usr/lib", "/usr/local/lib")]
    yield from (Path(place) / "corpora" / "wordnet" for place in (*nltk, *shared) if place)


def tables(folder: Path, pos: str) -> Tables:
    """The tables of a database, from the cache where it has been parsed before."""
    contents = {kind: _content(folder / f"{kind}.{pos}") for kind in ("data", "index")}
    digest = hashlib.blake2b(str(LAYOUT).encode(), digest_size=12)
    for kind, text in contents.items():
        status = (folder / f"{kind}.{pos}").stat()
        digest.update(f"{status.st_size} {status.st_mtime_ns} ".encode() + text)
    cache = cache_folder(f"wordnet-{pos}-{digest.hexdigest()}.msgpack.gz")
    # Compressed for its checksum: what is damaged is made anew. A cache that cannot be written is done without.
    with suppress(OSError, EOFError, zlib.error, msgspec.DecodeError):
        return msgspec.msgpack.decode(gzip.decompress(cache.read_bytes()), type=Tables)
    known = parse(contents["data"], contents["index"], folder, pos)
    with suppress(HCEPError):
        write_bytes(cache, gzip.compress(msgspec.msgpack.encode(known), 1, mtime=0))
    return known


def parse(data: bytes, index: bytes, folder: Path, pos: str) -> Tables:
    """Parse the two files in the layout of WordNet's manual page wndb(5)."""
    file = folder / f"data.{pos}"
    found = list(_parsed(data, _synset, file, "offset, file, type, lemmas, pointers | gloss"))
    expected = "lemma, type, counts, pointers, offsets"
    senses = dict(_parsed(index, _word, folder / f"index.{pos}", expected))
    synsets = dict(found)
    if not found:
        raise HierarchyError(f"{str(file)!r} holds no synsets; is it a WordNet database?")
    if [offset for offset, _ in found] != sorted(synsets):
        raise HierarchyError(f"{str(file)!r}: synsets are not in the order of their offsets")
    named = {offset for several in senses.values() for offset in several}
    strays = named.union(*(entry.hypernyms for entry in synsets.values())) - set(synsets)
    if strays:
        raise HierarchyError(
            f"WordNet database in {str(folder)!r}: offset {min(strays):08d} is named but is no synset of data.{pos}; "
            f"data.{pos} and index.{pos} must be whole and of one version"
        )
    version = VERSION.search(data[:4_000])
    return Tables(version[1].decode() if version else "of unknown version", synsets, senses)


def _parsed(content: bytes, parse_line: Callable[[bytes], T], file: Path, expected: str) -> Iterator[T]:
    """What the lines after the licence say, which is indented by two blanks."""
    for number, line in enumerate(content.split(b"\n"), 1):
        if line.strip() and not line.startswith(b"  "):
            try:
                yield parse_line(line)
            except (ValueError, IndexError):
                raise HierarchyError(
                    f"{str(file)!r}, line {number:,}: expected {expected}, as WordNet's database has it"
                ) from None


def _synset(line: bytes) -> tuple[int, Entry]:
    head, bar, gloss = line.partition(b" | ")
    start = DATA_LINE.match(head)
    if start is None or not bar:
        raise ValueError
    n_lemmas = int(start[2], 16)
    parts = head[start.end() :].split(b" ", 2 * n_lemmas)
    names = [_text(name) for name in parts[: 2 * n_lemmas : 2]]
    if not names or len(parts) <= 2 * n_lemmas:
        raise ValueError
    above = dict.fromkeys(map(int, HYPERNYM.findall(parts[-1])))
    return int(start[1]), Entry(names, list(above), _text(gloss).strip())


def _word(line: bytes) -> tuple[str, list[int]]:
    parts = line.split()
    n_senses, n_pointers = int(parts[2]), int(parts[3])
    offsets = [int(part) for part in parts[6 + n_pointers :]]
    if len(offsets) != n_senses or not offsets:
        raise ValueError
    return _text(parts[0]), offsets


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise HierarchyError(f"cannot read {str(file)!r}: {error.strerror}") from None
