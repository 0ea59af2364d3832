"""The encoder of a model: loaded as it was for training; embeddings of another encoder are refused."""

import os
from collections.abc import Iterable
from contextlib import nullcontext
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hcep.embeddings.protocol import Encoder, EncoderRecord
from hcep.errors import HCEPError, MissingExtraError, quote, quoted
from hcep.hierarchy import Hierarchy
from hcep.models.loading import SavedModel

if TYPE_CHECKING:
    from hcep.embeddings import Embeddings


def load_model_encoder(
    record: EncoderRecord | None, model: object, wanted: Encoder | str | None = None, preprocessing: Any = None
) -> Encoder:
    """Load the encoder of a model's embeddings; HCEPError if it is not the same encoder.

    Parameters
    ----------
    record : what the model recorded of its encoder
    model : the model's name in messages
    wanted : an encoder or its name, instead of the recorded name
    preprocessing : used instead of the recorded one, see `load_encoder`
    """
    from hcep.embeddings import load_encoder
    from hcep.embeddings.encoders.hub import ALLOW_DOWNLOAD, HubUnreachableError, without_network

    known = record or EncoderRecord("")
    name = wanted or known.name
    if not name:
        raise HCEPError(f"{str(model)!r} does not record its encoder; pass --encoder")
    if not wanted and known.name.startswith("function:"):
        # Loading it would import a module that the file chooses; only the user may ask for that.
        raise HCEPError(
            f"{str(model)!r} names the encoder {quote(name)}, which is code; to run it, pass --encoder {name}"
        )
    try:
        chosen = preprocessing or known.preprocessing
        # A file may not cause a download: its author would learn who reads it, and choose what is loaded.
        with nullcontext() if wanted or os.environ.get(ALLOW_DOWNLOAD) else without_network():
            encoder = load_encoder(name, preprocessing=chosen) if isinstance(name, str) else name
    except HubUnreachableError:
        if wanted or os.environ.get(ALLOW_DOWNLOAD):
            raise
        raise HCEPError(
            f"{str(model)!r} names the encoder {quote(name)}, which is not on this machine; if you trust it, pass "
            f"--allow-download (or set {ALLOW_DOWNLOAD}=1), or name it yourself with --encoder"
        ) from None
    except HCEPError as error:
        hint = "" if wanted else "; the model records this encoder: if it has moved, pass --encoder"
        raise HCEPError(f"{error}{hint}") from None
    if known.fingerprint not in (None, encoder.fingerprint):
        raise HCEPError(f"encoder {quote(encoder.name)} is not the encoder of the model: its fingerprint differs")
    return encoder


def refuse_other_encoder(expected: EncoderRecord | None, actual: EncoderRecord | None, source: object) -> None:
    """Refuse embeddings of another encoder than the model's, if both are known; `source` names the embeddings."""
    if expected is None or actual is None or None in (expected.fingerprint, actual.fingerprint):
        return
    if expected.fingerprint != actual.fingerprint:
        raise HCEPError(
            f"{source} was encoded by {quote(actual.name)}, but the model was fitted to embeddings of "
            f"{quote(expected.name)}; encode the images with the model's encoder"
        )


def refuse_labels(
    classes: NDArray[Any], y: NDArray[np.str_], name: str = "the model", hierarchy: Hierarchy | None = None
) -> None:
    """Refuse labels that are neither classes of a model nor concepts above them."""
    from hcep.classify.coarse import read_labels  # here: explaining a photo needs no compiler

    labels = np.unique(y)
    unknown = labels[read_labels(labels, hierarchy, classes=classes.tolist()).unknown].tolist()
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
    """Read embeddings for a model, or encode photos with its encoder; embeddings of another encoder are refused.

    Parameters
    ----------
    data : what `hcep.datasets.encoding.embeddings_of` reads
    own_classes : refuse labels that are neither classes of the model nor concepts above them; those of photos before
        they are encoded
    encoder, preprocessing : for photos, see `load_model_encoder`
    **options : other options of `hcep.datasets.encoding.embeddings_of`
    """
    from hcep.datasets.encoding import embeddings_of
    from hcep.embeddings import read_embeddings
    from hcep.embeddings.files import is_embeddings
    from hcep.embeddings.vectors import OF_SPLIT

    check = partial(refuse_labels, model.classes, hierarchy=model.hierarchy) if own_classes else None
    if encoder is None and (is_embeddings(data) or not Path(data).exists() or options.get("vectors")):
        options = {name: value for name, value in options.items() if name not in ("progress", "boxes", "unlabelled")}
        embeddings = read_embeddings(data, split, **options)
    else:
        adapter = load_model_encoder(model.encoder, model.folder, encoder, preprocessing)
        fitted_on = (model.training.data or "").partition(OF_SPLIT)[0]
        ready = model.folder / "store" if os.path.abspath(fitted_on) == os.path.abspath(data) else None
        embeddings = embeddings_of(data, split, encoder=adapter, ready=ready, on_labels=check, **options)
    refuse_other_encoder(model.encoder, embeddings.encoder, embeddings.source)
    if check is not None:
        check(embeddings.y)
    return embeddings


def text_of_class(
    model: SavedModel,
    name: str,
    parent: str | None,
    vocabulary: Iterable[str | PathLike[str]] | None = None,
    encoder: Encoder | str | None = None,
) -> NDArray[Any] | None:
    """The text vectors of a new class, (n_texts, n_dims): from files, or by the text tower of the model's encoder.

    None if there is neither, or if the model has no texts.
    """
    from hcep.dictionary.from_text import text_vectors
    from hcep.embeddings.texts import texts_of_class

    if model.document.fitted.words is None:
        if vocabulary:
            raise HCEPError("--vocabulary: the model was fitted without texts; leave it out")
        return None
    if vocabulary:
        return texts_of_class(vocabulary, name, model.dictionary.n_dims)
    try:
        tower = load_model_encoder(model.encoder, model.folder, encoder)
    except (HCEPError, MissingExtraError):  # embeddings of a file need no encoder
        return None
    above = model.hierarchy.name(model.hierarchy.find(parent)) if parent else model.hierarchy.root
    return text_vectors(Hierarchy.from_edges([(above, name)]), tower) if tower.has_text else None


def own_labels(classifier: Any, labels: NDArray[Any]) -> NDArray[Any]:
    """Labels in the type of the model's classes: a file has texts, the model may have numbers."""
    known = {str(label): label for label in classifier.classes_.tolist()}
    names, index = np.unique(np.asarray(labels, dtype=str), return_inverse=True)
    return np.array([known.get(name, name) for name in names.tolist()])[index]
