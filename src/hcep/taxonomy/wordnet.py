"""WordNet's database files: synsets, senses and glosses, and the hierarchy above any synsets."""

import gzip
import hashlib
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar, get_args

import msgspec

from hcep._files import cache_folder, write_bytes
from hcep.errors import HCEPError, HierarchyError, near_matches, quote, quoted
from hcep.hierarchy.edges import VIRTUAL_ROOT, reach
from hcep.hierarchy.graph import Hierarchy

Pos = Literal["noun", "verb"]
Ambiguous = Literal["raise", "first"]
SYNSET_ID = re.compile(r"[nvasr]\d{8}")
SYNSET_NAME = re.compile(r"(?P<lemma>.+)\.(?P<letter>[nvasr])\.(?P<number>\d{1,3})")
VERSION = re.compile(rb"WordNet (\d+\.\d+) Copyright")
DATA_LINE = re.compile(rb"(\d{8}) \d\d [nvasr] ([0-9a-f]{2}) ")
HYPERNYM = re.compile(rb"@i? (\d{8}) [nv] 0000")
LAYOUT = 2  # to be changed with the fields of the cached records
MAX_LISTED = 3
T = TypeVar("T")


class Sense(NamedTuple):
    """One meaning of a word: its name, such as "cat.n.01" (1 is the most frequent), its WordNet id and definition."""

    name: str
    id: str
    gloss: str


class WordNetSynset(NamedTuple):
    """A synset: its words, joined by underscores, the offsets of its hypernyms, and its gloss."""

    lemmas: list[str]
    hypernyms: list[int]
    gloss: str


class Database(msgspec.Struct):
    """A parsed database: synsets by ascending offset, and the senses of each word, the most frequent first."""

    version: str
    synsets: dict[int, WordNetSynset]
    senses: dict[str, list[int]]


class WordNet:
    """A WordNet database of nouns or verbs.

    Parameters
    ----------
    database : a folder with ``data.noun`` and ``index.noun`` (or verbs); by default ``$WNSEARCHDIR``, ``$WNHOME/dict``,
        or the folders of Debian, Princeton's archive and NLTK
    pos : "noun" or "verb"

    The database is parsed once; the result is kept in the user's cache folder (``$XDG_CACHE_HOME/hcep``, or
    ``HCEP_CACHE``).
    """

    def __init__(self, database: str | os.PathLike[str] | None = None, *, pos: Pos = "noun") -> None:
        if pos not in get_args(Pos):
            raise HierarchyError(f"pos must be 'noun' or 'verb', which have hypernyms; got {quote(pos)}")
        places = list(dict.fromkeys(usual_places())) if database is None else [Path(database), Path(database, "dict")]
        folders = [place for place in places if all((place / f"{kind}.{pos}").is_file() for kind in ("data", "index"))]
        if not folders and database is not None:
            raise HierarchyError(f"database {str(places[0])!r} does not have WordNet's data.{pos} and index.{pos}")
        if not folders:
            raise HierarchyError(
                "no WordNet database found; install one (Debian: apt install wordnet; Python: nltk.download('wordnet'))"
                f" or pass database=, a folder with data.{pos} and index.{pos}. Looked in {', '.join(map(str, places))}"
            )
        self.pos, self._letter, self.folder = pos, pos[0], folders[0]
        self.tables = _database(self.folder, pos)

    def senses(self, word: str) -> tuple[Sense, ...]:
        """The meanings of a word, the most frequent first; case, spaces and hyphens do not matter."""
        known = self.tables.senses
        joined = "_".join(word.lower().split())  # as in WordNet; hyphens and spaces are interchangeable
        spellings = (joined, joined.replace("-", "_"), joined.replace("_", "-"), joined.replace("_", ""))
        lemma = next((spelling for spelling in spellings if spelling in known), None)
        if lemma is None:
            # All words would take seconds: a typing error rarely changes the first letter, or the length by much.
            near = [w for w in known if w[:1] == joined[:1] and abs(len(w) - len(joined)) < 4]
            close = near_matches(joined, near)
            raise HierarchyError(f"{quote(word)} is not in WordNet {self.tables.version} as a {self.pos}.{close}")
        return tuple(
            # The gloss without its examples.
            Sense(f"{lemma}.{self._letter}.{i:02d}", self._id(at), self.tables.synsets[at].gloss.split('; "')[0])
            for i, at in enumerate(known[lemma], 1)
        )

    def id(self, synset: str, *, on_ambiguous: Ambiguous = "raise") -> str:
        """The WordNet id of an id, a synset name or a word."""
        if on_ambiguous not in ("raise", "first"):
            raise HierarchyError(f"on_ambiguous must be 'raise' or 'first', got {quote(on_ambiguous)}")
        if not isinstance(synset, str) or not synset.strip():
            raise HierarchyError(f"expected a WordNet id, a synset name or a word, got {quote(synset)}")
        if SYNSET_ID.fullmatch(synset):
            version = self.tables.version
            if synset[0] != self._letter:
                raise HierarchyError(
                    f"{quote(synset)} is not the id of a {self.pos}, such as {quote(self._id(1740))}; see pos="
                )
            if int(synset[1:]) not in self.tables.synsets:
                cause = f"ImageNet's ids are from WordNet 3.0, but this database is {version}: pass database= of 3.0"
                cause = "ids of other versions differ" if version == "3.0" else cause
                raise HierarchyError(f"{quote(synset)} is not in WordNet {version} in {str(self.folder)!r}; {cause}")
            return synset
        if name := SYNSET_NAME.fullmatch(synset.strip()):
            if name["letter"] != self._letter:
                expected = f"a {self.pos}, such as 'cat.{self._letter}.01'"
                raise HierarchyError(f"{quote(synset)} is not the name of {expected}; see pos=")
            senses, number = self.senses(name["lemma"]), int(name["number"])
            if not 1 <= number <= len(senses):
                raise HierarchyError(
                    f"{quote(synset)}: {quote(name['lemma'])} has senses 1 to {len(senses)} as a {self.pos}"
                )
            return senses[number - 1].id
        senses = self.senses(synset)
        if len(senses) > 1 and on_ambiguous == "raise":
            listed = "; ".join(f"{s.name} ({s.id}): {s.gloss}" for s in senses)
            raise HierarchyError(
                f"{quote(synset)} has {len(senses)} senses; give the name or id of one, or pass on_ambiguous='first' "
                f"(-P on_ambiguous=first on the command line) for the most frequent: {listed}"
            )
        return senses[0].id

    def hierarchy(self, ids_or_words: Iterable[str] | None = None, *, on_ambiguous: Ambiguous = "raise") -> Hierarchy:
        """Build the hierarchy above some synsets, along all their hypernyms; ids are WordNet ids, names first lemmas.

        Parameters
        ----------
        ids_or_words : WordNet ids such as ImageNet's (``"n02121620"``), synset names (``"cat.n.01"``) or words
            (``"tench"``); all of WordNet by default. A synset above another of them becomes a class of its own, as in
            `Hierarchy.with_classes`.
        on_ambiguous : "raise" lists the senses of a word that has several; "first" takes the most frequent sense
        """
        if ids_or_words is None:
            return self._hierarchy(self.tables.synsets)
        if isinstance(ids_or_words, str):
            raise HierarchyError(f"ids_or_words must be a list of ids or words, got the string {quote(ids_or_words)}")
        wnids: dict[str, None] = {}
        problems: list[str] = []  # reported together
        for one in ids_or_words:
            try:
                wnids[self.id(one, on_ambiguous=on_ambiguous)] = None
            except HierarchyError as error:
                problems.append(str(error))
        if problems:
            more = f"\n... and {len(problems) - MAX_LISTED:,} more" if len(problems) > MAX_LISTED else ""
            raise HierarchyError("\n".join(problems[:MAX_LISTED]) + more)
        if not wnids:
            raise HierarchyError(
                "ids_or_words is empty (on the command line: no word, and none in the files); give WordNet ids or "
                "words, or leave it out for all of WordNet"
            )
        offsets = {int(wnid[1:]) for wnid in wnids}
        above = reach(offsets, lambda at: self.tables.synsets[at].hypernyms)
        return self._hierarchy(sorted(offsets | above)).with_classes(wnids)

    def _hierarchy(self, offsets: Iterable[int]) -> Hierarchy:
        synsets = {self._id(at): self.tables.synsets[at] for at in offsets}
        edges = [(self._id(above), below) for below, entry in synsets.items() for above in entry.hypernyms]
        tops = [synset for synset, entry in synsets.items() if not entry.hypernyms]
        if len(tops) > 1:  # verbs have many, some with nothing below
            edges = [(VIRTUAL_ROOT, top) for top in tops] + edges
        if not edges:
            raise HierarchyError(f"{quoted(tops)} is the top of WordNet; give a synset below it")
        return Hierarchy.from_edges(edges, {s: entry.lemmas[0].replace("_", " ") for s, entry in synsets.items()})

    def _id(self, offset: int) -> str:
        return f"{self._letter}{offset:08d}"


def usual_places() -> Iterator[Path]:
    """Where a database may be: the folders that the environment names, then those of the usual packages."""
    if os.environ.get("WNSEARCHDIR"):
        yield Path(os.environ["WNSEARCHDIR"])
    if os.environ.get("WNHOME"):
        yield Path(os.environ["WNHOME"]) / "dict"
    usual = ("share/wordnet", "share/wordnet-3.0", "local/WordNet-3.0/dict", "local/share/wordnet")
    yield from map(Path, (*(f"/usr/{place}" for place in usual), "/opt/WordNet-3.0/dict"))
    nltk = [*os.environ.get("NLTK_DATA", "").split(os.pathsep), *(f"{p}/nltk_data" for p in (Path.home(), sys.prefix))]
    shared = [f"{prefix}/nltk_data" for prefix in ("/usr/share", "/usr/local/share", "/usr/lib", "/usr/local/lib")]
    yield from (Path(place) / "corpora" / "wordnet" for place in (*nltk, *shared) if place)


def _database(folder: Path, pos: str) -> Database:
    """The parsed database, from the cache if it has been parsed before."""
    contents, digest = {}, hashlib.blake2b(str(LAYOUT).encode(), digest_size=12)
    for file in (folder / f"data.{pos}", folder / f"index.{pos}"):
        try:
            text, status = file.read_bytes(), file.stat()
        except OSError as error:
            raise HierarchyError(f"cannot read {str(file)!r}: {error.strerror}") from None
        contents[file.stem] = text
        digest.update(f"{status.st_size} {status.st_mtime_ns} ".encode() + text)
    cache = cache_folder(f"wordnet-{pos}-{digest.hexdigest()}.msgpack.gz")
    # Compressed for its checksum: a damaged cache is replaced. One that cannot be written is not needed.
    with suppress(OSError, EOFError, zlib.error, msgspec.DecodeError):
        return msgspec.msgpack.decode(gzip.decompress(cache.read_bytes()), type=Database)
    known = parse(contents["data"], contents["index"], folder, pos)
    with suppress(HCEPError):
        write_bytes(cache, gzip.compress(msgspec.msgpack.encode(known), 1, mtime=0))
    return known


def parse(data: bytes, index: bytes, folder: Path, pos: str) -> Database:
    """Parse the two files, in the format of WordNet's manual page wndb(5)."""
    file = folder / f"data.{pos}"
    entries = list(_parsed(data, _synset, file, "offset, file, type, lemmas, pointers | gloss"))
    expected = "lemma, type, counts, pointers, offsets"
    senses = dict(_parsed(index, _word, folder / f"index.{pos}", expected))
    synsets = dict(entries)
    if not entries:
        raise HierarchyError(f"{str(file)!r} has no synsets; is it a WordNet database?")
    if [offset for offset, _ in entries] != sorted(synsets):
        raise HierarchyError(f"{str(file)!r}: synsets are not in the order of their offsets")
    named = {offset for several in senses.values() for offset in several}
    strays = named.union(*(entry.hypernyms for entry in synsets.values())) - set(synsets)
    if strays:
        raise HierarchyError(
            f"WordNet database in {str(folder)!r}: offset {min(strays):08d} is not a synset of data.{pos}; data.{pos} "
            f"and index.{pos} must be complete and of one version"
        )
    version = VERSION.search(data[:4_000])
    return Database(version[1].decode() if version else "of unknown version", synsets, senses)


def _parsed(content: bytes, parse_line: Callable[[bytes], T], file: Path, expected: str) -> Iterator[T]:
    """The parsed lines after the licence, whose lines start with two spaces."""
    for number, line in enumerate(content.split(b"\n"), 1):
        if line.strip() and not line.startswith(b"  "):
            try:
                yield parse_line(line)
            except (ValueError, IndexError):
                message = f"line {number:,}: expected {expected}, as in WordNet's database"
                raise HierarchyError(f"{str(file)!r}, {message}") from None


def _synset(line: bytes) -> tuple[int, WordNetSynset]:
    head, bar, gloss = line.partition(b" | ")
    start = DATA_LINE.match(head)
    if start is None or not bar:
        raise ValueError
    n_lemmas = int(start[2], 16)
    parts = head[start.end() :].split(b" ", 2 * n_lemmas)
    names = [name.decode("utf-8", "replace") for name in parts[: 2 * n_lemmas : 2]]
    if not names or len(parts) <= 2 * n_lemmas:
        raise ValueError
    above = dict.fromkeys(map(int, HYPERNYM.findall(parts[-1])))
    return int(start[1]), WordNetSynset(names, list(above), gloss.decode("utf-8", "replace").strip())


def _word(line: bytes) -> tuple[str, list[int]]:
    parts = line.split()
    n_senses, n_pointers = int(parts[2]), int(parts[3])
    offsets = [int(part) for part in parts[6 + n_pointers :]]
    if len(offsets) != n_senses or not offsets:
        raise ValueError
    return parts[0].decode("utf-8", "replace"), offsets
