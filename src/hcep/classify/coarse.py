"""Labels above the classes: an image labelled "a bird" teaches the kinds of birds below that concept.

Each such image counts for the classes below its label by responsibilities: the probability that it is of each class,
given its embedding and its label. They are learned by expectation-maximisation together with the habits of whoever
labelled the images: how often images of a class carry each label. An image labelled "animal" is hardly a dog where the
dogs are labelled "dog".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from hcep.classify.calibration import Calibration, fit_calibration, log_losses
from hcep.classify.coarse_counts import CoarseCounts, coarse_lines, count_labels, likeliest
from hcep.classify.left_out import rank_in_class, spread
from hcep.classify.training import TrainingSet
from hcep.dictionary import ConceptDictionary
from hcep.dictionary.checks import blocks
from hcep.dictionary.moments import one_hot
from hcep.errors import HCEPError, HierarchyError, quote, quoted
from hcep.hierarchy import Hierarchy

if TYPE_CHECKING:
    from hcep.classify.path_model import PathModel

Floats = NDArray[np.float64]
Index = NDArray[np.intp]
Coarse = Literal["below", "own", "drop"]
Unlabelled = Literal["ignore", "use"]
#: What separates the concepts in a text label of which one is right.
EITHER = "|"
#: Types of labels that hold several concepts.
SEVERAL = (list, tuple, set, frozenset, np.ndarray)
#: Temperatures tried, as multiples of the model's own, and the most rounds of expectation-maximisation.
TEMPERATURES, MAX_ROUNDS = (0.5, 1.0, 2.0), 3
#: Rounds that settle how often each label is used for each class, while means stay.
HABIT_ROUNDS = 5
#: Images by which a class's labels are taken to be used equally, before any is seen.
HABIT_PRIOR = 1.0
#: Responsibilities below this are dropped: an image counts for a few classes.
NEGLIGIBLE = 0.02
#: How much surer than right the model is of held-out images if none can be held out: measured with one per class.
UNCHECKED = 1.6
#: Folds of exactly labelled images that rounds and temperature are chosen by, and the most images scored.
N_FOLDS, MAX_SCORED = 2, 4096


# -- labels --------------------------------------------------------------------------------------------


class Labels(NamedTuple):
    """What the labels of images say: a class, or a set of classes that it is one of."""

    classes: list[str]
    own: Index  # (n_images,); class of each image, as a position in `classes`; -1 where the label says a set
    label: Index  # (n_images,); the set of each other image, as a position in `names`; -1 where it says a class
    names: tuple[str, ...]  # of the sets, for people
    sets: NDArray[np.bool_]  # (n_sets, n_classes); which classes each label allows
    dropped: NDArray[np.bool_]  # (n_images,); images that are not used
    renamed: bool  # whether a label means a class of another name: the only leaf below it
    concepts: tuple[tuple[str, ...], ...]  # of the sets: the synsets that stand for the concepts of each label
    unknown: NDArray[np.bool_]  # (n_images,); dropped images whose label names a concept that the model does not know

    def allows(self, answers: Index) -> NDArray[np.bool_]:
        """Whether each image's label allows the class of an answer, (n_images,) positions in `classes`."""
        right: NDArray[np.bool_] = self.own == answers
        several = np.flatnonzero(self.label >= 0)
        right[several] = self.sets[self.label[several], answers[several]]
        return right


def read_labels(
    y: Iterable[Any],
    hierarchy: Hierarchy | None,
    coarse: Coarse = "below",
    unlabelled: Unlabelled = "ignore",
    classes: Iterable[Any] | None = None,
) -> Labels:
    """Sort labels into classes and concepts above them.

    Parameters
    ----------
    y : a concept per image, or several of which one is right, as a list, tuple or set, or as the text ``oak|beech``
    coarse : what the label of a concept with classes below it means: one of these classes ("below"), a class of its own
        beside them ("own"), or nothing ("drop": such images are not used)
    unlabelled : whether images labelled with the root are used, as an image of any class
    classes : the classes of a fitted model, with its hierarchy; by default the labels that have no other label below
        them are the classes. A model does not know which other classes its concepts have, so that a label above a
        single class of the model allows this class, but is not the label of it.
    """
    if coarse not in get_args(Coarse):
        raise HCEPError(f"coarse must be 'below', 'own' or 'drop', got {quote(coarse)}")
    if unlabelled not in get_args(Unlabelled):
        raise HCEPError(f"unlabelled must be 'ignore' or 'use', got {quote(unlabelled)}")
    y, fitted = list(y), None if classes is None else list(map(str, classes))
    tree = _Below(hierarchy, fitted)
    is_concept = tree.is_concept if hierarchy is not None else _among_labels(y, fitted, coarse)
    labels = [concepts_of(label, is_concept) for label in y]
    distinct = list(dict.fromkeys(labels))
    if fitted is None:
        single = [concepts[0] for concepts in distinct if len(concepts) == 1]
        tree.labels = set(single)
        names_of_classes = sorted(label for label in single if coarse == "own" or tree.is_class(label))
        if hierarchy is not None and coarse != "own":
            names_of_classes = [label for label in names_of_classes if label != hierarchy.root]
    else:
        names_of_classes = fitted
    place = {label: i for i, label in enumerate(names_of_classes)}
    codes: dict[tuple[str, ...], int] = {}
    names: list[str] = []
    sets: list[list[int]] = []
    several: list[tuple[str, ...]] = []
    unknown: set[tuple[str, ...]] = set()
    for concepts in distinct:
        by_concept = [[place[c] for c in tree.classes_below(concept) if c in place] for concept in concepts]
        below = sorted({c for one in by_concept for c in one})
        name = " or ".join(concepts)
        if len(concepts) == 1 and concepts[0] in place:
            codes[concepts] = place[concepts[0]]
        elif fitted is not None and not all(by_concept):
            codes[concepts] = -1
            unknown.add(concepts)
        elif coarse == "drop" or not below or (unlabelled == "ignore" and tree.is_root(concepts)):
            codes[concepts] = -1
        elif fitted is None and len(below) == 1 and tree.is_chain(concepts):
            codes[concepts] = below[0]
        elif fitted is None and len(below) == 1 and len(concepts) == 1:
            raise HierarchyError(_one_class(name, names_of_classes[below[0]]))
        else:
            codes[concepts] = -2 - len(names)
            names.append(name)
            sets.append(below)
            several.append(tuple(map(tree.synset, concepts)))
    codes_of_images = np.array([codes[concepts] for concepts in labels], dtype=np.intp)
    allowed = np.zeros((len(names), len(names_of_classes)), dtype=bool)
    for row, below in zip(allowed, sets, strict=True):
        row[below] = True
    return Labels(
        classes=names_of_classes,
        own=np.where(codes_of_images >= 0, codes_of_images, -1),
        label=np.where(codes_of_images <= -2, -2 - codes_of_images, -1),
        names=tuple(names),
        sets=allowed,
        dropped=codes_of_images == -1,
        renamed=any(code >= 0 and concepts != (names_of_classes[code],) for concepts, code in codes.items()),
        concepts=tuple(several),
        unknown=np.array([concepts in unknown for concepts in labels], dtype=bool),
    )


def only_classes(
    y: NDArray[Any], hierarchy: Hierarchy | None, coarse: Coarse = "below", unlabelled: Unlabelled = "ignore"
) -> dict[str, str]:
    """The class that each label means which is a concept with a single leaf below it in the whole hierarchy."""
    if hierarchy is None or y.dtype.kind not in "UOT":
        return {}
    labels = list(dict.fromkeys(label for label in y.tolist() if isinstance(label, str)))
    read = read_labels(labels, hierarchy, coarse, unlabelled)
    meant = zip(labels, read.own.tolist(), strict=True)
    return {label: read.classes[c] for label, c in meant if c >= 0 and read.classes[c] != label}


def renamed_labels(y: NDArray[Any], classes: Mapping[str, str]) -> NDArray[Any]:
    """Labels with others in place of some; a list of concepts stays as it is."""
    if not classes:
        return y
    labels = [classes.get(label, label) if isinstance(label, str) else label for label in y.tolist()]
    renamed = np.empty(len(labels), dtype=object)
    renamed[:] = labels
    return renamed if y.dtype.kind == "O" else np.array(labels, dtype=str)


def concepts_of(label: Any, is_concept: Callable[[str], bool]) -> tuple[str, ...]:
    """Return the concepts of which a label says that one is right: those of a list, or of the text ``oak|beech``.

    A text that is itself a concept stays one, and so does a text whose parts are not all concepts.
    """
    if isinstance(label, SEVERAL):
        concepts = tuple(sorted(dict.fromkeys(map(str, label))))
        if not concepts:
            raise HCEPError("a label is an empty list; give at least one concept, or the root for an unlabelled image")
        unknown = [concept for concept in concepts if not is_concept(concept)]
        if unknown and len(concepts) > 1:
            raise HierarchyError(f"the label {list(concepts)} has {quoted(unknown)}, which is not a known concept")
        return concepts
    text = str(label)
    if EITHER not in text or is_concept(text):
        return (text,)
    parts = tuple(sorted({part.strip() for part in text.split(EITHER)}))
    return parts if all(map(is_concept, parts)) else (text,)


def concepts_in(labels: Iterable[Any], hierarchy: Hierarchy | None) -> list[str]:
    """Return the concepts of all labels, one after the other: both of ``oak|beech``."""
    is_concept = _Below(hierarchy, None).is_concept
    return [concept for label in labels for concept in concepts_of(label, is_concept)]


def _among_labels(y: list[Any], classes: list[str] | None, coarse: Coarse) -> Callable[[str], bool]:
    """Without a hierarchy, a concept is a class, or a label; for "own", so is any text."""
    if coarse == "own":
        return lambda text: True
    texts = {str(label) for label in y if not isinstance(label, SEVERAL)}
    known = {*(classes or ()), *(text for text in texts if EITHER not in text)}
    return known.__contains__


def _one_class(name: str, only: str) -> str:
    return (
        f"images are labelled {quote(name)}, and the only class below it is {quote(only)}: they may be of that class "
        f"or of another that has no images. Pass coarse='own' (on the command line: -P coarse=own) to make "
        f"{quote(name)} a class beside it, coarse='drop' to leave these images out, or label them {quote(only)}"
    )


class _Below:
    """Which of the labels, or of the classes of a fitted model, are above which others."""

    def __init__(self, hierarchy: Hierarchy | None, classes: Iterable[str] | None) -> None:
        self.hierarchy, self.is_fitted, self.labels = hierarchy, classes is not None, set(classes or ())
        self._known: dict[str, frozenset[str]] = {}

    @cached_property
    def _merged(self) -> dict[str, str]:
        """Concepts that a fitted model merged into another, as each had one child, and the synset they are part of."""
        h = self.hierarchy
        return {c: s for s in h for c, _ in h.merged(s)} if h is not None and self.is_fitted else {}

    def is_concept(self, text: str) -> bool:
        h = self.hierarchy
        return h is not None and (text in h or text in h.own_leaves or text in self._merged)

    def synset(self, concept: str) -> str:
        """The synset of a concept: the leaf of a class, or the synset that the concept was merged into."""
        h = self.hierarchy
        if h is None or concept in h.own_leaves:
            return concept if h is None else h.own_leaves[concept]
        return concept if concept in h else self._merged.get(concept, concept)

    def _labels_below(self, concept: str) -> frozenset[str]:
        """Labels of images that are below a concept, itself left out."""
        h = self.hierarchy
        if h is None or concept in h.own_leaves:
            return frozenset()
        if concept not in self._known:
            synset = self.synset(concept)
            below = map(h.class_of, (synset, *h.descendants(synset))) if synset in h else ()
            self._known[concept] = frozenset(self.labels.intersection(below)) - {concept}
        return self._known[concept]

    def is_class(self, label: str) -> bool:
        return not self._labels_below(label)

    def classes_below(self, concept: str) -> list[str]:
        """Classes that a concept may mean: itself, or those below it."""
        return [label for label in (self._labels_below(concept) or {concept}) if self.is_class(label)]

    def is_root(self, concepts: tuple[str, ...]) -> bool:
        return self.hierarchy is not None and self.hierarchy.root in map(self.synset, concepts)

    def is_chain(self, concepts: tuple[str, ...]) -> bool:
        """Whether a single leaf of the whole hierarchy is below a concept, so that its label says the class."""
        h = self.hierarchy
        return h is not None and len(concepts) == 1 and sum(map(h.is_leaf, h.descendants(concepts[0]))) == 1


# -- images --------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class CoarseImages:
    """Images whose labels allow several classes."""

    images: NDArray[Any]  # (n_coarse, n_dims); raw
    label: Index  # (n_coarse,); the set of each, as a position in `names`
    weights: Floats  # (n_coarse,)
    rows: Index  # (n_coarse,); where each stands among all images that were given
    names: tuple[str, ...]
    sets: NDArray[np.bool_]  # (n_sets, n_classes)

    def __len__(self) -> int:
        return len(self.label)

    @cached_property
    def by_label(self) -> list[tuple[Index, Index]]:
        """The images of each label, and the classes that it allows."""
        order = np.argsort(self.label, kind="stable")
        parts = np.split(order, np.searchsorted(self.label[order], np.arange(1, len(self.names))))
        return [(rows, np.flatnonzero(allowed)) for rows, allowed in zip(parts, self.sets, strict=True)]


@dataclass(frozen=True, eq=False)
class CoarseLabels:
    """Where images went whose labels are above the classes.

    Attributes
    ----------
    names : the labels
    classes : (n_classes,) array of the classes
    label : (n_coarse,) int; the label of each image, as a position in `names`
    rows : (n_coarse,) int; where each image stands among all images of the fit
    responsibilities : (n_coarse, n_classes) sparse array; the probability of each class, given image and label
    used : whether the model was fitted on them; without that, held-out images were classified worse with them
    rounds, temperature : of expectation-maximisation, as chosen on held-out images that are labelled with their class
    gain : mean log loss of these held-out images without, less with the coarse images; NaN where none could be held out
    softening : factor by which the temperature of probabilities is raised. An image that is left out of the means has
        still told the coarse images where to go, so that leave-one-out alone is too sure
    """

    names: tuple[str, ...]
    classes: NDArray[Any]
    label: NDArray[np.intp]
    rows: NDArray[np.intp]
    responsibilities: sparse.csr_array
    used: bool
    rounds: int
    temperature: float
    gain: float
    softening: float

    def __len__(self) -> int:
        return len(self.label)

    def best(self) -> tuple[NDArray[Any], Floats]:
        """The likeliest class of each image, and its probability."""
        return likeliest(self.responsibilities, self.classes)

    @cached_property
    def counts(self) -> CoarseCounts:
        """Images of each label, and how many of them each class learned from."""
        return count_labels(self.names, self.label, self.responsibilities * float(self.used), self.classes)

    def lines(self, hierarchy: Hierarchy | None = None) -> list[str]:
        """One sentence per label for people, with names of concepts from the fitted hierarchy if it is given."""
        return coarse_lines(self.counts, hierarchy)


# -- expectation-maximisation --------------------------------------------------------------------------


class Space(NamedTuple):
    """Images in a metric: of known classes, and of sets of classes."""

    exact: NDArray[np.float32]
    own: Index
    weights: Floats
    coarse: NDArray[np.float32]
    images: CoarseImages


def responsibilities(space: Space, temperature: float, n_rounds: int) -> list[sparse.csr_array]:
    """Probability of each class for each coarse image, (n_coarse, n_classes), after 1, 2, … rounds.

    With z the images, m the class means, T the temperature and P(l | c) how often images of class c are labelled l::

        r_ic  proportional to  P(l_i | c) exp(-||z_i - m_c||**2 / T)       over the classes c that l_i allows

    then the means and P anew, each image left out of the means that it is compared with.
    """
    images, last = space.images, None
    habits, rounds = _first_habits(images), []
    squares = np.einsum("ij,ij->i", space.coarse, space.coarse)
    for _ in range(n_rounds):
        means, weight = _means(space, last)
        odds = [
            _log_odds(space.coarse, squares, rows, classes, means, weight, images.weights, last) / temperature
            for rows, classes in images.by_label
        ]
        for _ in range(HABIT_ROUNDS):
            last = _normalised(odds, images, habits)
            habits = _habits_of(one_hot(images.label, len(images.names)).T @ last, images.sets)
        rounds.append(last)
    return rounds


def _means(space: Space, probabilities: sparse.csr_array | None) -> tuple[Floats, Floats]:
    """Class means, (n_classes, n_dims), of exact and, with responsibilities, of coarse images; and their weights."""
    by_class = one_hot(space.own, space.images.sets.shape[1], space.weights).T.tocsr()
    sums, weight = by_class @ space.exact, np.asarray(by_class.sum(axis=1)).ravel()
    if probabilities is not None:
        weighted = sparse.diags_array(space.images.weights) @ probabilities
        sums, weight = sums + weighted.T @ space.coarse, weight + np.asarray(weighted.sum(axis=0)).ravel()
    return sums / np.maximum(weight, 1e-12)[:, None], weight


def _log_odds(
    z: NDArray[np.float32],
    squares: Any,
    rows: Index,
    classes: Index,
    means: Floats,
    weight: Floats,
    own: Floats,
    last: Any,
) -> Floats:
    """``-||z - m||**2`` of the images of one label and the classes that it allows, each image left out of the means.

    Without an image of responsibility r and weight w a class's mean is ``W / (W - w r)`` times as far from it.
    """
    out = np.empty((len(rows), len(classes)))
    m = means[classes].astype(np.float32)
    m_squares = np.einsum("ij,ij->i", m, m)
    for part in blocks(0, len(rows), len(classes) + z.shape[1]):
        at = rows[part]
        distance = np.maximum(squares[at, None] + m_squares - 2.0 * (z[at] @ m.T), 0.0)
        if last is not None:
            lost = own[at, None] * last[at][:, classes].toarray() / weight[classes]
            distance *= (1.0 / np.maximum(1.0 - lost, 0.05)) ** 2
        out[part] = -distance
    return out


def _first_habits(images: CoarseImages) -> sparse.csr_array:
    """P(label | class), (n_sets, n_classes), as if each label's images were of all its classes alike."""
    counts = np.bincount(images.label, minlength=len(images.names)) / np.maximum(images.sets.sum(axis=1), 1)
    return _share_of_class(sparse.csr_array(images.sets * counts[:, None]))


def _habits_of(counts: sparse.csr_array, sets: Any) -> sparse.csr_array:
    """P(label | class), (n_sets, n_classes), from the images of each label that are of each class."""
    allowed = sparse.csr_array(sets, dtype=np.float64)
    n_labels = np.maximum(np.asarray(allowed.sum(axis=0)).ravel(), 1.0)
    return _share_of_class(counts + allowed @ sparse.diags_array(HABIT_PRIOR / n_labels))


def _share_of_class(counts: sparse.csr_array) -> sparse.csr_array:
    totals = np.maximum(np.asarray(counts.sum(axis=0)).ravel(), 1e-12)
    return sparse.csr_array(counts @ sparse.diags_array(1.0 / totals))


def _normalised(odds: Sequence[Floats], images: CoarseImages, habits: sparse.csr_array) -> sparse.csr_array:
    """Responsibilities of all images: the likely classes of each, adding up to 1."""
    data, at, columns = [], [], []
    for k, ((rows, classes), scores) in enumerate(zip(images.by_label, odds, strict=True)):
        for part in blocks(0, len(rows), len(classes)):
            with np.errstate(divide="ignore"):
                values = scores[part] + np.log(habits[[k]].toarray()[0, classes])
            values = np.exp(values - values.max(axis=1, keepdims=True))
            values /= values.sum(axis=1, keepdims=True)
            # The largest stays, however small it is: with many classes, all may be.
            values[(values < NEGLIGIBLE) & (values < values.max(axis=1, keepdims=True))] = 0.0
            values /= values.sum(axis=1, keepdims=True)
            row, column = np.nonzero(values)
            data.append(values[row, column])
            at.append(rows[part][row])
            columns.append(classes[column])
    place = np.concatenate(at), np.concatenate(columns)
    return sparse.csr_array((np.concatenate(data), place), (len(images), images.sets.shape[1]))


# -- fitting -------------------------------------------------------------------------------------------


def teach(
    training: TrainingSet, coarse: CoarseImages, dictionary: ConceptDictionary, calibration: Calibration, classes: Any
) -> tuple[TrainingSet, CoarseLabels]:
    """Add coarse images to a training set, each by its responsibilities, where held-out images profit.

    Parameters
    ----------
    training : images labelled with their class
    dictionary, calibration : fitted on them alone
    """
    guess = responsibilities(_space(training, coarse, dictionary), calibration.temperature, 1)[0]
    # The coarse images know more of the metric than the others: it is fixed anew before anything is chosen.
    widened = _widened(training, coarse, guess)
    moments = widened.moments(dictionary.transform.power, dictionary.transform.shrinkage is not None)
    options: dict[str, Any] = {"unit_norm": training.unit_norm, "center": training.center}
    metric = ConceptDictionary.from_images(
        training.hierarchy, moments, shrinkage=dictionary.transform.shrinkage, rescale=True,
        power=dictionary.transform.power, **options,
    )  # fmt: skip
    space = _space(training, coarse, metric)
    rounds, temperature, gain, held_out = _choose(training, space, calibration.temperature)
    used = not gain <= 0.0  # NaN where nothing could be held out
    final = responsibilities(space, temperature, max(rounds, 1))[-1]
    softening = UNCHECKED if held_out is None else _softening(space, final, held_out)
    labels = CoarseLabels(
        coarse.names, np.asarray(classes), coarse.label, coarse.rows, final, used, rounds, temperature, gain, softening
    )
    return (_widened(training, coarse, final) if used else training), labels


def _space(training: TrainingSet, coarse: CoarseImages, dictionary: ConceptDictionary) -> Space:
    transform = dictionary.transform
    exact, others = (transform(np.asarray(images, dtype=np.float32)) for images in (training.images, coarse.images))
    return Space(exact, training.own, training.weights, others, coarse)


def _widened(training: TrainingSet, coarse: CoarseImages, probabilities: sparse.csr_array) -> TrainingSet:
    """The training set with a copy of each coarse image for every class that it may be of, weighted accordingly."""
    entries = sparse.coo_array(probabilities)
    rows, own = entries.coords
    return replace(
        training,
        images=np.concatenate([training.images, coarse.images[rows].astype(training.images.dtype, copy=False)]),
        own=np.concatenate([training.own, own.astype(np.intp)]),
        weights=np.concatenate([training.weights, entries.data * coarse.weights[rows]]),
        n_exact=len(training.own),
    )


def _choose(training: TrainingSet, space: Space, temperature: float) -> tuple[int, float, float, Calibration | None]:
    """Rounds and temperature of lowest log loss on held-out exact images, the gain they bring, and a calibration.

    All are compared in the metric that the coarse images helped to fix: one that few images fixed alone flatters them.
    The gain is 0 where it does not exceed its standard error, and NaN where no image can be held out.
    """
    rank = rank_in_class(training.own, np.random.default_rng(0))
    can_be_held = training.shares < 0.9
    if not can_be_held.any():
        return 2, temperature, float("nan"), None
    tried: dict[tuple[int, float], list[Floats]] = {}
    baseline, columns = [], []
    for fold in range(N_FOLDS):
        held = spread(np.flatnonzero(can_be_held & (rank % N_FOLDS == fold)), MAX_SCORED // N_FOLDS)
        kept = np.ones(len(training.own), dtype=bool)
        kept[can_be_held & (rank % N_FOLDS == fold)] = False
        if not len(held) or not kept.any():
            continue
        columns.append(training.own[held])
        inside = _without(space, kept)
        baseline.append(_distances(inside, None, space.exact[held]))
        for factor in TEMPERATURES:
            for n, probabilities in enumerate(responsibilities(inside, factor * temperature, MAX_ROUNDS), 1):
                tried.setdefault((n, factor), []).append(_distances(inside, probabilities, space.exact[held]))
    own = np.concatenate(columns)
    before, _ = _losses(np.concatenate(baseline), own)
    after = {key: _losses(np.concatenate(parts), own) for key, parts in tried.items()}
    n, factor = min(after, key=lambda key: float(after[key][0].mean()))
    losses, held_out = after[n, factor]
    gains = before - losses
    error = float(gains.std() / np.sqrt(len(gains)))
    return n, factor * temperature, float(gains.mean()) if gains.mean() > error else 0.0, held_out


def _softening(space: Space, probabilities: sparse.csr_array, held_out: Calibration) -> float:
    """How much higher the temperature of held-out images is than of images that are left out of the means alone."""
    distances, total = _distances(space, probabilities, space.exact), _means(space, probabilities)[1]
    rows, share = np.arange(len(space.own)), space.weights / total[space.own]
    distances[rows, space.own] /= np.maximum(1.0 - share, 0.05) ** 2
    can_be_left_out = share < 0.9
    inside = _losses(distances[can_be_left_out], space.own[can_be_left_out])[1]
    return float(np.clip(held_out.temperature / inside.temperature, 1.0, 5.0))


def _without(space: Space, kept: NDArray[np.bool_]) -> Space:
    return space._replace(exact=space.exact[kept], own=space.own[kept], weights=space.weights[kept])


def _distances(space: Space, probabilities: sparse.csr_array | None, z: NDArray[np.float32]) -> Floats:
    """Squared distances of images to the class means, (n_images, n_classes); a class without images is far away."""
    means, weight = _means(space, probabilities)
    distances = np.einsum("ij,ij->i", means, means) - 2.0 * (z @ means.T.astype(np.float32)).astype(np.float64)
    distances += np.einsum("ij,ij->i", z, z)[:, None]
    distances[:, weight <= 0.0] = distances.max(initial=1.0) + 1.0
    return np.asarray(distances)


def _losses(distances: Floats, own: Index) -> tuple[Floats, Calibration]:
    """Log losses of the own classes at the temperature that suits them best, and that temperature."""
    order = np.arange(distances.shape[1])[None].repeat(len(own), axis=0)
    order[np.arange(len(own)), own], order[:, 0] = 0, own
    first = np.take_along_axis(distances, order, axis=1)
    calibration = fit_calibration(first)
    return log_losses(first, calibration), calibration


# -- images for a model that is fitted already ---------------------------------------------------------


def read_new_labels(
    y: Iterable[Any],
    classes: Iterable[Any],
    hierarchy: Hierarchy | None,
    whole: Hierarchy | None,
    coarse: Coarse,
    unlabelled: Unlabelled,
) -> Labels:
    """Sort labels of images that are added to a fitted model; concepts that would be new classes are unknown.

    Parameters
    ----------
    classes, hierarchy : of the model
    whole : the hierarchy that the model was fitted with; None if it is not known, as after loading
    """
    read = read_labels(y, hierarchy, coarse, unlabelled, classes)
    own, label, unknown = read.own.copy(), read.label.copy(), read.unknown.copy()
    whole_tree = _Below(whole, None)
    for k, (name, concepts, allowed) in enumerate(zip(read.names, read.concepts, read.sets, strict=True)):
        if len(concepts) > 1:
            continue
        if coarse == "own":
            unknown |= label == k
        elif allowed.sum() == 1:
            if not (whole_tree.is_concept(name) and whole_tree.is_chain((name,))):
                raise HierarchyError(_one_class(name, read.classes[np.argmax(allowed)]))
            own[label == k], label[label == k] = np.argmax(allowed), -1
    return read._replace(own=own, label=label, unknown=unknown)


@dataclass(frozen=True, eq=False)
class Teacher:
    """What a fitted model makes of further images whose labels are above its classes.

    Responsibilities are the model's own probabilities, restricted to the classes that a label allows, times how often
    images of each class carry that label.
    """

    model: PathModel
    names: tuple[str, ...]
    sets: NDArray[np.bool_]  # (n_sets, n_classes)
    habits: sparse.csr_array  # (n_sets, n_classes)

    @classmethod
    def of(cls, model: PathModel, labels: Labels, counts: CoarseCounts | None) -> Teacher:
        """For the labels of some images; `counts` are those of the images that the model has learned from."""
        known, n_own = counts or {}, len(labels.names)
        place = {str(label): c for c, label in enumerate(model.classes.tolist())}
        row_of = {name: k for k, name in enumerate(dict.fromkeys([*labels.names, *known]))}
        entries = [(n, row_of[name], place[c]) for name, count in known.items() for c, n in count.classes.items()]
        numbers, rows, columns = zip(*entries, strict=True) if entries else ((), (), ())
        taught = sparse.csr_array((numbers, (rows, columns)), (len(row_of), len(place)), dtype=np.float64)
        sets = sparse.vstack([sparse.csr_array(labels.sets), taught[n_own:] > 0.0])
        return cls(model, labels.names, labels.sets, _habits_of(taught, sets)[:n_own])

    def __call__(self, images: NDArray[Any], label: Index) -> sparse.csr_array:
        """Responsibilities of raw images, (n_images, n_classes); `label` is a position in `names` for each."""
        n_classes = self.sets.shape[1]
        taught = [sparse.csr_array((0, n_classes))]
        for part in blocks(0, len(images), n_classes):
            X, n = images[part], len(images[part])
            new = CoarseImages(X, label[part], np.ones(n), np.arange(n), self.names, self.sets)
            scores = np.log(np.maximum(self.model.probabilities(X), np.finfo(np.float64).tiny))
            odds = [scores[np.ix_(rows, classes)] for rows, classes in new.by_label]
            taught.append(_normalised(odds, new, self.habits))
        return sparse.csr_array(sparse.vstack(taught))
