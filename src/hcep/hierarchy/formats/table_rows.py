"""The rows of a table that is written: an edge list, or the level columns of the table that was read."""

from hcep.errors import HierarchyError, quote
from hcep.hierarchy.columns import Cells, Columns, Role
from hcep.hierarchy.edges import is_virtual
from hcep.hierarchy.graph import Hierarchy

Rows = list[list[str]]


def edge_table(hierarchy: Hierarchy, columns: Columns) -> Rows:
    """A row per edge, children in index order, each with its first parent first: reading it gives the same DAG.

    The columns are those of the edge list that the hierarchy was read from, with a name and a rank if there are any.
    """
    is_edges = len(columns.titles("parent")) == len(columns.titles("child")) == 1
    has_ranks = any(s in hierarchy.ranks for s in hierarchy)
    roles: dict[str, Role] = {"parent": "parent", "child": "child"}
    if is_edges:
        roles = {title: role for title, role in columns.roles.items() if role != "rank" or has_ranks}
    others = {title: role for title, role in columns.roles.items() if role == "other"}
    # Beside common names, which would be read as the names, there are names of its own.
    has_names = any(hierarchy.name(s) != s for s in hierarchy) or (others and not is_edges)
    needed: dict[str, Role] = {"name": "name"} if has_names and "name" not in roles.values() else {}
    needed |= {"rank": "rank"} if has_ranks and "rank" not in roles.values() else {}
    roles = {**roles, **needed, **others}
    keeps_blank = is_edges and not needed.get("name")  # a name that is empty where it is the id

    def row(parent: str, child: str, number: int) -> list[str]:
        rows = columns.rows.get(child) or [{}]
        cells = {title: rows[min(number, len(rows) - 1)].get(title, "") for title in roles}
        for title, role in roles.items():
            if role == "name" and (hierarchy.name(child) != child or not keeps_blank):
                cells[title] = hierarchy.name(child)
            elif role == "rank":
                cells[title] = hierarchy.ranks.get(child, cells[title])
            elif role in ("parent", "child"):
                cells[title] = parent if role == "parent" else child
        return list(cells.values())

    root = hierarchy.root
    has_row = hierarchy.name(root) != root or root in hierarchy.ranks or root in columns.rows
    table = [list(roles), *([row("", root, 0)] if has_row else [])]
    for child in hierarchy.ids[1:]:
        table += [row(parent, child, number) for number, parent in enumerate(hierarchy.parents(child))]
    return table


def level_table(hierarchy: Hierarchy, columns: Columns) -> Rows:
    """A row per class, and one for every other concept that had one, with the level columns of the table it came from.

    Raises HierarchyError, with the reason alone, if a concept has several parents or matches none of the columns.
    """
    shared = next((s for s in hierarchy if len(hierarchy.parents(s)) > 1), None)
    if shared is not None:
        raise HierarchyError(f"{quote(hierarchy.name(shared))} has several parents")
    concepts = [(one, s) for s in hierarchy for one in (*(m for m, _ in hierarchy.merged(s)), s)]
    listed = [one for one, s in concepts if one in columns.rows or (one == s and hierarchy.is_leaf(s))]
    table = [list(columns.roles)]
    for concept in listed:
        levels = _levels_of(hierarchy, columns, concept)
        for cells in columns.rows.get(concept, [{}]) if levels else ():
            row = _row(hierarchy, columns, concept, levels, cells)
            table.append([row.get(title, "") for title in columns.roles])
    return table


def _levels_of(hierarchy: Hierarchy, columns: Columns, concept: str) -> dict[str, str]:
    """The level cells of a concept, by their titles, the highest first."""
    titles, ranks, cells, last = columns.titles("level"), hierarchy.ranks, dict[str, str](), -1
    place = {title: i for i, title in enumerate(titles)}
    for one, name, synset in hierarchy.trail(concept, root=not is_virtual(hierarchy.root)):
        at = place.get(ranks.get(one, ""))
        if one != synset:  # it was merged, and has a column if a level of its own is free
            at = at if at is not None and last < at < place.get(ranks.get(synset, ""), len(titles)) else None
            if at is None:
                continue
        elif at is None:
            at = len(titles) - 1 if hierarchy.is_leaf(synset) else last + 1
        if not last < at < len(titles):
            above = f"below {quote(titles[last])}" if last >= 0 else "at the top"
            raise HierarchyError(f"{quote(name)} matches none of the columns {above}")
        cells[titles[at]], last = name, at
    return cells


def _row(hierarchy: Hierarchy, columns: Columns, concept: str, levels: dict[str, str], cells: Cells) -> dict[str, str]:
    """The cells of one row by their titles; a class may have its id and its display name in columns of their own."""
    lowest = next(reversed(levels))
    row = {**cells, **levels}
    leaf, name = columns.titles("leaf"), columns.titles("name")
    if leaf or name:
        row[lowest] = cells.get(lowest, levels[lowest]) if leaf else concept
    if leaf:
        row[leaf[0]] = concept
    if name and (cells.get(name[0]) or row[lowest]) != levels[lowest]:
        row[name[0]] = levels[lowest]
    return row
