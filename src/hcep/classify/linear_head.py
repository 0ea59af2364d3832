"""Rooted paths for a linear classifier that exists already, for texts of classes, and for a dictionary of one's own.

A network's last layer or a scikit-learn probe decides by ``w_c . x + b_c``. Give every class the vector
``m_c = [w_c, b_c, sqrt(K - |w_c|**2 - b_c**2)]`` (w and b centred over the classes, K the largest ``|w|**2 + b**2``)
and every image ``[x, 1, 0] / t``: all classes have one norm, so the nearest *is* the classifier's, for any t > 0.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hcep._checks import require_not_negative
from hcep.classify.base import HierarchyLike, as_hierarchy, class_hierarchy, class_leaves
from hcep.classify.calibration import Calibration, fit_calibration
from hcep.classify.hedging import ENOUGH, FLOOR, typical_direction
from hcep.classify.words import LEAST_COSINE, Words
from hcep.dictionary import ConceptDictionary
from hcep.dictionary.checks import as_embeddings
from hcep.dictionary.concept_dictionary import average_upwards
from hcep.dictionary.transform import EmbeddingTransform, unit_rows
from hcep.errors import HCEPError
from hcep.hierarchy.graph import TreePolicy
from hcep.pursuit import hb_omp, path_objectives

if TYPE_CHECKING:
    from hcep.classify import HCEPClassifier

#: Anchors to try; the smallest that keeps the decisions is used. The larger, the closer coefficients are to 1.
ANCHORS = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1e3, 1e4, 1e5)
#: The anchor without images to try on.
SAFE_ANCHOR = 1e6
#: The same for texts: at this anchor the probabilities differ from the softmax of cosines by less than 1e-6.
TEXT_ANCHOR = 1e7
#: The temperature of cosines in a model of texts alone, which is that of CLIP.
COSINE_TEMPERATURE = 0.01
#: Anchors to try with a dictionary of one's own.
GIVEN_ANCHORS = (0.0, 0.03, 0.1, 0.3, 1.0)
#: Share of images on which path and classifier must agree.
AGREEMENT = 0.99


def open_linear_head(
    coef: ArrayLike,
    intercept: ArrayLike,
    classes: ArrayLike,
    hierarchy: HierarchyLike | None,
    *,
    images: ArrayLike | None = None,
    anchor: float | Literal["auto"] = "auto",
    tree: TreePolicy | None = "first",
    collapse: bool = True,
    temperature: float = 1.0,
) -> "HCEPClassifier":
    """Make a fitted `HCEPClassifier` from a linear classifier's weights; a large anchor keeps its softmax.

    Its ``agreement_`` is the share of `images` whose path ends in the classifier's class, NaN without images.

    Parameters
    ----------
    coef, intercept : (n_classes, n_dims) and (n_classes,); one row for two classes is the logit of the second
    classes : (n_classes,) labels; ids of leaves of the hierarchy, in the order of `coef`
    hierarchy, tree, collapse : as for `HCEPClassifier`
    images : (n_images, n_dims); embeddings of typical images, without labels. They set the scale, so that coefficients
        are about 1, choose the anchor, and tell which images are unlike them (see `hcep.classify.hedging.unlike`).
    anchor : float or "auto"; "auto" is the smallest of `ANCHORS` at which path and classifier agree on 99 % of
        `images`; without images, one so large that they always agree
    temperature : what the classifier's logits are divided by before the softmax; below 1 if it is not sure enough
        (see `hcep.classify.calibration.fit_temperature`)
    """
    from hcep.classify import HCEPClassifier

    weights, biases, labels = _checked(coef, intercept, classes)
    options: dict[str, Any] = {"tree": tree, "collapse": collapse, "anchor": anchor}
    model = HCEPClassifier(hierarchy, shrinkage=None, power=1.0, refine=False, **options)
    order = np.argsort(labels, kind="stable")
    labels, weights, biases = labels[order], weights[order], biases[order]
    graph = class_hierarchy(None if hierarchy is None else as_hierarchy(hierarchy), labels, tree, collapse)
    weights, biases = weights - weights.mean(axis=0), biases - biases.mean()
    squares = (weights**2).sum(axis=1) + biases**2
    embeddings = np.column_stack([weights, biases, np.sqrt(squares.max() - squares)])
    rows = None if images is None else as_embeddings(images, weights.shape[1], name="images")
    logits = None if rows is None else rows @ weights.T.astype(rows.dtype) + biases
    best = 0.0 if logits is None else float(logits.max(axis=1).mean())
    scale = float(squares.max()) / best if best > 0 else 1.0  # 1 / t: coefficients on the best class are about 1
    leaves = class_leaves(graph, labels)
    synsets = average_upwards(graph, dict(zip(leaves.tolist(), embeddings, strict=True)))
    transform = EmbeddingTransform(scale=scale, constants=np.array([scale, 0.0]))
    dictionary = ConceptDictionary(graph, synsets, transform, anchor_unit=1.0)
    anchors = ANCHORS if anchor == "auto" else (require_not_negative("anchor", anchor),)
    chosen, model.agreement_ = SAFE_ANCHOR if anchor == "auto" else anchors[0], float("nan")
    if rows is not None and logits is not None:
        chosen, model.agreement_ = _smallest_anchor(anchors, dictionary, rows, leaves[logits.argmax(axis=1)])
    # At an infinite anchor objectives differ by 2 * scale * (difference of logits).
    assembled(model, labels, dictionary, chosen, 2.0 * scale * require_not_negative("temperature", temperature, 1e-6))
    if rows is not None and len(rows) >= ENOUGH:
        explained = model.path_model().infer(rows, explained=True).explained
        model.explained_floor_ = np.full(len(labels), np.percentile(explained, FLOOR))
        model.typical_ = typical_direction(rows)
    return model


def fit_zero_shot(
    model: "HCEPClassifier", texts: Mapping[str, NDArray[np.float64]], images: NDArray[Any] | None = None
) -> "HCEPClassifier":
    """Fit a classifier to texts alone: its probabilities are the softmax of cosines, divided by CLIP's temperature.

    Parameters
    ----------
    texts : unit vectors by label; the leaves of the hierarchy that have one become classes
    images : (n_images, n_dims); unlabelled images, if there are any. They scale the texts, so that coefficients are
        about 1, and allow the smallest anchor that keeps 99 % of their classes. Without them all coefficients are 1.
    """
    model._check_parameters()
    model._forget()
    graph = model._graph = None if model.hierarchy is None else as_hierarchy(model.hierarchy)
    labels = list(texts if graph is None else map(graph.class_of, graph.leaves))
    classes = np.sort([label for label in labels if label in texts])
    hierarchy = class_hierarchy(graph, classes, model.tree, model.collapse)
    leaves, vectors = class_leaves(hierarchy, classes), np.stack([texts[label] for label in classes.tolist()])
    cosines = None if images is None else unit_rows(images.astype(np.float64)) @ vectors.T
    ratio = 1.0 if cosines is None else 1.0 / max(float(cosines.max(axis=1).mean()), LEAST_COSINE)
    synsets = average_upwards(hierarchy, dict(zip(leaves.tolist(), vectors / ratio**0.5, strict=True)))
    transform = EmbeddingTransform(True, scale=0.0, words=ratio**0.5)
    dictionary = ConceptDictionary(hierarchy, synsets, transform, anchor_unit=1.0)
    anchor = TEXT_ANCHOR if model.anchor == "auto" else float(model.anchor)
    if images is not None and cosines is not None and model.anchor == "auto":
        anchor = _smallest_anchor(ANCHORS, dictionary, images, leaves[cosines.argmax(axis=1)])[0]
    model.words_ = Words(1.0, ratio**-0.5)
    return assembled(model, classes, dictionary, anchor, 2.0 * COSINE_TEMPERATURE)


def fit_to_dictionary(
    model: "HCEPClassifier",
    dictionary: ConceptDictionary,
    images: NDArray[Any],
    labels: Sequence[Any],
    weights: NDArray[np.float64],
) -> NDArray[np.intp]:
    """Calibrate a classifier on labelled images, with a dictionary that stays as it is; return the class of each image.

    Its classes are the leaves of the dictionary. An "auto" anchor is the one of `GIVEN_ANCHORS` with the lowest log
    loss.
    """
    hierarchy = dictionary.hierarchy
    classes = np.sort(np.array([hierarchy.class_of(leaf) for leaf in hierarchy.leaves]))
    if np.asarray(labels).dtype.kind in "iu" and all(map(str.isdecimal, classes.tolist())):
        classes = np.sort(classes.astype(np.asarray(labels).dtype))  # integer labels come back as integers
    anchors = GIVEN_ANCHORS if model.anchor == "auto" else (float(model.anchor),)
    assembled(model, classes, dictionary, anchors[0], 1.0)
    own = model._class_index(np.asarray(labels), len(images))
    tried = []
    for anchor in anchors:
        objectives = model.path_model().lowest_by_class(path_objectives(images, dictionary, anchor=anchor))
        calibration = fit_calibration(objectives, own, weights)
        probabilities = calibration.probabilities(objectives)[np.arange(len(own)), own]
        loss = -float(np.average(np.log(np.maximum(probabilities, 1e-300)), weights=weights))
        tried.append((loss, anchor, calibration))
    _, model.anchor_, model.calibration_ = min(tried, key=lambda one: one[0])
    return own


def _smallest_anchor(
    anchors: tuple[float, ...], dictionary: ConceptDictionary, images: NDArray[Any], leaves: NDArray[np.str_]
) -> tuple[float, float]:
    """The first anchor at which the paths of enough images end in these leaves, or the last, and their share."""
    anchor, agreement = anchors[0], 0.0
    for anchor in anchors:
        paths = hb_omp(images, dictionary, beam_width=None, anchor=anchor)
        agreement = float(np.mean(paths.leaves == leaves))
        if agreement >= AGREEMENT:
            break
    return anchor, agreement


def assembled(
    model: "HCEPClassifier", classes: NDArray[Any], dictionary: ConceptDictionary, anchor: float, temperature: float
) -> "HCEPClassifier":
    """Set the fitted attributes of a classifier, as a fit would."""
    model.classes_, model.hierarchy_, model.dictionary_ = classes, dictionary.hierarchy, dictionary
    model._leaves = class_leaves(dictionary.hierarchy, classes)
    model.anchor_, model.shrinkage_, model.calibration_ = float(anchor), None, Calibration(temperature)
    model.leave_one_out_, model.head_, model.n_iter_, model.n_features_in_ = [], None, 1, dictionary.n_dims
    return model


def _checked(
    coef: ArrayLike, intercept: ArrayLike, classes: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[Any]]:
    weights, labels = np.atleast_2d(np.asarray(coef, dtype=np.float64)), np.asarray(classes)
    biases = np.atleast_1d(np.asarray(intercept, dtype=np.float64))
    if labels.ndim != 1 or len(labels) < 2 or len(np.unique(labels)) < len(labels):
        raise HCEPError(f"classes must be at least two distinct labels, got shape {labels.shape}")
    if len(labels) == 2 and len(weights) == len(biases) == 1:
        weights, biases = np.concatenate([-weights, weights]) / 2, np.concatenate([-biases, biases]) / 2
    if weights.ndim != 2 or len(weights) != len(labels) or biases.shape != (len(labels),):
        raise HCEPError(
            f"coef must be ({len(labels)}, n_dims) and intercept ({len(labels)},) for {len(labels)} classes; "
            f"got {weights.shape} and {biases.shape}"
        )
    if not (np.isfinite(weights).all() and np.isfinite(biases).all()):
        raise HCEPError("coef and intercept must be finite")
    return weights, biases, labels
