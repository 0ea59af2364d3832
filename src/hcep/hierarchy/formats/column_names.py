"""What the names of columns tell: ranks and levels, parents and children, names and ids, words of any header."""

import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

_WORDS = {
    name: tuple(text.split())
    for name, text in tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8")).items()
}
RANKS, OTHER_RANKS = _WORDS["ranks"], [_WORDS[f"{language}_ranks"] for language in ("german", "french", "spanish")]
HEADER_WORDS = frozenset(_WORDS["header"]).union(RANKS, *OTHER_RANKS)
IDENTITY, ABOUT, NAME_ORDER = frozenset(_WORDS["identity"]), frozenset(_WORDS["about"]), _WORDS["names"]
NAMES, KEYS = frozenset(NAME_ORDER) - {"species"}, frozenset(("id", "ids", "key", "code"))
LOWEST, REST, SUMS = frozenset(_WORDS["lowest"]), frozenset(_WORDS["rest"]), frozenset(_WORDS["sums"])
#: Words in the name of a column that is a level, also where it has as many cells as the one above.
LEVEL_WORDS = HEADER_WORDS - IDENTITY - ABOUT - {"parent", "child", "source", "target", "coarse", "fine"}
NUMBERED = re.compile(r"(level|tier|niveau|nivel|ebene|stufe|layer|category|cat|kategorie|categoria|l|lvl)[ _-]?(\d+)")
PARENT = re.compile(
    r"parents?\b.*|.*\bparent|source|superclass|broader|hypernym|subclass of|sub class of|is a|supertype"
)
CHILD = ("child", "target", "subclass", "class", "narrower", "hyponym", "child id", "id", "node", "concept", "term")
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
