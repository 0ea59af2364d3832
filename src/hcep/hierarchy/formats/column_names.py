"""What the names of columns tell: ranks and levels, parents and children, names and ids, words of any header."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

RANKS = (
    "domain", "superkingdom", "kingdom", "subkingdom", "superphylum", "phylum", "division", "subphylum", "superclass",
    "class", "subclass", "infraclass", "superorder", "order", "suborder", "infraorder", "superfamily", "family",
    "subfamily", "tribe", "subtribe", "genus", "subgenus", "species", "subspecies", "variety", "breed",
)  # fmt: skip
#: Ranks as they stand in tables in other languages, in the same order as a chain of their own.
OTHER_RANKS = (
    ("reich", "stamm", "klasse", "ordnung", "familie", "gattung", "art"),
    ("règne", "embranchement", "classe", "ordre", "famille", "genre", "espèce"),
    ("reino", "filo", "clase", "orden", "familia", "género", "especie"),
)
NUMBERED = re.compile(r"(level|tier|niveau|nivel|ebene|stufe|layer|category|cat|kategorie|categoria|l|lvl)[ _-]?(\d+)")
PARENT = re.compile(
    r"parents?\b.*|.*\bparent|source|superclass|broader|hypernym|subclass of|sub class of|is a|supertype"
)
CHILD = ("child", "target", "subclass", "class", "narrower", "hyponym", "child id", "id", "node", "concept", "term")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Words of which one in the first row makes it a header.
HEADER_WORDS = _words(
    """
    type subtype sub item category subcategory group subgroup class subclass superclass family name level division
    section department product kind id label taxon rank code description note notes count parent child source target
    supergroup superfamily tribe subspecies breed variety order genus species kingdom phylum domain scientific common
    gruppe untergruppe kategorie ebene oberbegriff begriff bezeichnung anzahl groupe catégorie niveau nom grupo
    categoría nivel nombre synset concept term node title coarse fine topic subtopic area segment commodity broader
    narrower hypernym hyponym supercategory superkingdom infraorder suborder subfamily clade realm sector industry
    continent country city region state province genre artist album brand model make colour color shape habitat field
    discipline subject branch style material primary secondary tertiary top middle bottom
    """
) | {rank for ranks in (RANKS, *OTHER_RANKS) for rank in ranks}
#: Words in the name of a column that identifies a class beside another, or says something about it, and is no level.
IDENTITY = _words(
    """
    id ids key name names common com sci vernacular title label code scientific epithet trivialname nom nombre
    bezeichnung synonym synonyms
    """
)
ABOUT = _words(
    """
    description note notes remark remarks comment comments url link image images file path dir author authority year
    date count counts number n status rank source reference gbif en de fr es definition wikipedia anzahl bemerkung
    weight size price area length
    """
)
#: Words in the name of a column that names classes, the surest first.
NAME_ORDER = ("scientific", "sci", "species", "name", "names", "label", "title", "common", "vernacular", "com")
NAMES = frozenset(NAME_ORDER) - {"species"}
#: Words in the name of a column that holds classes, never what is above others.
LOWEST = _words("item species product name label title breed member article subspecies variety")
#: Words in the name of a column that is a level, also where it has as many cells as the one above.
LEVEL_WORDS = HEADER_WORDS - IDENTITY - ABOUT - {"parent", "child", "source", "target", "coarse", "fine"}
#: Names that stand below several others and mean something else each time.
REST = _words("other others misc miscellaneous unknown general various rest none sonstige andere autres otros")
SUMS = _words("total totals sum summe gesamt insgesamt somme suma")
NO_PARENT = frozenset(("0", "-1", "-", "null", "none", "na", "n/a", "nan", "\\n"))
#: Headers of two columns, parent first, that are one whatever stands below them.
EDGES = (("parent", "child"), ("source", "target"), ("from", "to"), ("superclass", "class"), ("superclass", "subclass"))
NUMERIC = re.compile(r"[-+]?\d[\d.,  ]*%?")


def plain(name: str) -> str:
    """The name of a column without case and signs: ``Parent_ID`` is "parent id"."""
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)
    return " ".join(re.sub(r"[\W_]+", " ", spaced).casefold().split())


def known_levels(columns: Iterable[str]) -> tuple[str, ...]:
    """The columns that are levels by their names, highest first; none where there are fewer than two."""
    present = {plain(column): column for column in columns}
    squeezed = {key.replace(" ", ""): column for key, column in present.items()}
    chains = [[squeezed[rank] for rank in ranks if rank in squeezed] for ranks in (RANKS, *OTHER_RANKS)]
    ranks = max(chains, key=len)
    if not ranks:
        numbers = [(match[1], int(match[2]), present[match[0]]) for m in present if (match := NUMBERED.fullmatch(m))]
        stem = Counter(stem for stem, _, _ in numbers).most_common(1)[0][0] if numbers else ""
        ranks = [column for found, _, column in sorted(numbers) if found == stem]
    if "name" in present and ranks and not {"species", "art", "espèce", "especie"} & set(squeezed):
        ranks = [*ranks, present["name"]]
    if len(ranks) >= 2:
        return tuple(ranks)
    return (present["supercategory"], present["name"]) if {"supercategory", "name"} <= set(present) else ()


def is_header_word(cell: str) -> bool:
    """Whether a cell reads as the name of a column."""
    name = plain(cell)
    return bool(NUMBERED.fullmatch(name) or PARENT.fullmatch(name) or set(name.split()) & HEADER_WORDS)


def parent_columns(names: Sequence[str]) -> list[int]:
    """The columns that hold parents by their names; a source is one beside a target alone."""
    known = list(map(plain, names))
    return [i for i, n in enumerate(known) if PARENT.fullmatch(n) and (n != "source" or "target" in known)]


def is_edge_header(cells: Sequence[str]) -> bool:
    """Whether a first row is the header of an edge list, whatever stands below it."""
    return any(tuple(map(plain, order)) in EDGES for order in (cells[:2], cells[1::-1]))
