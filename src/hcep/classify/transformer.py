"""The scikit-learn transformer: images in, codes over the concept dictionary out."""

from __future__ import annotations

from typing import Any, Self, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from hcep.classify.base import Auto, ConceptEstimator, HierarchyLike
from hcep.classify.path_model import PathModel
from hcep.classify.refining import Refine
from hcep.classify.training import TrainingSet
from hcep.errors import HCEPError
from hcep.pursuit import PathResult, PathSums, SearchOptions
from hcep.pursuit.limits import Concepts


class HCEPTransformer(TransformerMixin, ConceptEstimator):  # type: ignore[misc]
    """Turn images into sparse codes over the concept dictionary, for pipelines.

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
    refine: Refine
    sparse_output: bool

    #: The path model and what it was made of, so that its tables serve the next call too. One tuple, assigned at once:
    #: threads that race make the model twice, and neither sees half of it.
    _prepared: tuple[tuple[Any, ...], PathModel] | None = None
    #: Attributes that the path model is made of; if one is replaced, the model is made again.
    _parts: tuple[str, ...] = (
        *("beam_width", "max_steps", "tol", "signed", "anchor_", "n_jobs"),
        *("classes_", "_leaves", "dictionary_"),
    )

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
        refine: Refine = "auto",
        sparse_output: bool = True,
        **shared: Any,
    ) -> None:
        super().__init__(hierarchy, **shared)
        self._store(locals())

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Average the images of each class into a dictionary; parameters are those of `HCEPClassifier.fit`."""
        self._fit(X, y, calibrate=False, sample_weight=sample_weight)
        self.path_model()
        return self

    def _fit(self, X: ArrayLike, y: ArrayLike, calibrate: bool, **options: Any) -> TrainingSet:
        power = 1.0 if options.get("texts") is not None else self.power
        return self._fit_dictionary(X, y, self.shrinkage, self.anchor, power, self.refine, calibrate, **options)

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
        """Return rooted paths, codes and residuals of new images.

        Parameters
        ----------
        X, n_best, n_paths, trace, progress : as for `hcep.hb_omp`
        force, forbid : concepts that must, and must not, be on every path: ids, names or synonyms
        """
        images, model = self._checked_images(X), self.path_model()
        if n_paths is not None:
            if n_best != 1 or trace or force or forbid:
                raise HCEPError("n_paths cannot be combined with n_best, trace, force or forbid")
            return model.pursue_several(images, n_paths, progress=progress)
        limits = model.limits(force, forbid)
        return model.pursue(images, n_best=n_best, trace=trace, progress=progress, limits=limits)

    def path_model(self) -> PathModel:
        """Return the fitted model as arrays and options, without scikit-learn except for a linear head."""
        check_is_fitted(self, "dictionary_")
        parts, prepared = tuple(getattr(self, name) for name in self._parts), self._prepared
        if prepared is None or any(new is not old for new, old in zip(parts, prepared[0], strict=True)):
            self._prepared = prepared = parts, self._make_path_model()
        return prepared[1]

    def _make_path_model(self, **parts: Any) -> PathModel:
        options = SearchOptions(self.beam_width, self.max_steps, self.tol, self.signed, self.anchor_, self.n_jobs)
        return PathModel(self.classes_, self._leaves, self.dictionary_, options, **parts)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_prepared"}

    def transform(self, X: ArrayLike) -> sparse.csr_array | NDArray[Any]:
        """Return the codes of images, (n_images, n_atoms), sparse unless ``sparse_output=False``."""
        codes = self.pursue(X).codes
        return codes if self.sparse_output else codes.toarray()

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Return ``parent→child`` for each atom, by id."""
        check_is_fitted(self, "dictionary_")
        return np.array([f"{parent}→{child}" for parent, child in self.dictionary_.edges], dtype=object)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags
