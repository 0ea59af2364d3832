"""Hierarchies in files: our JSON, and edge lists as CSV or TSV."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from hcep.errors import HierarchyError
from hcep.hierarchy.graph import Hierarchy

DELIMITERS = {".csv": ",", ".tsv": "\t"}
HEADER = ("parent", "child", "name")


def read_hierarchy(path: str | Path) -> Hierarchy:
    """Read a hierarchy by its extension: ``.json`` (ours), or ``.csv`` / ``.tsv`` with parent, child[, child's name].

    A first row that says ``parent, child`` is a header; one that says ``child, parent`` swaps the columns. Lines that
    start with ``#`` are comments.

    Raises
    ------
    HierarchyError
        An unknown extension, an absent or malformed file, or edges that are not a rooted DAG.
    """
    file = Path(path)
    if file.suffix.lower() == ".json":
        return Hierarchy.from_json(file)
    _require_known(file)
    return Hierarchy.from_edges(_edges(file))


def write_hierarchy(hierarchy: Hierarchy, path: str | Path) -> None:
    """Write a hierarchy by its extension; an edge list keeps the graph and the names, not merged chains.

    Raises
    ------
    HierarchyError
        An unknown extension.
    """
    file = Path(path)
    if file.suffix.lower() == ".json":
        hierarchy.to_json(file)
        return
    _require_known(file)
    with file.open("w", encoding="utf-8", newline="") as lines:
        writer = csv.writer(lines, delimiter=DELIMITERS[file.suffix.lower()])
        writer.writerow(HEADER)
        # Children in index order, each with its first parent first: reading back gives the same DAG.
        for child in hierarchy.ids[1:]:
            writer.writerows((parent, child, hierarchy.name(child)) for parent in hierarchy.parents(child))


def _require_known(file: Path) -> None:
    if file.suffix.lower() not in DELIMITERS:
        raise HierarchyError(f"{str(file)!r}: expected a file ending in .json, .csv or .tsv")


def _edges(file: Path) -> Iterator[tuple[str, ...]]:
    swapped = False
    try:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            for i, row in enumerate(csv.reader(lines, delimiter=DELIMITERS[file.suffix.lower()])):
                cells = [cell.strip() for cell in row]
                if not any(cells) or cells[0].startswith("#"):
                    continue
                if i == 0 and {cell.lower() for cell in cells[:2]} == set(HEADER[:2]):
                    swapped = cells[0].lower() == "child"
                    continue
                if len(cells) not in (2, 3):
                    raise HierarchyError(f"{file.name}, line {i + 1}: expected parent, child[, name]; got {row!r}")
                parent, child = cells[1::-1] if swapped else cells[:2]
                yield (parent, child, cells[2]) if len(cells) == 3 and cells[2] else (parent, child)
    except OSError as error:
        raise HierarchyError(f"cannot read {str(file)!r}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise HierarchyError(f"{str(file)!r} is not text in UTF-8: {error}") from None
