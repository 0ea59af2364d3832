"""The scikit-learn estimators: a transformer that gives codes, and the classifier on top of it."""

from __future__ import annotations

import sys
from os import PathLike
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from hcep._checks import require_not_negative, require_positive
from hcep.classify import leave_one_out
from hcep.classify.heads import fit_head, require_head
from hcep.classify.leave_one_out import LeaveOneOutScore, choose, leave_one_out_scores
from hcep.classify.path_model import PathModel
from hcep.classify.training import checked_training, class_hierarchy, class_leaves
from hcep.dictionary import ConceptDictionary
from hcep.dictionary.checks import CHUNK
from hcep.dictionary.transform import unit_rows
from hcep.errors import HCEPError
from hcep.hierarchy import Hierarchy
from hcep.hierarchy.graph import TreePolicy
from hcep.pursuit import PathResult
from hcep.pursuit.blocks import squared_norms

Auto = Literal["auto"]


class _PathEstimator(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """What both estimators share: hierarchy and images -> dictionary, new images -> rooted paths."""

    hierarchy: Hierarchy | None
    tree: TreePolicy | None
    collapse: bool
    unit_norm: bool
    center: bool
    shrinkage: float | Auto | None
    beam_width: int | None
    max_steps: int | None
    tol: float
    signed: bool
    anchor: float | Auto
    n_jobs: int | None

    classes_: NDArray[Any]
    hierarchy_: Hierarchy
    dictionary_: ConceptDictionary
    anchor_: float
    shrinkage_: float | None
    leave_one_out_: list[LeaveOneOutScore]
    n_features_in_: int

    def _fit_dictionary(self, X: Any, y: Any) -> tuple[NDArray[Any], NDArray[np.intp]]:
        """Fix classes, hierarchy, metric, anchor and dictionary; return checked images and class indices."""
        self._check_options()
        X, index, self.classes_ = checked_training(self, X, y)
        self.hierarchy_ = class_hierarchy(self.hierarchy, self.classes_, self.tree, self.collapse)
        self._leaves = class_leaves(self.hierarchy_, self.classes_)
        leaf_ids = self._leaves[index]
        self._choose_metric(X, index)
        self.dictionary_ = ConceptDictionary.from_images(
            self.hierarchy_,
            X,
            leaf_ids,
            unit_norm=self.unit_norm,
            center=self.center,
            shrinkage=self.shrinkage_,
            # Without an anchor a common scale cancels in every coefficient; residuals then keep the images' units.
            rescale=self.anchor_ > 0,
        )
        return X, index

    def _check_options(self) -> None:
        """Refuse here what the pursuit would refuse only at the first prediction."""
        require_positive("beam_width", self.beam_width, "an exact search of all rooted paths")
        require_positive("max_steps", self.max_steps, "the depth of the hierarchy")
        require_not_negative("tol", self.tol)
        if not _is_auto(self.anchor) and not _is_number(self.anchor, 0.0, sys.float_info.max):
            raise HCEPError(f"anchor must be 'auto' or a finite number of at least 0, got {self.anchor!r}")
        if self.shrinkage is not None and not _is_auto(self.shrinkage) and not _is_number(self.shrinkage, 1e-9, 1.0):
            raise HCEPError(
                "shrinkage must be 'auto', None for the Euclidean metric, or a number above 0 and at most 1; "
                f"got {self.shrinkage!r}"
            )

    def _choose_metric(self, X: NDArray[Any], index: NDArray[np.intp]) -> None:
        """Set `shrinkage_` and `anchor_`: as given, or by leave-one-out where "auto"."""
        shrinkage, anchor = self.shrinkage, self.anchor
        if shrinkage == "auto" and not _varies(unit_rows(X) if self.unit_norm else X, index):
            shrinkage = None  # there is no covariance to whiten by
        self.leave_one_out_ = []
        if "auto" in (shrinkage, anchor):
            shrinkages = leave_one_out.SHRINKAGES if shrinkage == "auto" else (shrinkage,)
            anchors = leave_one_out.ANCHORS if anchor == "auto" else (anchor,)
            self.leave_one_out_ = self._leave_one_out(X, self._leaves[index], shrinkages, anchors)
        if self.leave_one_out_:
            chosen = choose(self.leave_one_out_)
            self.shrinkage_, self.anchor_ = chosen.shrinkage, chosen.anchor
        else:
            self.shrinkage_ = leave_one_out.FALLBACK_SHRINKAGE if shrinkage == "auto" else shrinkage
            self.anchor_ = leave_one_out.FALLBACK_ANCHOR if anchor == "auto" else anchor

    def _leave_one_out(
        self, X: NDArray[Any], leaf_ids: NDArray[np.str_], shrinkages: Any, anchors: Any, min_images: int = 3
    ) -> list[LeaveOneOutScore]:
        images = unit_rows(X) if self.unit_norm else X
        images = images - images.mean(axis=0) if self.center else images
        return leave_one_out_scores(self.hierarchy_, images, leaf_ids, shrinkages, anchors, min_images=min_images)

    def pursue(self, X: ArrayLike, *, n_best: int = 1, trace: bool = False, progress: bool = False) -> PathResult:
        """Rooted paths, codes and residuals of new images (see `hcep.hb_omp` for the options)."""
        return self.path_model().pursue(self._checked_images(X), n_best=n_best, trace=trace, progress=progress)

    def _checked_images(self, X: ArrayLike) -> NDArray[Any]:
        check_is_fitted(self, "dictionary_")
        images: NDArray[Any] = validate_data(self, X, dtype=(np.float64, np.float32), reset=False)
        return images

    def path_model(self) -> PathModel:
        """The fitted model as plain arrays and options, free of scikit-learn but for a logistic head."""
        check_is_fitted(self, "dictionary_")
        return PathModel(
            classes=self.classes_,
            leaves=self._leaves,
            dictionary=self.dictionary_,
            beam_width=self.beam_width,
            max_steps=self.max_steps,
            tol=self.tol,
            signed=self.signed,
            anchor=self.anchor_,
            temperature=getattr(self, "temperature_", float("nan")),  # a transformer has neither of these two
            head=getattr(self, "head_", None),
            n_jobs=self.n_jobs,
        )

    def transform(self, X: ArrayLike) -> sparse.csr_array:
        """Sparse codes of images, (n_images, n_atoms)."""
        return self.pursue(X).codes

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """``parent→child`` of each atom, by id."""
        check_is_fitted(self, "dictionary_")
        return np.array([f"{parent}→{child}" for parent, child in self.dictionary_.edges], dtype=object)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


class HCEPTransformer(_PathEstimator):
    """Images to sparse codes over the concept dictionary, for pipelines.

    Parameters and fitted attributes are those of `HCEPClassifier`, without the head.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from hcep import HCEPTransformer
    >>> from hcep.datasets import make_hierarchical_concepts
    >>> data = make_hierarchical_concepts(branching=3, depth=2, dim=10, noise=1e-3)
    >>> model = make_pipeline(HCEPTransformer(data.hierarchy), LogisticRegression(C=100)).fit(data.X, data.y)
    >>> float(model.score(data.X, data.y))
    1.0
    """

    def __init__(
        self,
        hierarchy: Hierarchy | None = None,
        *,
        tree: TreePolicy | None = None,
        collapse: bool = True,
        unit_norm: bool = False,
        center: bool = False,
        shrinkage: float | Auto | None = "auto",
        beam_width: int | None = None,
        max_steps: int | None = None,
        tol: float = 0.0,
        signed: bool = False,
        anchor: float | Auto = "auto",
        n_jobs: int | None = None,
    ) -> None:
        self.hierarchy = hierarchy
        self.tree = tree
        self.collapse = collapse
        self.unit_norm = unit_norm
        self.center = center
        self.shrinkage = shrinkage
        self.beam_width = beam_width
        self.max_steps = max_steps
        self.tol = tol
        self.signed = signed
        self.anchor = anchor
        self.n_jobs = n_jobs

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Average the images of each class into a dictionary."""
        self._fit_dictionary(X, y)
        return self


class HCEPClassifier(ClassifierMixin, _PathEstimator):  # type: ignore[misc]
    """Classify embeddings by the rooted path of concepts that explains them.

    Parameters
    ----------
    hierarchy : Hierarchy, optional
        A rooted DAG that contains every class in y; it is restricted to them. None is a flat one.
    tree : {"first", "shortest", "longest"} or None
        Keep one parent a synset (see `Hierarchy.as_tree`); None keeps the DAG, where a class may have several paths.
    collapse : bool
        Merge single-child chains, whose atoms are zero.
    unit_norm, center : bool
        Done to every embedding first.
    shrinkage : float in (0, 1], None or "auto"
        Metric: None is Euclidean, a number the within-class covariance shrunk that far to the identity, "auto" picks
        by leave-one-out on the training images.
    beam_width : int or None
        None searches all rooted paths exactly, which is also the fastest.
    max_steps, tol, signed
        As in `hcep.hb_omp`.
    anchor : float or "auto"
        Weight of the prior that coefficients are 1, on embeddings scaled to mean square norm 1. "auto" picks by
        leave-one-out.
    head : {"path", "logistic", "adamw"}
        Predict the leaf of the path, or by a linear classifier on the codes: logistic regression, or the published
        training, which needs torch (see `hcep.classify.heads.fit_head`).
    C : float
        Inverse regularisation of the logistic head.
    max_iter : int
        Iterations of the logistic head.
    epochs, batch_size, random_state
        Of the head "adamw"; ImageNet's are published as 1000 and 16384.
    n_jobs : int, optional
        Threads of the pursuit.

    Attributes
    ----------
    classes_ : (n_classes,) array
    hierarchy_ : Hierarchy
        Restricted to the classes and collapsed.
    dictionary_ : ConceptDictionary
    anchor_, shrinkage_ : what was used
    leave_one_out_ : list of LeaveOneOutScore
        Every pair that was tried; empty where nothing was "auto" or classes have fewer than three images.
    temperature_ : float
        Scale of objectives in `predict_proba`, fitted on left-out training images (path head).
    head_ : LogisticRegression, AdamWHead or None
    n_iter_ : int
        Iterations of the linear head; the path head needs one pass.

    Notes
    -----
    The defaults are those that did best on real data from 1 to 50 images a class; docs/defaults.md has the table and
    the command that makes it. `HCEPClassifier.paper` is the published configuration.

    Examples
    --------
    >>> from hcep import HCEPClassifier
    >>> from hcep.datasets import make_hierarchical_concepts
    >>> data = make_hierarchical_concepts(branching=3, depth=3, dim=12, noise=1e-4)
    >>> model = HCEPClassifier(data.hierarchy).fit(data.X, data.y)
    >>> bool(model.score(data.X, data.y) > 0.9)
    True
    """

    temperature_: float
    head_: Any
    n_iter_: int

    def __init__(
        self,
        hierarchy: Hierarchy | None = None,
        *,
        tree: TreePolicy | None = None,
        collapse: bool = True,
        unit_norm: bool = False,
        center: bool = False,
        shrinkage: float | Auto | None = "auto",
        beam_width: int | None = None,
        max_steps: int | None = None,
        tol: float = 0.0,
        signed: bool = False,
        anchor: float | Auto = "auto",
        head: Literal["path", "logistic", "adamw"] = "path",
        C: float = 1.0,
        max_iter: int = 1000,
        epochs: int = 500,
        batch_size: int = 4096,
        random_state: int | None = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.hierarchy = hierarchy
        self.tree = tree
        self.collapse = collapse
        self.unit_norm = unit_norm
        self.center = center
        self.shrinkage = shrinkage
        self.beam_width = beam_width
        self.max_steps = max_steps
        self.tol = tol
        self.signed = signed
        self.anchor = anchor
        self.head = head
        self.C = C
        self.max_iter = max_iter
        self.epochs = epochs
        self.batch_size = batch_size
        self.random_state = random_state
        self.n_jobs = n_jobs

    @classmethod
    def paper(cls, hierarchy: Hierarchy | None = None, *, beam_width: int = 8, **options: Any) -> HCEPClassifier:
        """The published configuration: HB-OMP in the Euclidean metric, logistic regression on the codes.

        The paper's beams are 8 (ImageNette), 16 (CIFAR-100) and 32 (ImageNet).
        """
        published: dict[str, Any] = {"shrinkage": None, "anchor": 0.0, "signed": False, "head": "logistic"}
        return cls(hierarchy, beam_width=beam_width, **(published | options))

    def save(self, folder: str | PathLike[str], **details: Any) -> Path:
        """Write the fitted model to a folder: safetensors, JSON and a model card (see `hcep.models.save_model`)."""
        from hcep.models import save_model

        return save_model(self, folder, **details)

    @staticmethod
    def load(folder: str | PathLike[str]) -> HCEPClassifier:
        """Read a model that `save` wrote; nothing in it is executed (see `hcep.models.load_model`)."""
        from hcep.models import load_model

        return load_model(folder)

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Build the dictionary, choose metric and anchor where "auto", fit the head."""
        require_head(self.head, others=("path",))
        images, index = self._fit_dictionary(X, y)
        self.head_, self.n_iter_ = None, 1
        self.temperature_ = self._fit_temperature(images, index) if self.head == "path" else float("nan")
        if self.head != "path" and len(self.classes_) > 1:
            self.head_ = fit_head(
                self.head,
                self.path_model().pursue(images).codes,
                index,
                C=self.C,
                max_iter=self.max_iter,
                epochs=self.epochs,
                batch_size=self.batch_size,
                random_state=self.random_state,
            )
            self.n_iter_ = int(self.head_.n_iter_.max())
        return self

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Class of each image."""
        images, model = self._checked_images(X), self.path_model()
        return self.classes_[model.class_index(images, model.pursue(images))]

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Probability of each class, (n_images, n_classes); the largest belongs to the predicted class.

        With the path head ``softmax(-objective / temperature_)`` over the best complete path of every class; a finite
        beam leaves only the classes of its final hypotheses.
        """
        return self.path_model().probabilities(self._checked_images(X))

    def _fit_temperature(self, images: NDArray[Any], index: NDArray[np.intp]) -> float:
        """Scale that makes left-out training images most likely; a typical one where none can be left out."""
        scores = [s for s in self.leave_one_out_ if (s.shrinkage, s.anchor) == (self.shrinkage_, self.anchor_)]
        if not scores:
            leaves = self._leaves[index]
            scores = self._leave_one_out(images, leaves, (self.shrinkage_,), (self.anchor_,), min_images=2)
        temperature = scores[0].temperature if scores else 0.03
        return temperature if self.anchor_ > 0 else temperature * self._mean_square_norm(images)

    def _mean_square_norm(self, images: NDArray[Any]) -> float:
        """What the left-out images were divided by, and a dictionary without an anchor is not."""
        return float(squared_norms(self.dictionary_.embed(images)).mean()) or 1.0


def _is_auto(value: object) -> bool:
    return isinstance(value, str) and value == "auto"


def _is_number(value: Any, low: float, high: float) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool) and bool(low <= value <= high)


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
