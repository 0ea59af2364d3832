"""The scikit-learn estimators: a transformer that gives codes, and the classifier on top of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self, overload
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import ClassifierMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from hcep._checks import require_positive
from hcep.classify.base import Auto, ConceptEstimator, HierarchyLike
from hcep.classify.calibration import Calibration, Priors, class_priors
from hcep.classify.growing import GrowingMixin
from hcep.classify.heads import make_head, n_iterations
from hcep.classify.hedging import HedgingMixin, explained_floor
from hcep.classify.objects import ObjectsMixin
from hcep.classify.path_model import Inference, PathModel
from hcep.classify.training import TrainingSet
from hcep.errors import DictionaryError, HCEPError
from hcep.hierarchy.graph import TreePolicy
from hcep.pursuit import PathResult, PathSums, SearchOptions
from hcep.pursuit.limits import Concepts

_MODELS: WeakKeyDictionary[HCEPClassifier, PathModel] = WeakKeyDictionary()


class HCEPTransformer(TransformerMixin, ConceptEstimator):  # type: ignore[misc]
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

    shrinkage: float | Auto | None
    beam_width: int | None
    tol: float
    signed: bool
    anchor: float | Auto
    power: float | Auto
    exact_where: bool
    refine: bool | Auto

    def __init__(
        self,
        hierarchy: HierarchyLike | None = None,
        *,
        shrinkage: float | Auto | None = "auto",
        beam_width: int | None = None,
        tol: float = 0.0,
        signed: bool = False,
        anchor: float | Auto = "auto",
        power: float | Auto = "auto",
        exact_where: bool = False,
        refine: bool | Auto = "auto",
        **shared: Any,
    ) -> None:
        super().__init__(hierarchy, **shared)
        self._store(locals())

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Average the images of each class into a dictionary (see `HCEPClassifier.fit`)."""
        self._fit(X, y, sample_weight, calibrate=False)
        return self

    def _fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, calibrate: bool) -> TrainingSet:
        power = 1.0 if self.exact_where else self.power
        how = (self.shrinkage, self.anchor, power, self.refine, calibrate)
        return self._fit_dictionary(X, y, *how, sample_weight=sample_weight)

    @overload
    def pursue(
        self, X: ArrayLike, *, n_best: int = 1, n_paths: None = None, trace: bool = False, progress: bool = False,
        force: Concepts = (), forbid: Concepts = (),
    ) -> PathResult: ...  # fmt: skip
    @overload
    def pursue(
        self, X: ArrayLike, *, n_best: int = 1, n_paths: int | Auto, trace: bool = False, progress: bool = False,
        force: Concepts = (), forbid: Concepts = (),
    ) -> PathSums: ...  # fmt: skip
    def pursue(
        self,
        X: ArrayLike,
        *,
        n_best: int = 1,
        n_paths: int | Auto | None = None,
        trace: bool = False,
        progress: bool = False,
        force: Concepts = (),
        forbid: Concepts = (),
    ) -> PathResult | PathSums:
        """Rooted paths, codes and residuals of new images.

        Parameters
        ----------
        X, n_best, n_paths, trace, progress : as for `hcep.hb_omp`
        force, forbid : concepts that must, and must not, be on every path: ids, names or synonyms
        """
        images, model = self._checked_images(X), self.path_model()
        if n_paths is not None:
            if n_best != 1 or trace or force or forbid:
                raise HCEPError("n_paths does not go with n_best, trace, force or forbid")
            return model.pursue_several(images, n_paths, progress=progress)
        limits = model.limits(force, forbid)
        return model.pursue(images, n_best=n_best, trace=trace, progress=progress, limits=limits)

    def path_model(self) -> PathModel:
        """The fitted model as plain arrays and options, free of scikit-learn but for a linear head."""
        check_is_fitted(self, "dictionary_")
        options = SearchOptions(self.beam_width, self.max_steps, self.tol, self.signed, self.anchor_, self.n_jobs)
        return PathModel(self.classes_, self._leaves, self.dictionary_, options)

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


class HCEPClassifier(HedgingMixin, GrowingMixin, ObjectsMixin, ClassifierMixin, HCEPTransformer):  # type: ignore[misc]
    """Classify embeddings by the rooted path of concepts that explains them.

    Parameters
    ----------
    hierarchy, tree, collapse, unit_norm, center, max_steps, n_jobs : as in `hcep.classify.base.ConceptEstimator`
    shrinkage : float in (0, 1], None or "auto"; metric: None is Euclidean, a number the within-class covariance shrunk
        that far to the identity, "auto" picks by the log loss of held-out training images
    beam_width : None searches all rooted paths exactly, which is also the fastest
    tol, signed : as in `hcep.hb_omp`
    anchor : float or "auto"
        Weight of the prior that coefficients are 1, on embeddings scaled to mean square norm 1. "auto" is 0.3, or 0.1
        where classes have fewer than four images; in the Euclidean metric it is picked as the shrinkage is.
    power : float in (0, 1] or "auto"; raise every number of an embedding to this power first. "auto" picks 1, 0.7 or
        0.5 as it picks the shrinkage, and 1 where embeddings have negative numbers.
    exact_where : keep the power at 1, so that maps of where a concept is are exact
    refine : bool or "auto"; move the classes' embeddings from their means to where training images, each left out, are
        classified best. "auto" does so from four images per class on.
    priors : "uniform", "empirical" or (n_classes,) array; probability of each class, in the order of `classes_`, before
        the image is seen; "empirical" is its share of the training images. With the path head only.
    head : {"path", "logistic", "adamw"} or a scikit-learn classifier
        Predict the leaf of the path, or by a classifier on the codes: logistic regression, the published training
        (`hcep.classify.heads.AdamWHead`), or a clone of the one that is given, such as ``LogisticRegression(C=10)`` or
        ``AdamWHead(epochs=1000, batch_size=16384)``.

    Attributes
    ----------
    classes_ : (n_classes,) array
    hierarchy_ : restricted to the classes and collapsed
    anchor_, shrinkage_, power_ : what was used
    leave_one_out_ : all that was tried; empty where nothing was to choose or no class has two images
    calibration_ : Calibration
        From objectives to probabilities, fitted on held-out training images (path head); `temperature_` is its scale.
    priors_ : (n_classes,) array or None; None where all are equal
    leaf_moves_ : (n_classes,) array or None
        How far refinement moved each class's embedding, where images have mean square norm 1; None without refinement.
    moments_ : ClassMoments
        Counts, means and second moment of the training images after power and unit norm, by leaf. With `power_`,
        `shrinkage_`, `anchor_` and the refined leaves' shifts they determine the dictionary.
    head_ : classifier or None
    n_iter_ : iterations of the head; the path head needs one pass
    explained_floor_ : (n_classes,) array or None
        Explained share below which an image is unlike the training images of a class (see `explained_floor`).

    Notes
    -----
    The defaults are those that did best on real data from 1 to 50 images per class; docs/defaults.md has the table and
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

    priors: Priors
    priors_: NDArray[np.float64] | None = None
    head_: Any
    n_iter_: int
    explained_floor_: NDArray[np.float64] | None = None
    _own_heads = ("path",)

    def __init__(
        self,
        hierarchy: HierarchyLike | None = None,
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
        head: Any = "path",
        n_jobs: int | None = None,
        power: float | Auto = "auto",
        exact_where: bool = False,
        refine: bool | Auto = "auto",
        priors: Priors = "uniform",
    ) -> None:
        self._store(locals())

    @classmethod
    def paper(cls, hierarchy: HierarchyLike | None = None, *, beam_width: int = 8, **options: Any) -> HCEPClassifier:
        """The published configuration: HB-OMP in the Euclidean metric, a linear head trained by AdamW on the codes.

        The paper's beams are 8 (ImageNette), 16 (CIFAR-100) and 32 (ImageNet); for ImageNet its head is
        ``AdamWHead(epochs=1000, batch_size=16384)``.
        """
        published: dict[str, Any] = {"shrinkage": None, "anchor": 0.0, "signed": False, "head": "adamw"}
        published |= {"power": 1.0, "refine": False}
        return cls(hierarchy, beam_width=beam_width, **(published | options))

    @staticmethod
    def from_linear_head(
        coef: ArrayLike,
        intercept: ArrayLike,
        classes: ArrayLike,
        hierarchy: HierarchyLike | None = None,
        **options: Any,
    ) -> HCEPClassifier:
        """Open a linear classifier that exists already (see `hcep.classify.linear_head.open_linear_head`)."""
        from hcep.classify.linear_head import open_linear_head

        return open_linear_head(coef, intercept, classes, hierarchy, **options)

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Build the dictionary, choose power, metric and anchor where "auto", calibrate, refine, fit the head.

        Parameters
        ----------
        X : (n_images, n_dims) array
        y : (n_images,) labels; concepts of the hierarchy
        sample_weight : (n_images,) array of numbers of at least 0
            How much each image counts: in means and covariance a weight of 2 is the same as the image twice, and 0 the
            same as leaving it out. Leave-one-out leaves an image out with all its weight.
        """
        by_path = isinstance(self.head, str) and self.head == "path"
        self.stopping_ = None
        self.head_, self.n_iter_, self.calibration_ = None, 1, Calibration(float("nan"))
        training = self._fit(X, y, sample_weight, calibrate=by_path)
        self.priors_ = class_priors(self.priors, self.moments_.weights) if by_path else None
        if not by_path and len(self.classes_) > 1:
            self.head_ = self._fit_head(training, is_weighted=sample_weight is not None)
            self.n_iter_ = n_iterations(self.head_)
        self.explained_floor_ = explained_floor(self.path_model(), training)
        self._start_growing(training.counts, None if sample_weight is None else self.moments_.weights)
        return self

    def _fit_head(self, training: TrainingSet, is_weighted: bool) -> Any:
        """The classifier on the codes of the training images."""
        head = make_head(self.head)
        if is_weighted and not has_fit_parameter(head, "sample_weight"):
            raise HCEPError(f"sample_weight is not supported by the head, a {type(head).__name__}")
        weights = {"sample_weight": training.weights} if is_weighted else {}
        return head.fit(self.path_model().pursue(training.images).codes, training.own, **weights)

    def path_model(self) -> PathModel:
        """The fitted model as plain arrays and options, free of scikit-learn but for a linear head."""
        made = replace(
            super().path_model(),
            calibration=self.calibration_,
            priors=self.priors_,
            head=self.head_,
            explained_floor=self.explained_floor_,
            held_out=self.held_out_,
            stopping=self.stopping_,
        )
        # The one of the last call, with the tables it has made, unless a part of it is another now.
        if not made.is_same(_MODELS.get(self)):
            _MODELS[self] = made
        return _MODELS[self]

    @property
    def temperature_(self) -> float:
        """Scale of objectives in `predict_proba`."""
        return self.calibration_.temperature

    def infer(
        self,
        X: ArrayLike,
        *,
        n_best: int = 1,
        trace: bool = False,
        progress: bool = False,
        explained: bool = False,
        force: Concepts = (),
        forbid: Concepts = (),
    ) -> Inference:
        """Paths, classes and probabilities of new images from one search.

        Parameters
        ----------
        X, n_best, trace, progress, explained : as for `PathModel.infer`
        force, forbid : as for `pursue`; classes that they rule out have probability 0
        """
        images, model = self._checked_images(X), self.path_model()
        asked: dict[str, Any] = {"trace": trace, "progress": progress, "explained": explained}
        return model.infer(images, n_best=n_best, limits=model.limits(force, forbid), **asked)

    def predict(self, X: ArrayLike, *, force: Concepts = (), forbid: Concepts = ()) -> NDArray[Any]:
        """Class of each image; with concepts forced or forbidden as for `pursue`, the best that is left."""
        index = self._ask(X, lambda model, images: model.predict(images, model.limits(force, forbid)))
        return np.asarray(self.classes_[index])

    def _ask(self, X: ArrayLike, answer: Callable[[PathModel, NDArray[Any]], Any]) -> Any:
        """An answer of the path model; images that are not finite show in its products, and are named afterwards."""
        images, model = self._checked_images(X, finite=False), self.path_model()
        try:
            return answer(model, images)
        except DictionaryError:
            self._checked_images(X)
            raise

    def predict_proba(
        self, X: ArrayLike, level: int | None = None, *, force: Concepts = (), forbid: Concepts = ()
    ) -> NDArray[np.float64]:
        """Probability of each class, (n_images, n_classes); the largest belongs to the predicted class.

        With the path head those of `Calibration`, over the best complete path of every class; a finite beam leaves only
        the classes of its final hypotheses.

        Parameters
        ----------
        X : (n_images, n_dims) array
        level : the probabilities of the concepts at this level instead, in the order of `concepts_at`; in a tree they
            add up to 1
        force, forbid : as for `pursue`; the probabilities are then over the classes left
        """
        if level is None:
            return np.asarray(self._ask(X, lambda model, x: model.probabilities(x, model.limits(force, forbid))))
        columns = [self.hierarchy_.index(concept) for concept in self.concepts_at(level)]
        return np.asarray(self.node_probabilities(X, force=force, forbid=forbid)[:, columns])

    def concepts_at(self, level: int) -> list[str]:
        """The concepts at a level of the hierarchy, 1 below the root, and the classes that end above it."""
        check_is_fitted(self, "dictionary_")
        hierarchy = self.hierarchy_
        if not 1 <= level <= hierarchy.depth:
            raise HCEPError(f"level must be between 1 and {hierarchy.depth}, the depth of the hierarchy; got {level!r}")
        ends = np.isin(np.arange(len(hierarchy)), hierarchy.leaf_index) & (hierarchy.levels < level)
        return [hierarchy.ids[i] for i in np.flatnonzero((hierarchy.levels == level) | ends)]

    def node_probabilities(self, X: ArrayLike, *, force: Concepts = (), forbid: Concepts = ()) -> NDArray[np.float64]:
        """Probability of every concept, (n_images, n_synsets), in the order of ``hierarchy_.ids``; the root's is 1.

        A concept's is the sum over the classes below it, each counted once, however many paths lead there.
        """
        return np.asarray(self._ask(X, lambda model, x: model.node_probabilities(x, model.limits(force, forbid))))

    def predict_topk(self, X: ArrayLike, k: int = 5) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """The k likeliest classes of each image, likeliest first, and their probabilities, both (n_images, k).

        Those of the other classes are not kept, so that many images of many classes fit in memory.
        """
        require_positive("k", k)
        index, probabilities = self._ask(X, lambda model, images: model.top_classes(images, k))
        return self.classes_[index], probabilities
