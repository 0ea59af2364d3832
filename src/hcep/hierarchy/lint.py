"""What may be wrong with a hierarchy that is a valid DAG all the same."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from hcep.errors import quoted
from hcep.hierarchy.graph import VIRTUAL_ROOT, Hierarchy

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class Finding:
    """One thing to look at, the synsets it concerns and what to do."""

    severity: Severity
    code: str
    message: str
    synsets: tuple[str, ...]


def lint(hierarchy: Hierarchy, classes: Iterable[str] | None = None) -> list[Finding]:
    """Look a hierarchy over; with `classes`, also whether it fits the data's labels.

    Examples
    --------
    >>> from hcep import Hierarchy
    >>> from hcep.hierarchy import lint
    >>> h = Hierarchy.from_edges([("thing", "animal"), ("animal", "feline"), ("feline", "cat"), ("animal", "dog")])
    >>> [finding.code for finding in lint(h, ["cat", "dog"])]
    ['chain']
    """
    checks = (_several_roots, _chains, _several_parents, _shortcuts, _repeated_names, _uneven_depth)
    findings = [finding for check in checks for finding in check(hierarchy)]
    return findings + (_classes(hierarchy, list(dict.fromkeys(classes))) if classes is not None else [])


def _several_roots(hierarchy: Hierarchy) -> Iterable[Finding]:
    if hierarchy.root.strip("()") == VIRTUAL_ROOT.strip("()") and hierarchy.root.startswith("("):
        tops = hierarchy.children(hierarchy.root)
        yield Finding("note", "several-roots", f"{len(tops)} roots were joined under a virtual one", tops)


def _chains(hierarchy: Hierarchy) -> Iterable[Finding]:
    found = tuple(s for s in hierarchy.ids[1:] if len(hierarchy.children(s)) == 1)
    if found:
        yield Finding("warning", "chain", f"{len(found)} synsets have one child, so its atom is zero: collapse", found)


def _several_parents(hierarchy: Hierarchy) -> Iterable[Finding]:
    found = tuple(s for s in hierarchy.ids if len(hierarchy.parents(s)) > 1)
    if found:
        yield Finding("note", "several-parents", f"{len(found)} synsets have several parents; as_tree keeps one", found)


def _shortcuts(hierarchy: Hierarchy) -> Iterable[Finding]:
    found = []
    for synset in hierarchy.ids:
        parents = set(hierarchy.parents(synset))
        if len(parents) > 1 and any(parents & set(hierarchy.ancestors(p)) for p in parents):
            found.append(synset)
    if found:
        text = f"{len(found)} synsets hang from a synset and from one above it; the direct edge is a shortcut"
        yield Finding("warning", "shortcut", text, tuple(found))


def _repeated_names(hierarchy: Hierarchy) -> Iterable[Finding]:
    by_name: dict[str, list[str]] = {}
    for synset in hierarchy.ids:
        by_name.setdefault(hierarchy.name(synset).casefold(), []).append(synset)
    repeated = [ids for ids in by_name.values() if len(ids) > 1]
    if repeated:
        names = quoted(hierarchy.name(ids[0]) for ids in repeated)
        found = tuple(s for ids in repeated for s in ids)
        yield Finding("warning", "repeated-name", f"{len(repeated)} names stand for several synsets: {names}", found)


def _uneven_depth(hierarchy: Hierarchy) -> Iterable[Finding]:
    levels = hierarchy.levels[hierarchy.leaf_index]
    if levels.min() * 3 <= levels.max():
        shallow = tuple(hierarchy.ids[i] for i in hierarchy.leaf_index[np.argsort(levels, kind="stable")[:5]])
        text = f"leaves lie between levels {levels.min()} and {levels.max()}"
        yield Finding("note", "uneven-depth", text, shallow)


def _classes(hierarchy: Hierarchy, classes: list[str]) -> list[Finding]:
    missing = tuple(c for c in classes if c not in hierarchy)
    inner = tuple(c for c in classes if c in hierarchy and not hierarchy.is_leaf(c) and c not in hierarchy.own_leaves)
    extra = tuple(leaf for leaf in hierarchy.leaves if hierarchy.class_of(leaf) not in set(classes))
    findings = []
    if missing:
        findings.append(Finding("error", "missing-class", f"{len(missing)} classes are not in the hierarchy", missing))
    if inner:
        text = f"{len(inner)} classes are inner synsets; each gets a leaf of its own below itself"
        findings.append(Finding("note", "inner-class", text, inner))
    if extra:
        findings.append(Finding("note", "extra-leaf", f"{len(extra)} leaves are not classes; they are left out", extra))
    return findings
