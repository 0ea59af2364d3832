"""What all estimators share: parameters and their checks, the hierarchy of the classes, the dictionary."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from inspect import Parameter, signature
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from hcep._checks import is_number
from hcep.classify.calibration import Calibration, require_priors
from hcep.classify.choosing import Auto as Auto, LeaveOneOutScore, shrinkage_of_many
from hcep.classify.coarse import EITHER, Coarse, CoarseImages, CoarseLabels, Labels, Unlabelled, read_labels, teach
from hcep.classify.fitting import dictionary_of, fit_dictionary
from hcep.classify.heads import require_head
from hcep.classify.refining import Refine
from hcep.classify.training import TrainingSet
from hcep.classify.tree_prior import Prior, Variances
from hcep.classify.unseen import Unseen
from hcep.classify.words import Words, add_words, texts_of_synsets
from hcep.dictionary import ConceptDictionary
from hcep.dictionary.checks import refuse_odd_scale
from hcep.dictionary.moments import ClassMoments
from hcep.errors import HCEPError, HierarchyError, near_matches, quote, quoted
from hcep.hierarchy import VIRTUAL_ROOT, Hierarchy, read_hierarchy
from hcep.hierarchy.edges import refuse_many_paths
from hcep.hierarchy.graph import TreePolicy
from hcep.hierarchy.names import loose_key
from hcep.pursuit import SearchOptions

#: What `as_hierarchy` takes; the last is a networkx graph.
HierarchyLike = Hierarchy | str | PathLike[str] | list[tuple[str, str]] | Any


# -- parameters ----------------------------------------------------------------------------------------


#: What a parameter of any estimator may be, by its name: a test of the value, and the words for a message.
CONSTRAINTS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "tol": (
        lambda value: is_number(value) and 0.0 <= value <= sys.float_info.max,
        "a finite number of at least 0",
    ),
    "anchor": (
        lambda value: value == "auto" or (is_number(value) and 0.0 <= value <= sys.float_info.max),
        "'auto' or a finite number of at least 0",
    ),
    "shrinkage": (
        lambda value: value is None or value == "auto" or (is_number(value) and 1e-9 <= value <= 1.0),
        "'auto', None for the Euclidean metric, or a number above 0 and at most 1",
    ),
    "power": (
        lambda value: value == "auto" or (is_number(value) and 0.0 < value <= 1.0),
        "'auto' or a number above 0 and at most 1",
    ),
    "refine": (lambda value: isinstance(value, bool) or value in ("auto", "atoms"), "'auto', 'atoms', True or False"),
    "unseen": (lambda value: value in ("ignore", "use"), "'ignore' or 'use'"),
    "prior": (lambda value: value in ("auto", "tree", "flat", None), "'auto', 'tree', 'flat' or None"),
}


# -- classes -------------------------------------------------------------------------------------------


def class_hierarchy(
    hierarchy: Hierarchy | None, classes: NDArray[Any], tree: TreePolicy | None = None, collapse: bool = True
) -> Hierarchy:
    """The hierarchy restricted to the classes, or a flat one."""
    labels = [str(c) for c in classes.tolist()]
    if hierarchy is None:
        root = VIRTUAL_ROOT
        while root in labels:
            root = f"({root})"
        return Hierarchy.from_edges([(root, label) for label in labels])
    refuse_unknown(hierarchy, labels)
    restricted = hierarchy.restrict(labels) if tree is None else hierarchy.as_tree(tree).restrict(labels)
    merged = restricted.collapse() if collapse else restricted
    refuse_many_paths(merged)
    return merged


def refuse_unknown(
    hierarchy: Hierarchy | None, labels: Sequence[str], what: str = "classes", how: str = "correct the labels"
) -> None:
    """Raise HierarchyError if a class is not a concept of the hierarchy; without a hierarchy any label is fine.

    `what` the labels are, and `how` to mend them, are words of the message.
    """
    if hierarchy is None:
        return
    unknown = [label for label in labels if label not in hierarchy and label not in hierarchy.own_leaves]
    if unknown:
        are = "is not a concept" if len(unknown) == 1 else "are not concepts"
        key = loose_key(str(unknown[0]))
        alike = [one for one in hierarchy if key in (loose_key(one), loose_key(hierarchy.name(one)))]
        several = f" {quote(unknown[0])} is ambiguous: it may be {quoted(alike)}. Use an id." if len(alike) > 1 else ""
        raise HierarchyError(
            f"{len(unknown):,} of {len(labels):,} {what} {are} of the hierarchy: {quoted(unknown)}."
            + (several or near_matches(unknown[0], {*hierarchy.ids, *map(hierarchy.name, hierarchy)}))
            + f" Add each of them to the hierarchy under a parent, or {how}."
        )


def as_hierarchy(value: Any) -> Hierarchy:
    """A `Hierarchy` from one, from a file, from a list of (parent, child) pairs or from a networkx graph."""
    if isinstance(value, Hierarchy):
        return value
    if isinstance(value, str | PathLike):
        return read_hierarchy(value)
    if hasattr(value, "is_directed"):
        return Hierarchy.from_networkx(value)
    if isinstance(value, list | tuple):
        return Hierarchy.from_edges(value)
    raise HCEPError(
        "hierarchy must be a hcep.Hierarchy, a file, a list of (parent, child) pairs, a networkx graph or None; "
        f"got {type(value).__name__}"
    )


def class_leaves(hierarchy: Hierarchy, classes: NDArray[Any]) -> NDArray[np.str_]:
    """The leaf that stands for each class."""
    return np.array([hierarchy.leaf_of(str(label)) for label in classes.tolist()])


# -- the estimator -------------------------------------------------------------------------------------


class ConceptEstimator(BaseEstimator):  # type: ignore[misc]
    """Base of all estimators: builds a dictionary from images, classes and a hierarchy.

    Parameters
    ----------
    hierarchy : a rooted DAG that contains every class in y; it is restricted to these classes. None is a flat one.
    tree : {"first", "shortest", "longest"} or None
        Keep one parent per synset (see `Hierarchy.as_tree`); None keeps the DAG, where a class may have several paths.
    collapse : merge single-child chains, whose atoms are zero
    unit_norm, center : scale every embedding to norm 1, then subtract the mean of all training images
    max_steps : most atoms that a code may use; the depth of the hierarchy by default
    n_jobs : threads of the pursuit; all cores by default

    Attributes
    ----------
    classes_ : (n_classes,) array
    hierarchy_ : restricted to the classes and collapsed
    """

    hierarchy: HierarchyLike | None
    tree: TreePolicy | None
    collapse: bool
    unit_norm: bool
    center: bool
    max_steps: int | None
    n_jobs: int | None

    classes_: NDArray[Any]
    hierarchy_: Hierarchy
    dictionary_: ConceptDictionary
    anchor_: float
    shrinkage_: float | None
    leave_one_out_: list[LeaveOneOutScore]
    power_: float = 1.0
    coarse_: CoarseLabels | None = None
    coarse: Coarse = "own"
    unlabelled: Unlabelled = "ignore"
    prior: Prior = None
    unseen: Unseen = "ignore"
    leaf_moves_: NDArray[np.float64] | None = None
    prior_: Variances | None = None
    class_means_: NDArray[np.float64] | None = None
    words_: Words | None = None
    calibration_: Calibration
    moments_: ClassMoments
    n_features_in_: int
    #: The parameter `hierarchy` as a `Hierarchy`, with the changes of a model that grows; None if there is none.
    _graph: Hierarchy | None = None
    #: Values of the parameter `head` besides those of `hcep.classify.heads`.
    _own_heads: tuple[str, ...] = ()

    def __init__(
        self,
        hierarchy: HierarchyLike | None = None,
        *,
        tree: TreePolicy | None = None,
        collapse: bool = True,
        unit_norm: bool = False,
        center: bool = False,
        max_steps: int | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self._store(locals())

    def _store(self, arguments: Mapping[str, Any]) -> None:
        """Store the arguments of ``__init__`` unchanged under their own names, as scikit-learn requires."""
        names = self._get_param_names()
        self.__dict__.update({name: value for name, value in arguments.items() if name in names})

    def __init_subclass__(cls, **options: Any) -> None:
        """Replace ``**shared`` in the signature of ``__init__`` by the parameters of the base class.

        scikit-learn, `help` and editors read parameters from the signature.
        """
        super().__init_subclass__(**options)
        own = signature(cls.__init__)
        if "__init__" in vars(cls) and any(p.kind is Parameter.VAR_KEYWORD for p in own.parameters.values()):
            inherited = signature(super(cls, cls).__init__).parameters
            new = [p for p in own.parameters.values() if p.name not in inherited and p.kind is Parameter.KEYWORD_ONLY]
            vars(cls)["__init__"].__signature__ = own.replace(parameters=[*inherited.values(), *new])

    def _check_parameters(self) -> None:
        """Raise HCEPError for a parameter that the pursuit would refuse only at the first prediction."""
        parameters = self.get_params(deep=False)
        SearchOptions(**{name: parameters.get(name) for name in ("beam_width", "max_steps", "n_jobs")})
        for name, value in parameters.items():
            if name == "head":
                require_head(value, self._own_heads)
            elif name == "priors":
                require_priors(name, value)
            elif name in CONSTRAINTS:
                is_valid, expected = CONSTRAINTS[name]
                if not is_valid(value):
                    raise HCEPError(f"{name} must be {expected}; got {quote(value)}")

    def _fit_dictionary(
        self,
        X: Any,
        y: Any,
        shrinkage: float | Auto | None = None,
        anchor: float | Auto = 0.0,
        power: float | Auto = 1.0,
        refine: Refine = False,
        calibrate: bool | float = False,
        *,
        sample_weight: ArrayLike | None = None,
        texts: Mapping[str, NDArray[np.float64]] | None = None,
    ) -> TrainingSet:
        """Fix classes, hierarchy, power, metric, anchor, dictionary and calibration; return the images they are from.

        The dictionary is a function of `moments_`, power, shrinkage, anchor and the shifts of a refinement alone.

        Parameters
        ----------
        X, y, sample_weight : images, labels and weights, as given to ``fit``
        shrinkage, anchor, power, refine : as the parameters of `HCEPClassifier`
        calibrate : whether to calibrate; a number is the anchor to calibrate at, instead of the fitted one
        texts : unit vectors of concepts, by id; then images are scaled to norm 1
        """
        self._check_parameters()
        training, others = self._training_set(X, y, sample_weight)
        if texts is not None:
            training = replace(training, unit_norm=True)
        how: dict[str, Any] = {"shrinkage": shrinkage, "anchor": anchor, "power": power}
        self.__dict__.pop("coarse_", None)  # of an earlier fit
        if others is not None:
            exact = fit_dictionary(training, **how, refined=False, calibrated=True)
            assert exact.calibration is not None
            training, self.coarse_ = teach(training, others, exact.dictionary, exact.calibration, self.classes_)
            how["power"] = exact.choice.power
            if self.coarse_.used and shrinkage == "auto" and exact.choice.shrinkage is not None:
                n_images = (training.n_exact or 0) + len(others)
                how["shrinkage"] = shrinkage_of_many(n_images, training.images.shape[1]) or shrinkage
        # Classes without images live from the tree, however many images the others have.
        prior = "tree" if self.prior == "auto" and self.unseen == "use" else self.prior
        fitted = fit_dictionary(training, **how, refined=refine, calibrated=calibrate, prior=prior)
        self.words_ = None
        if texts is not None:
            by_synset = texts_of_synsets(texts, self.hierarchy_, list(map(str, self.classes_.tolist())))
            fitted, self.words_ = add_words(training, fitted, by_synset, None if anchor == "auto" else float(anchor))
        self.power_, self.shrinkage_, self.anchor_, self.moments_, self.leave_one_out_ = fitted.choice
        self.dictionary_, self.leaf_moves_ = fitted.dictionary, fitted.leaf_moves
        self.prior_, self.class_means_ = fitted.prior, fitted.class_means
        if fitted.calibration is not None:
            softening = self.coarse_.softening if self.coarse_ is not None and self.coarse_.used else 1.0
            self.calibration_ = replace(fitted.calibration, temperature=softening * fitted.calibration.temperature)
        return training

    def _training_set(self, X: Any, y: Any, sample_weight: ArrayLike | None) -> tuple[TrainingSet, CoarseImages | None]:
        """Check images, labels and weights; fix the classes and their hierarchy. Images of weight 0 are left out.

        Returns the images that are labelled with their class, and those whose label is above the classes.
        """
        images, labels = validate_data(self, X, as_labels(y), dtype=(np.float64, np.float32), ensure_min_samples=1)
        weights = checked_weights(sample_weight, images)
        if not weights.all():
            images, labels, weights = (array[weights > 0.0] for array in (images, labels, weights))
        refuse_odd_scale(images)
        if np.asarray(labels).dtype.kind == "f":  # synset ids are no regression target, even at one image per class
            check_classification_targets(labels)
        self._graph = None if self.hierarchy is None else as_hierarchy(self.hierarchy)
        read = self._read_labels(labels)
        exact = slice(None) if read is None else np.flatnonzero(read.own >= 0)
        if read is None:
            self.classes_, own = np.unique(labels, return_inverse=True)
        else:
            self.classes_, own = np.array(read.classes, dtype=labels.dtype), read.own[exact]
        self.hierarchy_ = self._hierarchy_of(self.classes_)
        self._leaves = class_leaves(self.hierarchy_, self.classes_)
        how: dict[str, Any] = {"unit_norm": self.unit_norm, "center": self.center}
        training = TrainingSet(self.hierarchy_, self._leaves, images[exact], own, weights[exact], **how)
        rows = np.zeros(0, dtype=np.intp) if read is None else np.flatnonzero(read.label >= 0)
        if read is None or not len(rows):
            return training, None
        return training, CoarseImages(images[rows], read.label[rows], weights[rows], rows, read.names, read.sets)

    def _read_labels(self, labels: NDArray[Any]) -> Labels | None:
        """What labels say that are concepts of a hierarchy; None if each is a class."""
        is_number = labels.dtype.kind in "iu" and self._graph is not None  # integers may be ids of a hierarchy
        if labels.dtype.kind not in "UOT" and not is_number:
            return None
        labels = labels.astype(str) if is_number else labels
        if self._graph is None and all(isinstance(label, str) and EITHER not in label for label in labels):
            return None
        read = read_labels(labels, self._graph, self.coarse, self.unlabelled)
        if not read.classes:
            raise HCEPError("no image is labelled with a class; label at least one image of each class")
        return read if len(read.names) or read.dropped.any() or read.renamed else None

    def _dictionary_of(self, moments: ClassMoments) -> ConceptDictionary:
        """The dictionary of class means at the fitted power, metric and anchor."""
        how: dict[str, Any] = {"unit_norm": self.unit_norm, "center": self.center, "power": self.power_}
        return dictionary_of(self.hierarchy_, moments, self.shrinkage_, self.anchor_, **how)

    def _hierarchy_of(self, classes: NDArray[Any]) -> Hierarchy:
        return class_hierarchy(self._graph, classes, self.tree, self.collapse)

    def _checked_images(self, X: ArrayLike, finite: bool = True) -> NDArray[Any]:
        """Check images to predict from; whether they are finite takes a pass over them, which is optional."""
        check_is_fitted(self, "dictionary_")
        return np.asarray(validate_data(self, X, dtype=(np.float64, np.float32), reset=False, ensure_all_finite=finite))


def as_labels(y: Any) -> Any:
    """Labels as one array; a list of concepts, of which one is right, stays one label.

    Nullable integers of pandas stay integers, which scikit-learn would turn into floats.
    """
    kind: Any = getattr(y, "dtype", None)
    if getattr(kind, "kind", "") in ("i", "u") and hasattr(kind, "numpy_dtype"):
        return y.to_numpy(kind.numpy_dtype)
    if not isinstance(y, list | tuple) or not any(isinstance(label, list | tuple | set | frozenset) for label in y):
        return y
    labels = np.empty(len(y), dtype=object)
    labels[:] = y
    return labels


def checked_weights(sample_weight: ArrayLike | None, images: NDArray[Any]) -> NDArray[np.float64]:
    """The weight of each image, (n_images,), 1 by default; raises ValueError unless all are numbers of at least 0."""
    weights = np.asarray(_check_sample_weight(sample_weight, images, dtype=np.float64))
    if (weights < 0.0).any() or not weights.any():
        raise HCEPError(
            f"sample_weight must be numbers of at least 0, not all 0; got {weights.min():g} as the smallest"
        )
    return weights
