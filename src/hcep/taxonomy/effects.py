"""The effect of edits on held-out images, measured without fitting again, and the moves that help."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hcep.classify.path_model import PathModel
from hcep.dictionary import ConceptDictionary
from hcep.dictionary.checks import check_shape, refuse_non_finite
from hcep.dictionary.concept_dictionary import average_upwards
from hcep.embeddings import Embeddings
from hcep.errors import HCEPError, HierarchyError, quoted
from hcep.evaluate.statistics import Difference, paired_draws
from hcep.evaluate.support import Outcome, class_f1, support_scores
from hcep.evaluate.truths import as_labels
from hcep.hierarchy import Hierarchy
from hcep.hierarchy.files import class_ids, named_as_ids
from hcep.hierarchy.graph import TreePolicy
from hcep.taxonomy.edits import Edit, Move, apply_edits, diff, refuse_inner_classes

Floats = NDArray[np.float64]
N_FOLDS = 3
#: Metrics that do not rise just because paths share more concepts; a move that lowers one does not help.
UNBIASED = ("accuracy", "f1_above_chance", "class_f1_before")


class HeldOutFold(NamedTuple):
    """Class means of some images, and the images held out from them, in the dictionary's space."""

    model: PathModel
    means: Floats
    images: NDArray[Any]


@dataclass(eq=False)
class HeldOut:
    """Class means and held-out images: the parts of a fitted model that do not depend on the hierarchy.

    Build one with `from_images` or `from_model`; `hcep.taxonomy.effects` measures edits on it.

    Attributes
    ----------
    hierarchy : the whole hierarchy, before it is restricted and collapsed; edits apply to it
    y : (n_images,) array of str; the classes of the held-out images, fold by fold
    model : fitted on all images; geometry, and images of another split, are measured with it
    tree, collapse : how a hierarchy is prepared, as in `HCEPClassifier`
    """

    hierarchy: Hierarchy
    y: NDArray[np.str_]
    folds: list[HeldOutFold]
    model: PathModel
    tree: TreePolicy | None = None
    collapse: bool = True

    @classmethod
    def from_images(cls, hierarchy: Hierarchy, X: ArrayLike, y: ArrayLike, **options: Any) -> Self:
        """Hold out every image once: split each class into folds, and take means and metric from the other folds.

        Parameters
        ----------
        X : (n_images, n_dims) array
        y : (n_images,) array of str; a class with a single image is in the means of every fold and never held out
        **options : of `HCEPClassifier`, such as ``anchor`` or ``tree``. Options that are "auto" are chosen once, on all
            images, by leaving one out.
        """
        from hcep.classify import HCEPTransformer

        images, labels = check_shape(X), np.array(as_labels(y, "y"))
        refuse_non_finite(images)
        # Without refinement, which would favour the present hierarchy.
        whole = HCEPTransformer(hierarchy, **({"refine": False} | options)).fit(images, labels)
        chosen = {name: getattr(whole, f"{name}_") for name in ("anchor", "shrinkage", "power")}
        settled = whole.get_params(deep=False) | chosen
        fold_of = stratified_folds(labels, N_FOLDS, 0)
        if not (fold_of >= 0).any():
            raise HCEPError("no class has two images, so none can be held out; give at least two images of a class")
        folds = []
        for k in sorted(set(fold_of[fold_of >= 0].tolist())):
            model = HCEPTransformer(**settled).fit(images[fold_of != k], labels[fold_of != k])
            folds.append(_fold(model.path_model(), images[fold_of == k]))
        order = np.argsort(fold_of, kind="stable")[np.count_nonzero(fold_of < 0) :]
        return cls(hierarchy, labels[order], folds, whole.path_model(), whole.tree, whole.collapse)

    @classmethod
    def from_model(cls, model: Any, X: ArrayLike, y: ArrayLike) -> Self:
        """Take means, metric and options from a fitted `HCEPClassifier`, and images that it has not seen.

        A logistic head is not used: codes over other atoms are not what it was fitted on.
        """
        hierarchy = model.hierarchy if model.hierarchy is not None else model.hierarchy_
        none: Any = np.array([])
        return cls(hierarchy, none, [], model.path_model(), model.tree, model.collapse).on(X, y)

    def on(self, X: ArrayLike, y: ArrayLike) -> Self:
        """The same means with other held-out images, such as a split that played no part in any choice."""
        labels, images = np.array(as_labels(y, "y")), np.asarray(X)
        unknown = sorted(set(labels.tolist()) - set(self.classes))
        if unknown:
            raise HCEPError(
                f"y has {len(unknown):,} labels that are not classes of the model: {quoted(unknown)}; "
                "leave these images out"
            )
        if len(images) != len(labels) or not len(labels):
            raise HCEPError(f"X and y must have the same length, at least 1; got {len(images):,} and {len(labels):,}")
        return replace(self, y=labels, folds=[_fold(self.model, images)])

    @property
    def dictionary(self) -> ConceptDictionary:
        """The dictionary of `model`."""
        return self.model.dictionary

    @property
    def classes(self) -> list[str]:
        """The classes that have a mean."""
        return [str(c) for c in self.model.classes.tolist()]

    def outcome(self, hierarchy: Hierarchy) -> Outcome:
        """The paths and predictions of the held-out images in a hierarchy over the same classes."""
        prepared = (hierarchy if self.tree is None else hierarchy.as_tree(self.tree)).restrict(self.classes)
        prepared = prepared.collapse() if self.collapse else prepared
        paths: list[tuple[str, ...]] = []
        predicted = []
        for fold in self.folds:
            leaves = [prepared.leaf_of(str(label)) for label in fold.model.classes.tolist()]
            embeddings = average_upwards(prepared, dict(zip(leaves, fold.means, strict=True)))
            dictionary = ConceptDictionary(prepared, embeddings, anchor_unit=fold.model.dictionary.anchor_unit)
            model = replace(fold.model, leaves=np.array(leaves), dictionary=dictionary, head=None)
            result = model.pursue(fold.images)
            paths += result.paths
            predicted.append(model.classes[model.class_index(fold.images, result)])
        return Outcome(prepared, self.y, np.concatenate(predicted), support_scores(paths, self.y, prepared))

    @cached_property
    def baseline(self) -> Outcome:
        """The outcome in the present hierarchy."""
        return self.outcome(self.hierarchy)


def stratified_folds(y: NDArray[np.str_], n_folds: int, random_state: int) -> NDArray[np.int64]:
    """The fold of each image, (n_images,), with the images of a class spread evenly; -1 for a class's only image.

    scikit-learn's `StratifiedKFold` also holds out the only image of a class, and refuses or warns about classes that
    are smaller than the number of folds.
    """
    fold_of = np.full(len(y), -1, dtype=np.int64)
    rng = np.random.default_rng(random_state)
    _, index, counts = np.unique(y, return_inverse=True, return_counts=True)
    for k in np.flatnonzero(counts > 1):
        members = rng.permutation(np.flatnonzero(index == k))
        # A random start, so that small classes do not all land in the first folds.
        fold_of[members] = (np.arange(len(members)) + rng.integers(n_folds)) % n_folds
    return fold_of


def _fold(model: PathModel, images: NDArray[Any]) -> HeldOutFold:
    """Means and images in the span of the means, if that has fewer dimensions.

    Every atom of every hierarchy over these classes lies in that span, and an image's part outside it adds the same to
    the objective of every path: the search finds the same paths in far fewer dimensions. A residual tolerance is the
    exception, because it is about the whole residual.
    """
    dictionary = model.dictionary
    means = np.stack([dictionary.synset_embedding(leaf) for leaf in model.leaves])
    embedded = dictionary.embed(images)
    if len(means) < dictionary.n_dims and model.options.tol == 0.0:
        span = np.linalg.qr(means.T)[0]
        means, embedded = means @ span, embedded @ span.astype(embedded.dtype)
    return HeldOutFold(model, means, embedded)


class MetricChange(NamedTuple):
    """A metric before and after, and the standard error of its paired difference over images."""

    before: float
    after: float
    difference: float
    error: float


@dataclass(frozen=True, eq=False)
class Effect:
    """The outcomes on the same images before and after some edits; F1 after is measured in the hierarchy *after*."""

    edits: tuple[Edit, ...]
    before: Outcome
    after: Outcome

    @cached_property
    def metrics(self) -> Mapping[str, MetricChange]:
        """Every metric by name, with its paired difference."""
        changes = {}
        for name, (before, after) in self._per_image.items():
            difference = after - before
            error = float(difference.std() / np.sqrt(len(difference)))
            changes[name] = MetricChange(float(before.mean()), float(after.mean()), float(difference.mean()), error)
        return changes

    def interval(self, metric: str, level: float = 0.95) -> Difference:
        """The paired difference of a metric, after minus before, with its confidence interval over images."""
        before, after = self._per_image[metric]
        return paired_draws(after[None], before[None], level=level)

    @property
    def accuracy(self) -> MetricChange:
        return self.metrics["accuracy"]

    @cached_property
    def _per_image(self) -> dict[str, tuple[Floats, Floats]]:
        before, after = self._scores(self.before), self._scores(self.after)
        return {name: (before[name], after[name]) for name in before}

    def _scores(self, outcome: Outcome) -> dict[str, Floats]:
        classes, index = np.unique(np.concatenate([outcome.y, outcome.predicted]), return_inverse=True)
        truth, predicted = np.split(index, 2)
        support, chance = outcome.support, outcome.chance_f1
        return {
            "accuracy": (outcome.predicted == outcome.y) * 1.0,
            "support_precision": support.precision,
            "support_recall": support.recall,
            "support_f1": support.f1,
            "f1_above_chance": (support.f1 - chance) / max(1.0 - chance, 1e-12),
            "class_f1_before": class_f1(self.before.hierarchy, classes.tolist())[predicted, truth],
        }


def what_if(held_out: HeldOut, edits: Iterable[Edit]) -> Effect:
    """Measure edits, in their order, on held-out images; class means and metric stay the same."""
    edits = tuple(edits)
    return compare(held_out, apply_edits(held_out.hierarchy, edits, held_out.classes), edits)


def compare(held_out: HeldOut, after: Hierarchy, edits: tuple[Edit, ...] = ()) -> Effect:
    """The effect of another hierarchy over the same classes."""
    return Effect(edits, held_out.baseline, held_out.outcome(after))


def ids_of(hierarchy: Hierarchy, y: ArrayLike) -> NDArray[np.str_]:
    """Labels of images as ids of the hierarchy, (n_images,); unknown labels stay as they are."""
    labels, index = np.unique(np.asarray(y, dtype=str), return_inverse=True)
    return np.array(list(class_ids(hierarchy, labels.tolist()).values()), dtype=str)[index]


class Edited(NamedTuple):
    """A hierarchy after edits, what changed, and the effect on held-out images, by what the images are."""

    after: Hierarchy
    changes: list[str]
    effects: dict[str, Effect]


def edit_hierarchy(
    hierarchy: Hierarchy,
    edits: Sequence[Edit],
    *,
    classes: Iterable[str] | None = None,
    images: Embeddings | None = None,
    model: Any = None,
) -> Edited:
    """Edit a hierarchy and measure what the edits do to labelled images, without fitting a model again.

    Raises HierarchyError: an edit that is impossible, or that loses a class.

    Parameters
    ----------
    classes : labels that must survive; by default those of the leaves
    images : labelled images; they are held out in turn, or new to the model
    model : fitted `HCEPClassifier` whose class means and metric are used
    """
    known = None if classes is None else list(class_ids(hierarchy, classes).values())
    after = apply_edits(hierarchy, edits, known)
    refuse_inner_classes(hierarchy, after, known)
    effects, labels = {}, {*(known or ())}
    if images is not None:
        if model is None:
            held_out = HeldOut.from_images(hierarchy, images.X, ids_of(hierarchy, images.y))
        else:
            held_out = HeldOut.from_model(model, images.X, images.y)
        labels |= {*held_out.classes}
        effects = {f"{len(held_out.y):,} held-out images of {images.source}": compare(held_out, after)}
    changes = diff(hierarchy, after)
    if model is None and all(hierarchy.name(s) == s for s in hierarchy):  # a file without ids stays without them
        after = named_as_ids(after, labels)
    return Edited(after, changes, effects)


@dataclass(frozen=True, eq=False)
class MeasuredMove:
    """A proposed move and its effect on held-out images; it is one of `n_tried` that were measured on them."""

    move: Move
    effect: Effect
    n_tried: int = 1

    def gain(self, metric: str = "support_f1") -> Difference:
        """The paired difference with its 95% interval, corrected for the number of moves tried (Bonferroni)."""
        return self.effect.interval(metric, 1.0 - 0.05 / self.n_tried)

    @property
    def helps(self) -> bool:
        """Whether the interval of support F1, also above chance, is positive and no unbiased metric clearly falls."""
        unbiased = [self.effect.metrics[name] for name in UNBIASED]
        rises = all(self.gain(name).low > 0 for name in ("support_f1", "f1_above_chance"))
        return rises and all(change.difference >= -change.error for change in unbiased)


def propose_moves(held_out: HeldOut) -> list[Move]:
    """Moves of children that are nearer to another inner concept than to a parent, the clearest cases first.

    The moves are those of the whole hierarchy and not of the collapsed one.

    For each child two other parents are considered, with embeddings averaged *without the child*. The mean of many
    children lies near the centre and so near every child. A proposal must therefore also lower the scatter of children
    about their parents, which is the squared length of the atoms: joining n children at distance d adds
    ``n / (n + 1) d**2`` (Hartigan's rule for k-means; *Clustering Algorithms*, Wiley 1975, chapter 4).
    """
    hierarchy = held_out.dictionary.hierarchy
    n_children = np.diff(hierarchy.child_pointer).tolist()
    proposals: list[tuple[float, Move]] = []  # with the scatter that is added to the other parent, over the own
    for child in range(1, len(hierarchy)):
        distances = distances_to_parents(held_out.dictionary, child)
        parents = list(map(hierarchy.index, hierarchy.parents(hierarchy.ids[child])))
        n_others = {p: n_children[p] - (p in parents) for p in distances}
        scatter = {p: n_others[p] / (n_others[p] + 1) * distance**2 for p, distance in distances.items()}
        others = sorted((p for p in distances if p not in parents), key=scatter.__getitem__)[:2]
        for own in (p for p in parents if p in distances):
            for other in others:
                if distances[other] < distances[own] and scatter[other] < scatter[own]:
                    move = Move(hierarchy.ids[child], hierarchy.ids[other], hierarchy.ids[own])
                    move = in_whole(held_out.hierarchy, hierarchy, move)
                    proposals.append((scatter[other] / scatter[own], move))
    return [move for _, move in sorted(proposals, key=lambda proposal: proposal[0])]


def distances_to_parents(dictionary: ConceptDictionary, child: int) -> dict[int, float]:
    """The distance of a concept to every inner concept that could be its parent, averaged without the child."""
    hierarchy, embeddings = dictionary.hierarchy, dictionary.synset_embeddings
    # Embeddings of the concepts above the child without it; None for one that is left without children.
    without: dict[int, Floats | None] = {child: None}
    for synset in reversed(hierarchy.ancestors(hierarchy.ids[child])):  # the root comes first there
        children = map(hierarchy.index, hierarchy.children(synset))
        left = [v for c in children if (v := without.get(c, embeddings[c])) is not None]
        without[hierarchy.index(synset)] = np.mean(left, axis=0) if left else None
    barred = {0, child, *map(hierarchy.index, hierarchy.descendants(hierarchy.ids[child]))}
    inner = np.flatnonzero(np.diff(hierarchy.child_pointer) > 0).tolist()
    vectors = {i: without.get(i, embeddings[i]) for i in inner if i not in barred}
    known = {i: vector for i, vector in vectors.items() if vector is not None}
    if not known:
        return {}
    distances = np.linalg.norm(np.stack(list(known.values())) - embeddings[child], axis=1)
    return dict(zip(known, distances.tolist(), strict=True))


def in_whole(whole: Hierarchy, collapsed: Hierarchy, move: Move) -> Move:
    """Translate a move in a restricted and collapsed hierarchy to the whole hierarchy.

    An edge there may be a chain p → m → c here. The move takes the highest concept of the chain without other children,
    so that names stay together and nothing moves that was not measured.
    """

    @cache
    def next_above(synset: str) -> frozenset[str]:
        if synset in collapsed:
            return frozenset([synset])
        return frozenset(top for parent in whole.parents(synset) for top in next_above(parent))

    synset = move.synset
    while True:
        parent = next(p for p in whole.parents(synset) if move.from_parent in next_above(p))
        shared = len(next_above(parent)) > 1  # the chain has several parents: leave only this one
        if parent == move.from_parent or not (shared or len(whole.children(parent)) == 1):
            return Move(synset, move.to_parent, parent)
        synset = parent


def measure_moves(
    held_out: HeldOut, moves: Sequence[Move], step: Callable[[], object] = lambda: None
) -> list[MeasuredMove]:
    """Measure each move alone, and sort by the gain in support F1 above chance, which longer paths do not raise.

    `step` is called after each move.
    """
    measured = []
    for move in moves:
        measured.append(MeasuredMove(move, what_if(held_out, [move]), len(moves)))
        step()
    return sorted(measured, key=lambda m: -m.effect.metrics["f1_above_chance"].difference)


def best_moves(held_out: HeldOut, measured: Iterable[MeasuredMove], n_moves: int) -> Effect:
    """The joint effect of at most `n_moves` moves that help; its ``edits`` are the moves.

    Moves interact: two may concern one concept, or one may change what another was compared with. So each, the best
    first, is measured again on top of those already taken, and taken only if it still helps.
    """
    effect = what_if(held_out, [])
    for candidate in (m for m in measured if m.helps):
        if len(effect.edits) == n_moves:
            break
        try:
            together = what_if(held_out, [*effect.edits, candidate.move])
        except HierarchyError:  # an earlier move removed the edge, or would make this one close a cycle
            continue
        gains = [together.metrics[m].after - effect.metrics[m].after for m in ("support_f1", "f1_above_chance")]
        if min(gains) > 0 and together.accuracy.difference >= -together.accuracy.error:
            effect = together
    return effect
