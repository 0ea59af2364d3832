"""Embeddings and a hierarchy -> a fitted model in a folder."""

from __future__ import annotations

from collections import Counter
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hcep.classify import HCEPClassifier
from hcep.dictionary.checks import refuse_non_finite
from hcep.embeddings import Embeddings, EmbeddingStore
from hcep.hierarchy import Hierarchy
from hcep.models.saving import save_model
from hcep.models.schema import ATOMS, DOCUMENT
from hcep.models.streaming import accuracy, fit_streaming


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
