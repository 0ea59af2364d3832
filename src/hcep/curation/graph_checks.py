"""What may be wrong with a hierarchy before any image is seen: its graph, its names, its fit to the data's labels."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hcep.curation.edits import Collapse, Cut, Rename, apply_edits
from hcep.curation.findings import Finding, Severity, found
from hcep.errors import near_matches, quoted
from hcep.hierarchy.edges import is_virtual
from hcep.hierarchy.graph import Hierarchy
from hcep.hierarchy.names import nearly_same, same_but_for_spelling, tidy

#: Children from which a synset is called wide: above this no one reads the list, and a level is often missing.
WIDE = 50


def lint(hierarchy: Hierarchy, classes: Iterable[str] | None = None) -> list[Finding]:
    """Look a hierarchy over; with `classes`, also whether it fits the data's labels.

    Parameters
    ----------
    hierarchy : what cannot become one, because of a cycle say, is for `lint_edges` or `lint_file`
    classes : iterable of str, optional
        The data's labels; the leaves by default. A chain's synset that is one of them is not collapsed.

    Returns
    -------
    list of Finding
        One per code, with all the synsets it concerns.

    Examples
    --------
    >>> from hcep import Hierarchy
    >>> from hcep.curation import lint
    >>> h = Hierarchy.from_edges([("thing", "animal"), ("animal", "feline"), ("feline", "cat"), ("animal", "dog")])
    >>> [(finding.code, finding.fixes) for finding in lint(h, ["cat", "dog"])]
    [('chain', (Collapse(synset='feline'),))]
    """
    labels = list(dict.fromkeys(classes or ()))
    findings = [*_chains(hierarchy, set(labels)), *(f for check in CHECKS for f in check(hierarchy))]
    return findings + (_classes(hierarchy, labels) if classes is not None else [])


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


def _chains(hierarchy: Hierarchy, classes: set[str]) -> list[Finding]:
    chains = [s for s in hierarchy.ids[1:] if len(hierarchy.children(s)) == 1 and s not in classes]
    text = "with one child, whose atom is zero: collapse"
    return found("warning", "chain", chains, text, fixes=map(Collapse, chains), safe=True)


def _several_roots(hierarchy: Hierarchy) -> list[Finding]:
    if not is_virtual(hierarchy.root):
        return []
    tops = hierarchy.children(hierarchy.root)
    alone = [top for top in tops if hierarchy.is_leaf(top)]
    return [
        *several_roots(tops, "were"),
        *found("warning", "orphan", alone, "with neither parents nor children; give each a parent, or remove it"),
    ]


def several_roots(roots: Iterable[str], joined: str) -> list[Finding]:
    """The note that roots "were" or "will be" joined."""
    text = f"{joined} joined under a virtual one; add a concept above those that belong together"
    return found("note", "several-roots", tuple(roots), text, noun="root")


def _several_parents(hierarchy: Hierarchy) -> list[Finding]:
    several = [s for s in hierarchy.ids if len(hierarchy.parents(s)) > 1]
    text = "with several parents; nothing is wrong with that, as_tree keeps one"
    return found("note", "several-parents", several, text)


def _shortcuts(hierarchy: Hierarchy) -> list[Finding]:
    cuts = []
    for synset in hierarchy.ids:
        parents = hierarchy.parents(synset)
        above = {a for p in parents for a in hierarchy.ancestors(p)} if len(parents) > 1 else set()
        cuts += [Cut(parent, synset) for parent in parents if parent in above]
    synsets = dict.fromkeys(cut.child for cut in cuts)
    text = "below a concept and directly below one above it; drop that edge, a shortcut"
    return found("warning", "shortcut", synsets, text, fixes=cuts, safe=True)


def _repeated_names(hierarchy: Hierarchy) -> list[Finding]:
    by_name: dict[str, list[str]] = {}
    for synset in hierarchy.ids:
        by_name.setdefault(hierarchy.name(synset).casefold(), []).append(synset)
    repeated = {hierarchy.name(ids[0]): ids for ids in by_name.values() if len(ids) > 1}
    text = f"for several concepts: {quoted(repeated)}; rename them apart, or merge what is the same"
    examples = (f"{name}: {', '.join(ids)}" for name, ids in repeated.items())
    synsets = (s for ids in repeated.values() for s in ids)
    return found("warning", "repeated-name", repeated, text, noun="name", synsets=synsets, examples=examples)


def _near_names(hierarchy: Hierarchy) -> list[Finding]:
    ids = {hierarchy.name(synset): synset for synset in hierarchy.ids}

    def of_pairs(severity: Severity, code: str, pairs: list[tuple[str, str]], text: str) -> list[Finding]:
        synsets = (ids[name] for pair in pairs for name in pair)
        examples = (f"{a!r} and {b!r}" for a, b in pairs)
        return found(severity, code, pairs, f"of names {text}", noun="pair", synsets=synsets, examples=examples)

    alike = "apart in case, punctuation or number only; merge them or rename one"
    near = "one letter apart; correct the spelling where it is one word"
    return [
        *of_pairs("warning", "same-name", same_but_for_spelling(ids), alike),
        *of_pairs("note", "near-name", nearly_same(ids), near),
    ]


def _untidy_names(hierarchy: Hierarchy) -> list[Finding]:
    tidied = {s: tidy(hierarchy.name(s)) for s in hierarchy.ids}
    blank = [s for s, name in tidied.items() if not name]
    edits = [Rename(s, name) for s, name in tidied.items() if name and name != hierarchy.name(s)]
    spaced = [edit.synset for edit in edits]
    text = "with spaces around or several within; strip them"
    return [
        *found("warning", "blank-name", blank, "with a blank name; rename"),
        *found("warning", "untidy-name", spaced, text, noun="name", fixes=edits, safe=True),
    ]


def _uneven_depth(hierarchy: Hierarchy) -> list[Finding]:
    levels = hierarchy.levels[hierarchy.leaf_index]
    if levels.min() * 3 > levels.max():
        return []
    shallow = tuple(hierarchy.ids[i] for i in hierarchy.leaf_index[np.argsort(levels, kind="stable")[:5]])
    text = f"leaves lie between levels {levels.min()} and {levels.max()}; group the shallow, or flatten the deep"
    return [Finding("note", "uneven-depth", text, shallow)]


def _leaves_at_the_root(hierarchy: Hierarchy) -> list[Finding]:
    top = hierarchy.root
    if hierarchy.depth == 1:
        text = "the hierarchy is flat: every path is one concept and explains nothing; group classes under others"
        return [Finding("note", "flat", text, (top,))]
    if is_virtual(top):  # below a virtual root they are orphans already
        return []
    leaves = [s for s in hierarchy.children(top) if hierarchy.is_leaf(s) and hierarchy.parents(s) == (top,)]
    text = "directly below the root, grouped by nothing; move below a concept"
    return found("note", "leaf-at-root", leaves, text, noun="class")


def _wide(hierarchy: Hierarchy) -> list[Finding]:
    wide = [s for s in hierarchy.ids if len(hierarchy.children(s)) >= WIDE and hierarchy.depth > 1]
    return found("note", "wide", wide, f"with {WIDE} children or more; add concepts between")


def _classes(hierarchy: Hierarchy, classes: list[str]) -> list[Finding]:
    own, wanted = hierarchy.own_leaves, set(classes)
    missing = [c for c in classes if c not in hierarchy and c not in own]
    inner = [c for c in classes if c in hierarchy and not hierarchy.is_leaf(c) and c not in own]
    extra = [leaf for leaf in hierarchy.leaves if hierarchy.class_of(leaf) not in wanted]
    near = (f"{c!r}: {near_matches(c, hierarchy.ids).strip() or 'no near match'}" for c in missing[:20])
    unknown = "of the data not in the hierarchy; add below a parent, or correct the label"
    above = "of the data with concepts below; each gets a leaf of its own below itself"
    unused = "without a class of the data; left out when a model is fitted"
    return [
        *found("error", "missing-class", missing, unknown, noun="class", examples=near),
        *found("note", "inner-class", inner, above, noun="class"),
        *found("note", "extra-leaf", extra, unused, noun="leaf"),
    ]


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
