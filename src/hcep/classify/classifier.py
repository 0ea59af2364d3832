"""The scikit-learn classifier: fitting, predicting, how sure it is, and changes without a refit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted, column_or_1d, has_fit_parameter, validate_data

from hcep._checks import require_positive
from hcep.classify import growing, hedging
from hcep.classify.base import (
    HierarchyLike,
    as_hierarchy,
    as_labels,
    checked_weights,
    class_hierarchy,
    class_leaves,
    refuse_unknown,
)
from hcep.classify.calibration import Priors, class_priors
from hcep.classify.coarse import SEVERAL, Coarse, Labels, Teacher, Unlabelled, read_labels, read_new_labels
from hcep.classify.coarse_counts import CoarseCounts, count_labels, joined_counts
from hcep.classify.decoding import Decode, require_decoder
from hcep.classify.growing import ClassMean, ClassMeans
from hcep.classify.heads import make_head, n_iterations
from hcep.classify.hedging import HeldOutScores
from hcep.classify.objects import stopping_rule
from hcep.classify.path_model import UNCALIBRATED, Inference, PathModel
from hcep.classify.right_level import SURE, needed, require_sure
from hcep.classify.training import TrainingSet
from hcep.classify.transformer import HCEPTransformer
from hcep.classify.tree_prior import Prior, under_prior
from hcep.classify.unseen import Unseen, unseen_classes, unseen_odds
from hcep.dictionary import ConceptDictionary
from hcep.dictionary.checks import BLOCK, blocks
from hcep.dictionary.concept_dictionary import average_upwards
from hcep.dictionary.from_text import checked_texts, predicted_means
from hcep.errors import DictionaryError, HCEPError, near_matches, quote, quoted
from hcep.hierarchy import Hierarchy
from hcep.pursuit import Stopping
from hcep.pursuit.limits import Concepts, Request

logger = logging.getLogger(__name__)
#: Share of added images unlike the training images of their class that puts the metric in doubt. Of the training
#: images themselves it is one in twenty.
UNLIKE = 0.2
#: Fitted attributes, without their underscore, that a `PathModel` has beside those of a transformer.
PREDICTS_WITH = ("calibration", "priors", "head", "explained_floor", "typical", "held_out", "stopping")
#: Parameters of the published pursuit: beam search in the Euclidean metric of class means.
PUBLISHED: dict[str, Any] = {"shrinkage": None, "anchor": 0.0, "signed": False, "power": 1.0, "refine": False}
PUBLISHED |= {"coarse": "own", "prior": None}


class HCEPClassifier(ClassifierMixin, HCEPTransformer):  # type: ignore[misc]
    """Classify embeddings by the rooted path of concepts that explains them.

    Parameters
    ----------
    hierarchy, tree, collapse, unit_norm, center, max_steps, n_jobs : as in `hcep.classify.base.ConceptEstimator`
    shrinkage : float in (0, 1], None or "auto"; the metric. None is Euclidean; a number whitens by the within-class
        covariance, shrunk that far to the identity; "auto" chooses by the log loss of held-out training images
    beam_width : None searches all rooted paths exactly, which is also the fastest
    tol, signed : as in `hcep.hb_omp`
    anchor : float or "auto"
        Weight of the prior that coefficients are 1, relative to the mean square norm of images, as in `hcep.hb_omp`.
        "auto" is 0.3, or 0.1 if classes have fewer than four images; in the Euclidean metric it is chosen as the
        shrinkage is.
    power : float in (0, 1] or "auto"; raise every number of an embedding to this power first. "auto" chooses 1, 0.7 or
        0.5 as it chooses the shrinkage, and 1 if embeddings have negative numbers. At 1, maps of where a concept is are
        exact.
    refine : bool, "auto" or "atoms"; move the classes' embeddings from their means to where training images, each left
        out, are classified best. "auto" does so from four images per class on. "atoms" moves them to where the paths
        explain the training images best instead (see `hcep.pursuit.learn_atoms`).
    priors : "uniform", "empirical" or (n_classes,) array; probability of each class, in the order of `classes_`, before
        the image is seen; "empirical" is its share of the training images. With the path head only.
    head : {"path", "logistic", "adamw"} or a scikit-learn classifier
        Predict the leaf of the path, or by a classifier on the codes: logistic regression, the published training
        (`hcep.classify.heads.AdamWHead`), or a clone of a given one, such as ``LogisticRegression(C=10)`` or
        ``AdamWHead(epochs=1000, batch_size=16384)``.
    sparse_output : return codes from `transform` as a sparse array; data frames (``set_output``) need False
    coarse : {"below", "own", "drop"}
        What a label means that is a concept with classes below it: one of these classes ("below"), a class of its own
        beside them ("own"), or that the image is not used ("drop").
    unlabelled : {"ignore", "use"}; what to do with images that are labelled with the root
    prior : {"auto", "tree", "flat"} or None
        Means of classes with few images borrow from other classes: from those close in the hierarchy ("tree"), or from
        all alike ("flat"). "auto" is "tree" if some class has fewer than twelve images and held-out images gain by it.
        With the path head only.

    unseen : {"ignore", "use"}
        What to do with leaves of the hierarchy that have no images. "use" makes them classes too, with the mean that
        the prior over the tree expects; they are answers where an image is much more like them than like the others.
    dictionary : ConceptDictionary, optional; a dictionary of your own, which is used as it is
        Its leaves are the classes. Images then only calibrate the probabilities, choose the anchor if it is "auto", and
        train the head if there is one; parameters of the metric and of the class means have no effect.

    Attributes
    ----------
    classes_ : (n_classes,) array
    hierarchy_ : restricted to the classes and collapsed; adding, moving and removing classes changes it
    anchor_, shrinkage_, power_ : the values in use
    leave_one_out_ : everything that was tried; empty if there was nothing to choose or no class has two images
    calibration_ : Calibration
        From objectives to probabilities, fitted on held-out training images (path head); `temperature_` is its scale.
    priors_ : (n_classes,) array or None; None if all are equal
    coarse_ : CoarseLabels or None; where images went whose labels are above the classes. None if there are none, and
        for a model that was loaded or fitted in parts.
    coarse_counts_ : dict of str to CoarseCount, or None; how many images have each of these labels, and how many of
        them each class has learned from, those added later included
    words_ : Words or None; how much words count, after a fit with texts (see `hcep.classify.words`)
    prior_ : Variances or None; of the prior of the class means (see `hcep.classify.tree_prior`); None without one
    unseen_odds_ : prior odds of a class without images to one with images; 1 if there is none
    class_means_ : (n_classes, n_dims) array or None; embeddings of the classes before the prior, if there is one
    leaf_moves_ : (n_classes,) array or None
        How far refinement moved each class's embedding, where images have mean square norm 1; None without refinement.
    moments_ : ClassMoments
        Counts, means and second moment of the training images after power and unit norm, by leaf. With `power_`,
        `shrinkage_`, `anchor_` and the refined leaves' shifts they determine the dictionary.
    images_per_class_ : (n_classes,) array or None
        Images that are labelled with each class; None for models of releases that did not count them.
    class_weights_ : (n_classes,) array or None
        Weight of each class's images, with its share of those that are labelled above it; None if each image of a class
        counts once and there are no others.
    head_ : classifier or None
    n_iter_ : iterations of the head; the path head needs one pass
    explained_floor_ : (n_classes,) array or None
        Explained share below which an image is unlike the training images of a class.
    typical_ : (n_dims,) array or None; what typical images are like, if the model was opened (see `PathModel.typical`)
    held_out_ : HeldOutScores or None; scores of the images given to `calibrate`
    stopping_ : Stopping or None; when ``n_paths="auto"`` adds no further path, after `fit_objects`
    n_grown_, n_unlike_ : images added or removed since the fit, and those of them unlike the training images

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
    typical_: NDArray[np.float64] | None = None
    held_out_: HeldOutScores | None = None
    stopping_: Stopping | None = None
    images_per_class_: NDArray[np.int64] | None = None
    unseen_odds_: float = 1.0
    class_weights_: NDArray[np.float64] | None = None
    coarse_counts_: CoarseCounts | None = None
    n_grown_: int = 0
    n_unlike_: int = 0
    _own_heads = ("path",)
    _parts = (
        *HCEPTransformer._parts,
        *(f"{name}_" for name in PREDICTS_WITH),
    )

    def __init__(
        self,
        hierarchy: HierarchyLike | None = None,
        *,
        head: Any = "path",
        priors: Priors = "uniform",
        coarse: Coarse = "below",
        unlabelled: Unlabelled = "ignore",
        prior: Prior = "auto",
        unseen: Unseen = "ignore",
        dictionary: ConceptDictionary | None = None,
        **shared: Any,
    ) -> None:
        super().__init__(hierarchy, **shared)
        self._store(locals())

    @classmethod
    def paper(cls, hierarchy: HierarchyLike | None = None, *, beam_width: int = 8, **options: Any) -> HCEPClassifier:
        """Return the published configuration: HB-OMP in the Euclidean metric, a linear head trained by AdamW.

        The paper's beams are 8 (ImageNette), 16 (CIFAR-100) and 32 (ImageNet); for ImageNet its head is
        ``AdamWHead(epochs=1000, batch_size=16384)``.
        """
        return cls(hierarchy, beam_width=beam_width, **(PUBLISHED | {"head": "adamw"} | options))

    @staticmethod
    def from_linear_head(
        coef: ArrayLike,
        intercept: ArrayLike,
        classes: ArrayLike,
        hierarchy: HierarchyLike | None = None,
        **options: Any,
    ) -> HCEPClassifier:
        """Make a model from the weights of a linear classifier (see `hcep.classify.linear_head.open_linear_head`)."""
        from hcep.classify.linear_head import open_linear_head

        return open_linear_head(coef, intercept, classes, hierarchy, **options)

    # -- fitting -------------------------------------------------------------------------------------

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        texts: ArrayLike | Mapping[Any, ArrayLike] | None = None,
    ) -> Self:
        """Choose power, metric and anchor where "auto", build the dictionary, calibrate, refine, fit the head.

        Parameters
        ----------
        X : (n_images, n_dims) array
        y : (n_images,) labels; concepts of the hierarchy
            A concept with classes below it means one of these, and a list of concepts that one of them is right: see
            the parameter `coarse`.
        sample_weight : (n_images,) array of numbers of at least 0
            How much each image counts: in means and covariance a weight of 2 is the same as the image twice, and 0 the
            same as leaving it out. Leave-one-out leaves an image out with all its weight.
        texts : (n_leaves, n_dims) array in the order of the hierarchy's leaves, or mapping of concept to vector(s)
            Text embeddings of the classes, by the encoder of the images: a second view of every concept (see
            `hcep.classify.words`). Held-out images decide how much they count beside the images. Leaves that have a
            text but no images become classes, too, and texts of inner concepts are used if held-out images gain by
            them. Embeddings are scaled to norm 1, without a power. Without any image, classes are ranked by the cosine
            of image and text.
        """
        if self.dictionary is not None:
            return self._fit_to_dictionary(self.dictionary, X, y, sample_weight, texts)
        by_concept = None if texts is None else self._checked_texts(texts, X, y)
        if by_concept is not None and not len(np.asarray(X)):
            from hcep.classify.linear_head import fit_zero_shot

            return fit_zero_shot(self, by_concept)
        self._forget()
        self.head_, self.n_iter_, self.calibration_ = None, 1, UNCALIBRATED
        training = self._fit(X, y, self._by_path, sample_weight=sample_weight, texts=by_concept)
        self._fit_head(training, self.moments_.weights, is_weighted=sample_weight is not None)
        self.explained_floor_ = hedging.explained_floor(self.path_model(), training)
        self.images_per_class_ = training.exact_counts.astype(np.int64)
        counts_once = sample_weight is None and training.n_exact is None
        self.class_weights_ = None if counts_once else self.moments_.weights
        self.coarse_counts_ = None if self.coarse_ is None else self.coarse_.counts
        if by_concept is not None:
            self._add_texts_without_images(by_concept)
        elif self.unseen == "use":
            self._add_unseen(training)
        self.path_model()
        return self

    def _checked_texts(
        self, texts: ArrayLike | Mapping[Any, ArrayLike], X: ArrayLike, y: ArrayLike
    ) -> dict[str, NDArray[np.float64]]:
        """The text of each concept as a unit vector."""
        if not self._by_path:
            raise HCEPError("texts needs head='path'; a linear head on the codes does not use them")
        if self.power not in ("auto", 1.0):
            raise HCEPError(
                f"texts needs power=1 or 'auto', so that images can be compared with them; got {quote(self.power)}"
            )
        graph = None if self.hierarchy is None else as_hierarchy(self.hierarchy)
        n_dims = np.shape(X)[1] if np.ndim(X) == 2 else None
        if graph is not None:
            order = [graph.class_of(leaf) for leaf in graph.leaves]
            return checked_texts(texts, order, {*graph.ids, *graph.own_leaves}, n_dims)
        labels = list(map(str, np.unique(np.asarray(as_labels(y))).tolist()))
        return checked_texts(texts, labels, [*map(str, texts)] if isinstance(texts, Mapping) else labels, n_dims)

    def _fit_to_dictionary(
        self, dictionary: ConceptDictionary, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, texts: Any
    ) -> Self:
        """Fit everything but the dictionary, which was given."""
        from hcep.classify.linear_head import fit_to_dictionary

        self._check_parameters()
        if texts is not None:
            raise HCEPError("texts cannot be combined with a dictionary of your own; ConceptDictionary.with_words can")
        self._forget()
        images, labels = validate_data(self, X, as_labels(y), dtype=(np.float64, np.float32))
        weights = checked_weights(sample_weight, images)
        graph = dictionary.hierarchy if self.hierarchy is None else as_hierarchy(self.hierarchy)
        refuse_unknown(graph, [dictionary.hierarchy.class_of(leaf) for leaf in dictionary.hierarchy.leaves])
        own = fit_to_dictionary(self, dictionary, images, labels, weights)
        self._graph = graph
        training = TrainingSet(dictionary.hierarchy, self._leaves, images, own, weights)
        counts = np.bincount(own, minlength=len(self.classes_))
        self._fit_head(training, counts, is_weighted=sample_weight is not None)
        self.images_per_class_ = counts.astype(np.int64)
        self.path_model()
        return self

    def _forget(self) -> None:
        """Remove what an earlier fit found."""
        for name in [name for name in vars(self) if name.endswith("_") and not name.startswith("_")]:
            delattr(self, name)

    def _add_texts_without_images(self, texts: Mapping[str, NDArray[np.float64]]) -> None:
        """Make classes of the leaves that have a text but no images, with the pictures that their texts predict."""
        assert self.words_ is not None
        labels = list(map(str, self.classes_.tolist()))
        leaves = texts if self._graph is None else unseen_classes(self._graph, self.classes_)
        names = [name for name in leaves if name in texts and name not in labels]
        if not names:
            return
        means = self._class_means()
        of_classes, others = (np.stack([texts[name] for name in group]) for group in (labels, names))
        pictures = predicted_means(of_classes, np.stack([mean.mean for mean in means.values()]), others)
        if self.classes_.dtype.kind not in "UO":
            names = np.array(names).astype(self.classes_.dtype).tolist()
        for name, picture, text in zip(names, pictures, others, strict=True):
            means[name] = ClassMean(picture, 0, 0.0, self.words_.text_scale * text)
        self._rebuild(self._graph, means)

    def _add_unseen(self, training: TrainingSet) -> None:
        """Make classes of the leaves that have no images."""
        names = unseen_classes(self._graph, self.classes_)
        if not names:
            return
        if self.prior_ is None:
            raise HCEPError("unseen='use' needs a prior over the tree: pass prior='tree' and head='path'")
        graph, means = self._graph, self._class_means()
        assert graph is not None
        nothing = ClassMean(np.zeros(self.dictionary_.synset_embeddings.shape[1]), 0, 0.0)
        seen = self.classes_
        self._rebuild(graph, {**means, **dict.fromkeys(names, nothing)})
        assert self.images_per_class_ is not None
        own = np.searchsorted(self.classes_, seen)[training.own[: training.n_exact]]
        images = training.images[: training.n_exact]
        self.unseen_odds_ = unseen_odds(self.path_model(), images, own, self.images_per_class_)
        self._rebuild(graph, self._class_means())

    @property
    def _by_path(self) -> bool:
        """Whether the class is that of the path's leaf, not that of a classifier on the codes."""
        return isinstance(self.head, str) and self.head == "path"

    def _fit_head(self, training: TrainingSet, counts: NDArray[Any], is_weighted: bool) -> None:
        """Fit the classifier on the codes of the training images or, with the path head, set the priors."""
        if self._by_path:
            self.priors_ = class_priors(self.priors, counts)
        elif len(self.classes_) > 1:
            head = make_head(self.head)
            if is_weighted and not has_fit_parameter(head, "sample_weight"):
                raise HCEPError(f"sample_weight is not supported by the head, a {type(head).__name__}")
            weights = {"sample_weight": training.weights} if is_weighted else {}
            self.head_ = head.fit(self.path_model().pursue(training.images).codes, training.own, **weights)
            self.n_iter_ = n_iterations(self.head_)

    def _make_path_model(self, **parts: Any) -> PathModel:
        own = {name: getattr(self, f"{name}_") for name in PREDICTS_WITH}
        return super()._make_path_model(**own, **parts)

    def fit_objects(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn from training images of one object each when a picture has a further one (see `stopping_rule`).

        Without it, or with fewer than four images per class, ``n_paths="auto"`` asks for a fixed gain.
        """
        images = self._checked_images(X)
        self.stopping_ = stopping_rule(self.path_model(), images, self._class_index(y, len(images)))
        return self

    def _class_index(self, y: ArrayLike, n_images: int) -> NDArray[np.intp]:
        """The class of each image, as positions in `classes_`; raises HCEPError for labels that are not classes."""
        labels = self._as_many_labels(y, n_images)
        place = {label: i for i, label in enumerate(self.classes_.tolist())}
        unknown = [label for label in dict.fromkeys(labels) if label not in place]
        if unknown:
            self._refuse_unknown(unknown)
        return np.array([place[label] for label in labels], dtype=np.intp)

    def _exact_classes(self, y: Any, n_images: int) -> NDArray[np.intp]:
        """The class of each image, as positions in `classes_`; -1 for an image that is labelled above the classes."""
        labels = self._as_many_labels(as_labels(y), n_images)
        if not any(isinstance(label, (str, *SEVERAL)) for label in labels):
            return self._class_index(labels, n_images)
        read = read_labels(labels, self.hierarchy_, classes=self.classes_.tolist())
        if read.unknown.any():
            self._refuse_unknown(list(dict.fromkeys(str(labels[i]) for i in np.flatnonzero(read.unknown))))
        return read.own

    def _as_many_labels(self, y: ArrayLike, n_images: int) -> list[Any]:
        labels: list[Any] = column_or_1d(y).tolist()
        if len(labels) != n_images:
            raise HCEPError(f"X has {n_images:,} images, but y has {len(labels):,} labels")
        return labels

    def _refuse_unknown(self, labels: list[Any]) -> NoReturn:
        close = near_matches(str(labels[0]), map(str, self.classes_.tolist()))
        above = [label for label in labels if label in growing.unmerged(self.hierarchy_)]
        teach = f" With coarse='below', images of {quoted(above, 3)} teach the classes below." if above else ""
        raise HCEPError(
            f"y contains labels that are not classes of the model: {quoted(labels)}.{close} "
            f"add_class(name, parent, X) adds a class.{teach}"
        )

    # -- predicting ----------------------------------------------------------------------------------

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
        only: Concepts = (),
    ) -> Inference:
        """Return paths, classes and probabilities of new images from one search.

        Parameters
        ----------
        X, n_best, trace, progress, explained : as for `PathModel.infer`
        force, forbid : as for `pursue`; classes that they rule out have probability 0
        only : the only possible classes, or concepts above them, at this place or time
        """
        images, model = self._checked_images(X), self.path_model()
        options: dict[str, Any] = {"n_best": n_best, "trace": trace, "progress": progress, "explained": explained}
        return model.infer(images, limits=model.limits(force, forbid, only), **options)

    def predict(
        self,
        X: ArrayLike,
        *,
        decode: Decode = "class",
        force: Concepts = (),
        forbid: Concepts = (),
        only: Concepts = (),
    ) -> NDArray[Any]:
        """Return the answer for each image; with concepts forced, forbidden or only possible, the best that is left.

        Parameters
        ----------
        X : (n_images, n_dims) array
        decode : {"class", "distance", "f1", "sure"}
            What to answer: the most probable class; the concept of the least expected tree distance, which makes the
            mildest mistakes; the concept whose path has the best expected F1; or the most specific concept that is 90 %
            likely, which is None if nothing is (`predict_concept` has other levels). See `hcep.classify.decoding`.
        force, forbid, only : as for `infer`
        """
        require_decoder(decode)
        limited: dict[str, Any] = {"force": force, "forbid": forbid, "only": only}
        if decode == "class":
            index = self._ask(X, lambda model, images: model.predict(images, model.limits(**limited)))
            return np.asarray(self.classes_[index])
        return self._decoded(X, decode, **limited)

    def _decoded(self, X: ArrayLike, decode: Decode, sure: float = SURE, **limited: Any) -> NDArray[np.object_]:
        """The concept that a decoder answers with for each image; None if nothing is sure."""
        limits = self.path_model().limits(**limited)

        def synsets(model: PathModel, found: Inference, _: slice) -> NDArray[np.intp]:
            are_limited = hedging.is_limited(model, limits, len(found.class_index))
            return hedging.right_levels(model, found, sure, are_limited, decode=decode).synsets

        return self._concepts(np.concatenate(self._in_blocks(X, synsets, **limited)))

    def _concepts(self, synsets: NDArray[np.intp]) -> NDArray[np.object_]:
        """The ids of synsets, or the labels of classes; None for the root."""
        h, labels = self.hierarchy_, {str(label): label for label in self.classes_.tolist()}  # integers stay so
        concepts = (None if i == 0 else h.class_of(h.ids[i]) for i in synsets.tolist())
        return np.array([labels.get(str(one), one) for one in concepts], dtype=object)

    def _ask(self, X: ArrayLike, answer: Callable[[PathModel, NDArray[Any]], Any]) -> Any:
        """An answer of the path model; images that are not finite show in its products, and are named afterwards."""
        images, model = self._checked_images(X, finite=False), self.path_model()
        try:
            return answer(model, images)
        except DictionaryError:
            self._checked_images(X)
            raise

    def predict_proba(
        self,
        X: ArrayLike,
        *,
        force: Concepts = (),
        forbid: Concepts = (),
        only: Concepts = (),
    ) -> NDArray[np.float64]:
        """Return the probability of each class, (n_images, n_classes); the predicted class has the largest.

        With the path head they are those of `Calibration`, over the best complete path of every class; a finite beam
        leaves only the classes of its final hypotheses.

        Parameters
        ----------
        X : (n_images, n_dims) array
        force, forbid, only : as for `infer`; the probabilities are then over the classes left
        """
        return np.asarray(self._ask(X, lambda model, x: model.probabilities(x, model.limits(force, forbid, only))))

    def node_probabilities(
        self, X: ArrayLike, *, force: Concepts = (), forbid: Concepts = (), only: Concepts = ()
    ) -> NDArray[np.float64]:
        """Return the probability of every concept, (n_images, n_synsets), in the order of ``hierarchy_.ids``.

        A concept's is the sum over the classes below it, each counted once, however many paths lead there; the root's
        is 1.
        """
        return np.asarray(self._ask(X, lambda model, x: model.node_probabilities(x, model.limits(force, forbid, only))))

    def predict_topk(self, X: ArrayLike, k: int = 5) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """Return the k most probable classes of each image, best first, and their probabilities, both (n_images, k).

        The other classes are not kept, so that many images of many classes fit in memory.
        """
        require_positive("k", k)
        index, probabilities = self._ask(X, lambda model, images: model.top_classes(images, k))
        return self.classes_[index], probabilities

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return the accuracy: the share of images whose class is the true one, or below the concept that is known.

        An image that is labelled with the root does not count.
        """
        labels = as_labels(y)
        if not any(isinstance(label, (str, *SEVERAL)) for label in labels):
            return float(super().score(X, labels, sample_weight))
        answers = self._ask(X, lambda model, images: model.predict(images))
        read = read_labels(self._as_many_labels(labels, len(answers)), self.hierarchy_, classes=self.classes_.tolist())
        right = read.allows(answers)
        known = ~read.dropped | read.unknown
        weights = None if sample_weight is None else np.asarray(sample_weight)[known]
        return float(np.average(right[known], weights=weights)) if known.any() else float("nan")

    # -- how sure ------------------------------------------------------------------------------------

    def calibrate(
        self, X: ArrayLike, y: ArrayLike, *, groups: Sequence[str] | None = None, only: Concepts = ()
    ) -> Self:
        """Score labelled images that the model was not fitted on, for the promises of the methods below.

        `predict_concept` turns its estimate into a promise by these scores, and `predict_set`, `unknown_kind` and
        `is_unknown` need them. What they promise holds for new images of the same kind: the same classes in the same
        shares, the same cameras. `hcep.classify.right_level.promise` says it in one sentence. Only images
        that are labelled with a class can be used: ``len(model.held_out_)`` says how many these were.

        Parameters
        ----------
        X, y : (n_images, n_dims) array, and the label of each image
        groups : the burst, observation or specimen of each image. The promise is then about groups of photos that get
            one answer together; all photos of a group have the same label
        only : the only possible classes, or concepts above them; images of other classes are ignored. The promise then
            holds for answers with this list
        """
        own = self._exact_classes(y, len(np.asarray(X)))
        if groups is not None and len(groups) != len(own):
            raise HCEPError(f"groups must have one entry for each of {len(own):,} images; got {len(groups):,}")
        possible = tuple(sorted(map(self.hierarchy_.find, Request.of(only=only).only)))
        usable = own >= 0
        if possible:
            usable &= self.path_model().levels.possible(possible)[own]
        exact = np.flatnonzero(usable)
        if len(exact) < len(own):
            if len(exact) < needed(SURE):
                raise HCEPError(
                    f"only {len(exact):,} of {len(own):,} images are labelled with a possible class, and a coverage of "
                    f"{100 * SURE:g} % needs at least {needed(SURE)}: label more images with their class"
                )
            logger.info("%d of %d images are labelled with a class and used to calibrate", len(exact), len(own))
            X, own = np.asarray(X)[exact], own[exact]
            groups = None if groups is None else np.asarray(groups)[exact].tolist()
        if groups is None:
            parts = self._in_blocks(
                X, lambda model, found, rows: hedging.held_out_scores(model, found, own[rows]), only=possible
            )
        else:
            parts, own = self._grouped_scores(np.asarray(X), own, groups, possible)
        scores = np.concatenate([part.scores for part in parts])
        self.held_out_ = HeldOutScores(own.astype(np.int64), scores, possible, groups is not None)
        self.path_model()
        return self

    def _grouped_scores(
        self, X: NDArray[Any], own: NDArray[np.intp], groups: Sequence[str], only: tuple[str, ...]
    ) -> tuple[list[HeldOutScores], NDArray[np.intp]]:
        """The held-out scores of groups, in blocks, and their classes."""
        from hcep.classify.groups import group_rows, infer_groups

        model, parts = self.path_model(), []
        for rows in group_rows(groups, max(1, BLOCK // len(self.classes_))):
            names = [groups[i] for i in rows.tolist()]
            of_groups = infer_groups(model, X[rows], names, model.limits(only=only))
            classes = own[rows][of_groups.rows]
            place = dict(zip(of_groups.names, classes.tolist(), strict=True))
            mixed = next((name for name, c in zip(names, own[rows].tolist(), strict=True) if place[name] != c), None)
            if mixed is not None:
                raise HCEPError(f"groups: the photos of {quote(mixed)} have different labels; a group shows one class")
            parts.append(hedging.held_out_scores(model, of_groups.inference, classes))
        return parts, np.concatenate([part.class_index for part in parts])

    def _in_blocks(self, X: ArrayLike, work: Callable[[PathModel, Inference, slice], Any], **limits: Any) -> list[Any]:
        """Results of `work` on one block of images after another, so that not all probabilities are kept."""
        images, model = np.asarray(X), self.path_model()
        parts = list(blocks(0, len(images), len(self.classes_))) or [slice(0, 0)]
        return [work(model, self.infer(images[rows], explained=True, **limits), rows) for rows in parts]

    def predict_concept(
        self, X: ArrayLike, *, sure: float = SURE, by_class: bool = False, only: Concepts = ()
    ) -> NDArray[np.object_]:
        """Return the id of the most specific concept that is at least `sure` likely for each image.

        It is None if nothing but the root is, or if the image is atypical (see `PathModel.typical`). After `calibrate`,
        and with enough held-out images, the true class is below it with probability at least `sure`, among images that
        the model is sure of and among doubtful ones (see `hcep.classify.right_level`).

        Parameters
        ----------
        X : (n_images, n_dims) array
        sure : float between 0 and 1
        by_class : promise it for the images of every class by themselves; needs `calibrate`. A class with fewer than
            ``sure / (1 - sure)`` held-out images can then never be excluded.
        only : the only possible classes, or concepts above them, at this place or time. The promise holds if the model
            was calibrated with the same list
        """
        if not by_class:
            return self._decoded(X, "sure", sure, only=only)
        alpha, tree = 1.0 - require_sure(sure), self.hierarchy_.path_tree

        def synsets(model: PathModel, found: Inference, _: slice) -> NDArray[np.intp]:
            return np.asarray(tree.synset[hedging.hedged_nodes(model, found, alpha, by_class=True)])

        return self._concepts(np.concatenate(self._in_blocks(X, synsets, only=only)))

    def predict_set(self, X: ArrayLike, *, sure: float = SURE, by_class: bool = False) -> list[tuple[str, ...]]:
        """Return the classes that an image may belong to, as concepts that stand for all classes below them.

        The true one is among them with probability at least `sure`, which needs `calibrate`; parameters are those of
        `predict_concept`.
        """
        alpha = 1.0 - require_sure(sure)

        def subtrees(model: PathModel, found: Inference, _: slice) -> list[tuple[str, ...]]:
            return hedging.as_subtrees(model, hedging.class_sets(model, found, alpha, by_class=by_class))

        return [answer for part in self._in_blocks(X, subtrees) for answer in part]

    def unknown_kind(self, X: ArrayLike, *, sure: float = 0.8) -> NDArray[np.object_]:
        """Return, for images of classes that the model does not know, the concept they are a kind of.

        It is above the true class with probability at least `sure`, as far as unknown classes are to the model what its
        own classes would be if each were taken away; the root if nothing can be said.
        """
        alpha = 1.0 - require_sure(sure)
        parts = self._in_blocks(X, lambda model, found, _: hedging.kinds(model, found, alpha))
        hierarchy = self.hierarchy_
        return np.asarray(np.array(hierarchy.ids, dtype=object)[hierarchy.path_tree.synset[np.concatenate(parts)]])

    def is_unknown(self, X: ArrayLike, false_alarms: float = 0.05) -> NDArray[np.bool_]:
        """Return whether images belong to no class of the model; a share of `false_alarms` of known ones is flagged."""
        threshold = hedging.scores_of(self.path_model()).quantile("unknown", false_alarms)
        return np.asarray(self.unknown_score(X) > threshold)

    def unknown_score(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return a novelty score, higher for images less like the model's classes (see `hedging.unknown_scores`)."""
        return np.concatenate(self._in_blocks(X, lambda model, found, _: hedging.unknown_scores(model, found)))

    # -- growing: the model changes in place, its metric, anchor and temperature stay ------------------

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Add images to existing classes, in the metric of the fit; fit the model if it is not fitted yet.

        The result equals, to rounding, a fit to all images with the same metric and anchor. Held-out scores no longer
        hold: call `calibrate` again.

        Parameters
        ----------
        X, y, sample_weight : as for `fit`
            An image with a label above the classes counts for the classes below it, by their probabilities under the
            model as it is before the call. Such a label never becomes a class here; `add_class` makes one.
        classes : the classes of the first call, which needs images of each; later calls ignore them
        """
        if not hasattr(self, "dictionary_"):
            absent = [] if classes is None else np.setdiff1d(np.asarray(classes), np.asarray(y)).tolist()
            if absent:
                raise HCEPError(
                    f"classes {quoted(absent)} have no image in y; the first call needs images of every class"
                )
            return self.fit(X, y, sample_weight)
        images = self._images_to_add(X)
        weights = checked_weights(sample_weight, images)
        shares, is_exact, counts = self._shares(images, y, weights > 0.0)
        means, labels, transform = self._class_means(), self.classes_.tolist(), self.dictionary_.transform
        for c in np.flatnonzero(np.diff(shares.indptr)):
            of_class = slice(shares.indptr[c], shares.indptr[c + 1])
            rows = shares.indices[of_class]
            more = ClassMean.of(images[rows], weights[rows] * shares.data[of_class], transform)
            means[labels[c]] = means[labels[c]].joined(more._replace(n_images=int(is_exact[rows].sum())))
        used = np.unique(shares.indices)
        n_unlike = 0
        if self.explained_floor_ is not None:
            likeliest = np.asarray(shares.tocsr()[used].argmax(axis=1)).ravel()
            explained = self.path_model().infer(images[used], explained=True).explained
            n_unlike = int((explained < self.explained_floor_[likeliest]).sum())
        self._rebuild(self._graph_to_grow(), means)
        self.n_grown_, self.n_unlike_ = self.n_grown_ + len(used), self.n_unlike_ + n_unlike
        if counts:
            self.coarse_counts_ = joined_counts(self.coarse_counts_, counts)
        return self

    def _shares(
        self, images: NDArray[Any], y: ArrayLike, used: NDArray[np.bool_]
    ) -> tuple[sparse.csc_array, NDArray[np.bool_], CoarseCounts]:
        """How much of each new image counts for each class, (n_images, n_classes): 1 in all, or 0 if it is not used.

        Also whether each image is labelled with its class, and where those of the other labels go.
        """
        n_classes, labels = len(self.classes_), as_labels(y)
        if self.classes_.dtype.kind not in "UOT":
            own = np.where(used, self._class_index(labels, len(images)), -1)
            exact = np.flatnonzero(own >= 0)
            place = exact, own[exact]
            return sparse.csc_array((np.ones(len(exact)), place), (len(images), n_classes)), own >= 0, {}
        read = self._read_new_labels(labels, len(images))
        own, rows = np.where(used, read.own, -1), np.flatnonzero(used & (read.label >= 0))
        exact, label = np.flatnonzero(own >= 0), read.label[rows]
        taught = Teacher.of(self.path_model(), read, self.coarse_counts_)(images[rows], label)
        at, columns = sparse.coo_array(taught).coords
        place = np.concatenate([exact, rows[at]]), np.concatenate([own[exact], columns])
        shares = sparse.csc_array((np.concatenate([np.ones(len(exact)), taught.data]), place), (len(images), n_classes))
        return shares, own >= 0, count_labels(read.names, label, taught, self.classes_)

    def _read_new_labels(self, y: Any, n_images: int) -> Labels:
        """What the labels of new images say; raises HCEPError for a label that is no class and above no class."""
        labels, hierarchy = self._as_many_labels(y, n_images), None if self.hierarchy is None else self.hierarchy_
        read = read_new_labels(labels, self.classes_.tolist(), hierarchy, self._graph, self.coarse, self.unlabelled)
        if read.unknown.any():
            self._refuse_unknown(list(dict.fromkeys(str(labels[i]) for i in np.flatnonzero(read.unknown))))
        return read

    def add_class(self, name: Any, parent: str | None, X: ArrayLike, text: ArrayLike | None = None) -> Self:
        """Add a class with its images (n_images, n_dims) below a concept.

        Parameters
        ----------
        name : the label, of the same type as the others
        parent : id or name of a concept; None is the root. A class that gets another below it stays a class.
        text : (n_dims,) or (n_texts, n_dims) array; the text of the class, if the model was fitted with texts. Without
            it, a regression over the other classes predicts the text from the images, and the class is found less often
        """
        images, above = self._images_to_add(X), self.place_of_class(name, parent)
        mean = ClassMean.of(images, np.ones(len(images)), self.dictionary_.transform)
        means = self._class_means()
        if text is not None and self.words_ is None:
            raise HCEPError(f"the model has no texts: leave out text of {quote(name)}")
        if self.words_ is not None:
            if text is None:
                known = [one for one in means.values() if one.n_images]
                pictures, words = (np.stack([getattr(one, view) for one in known]) for view in ("mean", "words"))
                text = predicted_means(pictures, words, mean.mean[None])
            vector = checked_texts({name: text}, (), [str(name)], self.dictionary_.n_dims)[str(name)]
            mean = mean._replace(words=self.words_.text_scale * vector)
        self._rebuild(growing.with_class(self._graph_to_grow(), str(name), above), {**means, name: mean})
        self.n_grown_ += len(images)
        return self

    def place_of_class(self, name: Any, parent: str | None) -> str:
        """Return the concept that `add_class` would add a class below; raises the errors of `add_class`."""
        self._require_path_head()
        if str(name) in set(map(str, self.classes_.tolist())):
            how = "to add images to it, use `hcep model add` without --class (in Python: partial_fit)"
            raise HCEPError(f"{quote(name)} is already a class of the model; {how}")
        if isinstance(name, str) != (self.classes_.dtype.kind in "UO"):
            raise HCEPError(f"name must be of the type of the other classes, {self.classes_.dtype}; got {quote(name)}")
        above = growing.unmerged(self.hierarchy_)
        if self.coarse != "own" and str(name) in above and not above.is_leaf(str(name)):
            raise HCEPError(
                f"{quote(name)} is a concept above {quoted(above.children(str(name)), 3)}; with partial_fit(X, y), or "
                "`hcep model add` without --class, its images teach the classes below it. To make it a class beside "
                "them, set coarse='own'"
            )
        return growing.parent_of_class(self._graph_to_grow(), str(name), parent)

    def remove_class(self, name: Any) -> Self:
        """Remove a class; a concept that is left with one child is merged into it, as in a fit."""
        self._require_path_head()
        means = self._class_means()
        if name not in means:
            close = near_matches(str(name), map(str, means))
            raise HCEPError(f"{quoted([name])} is not a class of the model.{close}")
        if len(means) < 3:
            raise HCEPError("a model keeps at least two classes")
        removed = means.pop(name)
        self._rebuild(self._graph_to_grow(), means)
        self.n_grown_ += removed.n_images
        return self

    def remove_concept(self, concept: str) -> Self:
        """Remove a concept above classes, by id or name; its children go to its parents."""
        self._require_path_head()
        graph = self._graph_to_grow()
        return self._rebuild(growing.without(graph, graph.find(concept)), self._class_means())

    def move(self, concept: str, parent: str) -> Self:
        """Move a concept, with everything below it, under one other parent."""
        self._require_path_head()
        graph = self._graph_to_grow()
        return self._rebuild(growing.moved(graph, graph.find(concept), graph.find(parent)), self._class_means())

    def rename(self, concept: str, name: str) -> Self:
        """Give a concept another display name; its id, and the label of a class, stay."""
        check_is_fitted(self, "dictionary_")
        if not (isinstance(name, str) and name.strip()):
            raise HCEPError(f"name must be a non-empty string, got {quote(name)}")
        graph = self._graph_to_grow()
        synset = graph.find(concept)
        self._graph, self.hierarchy_ = (growing.renamed(h, synset, name) for h in (graph, self.hierarchy_))
        self.dictionary_ = self.dictionary_.with_hierarchy(self.hierarchy_)
        self.path_model()
        return self

    def drift(self) -> str | None:
        """Return why the model should be fitted again, with a new choice of metric and anchor; None if it is fine."""
        n_images = sum(mean.n_images for mean in self._class_means().values())
        n_images += sum(round(sum(count.classes.values())) for count in (self.coarse_counts_ or {}).values())
        if self.n_unlike_ > UNLIKE * max(self.n_grown_, 20):
            return (
                f"{self.n_unlike_:,} of {self.n_grown_:,} images added since the fit are unlike the training images "
                "of their class: fit again, so that the metric is chosen for these too"
            )
        changed = f"{self.n_grown_:,} images have been added or removed since the metric was chosen"
        return f"{changed}, of {n_images:,} now: fit again" if self.n_grown_ > n_images / 2 else None

    def _require_path_head(self) -> None:
        check_is_fitted(self, "dictionary_")
        if self.head_ is not None:
            raise HCEPError("a linear head on the codes cannot grow; fit with head='path', or fit again")

    def _images_to_add(self, X: ArrayLike) -> NDArray[Any]:
        self._require_path_head()
        return self._checked_images(X)

    def _graph_to_grow(self) -> Hierarchy:
        """The hierarchy as it was given, with chains not merged: the concepts that a class can be added below."""
        return growing.unmerged(self.hierarchy_ if self._graph is None else self._graph)

    def _class_means(self) -> dict[Any, ClassMean]:
        """The embedding of each class, in the metric and before the prior, and the images it is the mean of."""
        check_is_fitted(self, "dictionary_")
        counts = self.images_per_class_
        if counts is None:
            raise HCEPError("the model does not record how many images each class had; fit it again with this release")
        weights = counts if self.class_weights_ is None else self.class_weights_
        index = [self.hierarchy_.index(leaf) for leaf in self._leaves.tolist()]
        pictures = self.dictionary_.synset_embeddings[index, : self.dictionary_.n_pictures]
        embeddings = pictures if self.class_means_ is None else self.class_means_
        words = [None] * len(index) if self.words_ is None else self.dictionary_.word_block[index]
        means = zip(embeddings, counts.tolist(), weights.tolist(), words, strict=True)
        return {label: ClassMean(*mean) for label, mean in zip(self.classes_.tolist(), means, strict=True)}

    def _rebuild(self, graph: Hierarchy | None, means: ClassMeans) -> Self:
        """Make the dictionary of other class means, or of another hierarchy, in the same metric."""
        self.dictionary_.refuse_free_atoms("made from class means")
        classes = np.unique(np.array(list(means), dtype=object if self.classes_.dtype.kind == "O" else None))
        labels = classes.tolist()
        hierarchy = class_hierarchy(graph, classes, self.tree, self.collapse)
        leaves = class_leaves(hierarchy, classes)
        counts = np.array([means[label].n_images for label in labels], dtype=np.int64)
        weights = np.array([means[label].weight for label in labels])
        own = np.stack([means[label].mean for label in labels])
        n_images = counts if self.coarse_counts_ is None else weights
        expected = under_prior(self.prior_, hierarchy, leaves, own, n_images)
        if self.words_ is not None:  # a class without images has the picture that its text predicts
            expected = np.where(weights[:, None] > 0.0, expected, own)
        embeddings = average_upwards(hierarchy, dict(zip(leaves.tolist(), expected, strict=True)))
        if self.words_ is not None:
            words = {leaf: means[label].words for leaf, label in zip(leaves.tolist(), labels, strict=True)}
            embeddings = np.hstack([embeddings, average_upwards(hierarchy, words | self._inner_words(hierarchy))])
        dictionary = ConceptDictionary(hierarchy, embeddings, self.dictionary_.transform, self.dictionary_.anchor_unit)
        priors = class_priors(self.priors, weights) if self.priors_ is not None else None
        if self.unseen_odds_ < 1.0 and not counts.all():
            known = np.ones(len(counts)) if priors is None else priors
            priors = np.where(counts > 0, known, self.unseen_odds_ * known[counts > 0].min())
            priors /= priors.sum()
        # From here on nothing fails: the model is the old one or the new one.
        floor, moves = self.explained_floor_, self.leaf_moves_
        self.explained_floor_ = None if floor is None else self._by_class(floor, labels, float(np.median(floor)))
        self.leaf_moves_ = None if moves is None else self._by_class(moves, labels, 0.0)
        self._graph, self.hierarchy_, self.dictionary_ = graph, hierarchy, dictionary
        self.classes_, self._leaves, self.images_per_class_, self.priors_ = classes, leaves, counts, priors
        if self.coarse_counts_ is not None:
            present = set(map(str, labels))
            self.coarse_counts_ = {name: count.among(present) for name, count in self.coarse_counts_.items()}
        self.class_weights_ = None if (weights == counts).all() else weights
        self.class_means_ = None if self.prior_ is None else own
        self.held_out_ = None
        self.path_model()
        return self

    def _inner_words(self, hierarchy: Hierarchy) -> dict[str, Any]:
        """The word parts of inner concepts that have a text of their own, as far as the hierarchy has them."""
        concepts = [] if self.words_ is None else [one for one in self.words_.concepts if one in hierarchy]
        old, block = self.hierarchy_, self.dictionary_.word_block
        return {one: block[old.index(one)] for one in concepts if one in old and not hierarchy.is_leaf(one)}

    def _by_class(self, numbers: NDArray[np.float64], labels: list[Any], new: float) -> NDArray[np.float64]:
        """Numbers of the present classes for those that there will be."""
        known = dict(zip(self.classes_.tolist(), numbers.tolist(), strict=True))
        return np.array([known.get(label, new) for label in labels])
