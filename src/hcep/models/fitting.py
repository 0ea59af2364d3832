"""Embeddings, or names of classes and what images there are -> a fitted model in a folder."""

from collections import Counter
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hcep.classify import HCEPClassifier
from hcep.classify.linear_head import assembled
from hcep.dictionary.checks import refuse_non_finite
from hcep.dictionary.from_text import TEMPLATES, TextDictionary, text_dictionary, text_vectors
from hcep.embeddings import Embeddings, EmbeddingStore, Encoder
from hcep.errors import HCEPError
from hcep.hierarchy import Hierarchy
from hcep.models.saving import save_model
from hcep.models.schema import ATOMS, DOCUMENT
from hcep.models.streaming import accuracy, fit_streaming

#: Of models from texts, whose coefficients stay near 1: a text says where a class is, not how its images vary.
TEXT_ANCHOR = 3.0


class FittedModel(NamedTuple):
    """What a fit did."""

    model: HCEPClassifier
    metrics: dict[str, float]  # on the training images
    replaced: bool  # whether the folder held a model before
    names_dropped: bool  # whether that one had names of its atoms, which no longer hold

    @property
    def n_images(self) -> int:
        """Training images."""
        return int(self.model.moments_.n_images)


def fit_model(
    embeddings: Embeddings,
    hierarchy: Hierarchy | None,
    folder: str | PathLike[str],
    *,
    paper: bool = False,
    name: str | None = None,
    progress: bool = False,
    **parameters: Any,
) -> FittedModel:
    """Fit a classifier and save it, with what it was trained on and how well it does there.

    Raises HCEPError: labels that are missing or not in the hierarchy, parameters out of range, a folder of other files.

    Parameters
    ----------
    embeddings : with a label for each image. Of those that stay on disk (`read_embeddings` with ``in_memory``), no more
        than a sample is ever in memory, unless the head is a linear one.
    hierarchy : none is flat
    folder : a model that is there is replaced
    paper : begin with the published configuration
    name : of the model, for its card
    progress : show bars while images are read from disk
    **parameters : of `HCEPClassifier`
    """
    X, y = embeddings.X, embeddings.y
    replaced, names_dropped = (Path(folder, file).is_file() for file in (DOCUMENT, ATOMS))
    model = (HCEPClassifier.paper if paper else HCEPClassifier)(hierarchy, **parameters)
    by_path = isinstance(model.head, str) and model.head == "path"
    if isinstance(X, EmbeddingStore) and by_path:
        images = fit_streaming(model, X, y, progress)
        metrics = {"training accuracy": accuracy(model, X, y, progress)}
    else:
        X = X.to_numpy(np.float32) if isinstance(X, EmbeddingStore) else X
        refuse_non_finite(X, name="the data")
        images = X, y
        metrics = {"training accuracy": float(model.fit(X, y).score(X, y))}
    if not (model.signed or model.tol or model.max_steps):  # sums of several objects are of complete paths
        model.fit_objects(*images)
    used = (model.power_, model.shrinkage_, model.anchor_)
    chosen = [s for s in model.leave_one_out_ if (s.power, s.shrinkage, s.anchor) == used]
    if chosen:  # the last is on all images, where the power was chosen on some
        metrics["held-out accuracy"] = chosen[-1].accuracy
    save_model(
        model,
        folder,
        encoder=embeddings.encoder,
        data=embeddings.source,
        images_per_class=Counter(y.tolist()),
        metrics=metrics,
        name=name,
    )
    return FittedModel(model, metrics, replaced, names_dropped)


def text_classifier(found: TextDictionary, anchor: float = TEXT_ANCHOR) -> HCEPClassifier:
    """A fitted `HCEPClassifier` of every leaf of a `TextDictionary`, with its temperature; no image is needed."""
    h = found.dictionary.hierarchy
    model = HCEPClassifier(h, unit_norm=True, shrinkage=None, anchor=anchor, power=1.0, refine=False)
    classes = np.sort([h.class_of(leaf) for leaf in h.leaves])
    return assembled(model, classes, found.dictionary, anchor, found.temperature)


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
