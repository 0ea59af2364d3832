"""What edits of the hierarchy do to held-out images, without fitting again, and which moves hold what they promise."""

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
from hcep.errors import HCEPError, HierarchyError, quoted
from hcep.evaluate.statistics import Difference, paired_draws
from hcep.evaluate.support import Outcome, as_labels, class_f1, support_scores
from hcep.hierarchy import Hierarchy
from hcep.hierarchy.graph import TreePolicy
from hcep.taxonomy.edits import Edit, Move, apply_edits

Floats = NDArray[np.float64]
N_FOLDS = 3
#: Metrics that a hierarchy cannot raise by sharing more of its paths; a move that lowers one does not help.
UNBIASED = ("accuracy", "f1_above_chance", "class_f1_before")


class Fold(NamedTuple):
    """Class means of some images, and other images, both after the transform that the former fixed."""

    model: PathModel
    means: Floats
    images: NDArray[Any]


@dataclass(eq=False)
class HeldOut:
    """Class means and held-out images: all of a fitted model that does not depend on the hierarchy.

    Build one with `from_images` or `from_model`; `hcep.taxonomy.what_if` measures edits on it.

    Attributes
    ----------
    hierarchy : as given, before it is restricted and collapsed; edits apply to it
    y : (n_images,) array of str; classes of the held-out images, fold by fold
    model : of all the images given: what geometry is measured on, and images of another split
    tree, collapse : what is done to a hierarchy before it is used, as in `HCEPClassifier`
    """

    hierarchy: Hierarchy
    y: NDArray[np.str_]
    folds: list[Fold]
    model: PathModel
    tree: TreePolicy | None = None
    collapse: bool = True

    @classmethod
    def from_images(cls, hierarchy: Hierarchy, X: ArrayLike, y: ArrayLike, **options: Any) -> Self:
        """Hold every image out once: split each class into folds, and take means and metric from the other folds.

        Parameters
        ----------
        X : (n_images, n_dims) array
        y : (n_images,) array of str; a class with a single image is in the means of every fold and never held out
        **options : of `HCEPClassifier`, such as ``anchor`` or ``tree``. What is "auto" is chosen once, on all images,
            by leaving each of them out.
        """
        from hcep.classify import HCEPTransformer

        images, labels = check_shape(X), np.array(as_labels(y, "y"))
        refuse_non_finite(images)
        # Not refined, which would favour the hierarchy that they are refined in.
        whole = HCEPTransformer(hierarchy, **({"refine": False} | options)).fit(images, labels)
        chosen = {name: getattr(whole, f"{name}_") for name in ("anchor", "shrinkage", "power")}
        settled = whole.get_params(deep=False) | chosen
        fold_of = stratified_folds(labels, N_FOLDS, 0)
        if not (fold_of >= 0).any():
            raise HCEPError("no class has two images, so none can be held out; give at least two of a class")
        folds = []
        for k in sorted(set(fold_of[fold_of >= 0].tolist())):
            model = HCEPTransformer(**settled).fit(images[fold_of != k], labels[fold_of != k])
            folds.append(_fold(model.path_model(), images[fold_of == k]))
        order = np.argsort(fold_of, kind="stable")[np.count_nonzero(fold_of < 0) :]
        return cls(hierarchy, labels[order], folds, whole.path_model(), whole.tree, whole.collapse)

    @classmethod
    def from_model(cls, model: Any, X: ArrayLike, y: ArrayLike) -> Self:
        """Take means, metric and options from a fitted `HCEPClassifier`, and images it has not seen.

        Without its logistic head, where it has one: codes over other atoms are not what the head was fitted on.
        """
        hierarchy = model.hierarchy if model.hierarchy is not None else model.hierarchy_
        none: Any = np.array([])
        return cls(hierarchy, none, [], model.path_model(), model.tree, model.collapse).on(X, y)

    def on(self, X: ArrayLike, y: ArrayLike) -> Self:
        """The means of all images given before, and other images: a split that had no part in any choice."""
        labels, images = np.array(as_labels(y, "y")), np.asarray(X)
        unknown = sorted(set(labels.tolist()) - set(self.classes))
        if unknown:
            raise HCEPError(
                f"y has {len(unknown):,} labels that are not classes of the model: {quoted(unknown)}; "
                "leave these images out"
            )
        if len(images) != len(labels) or not len(labels):
            raise HCEPError(f"X and y must hold as many images, one at least; got {len(images):,} and {len(labels):,}")
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
        """How the held-out images fare in a hierarchy over the same classes: on these alone, chains merged."""
        prepared = (hierarchy if self.tree is None else hierarchy.as_tree(self.tree)).restrict(self.classes)
        prepared = prepared.collapse() if self.collapse else prepared
        paths: list[tuple[str, ...]] = []
        predicted = []
        for fold in self.folds:
            leaves = [prepared.leaf_of(str(label)) for label in fold.model.classes.tolist()]
            embeddings = average_upwards(prepared, dict(zip(leaves, fold.means, strict=True)))
            dictionary = ConceptDictionary(prepared, embeddings)
            model = replace(fold.model, leaves=np.array(leaves), dictionary=dictionary, head=None)
            found = model.pursue(fold.images)
            paths += found.paths
            predicted.append(model.classes[model.class_index(fold.images, found)])
        return Outcome(prepared, self.y, np.concatenate(predicted), support_scores(paths, self.y, prepared))

    @cached_property
    def baseline(self) -> Outcome:
        """The outcome in the hierarchy as it is."""
        return self.outcome(self.hierarchy)


def stratified_folds(y: NDArray[np.str_], n_folds: int, random_state: int) -> NDArray[np.int64]:
    """Fold of each image, (n_images,): the images of a class are dealt out in turn; -1 for a class's only image.

    Not scikit-learn's `StratifiedKFold`: it holds out only images too, and refuses or warns of classes smaller than
    the number of folds.
    """
    fold_of = np.full(len(y), -1, dtype=np.int64)
    rng = np.random.default_rng(random_state)
    _, index, counts = np.unique(y, return_inverse=True, return_counts=True)
    for k in np.flatnonzero(counts > 1):
        members = rng.permutation(np.flatnonzero(index == k))
        # A random start, so that small classes do not all land in the first folds.
        fold_of[members] = (np.arange(len(members)) + rng.integers(n_folds)) % n_folds
    return fold_of


def _fold(model: PathModel, images: NDArray[Any]) -> Fold:
    """Means and images in the span of the means, where that has fewer dimensions.

    Every atom of every hierarchy over these classes lies in that span, and what an image has outside it adds the same
    to the objective of every path: the search finds the same paths, in far fewer dimensions. A residual tolerance is
    the exception, because it compares the whole residual.
    """
    dictionary = model.dictionary
    means = np.stack([dictionary.synset_embedding(leaf) for leaf in model.leaves])
    embedded = dictionary.embed(images)
    if len(means) < dictionary.n_dims and model.options.tol == 0.0:
        span = np.linalg.qr(means.T)[0]
        means, embedded = means @ span, embedded @ span.astype(embedded.dtype)
    return Fold(model, means, embedded)


class Change(NamedTuple):
    """A metric before and after, and the standard error of the difference over images (paired)."""

    before: float
    after: float
    difference: float
    error: float


@dataclass(frozen=True, eq=False)
class Effect:
    """Two outcomes on the same images, before and after some edits; the F1 after is in the hierarchy *after*."""

    edits: tuple[Edit, ...]
    before: Outcome
    after: Outcome

    @cached_property
    def metrics(self) -> Mapping[str, Change]:
        """Every metric by name, with its paired difference."""
        found = {}
        for name, (before, after) in self._per_image.items():
            difference = after - before
            error = float(difference.std() / np.sqrt(len(difference)))
            found[name] = Change(float(before.mean()), float(after.mean()), float(difference.mean()), error)
        return found

    def interval(self, metric: str, level: float = 0.95) -> Difference:
        """Paired difference of a metric, after less before, with its confidence interval over images."""
        before, after = self._per_image[metric]
        return paired_draws(after[None], before[None], level=level)

    @property
    def accuracy(self) -> Change:
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
    """Measure edits of the hierarchy, in their order, on held-out images; class means and metric are kept."""
    edits = tuple(edits)
    return compare(held_out, apply_edits(held_out.hierarchy, edits, held_out.classes), edits)


def compare(held_out: HeldOut, after: Hierarchy, edits: tuple[Edit, ...] = ()) -> Effect:
    """The effect of another hierarchy over the same classes, however it came about."""
    return Effect(edits, held_out.baseline, held_out.outcome(after))


@dataclass(frozen=True, eq=False)
class Proposal:
    """A move that would bring a child to a nearer parent, in terms of the hierarchy as given, not of the collapsed one.

    The distances are from the child to the other and to its own parent, each averaged without the child; the ratio is
    the square root of the scatter that joining the other parent adds, over that of joining its own; below 1.
    """

    move: Move
    distance: float
    own_distance: float
    ratio: float


@dataclass(frozen=True, eq=False)
class MeasuredMove(Proposal):
    """A proposal and what it does to held-out images, one of `n_tried` that were measured on them."""

    effect: Effect
    n_tried: int = 1

    def gain(self, metric: str = "support_f1") -> Difference:
        """Paired difference with its 95% interval, corrected for the number of moves tried (Bonferroni)."""
        return self.effect.interval(metric, 1.0 - 0.05 / self.n_tried)

    @property
    def helps(self) -> bool:
        """Whether the interval of support F1 is above 0, also above chance, and nothing unbiased falls by its error."""
        unbiased = [self.effect.metrics[name] for name in UNBIASED]
        rises = all(self.gain(name).low > 0 for name in ("support_f1", "f1_above_chance"))
        return rises and all(change.difference >= -change.error for change in unbiased)


def propose_moves(held_out: HeldOut) -> list[Proposal]:
    """Children nearer to another inner synset than to a parent of theirs, the clearest case first.

    Two other parents are considered for each, their embeddings averaged *without the child*. The mean of many
    children lies near the middle of everything and so near every child. A proposal must therefore also lower the
    scatter of children about their parents, which is the squared length of the atoms: joining n children at distance d
    adds ``n / (n + 1) d**2`` (Hartigan's rule for k-means; *Clustering Algorithms*, Wiley 1975, chapter 4).
    """
    hierarchy = held_out.dictionary.hierarchy
    n_children = np.diff(hierarchy.child_pointer).tolist()
    proposals: list[Proposal] = []
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
                    ratio = float(np.sqrt(scatter[other] / scatter[own]))
                    proposals.append(Proposal(move, distances[other], distances[own], ratio))
    return sorted(proposals, key=lambda proposal: proposal.ratio)


def distances_to_parents(dictionary: ConceptDictionary, child: int) -> dict[int, float]:
    """Distance of a synset to every inner synset that could be its parent, each averaged without the child, if any."""
    hierarchy, embeddings = dictionary.hierarchy, dictionary.synset_embeddings
    # Of the synsets above a child after it is taken out; None for one that is left without children.
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
    """A move between synsets of a restricted and collapsed hierarchy, as one of the hierarchy that it was made from.

    An edge there may be a chain here, p → m → c. What moves is the highest synset of the chain that has no other child:
    names stay together, and nothing moves that was not measured.
    """

    @cache
    def next_above(synset: str) -> frozenset[str]:
        if synset in collapsed:
            return frozenset([synset])
        return frozenset(top for parent in whole.parents(synset) for top in next_above(parent))

    synset = move.synset
    while True:
        parent = next(p for p in whole.parents(synset) if move.from_parent in next_above(p))
        shared = len(next_above(parent)) > 1  # the chain comes from several parents: leave this one only
        if parent == move.from_parent or not (shared or len(whole.children(parent)) == 1):
            return Move(synset, move.to_parent, parent)
        synset = parent


def measure_moves(
    held_out: HeldOut, proposals: Sequence[Proposal], step: Callable[[], object] = lambda: None
) -> list[MeasuredMove]:
    """Measure each proposal alone, the best first: by support F1 above chance, which a longer path does not raise.

    `step` is called after each, for a progress bar.
    """
    measured = []
    for proposal in proposals:
        effect = what_if(held_out, [proposal.move])
        measured.append(MeasuredMove(**vars(proposal), effect=effect, n_tried=len(proposals)))
        step()
    return sorted(measured, key=lambda m: -m.effect.metrics["f1_above_chance"].difference)


def best_moves(held_out: HeldOut, measured: Iterable[MeasuredMove], n_moves: int) -> Effect:
    """The effect of up to `n_moves` moves that help together; they are its ``edits``.

    Moves meet: two may concern one synset, or one may change what another was measured against. So each, the best alone
    first, is measured again on top of those already taken, and kept only if it still adds to them.
    """
    effect = what_if(held_out, [])
    for candidate in (m for m in measured if m.helps):
        if len(effect.edits) == n_moves:
            break
        try:
            together = what_if(held_out, [*effect.edits, candidate.move])
        except HierarchyError:  # a move taken before has removed the edge, or made this one close a cycle
            continue
        gains = [together.metrics[m].after - effect.metrics[m].after for m in ("support_f1", "f1_above_chance")]
        if min(gains) > 0 and together.accuracy.difference >= -together.accuracy.error:
            effect = together
    return effect
