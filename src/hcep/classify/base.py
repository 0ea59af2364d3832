"""What every estimator shares: parameters and their checks, classes above which a hierarchy stands, a dictionary."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, signature
from os import PathLike
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from hcep._checks import is_number, require_not_negative, require_positive
from hcep.classify import choosing, refining
from hcep.classify.calibration import Calibration, require_priors
from hcep.classify.choosing import LeaveOneOutScore, Training
from hcep.classify.heads import require_head
from hcep.dictionary import ConceptDictionary
from hcep.dictionary.checks import CHUNK, refuse_odd_scale
from hcep.dictionary.moments import ClassMoments
from hcep.dictionary.transform import prepared_rows
from hcep.errors import HCEPError, HierarchyError, near_matches, quoted
from hcep.hierarchy import VIRTUAL_ROOT, Hierarchy
from hcep.hierarchy.graph import TreePolicy
from hcep.taxonomy import read_hierarchy

Auto = Literal["auto"]
#: What `as_hierarchy` takes; the last is a networkx graph.
HierarchyLike = Hierarchy | str | PathLike[str] | list[tuple[str, str]] | Any


# -- parameters ----------------------------------------------------------------------------------------


def _require_anchor(name: str, value: Any) -> None:
    if value != "auto" and not (is_number(value) and 0.0 <= value <= sys.float_info.max):
        raise HCEPError(f"{name} must be 'auto' or a finite number of at least 0, got {value!r}")


def _require_shrinkage(name: str, value: Any) -> None:
    if value is not None and value != "auto" and not (is_number(value) and 1e-9 <= value <= 1.0):
        raise HCEPError(
            f"{name} must be 'auto', None for the Euclidean metric, or a number above 0 and at most 1; got {value!r}"
        )


def _require_power(name: str, value: Any) -> None:
    if value != "auto" and not (is_number(value) and 0.0 < value <= 1.0):
        raise HCEPError(f"{name} must be 'auto' or a number above 0 and at most 1, got {value!r}")


def _require_auto_or_bool(name: str, value: Any) -> None:
    if not isinstance(value, bool) and value != "auto":
        raise HCEPError(f"{name} must be 'auto', True or False, got {value!r}")


#: What each parameter may be, by its name, for all estimators: a call that raises where it is not.
CONSTRAINTS: dict[str, Callable[[str, Any], object]] = {
    "max_steps": lambda name, value: require_positive(name, value, "the depth of the hierarchy"),
    "beam_width": lambda name, value: require_positive(name, value, "an exact search of all rooted paths"),
    "tol": require_not_negative,
    "anchor": _require_anchor,
    "shrinkage": _require_shrinkage,
    "power": _require_power,
    "refine": _require_auto_or_bool,
    "priors": require_priors,
}


def parameter_names(estimator: type) -> list[str]:
    """Parameters of an estimator, as they are declared."""
    return [name for name in signature(estimator.__init__).parameters if name != "self"]  # type: ignore[misc]


# -- classes -------------------------------------------------------------------------------------------


def class_hierarchy(
    hierarchy: HierarchyLike | None, classes: NDArray[Any], tree: TreePolicy | None = None, collapse: bool = True
) -> Hierarchy:
    """The given hierarchy on the classes alone, or a flat one."""
    labels = [str(c) for c in classes.tolist()]
    if hierarchy is None:
        root = VIRTUAL_ROOT
        while root in labels:
            root = f"({root})"
        return Hierarchy.from_edges([(root, label) for label in labels])
    hierarchy = as_hierarchy(hierarchy)
    refuse_unknown(hierarchy, labels)
    restricted = hierarchy.restrict(labels) if tree is None else hierarchy.as_tree(tree).restrict(labels)
    return restricted.collapse() if collapse else restricted


def refuse_unknown(hierarchy: Hierarchy | None, labels: Sequence[str]) -> None:
    """Raise HierarchyError where a class is no concept; of no hierarchy none is asked for."""
    if hierarchy is None:
        return
    unknown = [label for label in labels if label not in hierarchy and label not in hierarchy.own_leaves]
    if unknown:
        are = "is no concept" if len(unknown) == 1 else "are not concepts"
        raise HierarchyError(
            f"{len(unknown):,} of {len(labels):,} classes {are} of the hierarchy: {quoted(unknown)}."
            + near_matches(unknown[0], hierarchy.ids)
            + " Add each of them to it under a parent, or correct the labels."
        )


def as_hierarchy(given: Any) -> Hierarchy:
    """A hierarchy as people have it: a `Hierarchy`, a file, a list of (parent, child) pairs, a networkx graph."""
    if isinstance(given, Hierarchy):
        return given
    if isinstance(given, str | PathLike):
        return read_hierarchy(given)
    if hasattr(given, "is_directed"):
        return Hierarchy.from_networkx(given)
    if isinstance(given, list | tuple):
        return Hierarchy.from_edges(given)
    raise HCEPError(
        "hierarchy must be a hcep.Hierarchy, a file, a list of (parent, child) pairs, a networkx graph or None, "
        f"got {type(given).__name__}"
    )


def class_leaves(hierarchy: Hierarchy, classes: NDArray[Any]) -> NDArray[np.str_]:
    """The leaf that stands for each class."""
    return np.array([hierarchy.leaf_of(str(label)) for label in classes.tolist()])


# -- the estimator -------------------------------------------------------------------------------------


class ConceptEstimator(BaseEstimator):  # type: ignore[misc]
    """Base of all estimators: images, classes and a hierarchy -> a dictionary.

    Parameters
    ----------
    hierarchy : a rooted DAG that contains every class in y; it is restricted to them. None is a flat one.
    tree : {"first", "shortest", "longest"} or None
        Keep one parent per synset (see `Hierarchy.as_tree`); None keeps the DAG, where a class may have several paths.
    collapse : merge single-child chains, whose atoms are zero
    unit_norm, center : done to every embedding first
    max_steps : most atoms a code may use; the depth of the hierarchy by default
    n_jobs : threads of the pursuit

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
    leaf_moves_: NDArray[np.float64] | None = None
    calibration_: Calibration
    moments_: ClassMoments
    n_features_in_: int
    #: Values of the parameter `head` beside those of `hcep.classify.heads`.
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

    def _store(self, given: Mapping[str, Any]) -> None:
        """Keep what ``__init__`` was given, as scikit-learn asks: every parameter as it is, under its own name."""
        self.__dict__.update({name: value for name, value in given.items() if name in parameter_names(type(self))})

    def __init_subclass__(cls, **options: Any) -> None:
        """Spell out ``**shared`` in the signature of ``__init__``, where scikit-learn, `help` and editors look."""
        super().__init_subclass__(**options)
        own = signature(cls.__init__)
        if "__init__" in vars(cls) and any(p.kind is Parameter.VAR_KEYWORD for p in own.parameters.values()):
            inherited = signature(super(cls, cls).__init__).parameters
            new = [p for p in own.parameters.values() if p.name not in inherited and p.kind is Parameter.KEYWORD_ONLY]
            vars(cls)["__init__"].__signature__ = own.replace(parameters=[*inherited.values(), *new])

    def _check_parameters(self) -> None:
        """Refuse here what the pursuit would refuse only at the first prediction."""
        for name, value in self.get_params(deep=False).items():
            if name == "head":
                require_head(value, self._own_heads)
            elif name in CONSTRAINTS:
                CONSTRAINTS[name](name, value)

    def _fit_dictionary(
        self,
        X: Any,
        y: Any,
        shrinkage: float | Auto | None = None,
        anchor: float | Auto = 0.0,
        power: float | Auto = 1.0,
        refine: bool | Auto = False,
        calibrate: float | None = None,
    ) -> tuple[NDArray[Any], NDArray[np.intp]]:
        """Fix classes, hierarchy, power, metric, anchor, dictionary and calibration; return checked images and classes.

        The dictionary is a function of `moments_`, power, shrinkage, anchor and the shifts of a refinement alone.

        Parameters
        ----------
        X, y : images and labels
        shrinkage, anchor, power, refine : as of `HCEPClassifier`
        calibrate : the anchor to calibrate at; NaN is the fitted one
        """
        self._check_parameters()
        images, labels = validate_data(self, X, y, dtype=(np.float64, np.float32), ensure_min_samples=1)
        refuse_odd_scale(images)
        if np.asarray(labels).dtype.kind == "f":  # synset ids are no regression target, even at one image per class
            check_classification_targets(labels)
        self.classes_, index = np.unique(labels, return_inverse=True)
        self.hierarchy_ = self._hierarchy_of(self.classes_)
        self._leaves = class_leaves(self.hierarchy_, self.classes_)
        if shrinkage == "auto" and not _varies(prepared_rows(images, 1.0, self.unit_norm), index):
            shrinkage = None  # there is no covariance to whiten by
        training = Training(self.hierarchy_, images, index, self._leaves, self.unit_norm, self.center)
        values = self._values_to_try(training, power, shrinkage, anchor)
        chosen = choosing.choose(training, *values)
        self.power_, self.shrinkage_, self.anchor_, self.moments_, self.leave_one_out_ = chosen
        self.dictionary_ = self._dictionary_of(self.moments_)
        self.leaf_moves_ = None
        refine = refining.pays(training, self.anchor_) if refine == "auto" else refine and len(self.classes_) > 1
        if calibrate is not None or refine:
            anchor = self.anchor_ if calibrate is None or np.isnan(calibrate) else calibrate
            self.calibration_ = choosing.calibrate(training, self.dictionary_, self.moments_, anchor)
        if refine:
            temperature = self.calibration_.temperature
            shifts = refining.refine(training, self.dictionary_, self.moments_, self.anchor_, temperature)
            self.dictionary_ = self.dictionary_.moved(dict(zip(self._leaves.tolist(), shifts, strict=True)))
            self.leaf_moves_ = np.linalg.norm(shifts, axis=1)
        return images, index

    def _dictionary_of(self, moments: ClassMoments) -> ConceptDictionary:
        """The dictionary of class means at the fitted power, metric and anchor."""
        return ConceptDictionary.from_images(
            self.hierarchy_,
            moments,
            unit_norm=self.unit_norm,
            center=self.center,
            shrinkage=self.shrinkage_,
            # Without an anchor a common scale cancels in every coefficient; residuals then keep the images' units.
            rescale=self.anchor_ > 0,
            power=self.power_,
        )

    def _values_to_try(self, training: Training, power: Any, shrinkage: Any, anchor: Any) -> tuple[Any, Any, Any]:
        """Powers, shrinkages and anchors, where the choice begins first; one each where there is none."""
        counts = training.folds.counts
        negative = power != 1.0 and bool(training.images.min() < 0.0)
        if negative and power != "auto":
            raise HCEPError(f"power must be 1 or 'auto' for embeddings with negative numbers, got {power!r}")
        usual = choosing.ANCHOR if np.median(counts) >= choosing.FEW else choosing.FEW_ANCHOR
        # Held-out images of classes of two are scored by means of one, at which other powers do best than at two.
        powers = (1.0,) if negative else choosing.POWERS if np.median(counts) > 2 else choosing.POWERS[:1]
        shrinkages: Any = choosing.SHRINKAGES if (counts > 1).any() else (choosing.FALLBACK_SHRINKAGE,)
        anchors = choosing.ANCHORS if shrinkage is None else (usual,)
        return (
            powers if power == "auto" else (power,),
            shrinkages if shrinkage == "auto" else (shrinkage,),
            anchors if anchor == "auto" else (anchor,),
        )

    def _hierarchy_of(self, classes: NDArray[Any]) -> Hierarchy:
        return class_hierarchy(self.hierarchy, classes, self.tree, self.collapse)

    def _checked_images(self, X: ArrayLike, finite: bool = True) -> NDArray[Any]:
        """Images to predict from; whether they are finite, which takes a pass over them, only where it is asked."""
        check_is_fitted(self, "dictionary_")
        asked: dict[str, Any] = {"dtype": (np.float64, np.float32), "reset": False, "ensure_all_finite": finite}
        images: NDArray[Any] = validate_data(self, X, **asked)
        return images


def _varies(X: NDArray[Any], index: NDArray[np.intp]) -> bool:
    """Whether images of a class (of all, where each class has one) differ by more than rounding."""
    if len(X) < 3:
        return False
    groups = index if len(X) > len(np.unique(index)) else np.zeros_like(index)
    _, first = np.unique(groups, return_index=True)
    rounding = 10 * np.finfo(X.dtype).eps * max(X.max(), -X.min())
    return any(
        bool(np.abs(X[i : i + CHUNK] - X[first[groups[i : i + CHUNK]]]).max() > rounding)
        for i in range(0, len(X), CHUNK)
    )
