"""The encoder of a model: made as it was for training, and embeddings of another one refused."""

import os
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hcep.embeddings.protocol import Encoder, EncoderRecord
from hcep.errors import HCEPError, quoted
from hcep.models.loading import SavedModel

if TYPE_CHECKING:
    from hcep.embeddings import Embeddings


def load_model_encoder(
    record: EncoderRecord | None, model: object, wanted: Encoder | str | None = None, preprocessing: Any = None
) -> Encoder:
    """The encoder of a model's embeddings, which the model names, or the user by another name; no other is taken.

    Parameters
    ----------
    record : what the model says of its encoder
    model : what the model is called in messages
    wanted : instead of the one the model names; it must lead to the same
    preprocessing : instead of the recorded one, see `load_encoder`
    """
    from hcep.embeddings import load_encoder

    known = record or EncoderRecord("")
    name = wanted or known.name
    if not name:
        raise HCEPError(f"{str(model)!r} does not say which encoder its embeddings are of; pass --encoder")
    if not wanted and known.name.startswith("function:"):
        # Loading it imports a module of the file's choosing; only the user may ask for that.
        raise HCEPError(f"{str(model)!r} names the encoder {name!r}, which is code; to run it, pass --encoder {name}")
    try:
        chosen = preprocessing or known.preprocessing
        encoder = load_encoder(name, preprocessing=chosen) if isinstance(name, str) else name
    except HCEPError as error:
        hint = "" if wanted else "; the model names this encoder, say with --encoder where it is now"
        raise HCEPError(f"{error}{hint}") from None
    if known.fingerprint not in (None, encoder.fingerprint):
        raise HCEPError(f"encoder {encoder.name!r} is not the one the model was fitted with: its fingerprint differs")
    return encoder


def refuse_other_encoder(expected: EncoderRecord | None, given: EncoderRecord | None, source: object) -> None:
    """Refuse embeddings of another encoder than the model's, where both are known; `source` is where they are from."""
    if expected is None or given is None or None in (expected.fingerprint, given.fingerprint):
        return
    if expected.fingerprint != given.fingerprint:
        told = f"{source} was encoded by {given.name!r}, the model is of {expected.name!r}; "
        raise HCEPError(told + "encode the images with the model's encoder")


def refuse_labels(classes: NDArray[Any], y: NDArray[np.str_], name: str = "the model") -> None:
    """Refuse labels that are not classes of a model."""
    unknown = sorted(set(y.tolist()) - set(map(str, classes.tolist())))
    if unknown:
        raise HCEPError(
            f"{len(unknown):,} labels are not classes of {name}: {quoted(unknown)}; give data with the classes it was "
            "fitted on, or add these with `hcep model add --class NAME`"
        )


def embeddings_for(
    model: SavedModel,
    data: str | PathLike[str],
    split: str | None = None,
    *,
    own_classes: bool = False,
    encoder: Encoder | str | None = None,
    preprocessing: Any = None,
    **options: Any,
) -> "Embeddings":
    """Embeddings for a model: read, or of photos made with the model's own encoder; those of others are refused.

    Parameters
    ----------
    data : what `hcep.datasets.embeddings_of` takes
    own_classes : refuse labels that are not classes of the model, of photos before they are encoded
    encoder, preprocessing : for photos, see `load_model_encoder`
    **options : others of `hcep.datasets.embeddings_of`
    """
    from hcep.datasets import embeddings_of
    from hcep.embeddings import read_embeddings
    from hcep.embeddings.files import is_embeddings
    from hcep.embeddings.vectors import OF_SPLIT

    recorded = model.encoder
    known = partial(refuse_labels, model.classes) if own_classes else None
    if encoder is None and (is_embeddings(data) or not Path(data).exists() or options.get("vectors")):
        options.pop("progress", None)
        found = read_embeddings(data, split, **options)
    else:
        adapter = load_model_encoder(recorded, model.folder, encoder, preprocessing)
        fitted_on = (model.training.data or "").partition(OF_SPLIT)[0]
        ready = model.folder / "store" if os.path.abspath(fitted_on) == os.path.abspath(data) else None
        found = embeddings_of(data, split, encoder=adapter, ready=ready, on_labels=known, **options)
    refuse_other_encoder(recorded, found.encoder, found.source)
    if known is not None:
        known(found.y)
    return found


def own_labels(classifier: Any, labels: NDArray[Any]) -> NDArray[Any]:
    """Labels of the type of the model's classes: a file has texts, the model may have numbers."""
    known = {str(label): label for label in classifier.classes_.tolist()}
    names, index = np.unique(np.asarray(labels, dtype=str), return_inverse=True)
    return np.array([known.get(name, name) for name in names.tolist()])[index]
