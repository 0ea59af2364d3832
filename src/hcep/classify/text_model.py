"""A classifier of a dictionary that was made from texts: no image is needed, and those there are help."""

from __future__ import annotations

import numpy as np

from hcep.classify.base import class_leaves
from hcep.classify.calibration import Calibration
from hcep.classify.estimators import HCEPClassifier
from hcep.dictionary.from_text import TextDictionary

#: Coefficients stay near 1: a text says where a class is, not how its images vary along the path.
ANCHOR = 3.0


def text_classifier(found: TextDictionary, anchor: float = ANCHOR) -> HCEPClassifier:
    """A fitted `HCEPClassifier` of every leaf of a `TextDictionary`, with its temperature.

    >>> from hcep import Hierarchy
    >>> from hcep.dictionary.from_text import text_dictionary
    >>> h = Hierarchy.from_edges([("thing", "pet"), ("pet", "cat"), ("pet", "dog"), ("thing", "car")])
    >>> texts = dict(zip(h.leaves, [[0.0, 0.0, 1.0], [1.0, 1.0, 0.0], [1.0, -1.0, 0.0]]))
    >>> model = text_classifier(text_dictionary(h, list(texts.values())))
    >>> model.predict(list(texts.values())).tolist() == list(h.leaves)
    True
    """
    hierarchy = found.dictionary.hierarchy
    model = HCEPClassifier(hierarchy, unit_norm=True, shrinkage=None, anchor=anchor, power=1.0, refine=False)
    model.classes_ = np.sort([hierarchy.class_of(leaf) for leaf in hierarchy.leaves])
    model.hierarchy_, model._leaves = hierarchy, class_leaves(hierarchy, model.classes_)
    model.dictionary_, model.calibration_ = found.dictionary, Calibration(found.temperature)
    model.anchor_, model.shrinkage_, model.power_, model.leaf_moves_ = float(anchor), None, 1.0, None
    model.leave_one_out_, model.head_, model.n_iter_, model.priors_ = [], None, 1, None
    model.n_features_in_ = found.dictionary.n_dims
    return model
