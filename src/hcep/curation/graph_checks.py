"""What may be wrong with a hierarchy before any image is seen: its graph, its names, its fit to the data's labels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Sized
from dataclasses import dataclass
from typing import Literal

import numpy as np

from hcep.curation.repairs import Collapse, Cut, Edit, Rename, apply_edits
from hcep.errors import near_matches, quoted
from hcep.hierarchy.graph import VIRTUAL_ROOT, Hierarchy
from hcep.hierarchy.names import nearly_same, same_but_for_spelling, tidy

Severity = Literal["error", "warning", "note"]

#: Children from which a synset is called wide: above this no one reads the list, and a level is often missing.
WIDE = 50


@dataclass(frozen=True)
class Finding:
    """One thing to look at, the synsets it concerns and what to do.

    Attributes
    ----------
    severity : {"error", "warning", "note"}
        An error must be repaired before a model can be fitted; a note may be as wanted.
    code : str
    message : str
        What is there, then what to do about it.
    synsets : tuple of str
    fixes : tuple of Edit
        Edits that would settle it, for `apply_edits`.
    safe : bool
        Whether the edits keep every class and every "is below" of the hierarchy, so that `--fix` may apply them.
    examples : tuple of str
        The worst cases in words: a pair of names, a cycle, an image.
    """

    severity: Severity
    code: str
    message: str
    synsets: tuple[str, ...]
    fixes: tuple[Edit, ...] = ()
    safe: bool = False
    examples: tuple[str, ...] = ()


def lint(hierarchy: Hierarchy, classes: Iterable[str] | None = None) -> list[Finding]:
    """Look a hierarchy over; with `classes`, also whether it fits the data's labels.

    Parameters
    ----------
    hierarchy : Hierarchy
        What cannot become one, because of a cycle say, is for `lint_edges` or `lint_file`.
    classes : iterable of str, optional
        The data's labels; the leaves by default. A chain's synset that is one of them is not collapsed.

    Returns
    -------
    list of Finding
        One a code, with all the synsets it concerns.

    Examples
    --------
    >>> from hcep import Hierarchy
    >>> from hcep.curation import lint
    >>> h = Hierarchy.from_edges([("thing", "animal"), ("animal", "feline"), ("feline", "cat"), ("animal", "dog")])
    >>> [(finding.code, finding.fixes) for finding in lint(h, ["cat", "dog"])]
    [('chain', (Collapse(synset='feline'),))]
    """
    labels = None if classes is None else list(dict.fromkeys(classes))
    findings = [*_chains(hierarchy, set(labels or ())), *(f for check in CHECKS for f in check(hierarchy))]
    return findings + ([] if labels is None else list(_classes(hierarchy, labels)))


def fix(hierarchy: Hierarchy, classes: Iterable[str] | None = None) -> Hierarchy:
    """Apply the safe edits of `lint` until there are none left; `diff` shows what they did.

    Examples
    --------
    >>> from hcep import Hierarchy
    >>> from hcep.curation import diff, fix
    >>> h = Hierarchy.from_edges([("r", "a"), ("a", "cat"), ("a", "dog"), ("r", "cat"), ("r", "car")])
    >>> diff(h, fix(h))
    ['- r → cat']
    """
    labels = None if classes is None else list(classes)
    protected = [*(labels or ()), *map(hierarchy.class_of, hierarchy.leaves)]
    # One kind at a time: a chain that is merged may take a shortcut with it, and one dropped may leave a chain.
    while edits := next((f.fixes for f in lint(hierarchy, labels) if f.safe), None):
        hierarchy = apply_edits(hierarchy, edits, protected)
    return hierarchy


def counted(found: Sized, noun: str) -> str:
    """The number of things found with their noun, in the plural where it is due."""
    plural = {"class": "classes", "leaf": "leaves"}.get(noun, f"{noun}s")
    return f"{len(found):,} {noun if len(found) == 1 else plural}"


def _several_roots(hierarchy: Hierarchy) -> Iterable[Finding]:
    if hierarchy.root.strip("()") == VIRTUAL_ROOT.strip("()") and hierarchy.root.startswith("("):
        tops = hierarchy.children(hierarchy.root)
        text = f"{len(tops)} roots were joined under a virtual one; add a synset above those that belong together"
        yield Finding("note", "several-roots", text, tops)
        alone = tuple(top for top in tops if hierarchy.is_leaf(top))
        if alone:
            text = f"{counted(alone, 'synset')} with neither parents nor children; give each a parent, or remove it"
            yield Finding("warning", "orphan", text, alone)


def _chains(hierarchy: Hierarchy, classes: set[str]) -> Iterable[Finding]:
    found = tuple(s for s in hierarchy.ids[1:] if len(hierarchy.children(s)) == 1)
    mergeable = tuple(s for s in found if s not in classes)
    if mergeable:
        text = f"{counted(mergeable, 'synset')} with one child, whose atom is zero: collapse"
        yield Finding("warning", "chain", text, mergeable, tuple(map(Collapse, mergeable)), safe=True)


def _several_parents(hierarchy: Hierarchy) -> Iterable[Finding]:
    found = tuple(s for s in hierarchy.ids if len(hierarchy.parents(s)) > 1)
    if found:
        text = f"{counted(found, 'synset')} with several parents; nothing is wrong with that, as_tree keeps one"
        yield Finding("note", "several-parents", text, found)


def _shortcuts(hierarchy: Hierarchy) -> Iterable[Finding]:
    cuts = []
    for synset in hierarchy.ids:
        parents = hierarchy.parents(synset)
        above = {a for p in parents for a in hierarchy.ancestors(p)} if len(parents) > 1 else set()
        cuts += [Cut(parent, synset) for parent in parents if parent in above]
    if cuts:
        synsets = tuple(dict.fromkeys(cut.child for cut in cuts))
        text = (
            f"{counted(synsets, 'synset')} below a synset and directly below one above it; drop that edge, a shortcut"
        )
        yield Finding("warning", "shortcut", text, synsets, tuple(cuts), safe=True)


def _repeated_names(hierarchy: Hierarchy) -> Iterable[Finding]:
    by_name: dict[str, list[str]] = {}
    for synset in hierarchy.ids:
        by_name.setdefault(hierarchy.name(synset).casefold(), []).append(synset)
    repeated = [ids for ids in by_name.values() if len(ids) > 1]
    if repeated:
        names = quoted(hierarchy.name(ids[0]) for ids in repeated)
        text = f"{counted(repeated, 'name')} for several synsets: {names}; rename them apart, or merge what is the same"
        examples = tuple(f"{hierarchy.name(ids[0])}: {', '.join(ids)}" for ids in repeated)
        yield Finding("warning", "repeated-name", text, tuple(s for ids in repeated for s in ids), examples=examples)


def _near_names(hierarchy: Hierarchy) -> Iterable[Finding]:
    names = {hierarchy.name(synset): synset for synset in hierarchy.ids}
    alike = same_but_for_spelling(names)
    if alike:
        text = f"{counted(alike, 'pair')} of names apart in case, punctuation or number only; merge them or rename one"
        yield _pairs_finding("warning", "same-name", text, names, alike)
    near = nearly_same(names)
    if near:
        text = f"{counted(near, 'pair')} of names one letter apart; correct the spelling where it is one word"
        yield _pairs_finding("note", "near-name", text, names, near)


def _pairs_finding(
    severity: Severity, code: str, text: str, names: dict[str, str], pairs: Sequence[tuple[str, str]]
) -> Finding:
    synsets = tuple(dict.fromkeys(names[name] for pair in pairs for name in pair))
    return Finding(severity, code, text, synsets, examples=tuple(f"{a!r} and {b!r}" for a, b in pairs))


def _untidy_names(hierarchy: Hierarchy) -> Iterable[Finding]:
    untidy = [s for s in hierarchy.ids if hierarchy.name(s) != tidy(hierarchy.name(s))]
    blank = tuple(s for s in untidy if not tidy(hierarchy.name(s)))
    if blank:
        yield Finding("warning", "blank-name", f"{counted(blank, 'synset')} with a blank name; rename", blank)
    spaced = tuple(s for s in untidy if s not in blank)
    if spaced:
        edits = tuple(Rename(s, tidy(hierarchy.name(s))) for s in spaced)
        text = f"{counted(spaced, 'name')} with spaces around or several within; strip them"
        yield Finding("warning", "untidy-name", text, spaced, edits, safe=True)


def _uneven_depth(hierarchy: Hierarchy) -> Iterable[Finding]:
    levels = hierarchy.levels[hierarchy.leaf_index]
    if levels.min() * 3 <= levels.max():
        shallow = tuple(hierarchy.ids[i] for i in hierarchy.leaf_index[np.argsort(levels, kind="stable")[:5]])
        text = f"leaves lie between levels {levels.min()} and {levels.max()}; group the shallow, or flatten the deep"
        yield Finding("note", "uneven-depth", text, shallow)


def _leaves_at_the_root(hierarchy: Hierarchy) -> Iterable[Finding]:
    if hierarchy.depth == 1:
        text = "the hierarchy is flat: every path is one synset and explains nothing; group classes under synsets"
        yield Finding("note", "flat", text, (hierarchy.root,))
        return
    top = hierarchy.root
    found = tuple(s for s in hierarchy.children(top) if hierarchy.is_leaf(s) and hierarchy.parents(s) == (top,))
    if found and not hierarchy.root.startswith("("):  # below a virtual root they are orphans already
        text = f"{counted(found, 'class')} directly below the root, grouped by nothing; move below a synset"
        yield Finding("note", "leaf-at-root", text, found)


def _wide(hierarchy: Hierarchy) -> Iterable[Finding]:
    n_children = np.diff(hierarchy.child_pointer)
    found = tuple(hierarchy.ids[i] for i in np.flatnonzero(n_children >= WIDE))
    if found and hierarchy.depth > 1:
        text = f"{counted(found, 'synset')} with {WIDE} children or more; add synsets between"
        yield Finding("note", "wide", text, found)


def _classes(hierarchy: Hierarchy, classes: list[str]) -> Iterable[Finding]:
    missing = tuple(c for c in classes if c not in hierarchy and c not in hierarchy.own_leaves)
    inner = tuple(c for c in classes if c in hierarchy and not hierarchy.is_leaf(c) and c not in hierarchy.own_leaves)
    wanted = set(classes)
    extra = tuple(leaf for leaf in hierarchy.leaves if hierarchy.class_of(leaf) not in wanted)
    if missing:
        text = f"{counted(missing, 'class')} of the data not in the hierarchy; add below a parent, or correct the label"
        near = tuple(f"{c!r}: {near_matches(c, hierarchy.ids).strip() or 'no near match'}" for c in missing[:20])
        yield Finding("error", "missing-class", text, missing, examples=near)
    if inner:
        text = f"{counted(inner, 'class')} of the data with synsets below; each gets a leaf of its own below itself"
        yield Finding("note", "inner-class", text, inner)
    if extra:
        text = f"{counted(extra, 'leaf')} without a class of the data; left out when a model is fitted"
        yield Finding("note", "extra-leaf", text, extra)


CHECKS = (
    _several_roots,
    _several_parents,
    _shortcuts,
    _repeated_names,
    _near_names,
    _untidy_names,
    _uneven_depth,
    _leaves_at_the_root,
    _wide,
)
