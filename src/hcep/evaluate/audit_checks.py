"""Checks of a fitted model on labelled images it has not seen; each check sums over blocks of images."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import KDTree
from sklearn.base import clone

from hcep._progress import progress as progress_bar
from hcep.classify import HCEPClassifier
from hcep.classify.hedging import HeldOutScores, held_out_scores, right_levels, unknown_scores
from hcep.classify.path_model import Inference
from hcep.dictionary.transform import EmbeddingTransform
from hcep.embeddings import EmbeddingStore
from hcep.errors import HCEPError
from hcep.evaluate import statistics as stats
from hcep.evaluate.support import tree_distances
from hcep.explain.predictions import blocks_of
from hcep.hierarchy import Hierarchy
from hcep.models.fitting import fit_streaming

Floats = NDArray[np.float64]
Row = dict[str, Any]
#: The largest share of answers that the code of the path does not give (a tie can differ), and calibration error.
MAX_LEAK, MAX_ECE = 0.001, 0.1
#: Size of the noise, as a share of the image's norm, and the smallest share of answers that must not change.
NOISE, STAY = 0.05, 0.9
#: The smallest share of concepts that paths of two fits must have in common; training images of a thin class.
SAME_PATH, THIN = 0.7, 5
#: The smallest number of images to judge a branch or group by, and how far it can fall behind the others.
ENOUGH, BEHIND = 30, 0.1
#: Images in memory at a time; the largest number of images that set the threshold for coverage.
BLOCK, MOST_HELD_OUT = 1024, 2000
#: The curves of the deletion check.
DELETION = ("deleted", "inserted", "others deleted")
#: What is said of a model that was never calibrated.
NO_PROMISE = "the model itself promises nothing until it is calibrated (hcep model calibrate)"
#: Two images whose four scores differ by no more than this are the same image.
SAME_SCORES = 1e-5
#: (n_images, n_dims) embeddings, or their store.
Images = NDArray[Any] | EmbeddingStore


@dataclass(frozen=True)
class Check:
    """The result of one check.

    Attributes
    ----------
    passed : None if the images do not allow a conclusion
    measured : the figures in a sentence
    rows : figures by branch, group, class or number of concepts
    """

    name: str
    question: str
    passed: bool | None
    measured: str
    figures: dict[str, float]
    rows: list[Row] = field(default_factory=list)


class SumsByName(dict[Any, Any]):
    """Sums of values by name, over the images that have a value."""

    def add_rows(self, name: object, rows: Floats) -> None:
        self[name] = self.get(name, 0.0) + rows.sum(axis=0)

    def add(self, name: object, values: Any) -> None:
        known = np.asarray(values, dtype=np.float64)
        known = known[~np.isnan(known)]
        self.add_rows(name, np.column_stack([known, known**2, np.ones(len(known))]))

    def n(self, name: object) -> int:
        return int(self[name][2])

    def mean(self, name: object) -> float:
        total, _, n = self[name]
        return float(total / n) if n else float("nan")

    def variance(self, name: object) -> float:
        total, squares, n = self[name]
        return float((squares - total**2 / n) / (n - 1))


@dataclass(frozen=True, eq=False)
class Subject:
    """A model, the images it is checked on, and sums over them.

    Attributes
    ----------
    X, y : labelled images that the model was not fitted on
    train : the training images; without them, no control models are fitted
    sure : the promised share of right answers to check
    """

    model: HCEPClassifier
    X: Images
    y: NDArray[Any]
    train: tuple[Images, NDArray[Any]] | None = None
    groups: NDArray[Any] | None = None
    sure: float = 0.9
    seed: int = 0
    progress: bool = False
    sums: SumsByName = field(default_factory=SumsByName)

    @property
    def rng(self) -> np.random.Generator:
        return np.random.default_rng(self.seed)

    @cached_property
    def chance(self) -> float:
        """Accuracy of the most frequent class."""
        return float(np.unique(self.y, return_counts=True)[1].max() / len(self.y))

    @property
    def promises(self) -> bool:
        """Whether the model was calibrated for single photos of all classes, so that it promises coverage of them."""
        return self._calibration is not None

    _order = cached_property[NDArray[np.intp]](lambda self: self.rng.permutation(len(self.y)))

    @cached_property
    def judged(self) -> NDArray[np.bool_]:
        """Mask of the images that coverage is measured on: all of them if the model is calibrated, otherwise half."""
        return np.asarray(self._order >= (0 if self._calibration is not None else len(self.y) // 2))

    @property
    def _calibration(self) -> HeldOutScores | None:
        """The model's own held-out scores, unless they are about groups of photos or a list of possible classes."""
        held = self.model.path_model().held_out
        return None if held is None or held.only or held.by_group else held

    @cached_property
    def held(self) -> HeldOutScores:
        """The held-out scores that set the threshold for coverage."""
        model = self.model.path_model()
        if self._calibration is not None:
            return self._calibration
        rows = np.flatnonzero(self._order < min(len(self.y) // 2, MOST_HELD_OUT))
        X = self.X.select(rows=rows).to_numpy(np.float32) if isinstance(self.X, EmbeddingStore) else self.X[rows]
        return held_out_scores(model, self.model.infer(X, explained=True), np.searchsorted(model.classes, self.y[rows]))

    def refitted(self, X: Images, y: NDArray[Any], hierarchy: Hierarchy | None = None) -> HCEPClassifier:
        """Fit another model with the same settings, including those that the first one chose."""
        names = ("tree", "collapse", "unit_norm", "center", "beam_width", "max_steps", "tol", "signed", "head")
        parameters, chosen = self.model.get_params(deep=False), ("shrinkage", "anchor", "power")
        settings = {name: clone(parameters[name], safe=False) for name in names}
        settings |= {name: getattr(self.model, f"{name}_") for name in chosen} | {"refine": False}
        again = HCEPClassifier(hierarchy or self.model.hierarchy, **settings)
        if not isinstance(X, EmbeddingStore):
            return again.fit(X, y)
        fit_streaming(again, X, y, self.progress)
        return again


@dataclass(frozen=True, eq=False)
class Block:
    """A block of images, and the model's answers to them."""

    subject: Subject
    X: NDArray[Any]
    y: NDArray[Any]
    rows: slice

    model = property(lambda self: self.subject.model)
    inference = cached_property[Inference](lambda self: self.model.infer(self.X, explained=True))
    answers = cached_property[NDArray[Any]](lambda self: np.asarray(self.model.predict(self.X)))
    correct = cached_property[NDArray[np.bool_]](lambda self: np.asarray(self.answers == self.y))

    @cached_property
    def parts(self) -> tuple[Floats, Floats]:
        """The part of each image that its path explains, and the rest, in the dictionary's space."""
        dictionary = self.model.dictionary_
        explained = np.asarray(self.inference.codes @ dictionary.atoms, dtype=np.float64)
        return explained, dictionary.embed(self.X.astype(np.float64)) - explained

    def predicted(self, x: Floats) -> NDArray[Any]:
        """Return the model's answers to images in the dictionary's space."""
        return np.asarray(self.model.predict(raw_images(self.model.dictionary_.transform, x)))

    @cached_property
    def facts(self) -> dict[str, NDArray[Any]]:
        """Confidence; for judged images also whether the answer covers the truth, and whether they seem unknown."""
        model, judged = self.model.path_model(), self.subject.judged[self.rows] & ~self.of_calibration
        calibrated = replace(model, held_out=self.subject.held)
        synsets = right_levels(calibrated, self.inference, self.subject.sure).synsets
        covered = model.levels.is_below(np.searchsorted(model.classes, self.y), synsets)
        alarms = unknown_scores(model, self.inference) > self.subject.held.quantile("unknown", 0.05)
        of_judged = {name: np.where(judged, facts, np.nan) for name, facts in (("covered", covered), ("alarm", alarms))}
        return {"confidence": self.inference.probabilities.max(axis=1), **of_judged}

    @cached_property
    def of_calibration(self) -> NDArray[np.bool_]:
        """Mask of the images that the model was calibrated on, which cannot be used to measure coverage."""
        model = self.model.path_model()
        if model.held_out is None:
            return np.zeros(len(self.y), dtype=bool)
        own = held_out_scores(model, self.inference, np.searchsorted(model.classes, self.y))
        n_columns = model.held_out.scores.shape[1]  # fewer if an earlier release calibrated the model
        calibration, mine = (
            np.column_stack([held.class_index, held.scores[:, :n_columns]]) for held in (model.held_out, own)
        )
        return np.asarray(KDTree(calibration).query(mine, distance_upper_bound=SAME_SCORES)[0] < SAME_SCORES)


def per_cent(share: float, digits: int = 1) -> str:
    """A measured share.

    >>> per_cent(0.98), per_cent(0.05, 0)
    ('98.0 %', '5 %')
    """
    return f"{100 * share:.{digits}f} %"


def raw_images(transform: EmbeddingTransform, x: Floats) -> Floats:
    """Invert a transform; if it normalises embeddings, their length is lost.

    If there is a block for words beside that for pictures, it is ignored.
    """
    out: NDArray[Any] = x[:, : transform.n_dims(x.shape[1])] / (transform.scale or transform.words)
    if transform.whitener is not None:
        out = np.linalg.solve(transform.whitener.T, out.T).T
    out = out if transform.mean is None else out + transform.mean
    return np.asarray(np.copysign(np.abs(out) ** (1.0 / transform.power), out))


#: A running check: it receives one block of images after the other, then None, and returns its result.
Running = Generator[None, Block | None, Check]


def leakage(subject: Subject) -> Running:
    """Compare the answers with those that the code of the path gives."""
    sums, plain = subject.sums, subject.model.path_model()
    while block := (yield):
        replayed = plain.classes[plain.class_index(np.zeros_like(block.X), block.inference)]
        sums.add("not from the code", replayed != block.answers)
        sums.add("replayed", replayed == block.y)
        sums.add("correct", block.correct)
    other, gain = sums.mean("not from the code"), sums.mean("correct") - sums.mean("replayed")
    same = f"{per_cent(1 - other)} of the images; the other answers change accuracy by {gain:+.3f}"
    text = f"the coefficients on the path alone give the same answer for {same if other else 'every image'}"
    figures = {"not_from_the_code": other, "accuracy_beyond_the_code": gain}
    return Check("leakage", "Does the answer come from the path alone?", other <= MAX_LEAK, text, figures)


def removed(subject: Subject) -> Running:
    """Remove the concepts of the path, or replace them by those of another image: the answer must change with them."""
    sums = subject.sums
    while block := (yield):
        explained, rest = block.parts
        other = subject.rng.permutation(len(rest))
        swapped, differ = block.predicted(rest + explained[other]), block.y != block.y[other]
        sums.add("without", block.predicted(rest) == block.y)
        sums.add("exchanged", (swapped == block.y)[differ])
        sums.add("follow", (swapped == block.answers[other])[differ])
    figures = {name: sums.mean(name) for name in ("without", "exchanged", "follow")}
    (without, own, follows), accuracy, allowed = figures.values(), sums.mean("correct"), subject.chance + 0.05
    text = (
        f"accuracy is {accuracy:.3f}, {without:.3f} without the path's concepts and {own:.3f} with those of another "
        f"image (chance: {subject.chance:.3f}); {per_cent(follows)} of the answers follow the exchanged concepts"
    )
    question, passed = "Does accuracy fall to chance without the concepts?", without <= allowed and own <= allowed
    return Check("concepts removed", question, passed, text, {**figures, "accuracy": accuracy})


def deletion(subject: Subject) -> Running:
    """Remove concepts one by one from the leaf up, and insert them from the root down."""
    sums, model, tree = subject.sums, subject.model, subject.model.hierarchy_.path_tree
    atoms, transform = model.dictionary_.atoms, model.dictionary_.transform
    while block := (yield):
        paths, own, rows = block.inference, block.inference.class_index, np.arange(len(block.X))
        nodes, codes, lengths = tree.ancestors()[paths.nodes], paths.codes.toarray(), tree.level[paths.nodes]
        deleted: Floats = np.array(sum(block.parts))
        inserted, control, shuffled = np.zeros_like(deleted), deleted.copy(), subject.rng.permutation(len(rows))
        for level in range(tree.depth):
            lowest = np.where(lengths > level, nodes[rows, np.maximum(lengths - 1 - level, 0)], 0)
            taken, put = (
                np.where(v[:, None] > 0, codes[rows, tree.edge[v]][:, None] * atoms[tree.edge[v]], 0.0)
                for v in (lowest, nodes[:, level])
            )
            inserted, deleted, control = inserted + put, deleted - taken, control - taken[shuffled]
            for name, x in zip(DELETION, (deleted, inserted, control), strict=True):
                sums.add((name, level), model.infer(raw_images(transform, x)).probabilities[rows, own])
    curve = [{"concepts": k + 1, **{name: sums.mean((name, k)) for name in DELETION}} for k in range(tree.depth)]
    area = {name: float(np.mean([row[name] for row in curve])) for name in DELETION}
    text = (
        f"the mean probability of the class over all steps is {area['deleted']:.3f} when its own concepts are deleted, "
        f"{area['others deleted']:.3f} when those of another image are, and {area['inserted']:.3f} when its own are "
        "inserted from the root"
    )
    question, passed = "Do the path's own concepts carry the answer?", area["deleted"] < area["others deleted"]
    return Check("deletion and insertion", question, passed, text, area, curve)


def noise(subject: Subject) -> Running:
    """Add small noise to the embeddings."""
    sums, model = subject.sums, subject.model
    while block := (yield):
        x = np.asarray(sum(block.parts))
        drawn = subject.rng.standard_normal(x.shape)
        drawn *= NOISE * np.linalg.norm(x, axis=1, keepdims=True) / np.linalg.norm(drawn, axis=1, keepdims=True)
        again = raw_images(model.dictionary_.transform, x + drawn)
        sums.add("answers stay", model.predict(again) == block.answers)
        pairs = zip(block.inference.paths, model.pursue(again).paths, strict=True)
        sums.add("paths stay", [a == b for a, b in pairs])
    same, paths = sums.mean("answers stay"), sums.mean("paths stay")
    text = f"{per_cent(same)} of the answers and {per_cent(paths)} of the paths stay the same with noise of "
    text += f"{per_cent(NOISE, 0)} of the norm"
    question = "Do answers stay the same under small noise?"
    return Check("noise", question, same >= STAY, text, {"answers": same, "paths": paths})


def _not_run(name: str, question: str, reason: str = "no training images were given") -> Running:
    while (yield):
        pass
    return Check(name, question, None, reason, {})


def other_images(subject: Subject) -> Running:
    """Compare with a fit to half of the training images."""
    name = "other training images"
    question = "Do paths stay the same when the model is fitted to other images of the same classes?"
    if subject.train is None:
        return (yield from _not_run(name, question))
    X, y = subject.train
    half = np.zeros(len(y), dtype=bool)
    for c in np.unique(y):
        rows = subject.rng.permutation(np.flatnonzero(y == c))
        half[rows[: max(1, len(rows) // 2)]] = True
    again = subject.refitted(X.select(rows=half) if isinstance(X, EmbeddingStore) else X[half], y[half])
    while block := (yield):
        pairs = zip(block.inference.paths, again.pursue(block.X).paths, strict=True)
        subject.sums.add(name, [len({*a} & {*b}) / max(len({*a} | {*b}), 1) for a, b in pairs])
    shared = subject.sums.mean(name)
    text = f"paths of a fit to half of the training images share {per_cent(shared)} of their concepts with the "
    text += "model's"
    return Check(name, question, shared >= SAME_PATH, text, {"shared": shared})


def shuffled_labels(subject: Subject) -> Running:
    """Compare with a fit to shuffled labels, which must be at chance."""
    name, question = "shuffled labels", "Is a model fitted to shuffled labels at chance?"
    if subject.train is None:
        return (yield from _not_run(name, question))
    again = subject.refitted(subject.train[0], subject.rng.permutation(subject.train[1]))
    while block := (yield):
        subject.sums.add(name, again.predict(block.X) == block.y)
    accuracy, chance = subject.sums.mean(name), subject.chance
    text, figures = f"accuracy is {accuracy:.3f}, chance {chance:.3f}", {"accuracy": accuracy, "chance": chance}
    return Check(name, question, accuracy <= chance + 0.1, text, figures)


def random_tree(subject: Subject) -> Running:
    """Compare with a fit whose classes are in random places of the tree: its mistakes must be more severe."""
    name, question = "random tree", "Are mistakes milder than with a random tree?"
    h, classes, sums = subject.model.hierarchy_, subject.model.classes_.tolist(), subject.sums
    if subject.train is None:
        return (yield from _not_run(name, question))
    if h.depth < 2:
        return (yield from _not_run(name, question, "the hierarchy is flat"))
    leaves = [h.leaf_of(str(label)) for label in classes]
    place = dict(zip(leaves, subject.rng.permutation(leaves).tolist(), strict=True))
    tree = Hierarchy.from_edges([(parent, place.get(child, child)) for parent, child in h.edges])
    names = dict(zip(classes, leaves, strict=True))
    again = subject.refitted(subject.train[0], np.array([names[c] for c in subject.train[1].tolist()]), tree)
    far = (name, "tree"), (name, "random")
    while block := (yield):
        truth, ours = (np.array([names[c] for c in labels.tolist()]) for labels in (block.y, block.answers))
        for key, predicted in zip(far, (ours, np.asarray(again.predict(block.X))), strict=True):
            sums.add(key, tree_distances(truth, predicted, h)[predicted != truth])
    fewest = min(map(sums.n, far))
    if fewest < ENOUGH:
        return Check(name, question, None, f"only {fewest} mistakes, too few to compare", {})
    mine, theirs = map(sums.mean, far)
    half = 1.96 * float(np.sqrt(sum(sums.variance(one) / sums.n(one) for one in far)))
    passed = None if abs(theirs - mine) <= half else mine < theirs
    text = f"mistakes are {mine:.2f} edges from the truth, and {theirs:.2f} with a random tree (± {half:.2f})"
    return Check(name, question, passed, text, {"tree": mine, "random_tree": theirs, "half_interval": half})


def _add_by(sums: SumsByName, kind: str, groups: NDArray[Any], block: Block) -> None:
    gaps = stats.summable_gaps(block.facts["confidence"], block.correct.astype(np.float64))
    for group in dict.fromkeys(groups.tolist()):
        own = groups == group
        sums.add_rows((kind, "gaps", group), gaps[own])
        for name, values in (("accuracy", block.correct), *block.facts.items()):
            sums.add((kind, name, group), values[own])


def _rows_by(sums: SumsByName, kind: str) -> list[Row]:
    return [
        {
            "group": str(group),
            "images": sums.n((kind, "accuracy", group)),
            "accuracy": sums.mean((kind, "accuracy", group)),
            "calibration error": float(stats.calibration_errors(sums[kind, "gaps", group])),
            "coverage": sums.mean((kind, "covered", group)),
            "called unknown": sums.mean((kind, "alarm", group)),
        }
        for group in [name[2] for name in sums if name[:2] == (kind, "gaps")]
    ]


def branches(subject: Subject) -> Running:
    """Measure calibration and coverage, overall and by branch of the root."""
    sums, h = subject.sums, subject.model.hierarchy_
    top_of = {leaf: h.name(top) for top in reversed(h.children(h.root)) for leaf in (top, *h.descendants(top))}
    while block := (yield):
        tops = [top_of[h.leaf_of(str(label))] for label in block.y.tolist()]
        _add_by(sums, "branch", np.array(tops, dtype=object), block)
        _add_by(sums, "all", np.zeros(len(tops)), block)
        sums.add("of calibration", block.of_calibration)
        for label in dict.fromkeys(block.y.tolist()):
            sums.add(("class", label), block.facts["covered"][block.y == label])
    rows, (whole,) = _rows_by(sums, "branch"), _rows_by(sums, "all")
    error, covered = whole["calibration error"], whole["coverage"]
    low = [row["group"] for row in rows if row["images"] >= ENOUGH and row["coverage"] < subject.sure - BEHIND]
    question, n, seen = (
        "Are probabilities calibrated, and is coverage kept?",
        whole["images"],
        sums["of calibration"][0],
    )
    text = f"the calibration error is {error:.3f}"
    figures = {"calibration_error": error, "coverage": covered}
    if seen < n:
        by_class = np.sort([sums.mean(name) for name in sums if name[0] == "class"])
        by_class = by_class[~np.isnan(by_class)]
        macro, worst = by_class.mean(), by_class[: max(1, len(by_class) // 10)].mean()
        figures |= {"macro_coverage": float(macro), "worst_tenth_of_classes": float(worst)}
        halves = f"where {subject.sure:g} was asked for, on half of the images after calibration with the other half"
        text += f"; coverage is {covered:.3f}"
        text += f", promised {subject.sure:g}" if subject.promises else f" {halves}"
        text += f" ({macro:.3f} as a mean over classes, {worst:.3f} in the worst tenth of them)"
    text += f"; it is too low for {', '.join(low)}" if low else ""
    if not subject.promises:
        other = subject.model.path_model().held_out is not None
        only = "the model itself is calibrated only for groups of photos or for a list of possible classes"
        text += f"; {only if other else NO_PROMISE}"
    passed: bool | None = error <= MAX_ECE and covered >= subject.sure - 0.03 and not low
    if seen:
        which = "all" if seen == n else f"{seen:,.0f} of {n:,}"
        text += f"; {which} images were used to calibrate the model and cannot be used to measure coverage"
        passed = None if n - seen < ENOUGH and error <= MAX_ECE else passed
    return Check("calibration and coverage", question, passed, text, figures, rows)


def thin(subject: Subject) -> Running:
    """List classes with few training images."""
    counts, h = subject.model.images_per_class_, subject.model.hierarchy_
    name, question = "thin classes", "Does every class have enough training images?"
    if counts is None:
        return (yield from _not_run(name, question, "the model does not record the number of images per class"))
    while (yield):
        pass
    pairs = zip(subject.model.classes_.tolist(), counts, strict=True)
    few = [{"group": h.name(h.leaf_of(str(c))), "images": int(n)} for c, n in pairs if n < THIN]
    text = f"{len(few):,} of {len(counts):,} classes have fewer than {THIN} training images"
    return Check(name, question, not few, text, {"thin": float(len(few))}, few)


def by_group(subject: Subject) -> Running:
    """Measure accuracy, coverage and false alarms in every group."""
    groups, sums, promise = np.asarray(subject.groups, dtype=object), subject.sums, subject.sure
    while block := (yield):
        _add_by(sums, "group", groups[block.rows], block)
    rows, whole = _rows_by(sums, "group"), sums.mean("correct")
    judged = [row for row in rows if row["images"] >= ENOUGH]
    bad = [r["group"] for r in judged if r["accuracy"] < whole - BEHIND or r["coverage"] < promise - BEHIND]
    text = f"{len(bad)} of {len(judged)} groups with at least {ENOUGH} images fall behind"
    text += f": {', '.join(bad)}" if bad else ""
    return Check("groups", "Is the model as good in every group?", not bad, text, {"behind": float(len(bad))}, rows)


ALL = (leakage, removed, deletion, noise, other_images, shuffled_labels, random_tree, branches, thin)


def run_checks(subject: Subject, checks: Sequence[Callable[[Subject], Running]] = ALL) -> list[Check]:
    """Run checks on all images, one block at a time; groups are checked if there are any."""
    if not len(subject.y):
        raise HCEPError("there are no images to check the model on")
    running = [check(subject) for check in (*checks, *([by_group] if subject.groups is not None else []))]
    for check in running:
        next(check)
    with progress_bar("checking", len(subject.y), subject.progress, "images") as advance:
        for rows, images in blocks_of(subject.X, BLOCK):
            block = Block(subject, images, subject.y[rows], rows)
            for check in running:
                check.send(block)
            advance(len(images))
    return [_result(check) for check in running]


def _result(check: Running) -> Check:
    try:
        check.send(None)
    except StopIteration as end:
        return cast("Check", end.value)
    raise AssertionError("a check did not return after the last block")
