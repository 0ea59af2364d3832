"""Decide whether a table is an edge list or level columns, by its header or else by its cells; or refuse it.

An edge list has a column of parents that also appear as children. In level columns each cell has one cell on its left
(a family is in one order), columns further right have more different cells, and the last one has the classes. A table
that fits neither or both is refused.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise, repeat
from typing import Literal, NoReturn

from hcep.errors import counted, cut, near_matches, quote, quoted
from hcep.hierarchy.columns import Cells, Columns, Role
from hcep.hierarchy.formats import table_file as words
from hcep.hierarchy.formats.source import Source
from hcep.hierarchy.formats.table_file import Row, Table


@dataclass
class Shape:
    """The meaning of a table: `columns` are parent, child[, name], or the levels, the highest first."""

    kind: Literal["edges", "levels"]
    names: list[str]
    rows: list[Row]
    columns: tuple[int, ...]
    #: Whether the header decided; otherwise the cells did.
    known: bool = True
    notes: list[str] = field(default_factory=list)
    #: The column of an edge list that has the rank of each child.
    rank: int | None = None
    #: The columns beside level columns that have the ids and the display names of the classes.
    leaf: int | None = None
    name: int | None = None

    def cells(self, row: list[str]) -> list[str]:
        return [row[i] if i < len(row) else "" for i in self.columns]

    @property
    def titles(self) -> list[str]:
        return [self.names[i] for i in self.columns]

    @cached_property
    def roles(self) -> dict[int, Role]:
        """The meaning of the columns that are written again; a column of another kind of name is kept as it is."""
        kinds: Iterable[Role] = ("parent", "child", "name") if self.kind == "edges" else repeat("level")
        others = [i for i, title in enumerate(self.names) if words.is_identity(title)]
        own: dict[int | None, Role] = {**dict.fromkeys(others, "other"), **dict(zip(self.columns, kinds, strict=False))}
        own |= {self.rank: "rank", self.name: "name", self.leaf: "leaf"}
        return {i: own[i] for i in range(len(self.names)) if i in own}

    def table_columns(self, rows: dict[str, list[Cells]]) -> Columns | None:
        """The columns for a hierarchy to keep; None if one that is needed has no title."""
        titles = {self.names[i]: role for i, role in self.roles.items() if self.names[i] != f"column {i + 1}"}
        return Columns(titles, rows) if {*self.titles} <= {*titles} else None

    def cells_beside(self, row: list[str]) -> Cells:
        """The cells of a row that the edges, levels, names and ranks of a hierarchy do not tell, by their titles."""
        cells = {i: row[i] for i in self.roles if i < len(row) and row[i]}
        told = {"parent", "child", "level", "leaf"}
        beside = {i: cell for i, cell in cells.items() if self.roles[i] not in told}
        if self.kind == "edges":
            name = self.columns[2] if len(self.columns) > 2 else None
            beside = {i: c for i, c in beside.items() if i != name or c == cells.get(self.columns[1])}
            beside = {i: c for i, c in beside.items() if i != self.rank or c.casefold() in words.NO_RANK}
        elif self.leaf is not None or self.name is not None:  # the label of a class that has an id or name beside it
            beside |= {i: cells[i] for i in [i for i in self.columns if i in cells][-1:]}
        return {self.names[i]: cell for i, cell in beside.items()}


def chosen_columns(source: Source, names: Sequence[str], wanted: Iterable[str]) -> tuple[int, ...]:
    """The positions of columns that a user gives by name, or by number from 1."""
    positions = []
    for column in wanted:
        if column in names:
            positions.append(list(names).index(column))
        elif column.isdecimal() and 0 < int(column) <= len(names):
            positions.append(int(column) - 1)
        else:
            columns = quoted(names, 9)
            raise source.fail(f"has no column {quote(column)}; its columns are {columns}.{near_matches(column, names)}")
    return tuple(positions)


class ShapeFinder:
    """Finds the `shape` of a table from its header and cells."""

    def __init__(self, source: Source, table: Table, header: bool | None = None) -> None:
        words.refuse_wide(source, table)
        self.source = source
        (self.line, first), *others = table.rows
        self.first = [*first, *[""] * (table.width - len(first))]
        self.width, self.names, self.rows = table.width, table.numbered, table.rows
        self.has_header = self._has_header(table, others) if header is None else header
        if self.has_header:
            self.names = [name or number for name, number in zip(self.first, table.numbered, strict=True)]
            # Some rows repeat the header, or have the sums below a table.
            again = [line for line, cells in others if cells == first]
            sums = [line for line, cells in others[-1:] if cells[0].casefold().strip(" :") in words.SUMS]
            source.notes += [f"skipped: line {line:,}, which repeats the header" for line in again[:1]]
            source.notes += [f"skipped: {counted(len(again) - 1, 'more line')} that repeat it"] if again[1:] else []
            source.notes += [f"skipped: line {line:,}, a sum" for line in sums]
            left_out = {*again, *sums}
            self.rows = [row for row in others if row[0] not in left_out]
        twice = [column for column, n in Counter(self.names).items() if n > 1]
        if twice:
            raise source.fail(f"column {quote(twice[0])} appears twice in the header; rename one", self.line)
        n_most = max(len(first), 3) if any(words.PARENT.fullmatch(words.plain(name)) for name in first) else len(first)
        for line, cells in self.rows if self.has_header else ():
            if len(cells) > n_most:
                raise source.fail(f"expected {len(first)} cells, as in the header; got {len(cells)}", line)
        self.columns = [column_of(self.rows, i) for i in range(self.width)]

    def _has_header(self, table: Table, others: list[Row]) -> bool:
        body = [{cell for cell in cells if cell} for _, cells in others]
        everywhere = set().union(*body) if body else set()
        if words.is_edge_header(self.first):
            return True
        first = [cell for cell in self.first if cell]
        again = [cell for cell in first if cell in everywhere]
        titles = [cell for cell in first if words.is_header_word(cell)]
        worded = [i for i, cell in enumerate(self.first) if cell and not words.NUMERIC.fullmatch(cell) and others]
        numeric = [i for i in worded if _all_numeric(column_of(others, i))]
        if not again and len(first) > 1 and (titles or numeric or table.marked):
            return True
        if again or len(first) == 1 or len(set(first)) < len(first) or not others:
            return bool(again and len(titles) == len(first))
        # A first row that is written differently has the names of the columns: if two of its cells differ, or one does
        # and every other row shares a cell with another row; or if the rows are edges, connected except for this one.
        shared = Counter(cell for cells in body for cell in cells)
        connected = len(body) > 3 and all(any(shared[cell] > 1 for cell in cells) for cells in body)
        edges = table.width == 2 and set(column_of(others, 0)) & set(column_of(others, 1))
        n_odd = sum(_is_odd(cell, column_of(others, i)) for i, cell in enumerate(self.first))
        if (connected and (edges or n_odd)) or (n_odd > 1 and len(body) > 2):
            note = f"line {self.line:,} read as a header, {quoted(first)}; pass -O header=no if it is data"
            self.source.notes.append(note)
            return True
        raise self.source.fail(
            f"the first row, {quoted(first)}, may be a header or data: none of its cells is repeated; pass header= "
            "(-O header=yes or -O header=no on the command line)",
            self.line,
        )

    def shape(self) -> Shape:
        """Find an edge list or level columns, or raise an error."""
        text = [i for i in range(self.width) if any(self.columns[i]) and not _all_numeric(self.columns[i])]
        if self.has_header:
            parents = words.parent_columns(self.names)
            known = words.known_levels(self.names)
            # A superclass among many ranks is a rank, unless ids show that it is the parent.
            apart = [p for p in parents if self.names[p] not in known]
            others = [c for c in range(self.width) if c not in parents]
            refers = any(self._parents(p, c) for p in apart for c in others)
            if parents and self.width > 1 and (len(known) < 4 or refers):
                return self._edges_by_header(parents)
            levels = [self.names.index(name) for name in known]
            # Two ranks whose order differs in the header and in the cells, such as a family of product classes.
            ranks = 2 <= len(known) < 4 and {words.plain(name) for name in known[:2]} <= set(words.RANKS)
            if known and not (ranks and levels[1] < levels[0] and self._nested(levels[0], levels[1])):
                return self._levels_by_header(levels, text)
        if self.width == 2:
            return self._two_columns()
        odd = [row for row in self.rows if len(row[1]) > 3]
        short = [row for row in self.rows if len(row[1]) == 2]
        if not self.has_header and short and len(self.rows) >= 2 * len(odd) > 0:
            raise self.source.fail(f"expected parent, child[, name]; got {quote(odd[0][1])}", odd[0][0])
        among = text if self.width > 3 else range(self.width)  # numbers in wide tables agree by chance
        pairs = [(p, c) for p in among for c in among if p != c and self._parents(p, c)]
        if pairs:
            best = min(pairs, key=lambda pair: (pair[0] > pair[1], -len(self._set(pair[1]))))
            return self._edges(best, known=False)
        return self._levels_by_cells(text)

    def _edges_by_header(self, parents: list[int]) -> Shape:
        others = [i for i in range(self.width) if i not in parents]
        # A parent may be given by id and by name: take the one that also appears among the children, the id first.
        covers = [max((len(self._set(p) & self._set(i)) for i in others), default=0) for p in parents]
        parent = parents[covers.index(max(covers))]
        others = others or [i for i in range(self.width) if i != parent]
        above = self._set(parent)
        covered = {i: len(above & self._set(i)) for i in others}
        named = {words.plain(self.names[i]): i for i in others}
        by_name = next((named[name] for name in words.CHILD if name in named), None)
        most = max(others, key=lambda i: covered[i])
        if (covered[most] and (by_name is None or not covered[by_name])) or (by_name is None and len(others) == 1):
            by_name = most
        if by_name is None:
            question = (
                f"column {quote(self.names[parent])} has parents, but which of {quoted(self.names)} has the children?"
            )
            raise self.source.fail(
                f"{question} pass parent= and child= (-O child=COLUMN on the command line)", self.line
            )
        return self._edges((parent, by_name), known=True)

    def _edges(self, pair: tuple[int, int], known: bool) -> Shape:
        parent, child = pair
        rest = [i for i in range(self.width) if i not in pair]
        # Columns that have names by their title: an ``acceptedNameUsageID`` does not, nor does an empty column.
        rank = next((i for i in rest if self.has_header and self._has_ranks(i)), None)
        rest = [i for i in rest if i != rank]
        own = {i: self._words(i) for i in rest if not words.PARENT.fullmatch(words.plain(self.names[i]))}
        named = [i for i in own if own[i] & words.NAMES and not own[i] & words.KEYS and any(self.columns[i])]
        named.sort(key=lambda i: min(words.NAME_ORDER.index(word) for word in own[i] & words.NAMES))
        plain = not self.has_header or words.is_edge_header(self.first)
        only = [i for i in rest if len(rest) == 1 and (plain or self._words(i) & words.IDENTITY)]
        only = [i for i in only if not _all_numeric(self.columns[i])]
        only = [i for i in only if len(self._set(i)) > 1 or len(self._filled(i)) < 3]  # a relation is not a name
        return self._shape("edges", (parent, child, *(named or only)[:1]), known, rank)

    def _has_ranks(self, column: int) -> bool:
        return words.plain(self.names[column]) in words.RANK_COLUMNS and not _all_numeric(self.columns[column])

    def _shape(
        self, kind: Literal["edges", "levels"], columns: Sequence[int], known: bool, rank: int | None = None
    ) -> Shape:
        shape = Shape(kind, self.names, self.rows, tuple(columns), known, [], rank)
        unused = [i for i in range(self.width) if i not in (*columns, rank) and any(self.columns[i])]
        parts = {True: "not a level, but kept when a table is written", False: "columns that were ignored"}
        for is_kept, what in parts.items():
            titles = [self.names[i] for i in unused if (self.has_header and i in shape.roles) == is_kept]
            shape.notes += [f"{what}: {quoted(titles, 9)}"] if titles else []
        return shape

    def _levels_by_header(self, known: list[int], text: list[int]) -> Shape:
        """The columns that are levels by name, and columns between or beside them that are levels by their cells."""
        ranks = [i for i in known if words.plain(self.names[i]) != "name"] or known
        levels = list(known)
        for column in text:
            if column in known or self._words(column) & (words.IDENTITY | words.ABOUT):
                continue
            above = [i for i in ranks if (i < column) == (ranks == sorted(ranks))]
            below = [i for i in ranks if i not in above]
            if above and below:  # it is between two levels
                if not (self._nested(column, above[-1]) and self._nested(below[0], column)):
                    self._unsure_of(column, levels, above[-1])
                levels.insert(levels.index(below[0]), column)
            elif below and 1 < len(self._set(column)) < len(self._set(below[0])) and self._nested(below[0], column):
                levels.insert(0, column)
            elif above and levels[-1] == above[-1] and self._is_finer(column, above[-1]):
                levels.append(column)
        if not self._is_unique(levels[-1]):  # the classes may be in a column called a name
            others = [i for i in text if i not in levels and self._words(i) & words.NAMES]
            others = [i for i in others if not self._is_other_name(i, levels)]
            finer = [i for i in others if self._is_finer(i, levels[-1])]
            ranks_of = {i: [words.NAME_ORDER.index(w) for w in self._words(i) & {*words.NAME_ORDER}] for i in finer}
            levels += sorted(finer, key=lambda i: min(ranks_of[i]))[:1]
        for upper, lower in pairwise(levels[:-1]):  # classes may share a name, as epithets of species do
            if not self._nested(lower, upper):
                self._fail_nested(lower, upper)
        return self._levels(levels, known=True)

    def _two_columns(self) -> Shape:
        left, right = self._set(0), self._set(1)
        repeats = [len(self._filled(i)) > len(self._set(i)) for i in (0, 1)]
        pairs = [pair for pair in zip(*self.columns, strict=True) if all(pair)]
        own = {a for a, b in pairs if a == b}
        # A group may have the name of its only member; a cell that also appears elsewhere would be its own parent.
        if own and own < left and left & right == own - {cell for pair in pairs if pair[0] != pair[1] for cell in pair}:
            return self._levels([0, 1], known=False)
        if left & right:
            reversed_ = repeats == [False, True] and len(right) < len(left)
            return self._edges((1, 0) if reversed_ else (0, 1), known=False)
        if not self.has_header and (repeats[0] or not all(self.columns[0])):
            return self._edges((0, 1), known=False)
        if repeats == [False, False] and (len(left) > 1 or self.has_header) and all(self.columns[0]):
            raise self.source.fail(
                f"every cell of {quoted(self.names)} appears once: are they pairs of an id and a name? If one column "
                "has the parents of the other, pass parent= and child= (-O parent=1 -O child=2 on the command line)"
            )
        nested = repeats != [True, True] or self._nested(1, 0)
        if not nested and not self._nested(0, 1):
            self._fail_nested(1, 0)
        upper = 1 if not nested or (repeats == [False, True] and all(self.columns[0])) else 0
        if len(self.rows) > 5 and len(self._set(upper)) > 0.7 * len(self.rows):
            self._fail_levels(f"most cells of column {quote(self.names[upper])} appear once")
        if _all_numeric(self.columns[upper]):
            self._fail_levels(f"column {quote(self.names[upper])} contains numbers")
        return self._levels([upper, 1 - upper], known=False)

    def _levels_by_cells(self, text: list[int]) -> Shape:
        """Level columns without known names: each nested in the one on its left, up to the first with classes."""
        columns = [i for i in text if not self._words(i) & words.ABOUT]
        ids = [i for i in columns if self._words(i) & words.KEYS]
        # An id and a name of the same thing are not two levels.
        same = {(i, j): not self._repeated_below(i, j) and not self._repeated_below(j, i) for i in ids for j in columns}
        columns = [i for i in columns if i not in ids or not any(same[i, j] for j in columns if j not in ids)]
        if len(columns) > 1 and self._is_unique(columns[0]):  # the classes come first, or their ids
            columns = columns[1:] if any(map(self._is_unique, columns[1:])) else columns[::-1]
        levels = columns[:1]
        for column in columns[1:]:
            above = levels[-1]
            if self._is_unique(above) and not self._words(column) & words.LEVEL_WORDS:
                if not self._words(column) & words.IDENTITY:
                    self._unsure_of(column, levels, above)
                continue
            if self._is_other_name(column, levels):
                continue
            if not self._nested(column, above):
                self._fail_nested(column, above)
            levels.append(column)
        if len(levels) < 2:
            self._fail_levels("there are fewer than two columns of names")
        cells = [[self.columns[i][row] for i in levels[::-1]] for row in range(len(self.rows))]
        lowest = {next(filter(None, row), "") for row in cells}
        if len(lowest) <= len(self._set(levels[0])):
            self._fail_levels(
                f"there are no more distinct classes than values in column {quote(self.names[levels[0]])}"
            )
        return self._levels(levels, known=False)

    def _levels(self, columns: list[int], known: bool) -> Shape:
        first, last = self._words(columns[0]), self._words(columns[-1])
        if not known and first & words.LOWEST and not last & words.LOWEST:
            self._fail_levels(
                f"column {quote(self.names[columns[0]])} would be the highest level, judging by its values"
            )
        return self._shape("levels", columns, known)

    def _filled(self, column: int) -> list[str]:
        return [cell for cell in self.columns[column] if cell]

    def _set(self, column: int) -> set[str]:
        return set(self._filled(column))

    def _parents(self, parent: int, child: int) -> bool:
        """Whether at least half of the cells of a column appear in another, whose cells are hardly repeated."""
        above = self._set(parent)
        # A class with the name of its group does not make the group a child.
        below = {c for p, c in zip(self.columns[parent], self.columns[child], strict=True) if c and c != p}
        once = len(below) >= 0.9 * len(self._filled(child)) > 0 or (self.width, parent, child) == (3, 0, 1)
        return bool(above) and once and 2 * len(above & below) >= len(above) and len(above) < len(below)

    def _repeated_below(self, lower: int, upper: int) -> list[str]:
        """Cells of a column that appear beside more than one cell of another."""
        seen: dict[str, set[str]] = {}
        above = ""
        for cell, beside in zip(self.columns[lower], self.columns[upper], strict=True):
            above = beside or above  # an empty cell means the one above
            if cell and above:
                seen.setdefault(cell, set()).add(above)
        return [cell for cell, several in seen.items() if len(several) > 1 and cell.casefold() not in words.REST]

    def _nested(self, lower: int, upper: int) -> bool:
        """Whether nearly every cell of a column belongs to one cell of another."""
        n_repeated, n = len(self._repeated_below(lower, upper)), len(self._set(lower))
        return (n_repeated <= max(1, 0.1 * n) and 2 * n_repeated < n) or not n_repeated

    def _is_finer(self, column: int, lowest: int) -> bool:
        mostly = len(self._filled(column)) >= 0.9 * len(self.rows)
        return mostly and len(self._set(column)) > len(self._set(lowest)) and self._nested(column, lowest)

    def _is_unique(self, column: int) -> bool:
        return len(self._set(column)) == len(self.rows) > 1

    def _is_other_name(self, column: int, levels: Sequence[int]) -> bool:
        """Whether a column has common names of the classes, of which a class may have several, and is not a level."""
        rows = Counter(zip(*(self.columns[i] for i in levels), strict=True))
        mostly_once = 2 * sum(n == 1 for n in rows.values()) > len(rows)
        is_species = words.plain(self.names[levels[-1]]) in words.SPECIES
        return bool(self._words(column) & words.VERNACULAR) and (is_species or (mostly_once and len(levels) > 1))

    def _words(self, column: int) -> set[str]:
        return set(words.plain(self.names[column]).split()) if self.has_header else set()

    def _unsure_of(self, column: int, levels: Sequence[int], above: int) -> NoReturn:
        names, name = [self.names[i] for i in levels], self.names[column]
        at = names.index(self.names[above]) + 1
        with_it, without = (",".join(map(cut, some)) for some in ([*names[:at], name, *names[at:]], names))
        raise self.source.fail(
            f"is column {quote(name)} a level, or something else about {quote(self.names[above])}? pass levels= "
            f"(-O levels={with_it} or -O levels={without} on the command line)",
            self.line,
        )

    def _fail_nested(self, column: int, above: int) -> NoReturn:
        value, below, upper = self._repeated_below(column, above)[0], self.names[column], self.names[above]
        self._fail_levels(
            f"{quote(value)} of column {quote(below)} appears below several values of column {quote(upper)}"
        )

    def _fail_levels(self, why: str) -> NoReturn:
        raise self.source.fail(
            f"is neither an edge list (no column has the parents of another) nor level columns: {why}; pass levels= "
            "from the highest to the lowest, or parent= and child= (-O levels=A,B,C, or -O parent=A -O child=B on the "
            f"command line); its columns are {quoted(self.names, 9)}",
            self.line,
        )


def column_of(rows: list[Row], i: int) -> list[str]:
    """The cells of a column, one per row; empty where a row has fewer."""
    return [cells[i] if i < len(cells) else "" for _, cells in rows]


def _is_odd(cell: str, others: list[str]) -> bool:
    """Whether a cell differs from all others in starting with a capital, having digits, or having spaces."""
    looks = [(text[:1].isupper(), any(map(str.isdigit, text)), " " in text) for text in (cell, *filter(None, others))]
    return bool(cell) and any(len(set(rest)) == 1 and first not in rest for first, *rest in zip(*looks, strict=True))


def _all_numeric(cells: Iterable[str]) -> bool:
    filled = [cell for cell in cells if cell]
    return bool(filled) and all(words.NUMERIC.fullmatch(cell) for cell in filled)
