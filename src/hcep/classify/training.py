"""What every estimator settles first: the images it may train on, their classes, the hierarchy above the classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from hcep.errors import HCEPError, HierarchyError, near_matches, quoted
from hcep.hierarchy import VIRTUAL_ROOT, Hierarchy
from hcep.hierarchy.graph import TreePolicy


class Training(NamedTuple):
    """Checked training images.

    Attributes
    ----------
    images : (n_images, n_dims) float array
    class_index : (n_images,) int
        Class of each image, as a position in `classes`.
    classes : (n_classes,) array
        Sorted labels.
    """

    images: NDArray[Any]
    class_index: NDArray[np.intp]
    classes: NDArray[Any]


def checked_training(estimator: Any, X: Any, y: Any) -> Training:
    """Check images and labels as scikit-learn does; note their number of dimensions on the estimator."""
    images, labels = validate_data(estimator, X, y, dtype=(np.float64, np.float32), ensure_min_samples=1)
    if np.asarray(labels).dtype.kind == "f":  # synset ids are no regression target, even at one image a class
        check_classification_targets(labels)
    classes, index = np.unique(labels, return_inverse=True)
    return Training(images, index, classes)


def class_hierarchy(
    hierarchy: Hierarchy | None, classes: NDArray[Any], tree: TreePolicy | None, collapse: bool
) -> Hierarchy:
    """The given hierarchy on the classes alone, or a flat one."""
    labels = class_labels(classes)
    if hierarchy is None:
        root = VIRTUAL_ROOT
        while root in labels:
            root = f"({root})"
        return Hierarchy.from_edges([(root, label) for label in labels])
    if isinstance(hierarchy, Mapping) or not isinstance(hierarchy, Hierarchy):
        raise HCEPError(f"hierarchy must be a hcep.Hierarchy or None, got {type(hierarchy).__name__}")
    unknown = [label for label in labels if label not in hierarchy and label not in hierarchy.own_leaves]
    if unknown:
        raise HierarchyError(
            f"{len(unknown):,} of {len(labels):,} classes in y are not synsets of the hierarchy: {quoted(unknown)}."
            + near_matches(unknown[0], hierarchy.ids)
            + " Add an edge (parent, class) for each, or correct the labels."
        )
    restricted = hierarchy.restrict(labels) if tree is None else hierarchy.as_tree(tree).restrict(labels)
    return restricted.collapse() if collapse else restricted


def class_leaves(hierarchy: Hierarchy, classes: NDArray[Any]) -> NDArray[np.str_]:
    """The leaf that stands for each class."""
    return np.array([hierarchy.leaf_of(label) for label in class_labels(classes)])


def class_labels(classes: NDArray[Any]) -> list[str]:
    """Labels as the hierarchy knows them."""
    return [str(c) for c in classes.tolist()]
