"""Checks of a fitted model that can fail, on labelled images it was not fitted on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from hcep.classify import HCEPClassifier
from hcep.classify.hedging import conformal_quantile, hedged_nodes, held_out, is_below
from hcep.classify.path_model import Inference
from hcep.classify.unknown import unknown_scores
from hcep.dictionary.transform import EmbeddingTransform
from hcep.errors import HCEPError
from hcep.evaluate import expected_calibration_error, tree_distances
from hcep.hierarchy import Hierarchy

Floats = NDArray[np.float64]
Row = dict[str, Any]
#: Answers that the code of the path does not give; more than a tie is knowledge from elsewhere.
MAX_LEAK = 0.001
#: Noise, as a share of the image's norm, and how many answers must stay.
NOISE, STAY = 0.05, 0.9
#: Paths of two fits to different images must share so much of their concepts.
SAME_PATH = 0.7
#: Training images below which a class is thin.
THIN = 5
#: Images from which on a branch or group is judged; how far it may fall behind.
ENOUGH, BEHIND = 30, 0.1
#: The curves of what is deleted and inserted.
DELETION = ("deleted", "inserted", "others deleted")
#: Largest calibration error that passes.
MAX_ECE = 0.1


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Attributes
    ----------
    passed : None where nothing could be said
    measured : the figures in words
    figures : dict of str to float
    rows : list of dict; by branch, group, class or number of concepts
    """

    name: str
    question: str
    passed: bool | None
    measured: str
    figures: dict[str, float]
    rows: list[Row] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Subject:
    """A model with the images it is looked at with, and what it says of them.

    Attributes
    ----------
    model : HCEPClassifier, or what behaves like one
    X, y : labelled images that the model was not fitted on
    train : (X, y) the model was fitted on, for what must be fitted again; None leaves that out
    groups : (n_images,) labels of groups, optional
    coverage : the coverage to promise
    """

    model: HCEPClassifier
    X: NDArray[Any]
    y: NDArray[Any]
    train: tuple[NDArray[Any], NDArray[Any]] | None = None
    groups: NDArray[Any] | None = None
    coverage: float = 0.9
    seed: int = 0

    @property
    def rng(self) -> np.random.Generator:
        return np.random.default_rng(self.seed)

    @cached_property
    def chance(self) -> float:
        """Accuracy of the most frequent class."""
        return float(np.unique(self.y, return_counts=True)[1].max() / len(self.y))

    @cached_property
    def found(self) -> Inference:
        return self.model.infer(self.X, explained=True)

    @cached_property
    def answers(self) -> NDArray[Any]:
        return np.asarray(self.model.predict(self.X))

    @cached_property
    def correct(self) -> NDArray[np.bool_]:
        return np.asarray(self.answers == self.y)

    @cached_property
    def parts(self) -> tuple[Floats, Floats]:
        """What the path explains of each image, and the rest, in the dictionary's space."""
        dictionary = self.model.dictionary_
        explained = np.asarray(self.found.paths.codes @ dictionary.atoms, dtype=np.float64)
        return explained, dictionary.embed(self.X.astype(np.float64)) - explained

    def accuracy(self, x: Floats) -> float:
        """Accuracy on images that are given in the dictionary's space."""
        return float(np.mean(self.predicted(x) == self.y))

    def predicted(self, x: Floats) -> NDArray[Any]:
        """The model's own answer to images that are given in the dictionary's space."""
        return np.asarray(self.model.predict(raw_images(self.model.dictionary_.transform, x)))

    def refitted(self, X: ArrayLike, y: ArrayLike, hierarchy: Hierarchy | None = None) -> HCEPClassifier:
        """Another model of the same settings, nothing chosen anew."""
        settings = {"shrinkage": self.model.shrinkage_, "anchor": self.model.anchor_, "power": self.model.power_}
        again = HCEPClassifier(hierarchy or self.model.hierarchy, **{**_shared(self.model), **settings})
        again.set_params(refine=False)
        return again.fit(X, y)

    def overlap(self, other: HCEPClassifier) -> float:
        """Mean share of concepts that the paths of two models have in common."""
        pairs = zip(self.found.paths.paths, other.pursue(self.X).paths, strict=True)
        return float(np.mean([len({*a} & {*b}) / max(len({*a} | {*b}), 1) for a, b in pairs]))


def _shared(model: HCEPClassifier) -> dict[str, Any]:
    names = ("tree", "collapse", "unit_norm", "center", "beam_width", "max_steps", "tol", "signed", "head")
    given = model.get_params(deep=False)
    return {name: clone(given[name], safe=False) for name in names}


def raw_images(transform: EmbeddingTransform, x: Floats) -> Floats:
    """Embeddings that go through a transform to these; of one to unit norm, up to their length."""
    out: NDArray[Any] = x[:, : x.shape[1] - transform.n_constants] / transform.scale
    if transform.whitener is not None:
        out = np.linalg.solve(transform.whitener.T, out.T).T
    out = out if transform.mean is None else out + transform.mean
    return np.asarray(np.copysign(np.abs(out) ** (1.0 / transform.power), out))


# -- concepts ------------------------------------------------------------------------------------------


def leakage(subject: Subject) -> Check:
    """Does the head know more than the path?"""
    model, paths = subject.model, subject.found.paths
    plain = model.path_model()
    replayed = plain.classes[plain.class_index(np.zeros_like(subject.X), paths)]
    other = float(np.mean(replayed != subject.answers))
    gain = float(subject.correct.mean() - np.mean(replayed == subject.y))
    measured = (
        f"{other:.1%} of the answers are not those that the code of the path gives; accuracy beyond it {gain:+.3f}"
    )
    figures = {"not_from_the_code": other, "accuracy_beyond_the_code": gain}
    return Check("leakage", "Does the answer come from the path alone?", other <= MAX_LEAK, measured, figures)


def removed(subject: Subject) -> Check:
    """Concepts taken away, or those of another image: the answer must go with them."""
    explained, rest = subject.parts
    other = subject.rng.permutation(len(rest))
    without, swapped = subject.accuracy(rest), subject.predicted(rest + explained[other])
    differ = subject.y != subject.y[other]
    own = float(np.mean(swapped[differ] == subject.y[differ]))
    follows = float(np.mean(swapped[differ] == subject.answers[other][differ]))
    allowed = subject.chance + 0.05
    measured = (
        f"accuracy {subject.correct.mean():.3f}; without the path's concepts {without:.3f}, with those of another "
        f"image {own:.3f} (chance {subject.chance:.3f}); {follows:.1%} of the answers follow the exchanged concepts"
    )
    figures = {"accuracy": float(subject.correct.mean()), "without": without, "exchanged": own, "follow": follows}
    passed = without <= allowed and own <= allowed
    return Check("concepts removed", "Does accuracy fall to chance without the concepts?", passed, measured, figures)


def deletion(subject: Subject) -> Check:
    """Concepts taken away one by one from the leaf up, and put in from the root down."""
    model, paths = subject.model, subject.found.paths
    tree, atoms = model.hierarchy_.path_tree, model.dictionary_.atoms
    nodes, codes = tree.ancestors()[paths.nodes], paths.codes.toarray()
    rows, own, lengths = np.arange(len(subject.X)), subject.found.class_index, tree.level[paths.nodes]
    deleted: Floats = np.array(sum(subject.parts))
    inserted, control = np.zeros_like(deleted), deleted.copy()
    shuffled, curve = subject.rng.permutation(len(rows)), []

    def part(v: NDArray[Any]) -> Floats:
        return np.where(v[:, None] > 0, codes[rows, tree.edge[v]][:, None] * atoms[tree.edge[v]], 0.0)

    for level in range(tree.depth):
        lowest = part(np.where(lengths > level, nodes[rows, np.maximum(lengths - 1 - level, 0)], 0))
        inserted, deleted, control = inserted + part(nodes[:, level]), deleted - lowest, control - lowest[shuffled]
        likely = [
            float(model.infer(raw_images(model.dictionary_.transform, a)).probabilities[rows, own].mean())
            for a in (deleted, inserted, control)
        ]
        curve.append({"concepts": level + 1, **dict(zip(DELETION, likely, strict=True))})
    area = {name: float(np.mean([row[name] for row in curve])) for name in DELETION}
    measured = (
        f"probability of the class, mean over steps: own concepts deleted {area['deleted']:.3f}, as many of another "
        f"image {area['others deleted']:.3f}; inserted from the root {area['inserted']:.3f}"
    )
    passed = area["deleted"] < area["others deleted"]
    return Check(
        "deletion and insertion", "Do the path's own concepts carry the answer?", passed, measured, area, curve
    )


# -- stability and controls ----------------------------------------------------------------------------


def noise(subject: Subject) -> Check:
    """Small noise on the embeddings."""
    x = sum(subject.parts)
    drawn = subject.rng.standard_normal(np.shape(x))
    drawn *= NOISE * np.linalg.norm(x, axis=1, keepdims=True) / np.linalg.norm(drawn, axis=1, keepdims=True)
    again = raw_images(subject.model.dictionary_.transform, x + drawn)
    same = float(np.mean(subject.model.predict(again) == subject.answers))
    pairs = zip(subject.found.paths.paths, subject.model.pursue(again).paths, strict=True)
    paths = float(np.mean([a == b for a, b in pairs]))
    measured = f"with noise of {NOISE:.0%} of the norm {same:.1%} of the answers and {paths:.1%} of the paths stay"
    return Check(
        "noise", "Do answers stay under small noise?", same >= STAY, measured, {"answers": same, "paths": paths}
    )


def other_images(subject: Subject) -> Check:
    """Two fits, each to half of the training images."""
    question = "Do paths stay when the model is fitted to other images of the same classes?"
    if subject.train is None:
        return Check("other training images", question, None, "no training images were given", {})
    X, y = subject.train
    half = np.zeros(len(y), dtype=bool)
    for c in np.unique(y):
        rows = subject.rng.permutation(np.flatnonzero(y == c))
        half[rows[: max(1, len(rows) // 2)]] = True
    shared = subject.overlap(subject.refitted(X[half], y[half]))
    measured = f"paths of a fit to half of the training images share {shared:.1%} of their concepts with the model's"
    return Check("other training images", question, shared >= SAME_PATH, measured, {"shared": shared})


def shuffled_labels(subject: Subject) -> Check:
    """A fit to shuffled labels must know nothing."""
    question = "Is a model of shuffled labels at chance?"
    if subject.train is None:
        return Check("shuffled labels", question, None, "no training images were given", {})
    X, y = subject.train
    again = subject.refitted(X, subject.rng.permutation(y))
    accuracy = float(np.mean(again.predict(subject.X) == subject.y))
    passed = accuracy <= subject.chance + 0.1
    measured = f"accuracy {accuracy:.3f}, chance {subject.chance:.3f}"
    return Check("shuffled labels", question, passed, measured, {"accuracy": accuracy, "chance": subject.chance})


def random_tree(subject: Subject) -> Check:
    """The same classes in random places of the tree: mistakes must get worse."""
    question = "Are mistakes milder than under a random tree?"
    h, labels = subject.model.hierarchy_, [str(c) for c in subject.model.classes_.tolist()]
    if subject.train is None or h.depth < 2:
        why = "no training images were given" if subject.train is None else "the hierarchy is flat"
        return Check("random tree", question, None, why, {})
    leaves = [h.leaf_of(label) for label in labels]
    place = dict(zip(leaves, subject.rng.permutation(leaves).tolist(), strict=True))
    tree = Hierarchy.from_edges([(parent, place.get(child, child)) for parent, child in h.edges])
    names = dict(zip(subject.model.classes_.tolist(), leaves, strict=True))
    X, y = subject.train
    again = subject.refitted(X, np.array([names[c] for c in y.tolist()]), tree).predict(subject.X)
    truth = np.array([names[c] for c in subject.y.tolist()])
    ours = np.array([names[c] for c in subject.answers.tolist()])
    far = [tree_distances(truth, some, h)[some != truth] for some in (ours, again)]
    if min(map(len, far)) < ENOUGH:
        return Check("random tree", question, None, f"only {min(map(len, far))} mistakes", {})
    mine, theirs = (float(d.mean()) for d in far)
    half = 1.96 * float(np.sqrt(sum(d.var(ddof=1) / len(d) for d in far)))
    passed = None if abs(theirs - mine) <= half else mine < theirs
    measured = f"mistakes are {mine:.2f} edges from the truth, those under a random tree {theirs:.2f} (± {half:.2f})"
    return Check(
        "random tree", question, passed, measured, {"tree": mine, "random_tree": theirs, "half_interval": half}
    )


# -- trust ---------------------------------------------------------------------------------------------


def _facts(subject: Subject) -> dict[str, NDArray[Any]]:
    """Confidence, and on the images that are not used for the promise itself, whether it was kept."""
    model, found = subject.model.path_model(), subject.found
    own = np.searchsorted(model.classes, subject.y)
    test = np.ones(len(own), dtype=bool)
    if model.held_out is None:
        test = subject.rng.permutation(len(own)) >= len(own) // 2
    kept = model.held_out or held_out(model, found.take(~test), own[~test])
    ready = replace(model, held_out=kept)
    nodes = hedged_nodes(ready, found, 1.0 - subject.coverage)
    covered = is_below(model, own, model.hierarchy.path_tree.synset[nodes]).astype(np.float64)
    covered[~test] = np.nan
    alarms = (unknown_scores(model, found) > conformal_quantile(kept.unknown, 0.05)).astype(np.float64)
    alarms[~test] = np.nan
    return {"confidence": found.probabilities.max(axis=1), "covered": covered, "unknown": alarms}


def _by(subject: Subject, groups: NDArray[Any], facts: dict[str, NDArray[Any]]) -> list[Row]:
    rows = []
    for group in dict.fromkeys(groups.tolist()):
        own = groups == group
        rows.append(
            {
                "group": str(group),
                "images": int(own.sum()),
                "accuracy": float(subject.correct[own].mean()),
                "calibration error": expected_calibration_error(facts["confidence"][own], subject.correct[own]),
                "coverage": _mean(facts["covered"][own]),
                "called unknown": _mean(facts["unknown"][own]),
            }
        )
    return rows


def _mean(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")


def branches(subject: Subject) -> Check:
    """Calibration and coverage, in all and by branch of the root."""
    h, facts = subject.model.hierarchy_, _facts(subject)
    tops = h.children(h.root)
    below = {top: {top, *h.descendants(top)} for top in tops}
    leaves = [h.leaf_of(str(label)) for label in subject.y.tolist()]
    groups = np.array([h.name(next(top for top in tops if leaf in below[top])) for leaf in leaves], dtype=object)
    rows = _by(subject, groups, facts)
    error, covered = expected_calibration_error(facts["confidence"], subject.correct), _mean(facts["covered"])
    low = [row["group"] for row in rows if row["images"] >= ENOUGH and row["coverage"] < subject.coverage - BEHIND]
    measured = f"calibration error {error:.3f}; coverage {covered:.3f} of {subject.coverage:g}" + (
        f"; too low for {', '.join(low)}" if low else ""
    )
    passed = error <= MAX_ECE and covered >= subject.coverage - 0.03 and not low
    figures = {"calibration_error": error, "coverage": covered}
    return Check("calibration and coverage", "Do probabilities and promises hold?", passed, measured, figures, rows)


def thin(subject: Subject) -> Check:
    """Classes that rest on few images."""
    counts, h = subject.model.images_per_class_, subject.model.hierarchy_
    question = "Does every class rest on enough training images?"
    if counts is None:
        return Check("thin classes", question, None, "the model does not say how many images each class had", {})
    few = [
        {"group": h.name(h.leaf_of(str(c))), "images": int(n)}
        for c, n in zip(subject.model.classes_.tolist(), counts, strict=True)
        if n < THIN
    ]
    measured = f"{len(few):,} of {len(counts):,} classes have fewer than {THIN} training images"
    return Check("thin classes", question, not few, measured, {"thin": float(len(few))}, few)


def by_group(subject: Subject) -> Check:
    """Accuracy, coverage and unknowns in every group."""
    assert subject.groups is not None
    rows = _by(subject, np.asarray(subject.groups, dtype=object), _facts(subject))
    whole = float(subject.correct.mean())
    behind = [
        row["group"]
        for row in rows
        if row["images"] >= ENOUGH and (row["accuracy"] < whole - BEHIND or row["coverage"] < subject.coverage - BEHIND)
    ]
    judged = sum(row["images"] >= ENOUGH for row in rows)
    measured = f"{len(behind)} of {judged} groups of {ENOUGH} images or more fall behind" + (
        f": {', '.join(behind)}" if behind else ""
    )
    return Check("groups", "Is it as good in every group?", not behind, measured, {"behind": float(len(behind))}, rows)


def checks_of(subject: Subject) -> Iterator[Check]:
    """All checks that the images allow, one after the other."""
    if not len(subject.y):
        raise HCEPError("there are no images to look at the model with")
    for check in (
        leakage, removed, deletion, noise, other_images, shuffled_labels, random_tree, branches, thin
    ):  # fmt: skip
        yield check(subject)
    if subject.groups is not None:
        yield by_group(subject)
