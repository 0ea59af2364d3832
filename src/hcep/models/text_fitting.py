"""Names of classes, and what images there are -> a fitted model in a folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING

import numpy as np

from hcep.classify import HCEPClassifier
from hcep.classify.calibration import Calibration
from hcep.classify.linear_head import assembled
from hcep.dictionary.from_text import TEMPLATES, TextDictionary, text_dictionary, text_vectors
from hcep.errors import HCEPError
from hcep.hierarchy import Hierarchy
from hcep.models.saving import save_model

if TYPE_CHECKING:
    from hcep.embeddings import Embeddings, Encoder

#: Coefficients stay near 1: a text says where a class is, not how its images vary along the path.
ANCHOR = 3.0


def text_classifier(found: TextDictionary, anchor: float = ANCHOR) -> HCEPClassifier:
    """A fitted `HCEPClassifier` of every leaf of a `TextDictionary`, with its temperature; no image is needed."""
    h = found.dictionary.hierarchy
    model = HCEPClassifier(h, unit_norm=True, shrinkage=None, anchor=anchor, power=1.0, refine=False)
    classes = np.sort([h.class_of(leaf) for leaf in h.leaves])
    return assembled(model, classes, found.dictionary, anchor, Calibration(found.temperature))


def fit_text_model(
    hierarchy: Hierarchy,
    encoder: Encoder,
    folder: str | PathLike[str],
    *,
    images: Embeddings | None = None,
    labelled: Embeddings | None = None,
    templates: Sequence[str] = TEMPLATES,
    descriptions: Mapping[str, str] | None = None,
    name: str | None = None,
) -> TextDictionary:
    """Make a classifier of all leaves of a hierarchy from their names, and save it.

    Parameters
    ----------
    encoder : with a text tower
    folder : path
    images, labelled : of the same encoder, without and with labels: see `hcep.dictionary.from_text.text_dictionary`
    templates, descriptions : as for `hcep.dictionary.from_text.text_vectors`
    name : of the model, for its card
    """
    for some in (images, labelled):
        by = None if some is None else some.encoder
        if some is not None and by is not None and by.fingerprint not in (None, encoder.fingerprint):
            raise HCEPError(f"{some.source}: embeddings of {by.name!r}, not of {encoder.name!r}")
    texts = text_vectors(hierarchy, encoder, templates, descriptions)
    labels = None if labelled is None else [hierarchy.leaf_of(str(label)) for label in labelled.y.tolist()]
    known = None if labelled is None else labelled.X
    found = text_dictionary(hierarchy, texts, None if images is None else images.X, known, labels)
    counts = None if labelled is None else Counter(labelled.y.tolist())
    sources = [some.source for some in (images, labelled) if some is not None]
    data = " and ".join(["names of classes", *sources])
    save_model(text_classifier(found), folder, encoder=encoder, data=data, images_per_class=counts, name=name)
    return found
