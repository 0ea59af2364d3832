"""A fitted classifier -> a folder of safetensors, JSON and Markdown."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

import hcep
from hcep.classify import HCEPClassifier
from hcep.classify.heads import AdamWHead, head_name
from hcep.errors import HCEPError
from hcep.models.card import EncoderLike, encoder_record, model_card
from hcep.models.folder import write_folder
from hcep.models.labels import class_record
from hcep.models.loading import SavedModel
from hcep.models.schema import (
    CARD,
    DOCUMENT,
    FORMAT,
    HIERARCHY,
    PER_CLASS,
    TENSORS,
    VERSION,
    ChangeRecord,
    LeaveOneOutRecord,
    ModelError,
    TransformRecord,
    file_record,
    seal,
)
from hcep.models.tensors import dump_tensors


def save_model(
    model: HCEPClassifier,
    folder: str | PathLike[str],
    *,
    encoder: EncoderLike = None,
    data: str | None = None,
    images_per_class: Mapping[Any, int] | None = None,
    metrics: Mapping[str, float] | None = None,
    name: str | None = None,
    license: str = "unknown",
    language: str | None = None,
) -> Path:
    """Write a fitted classifier to a folder, which `load_model` reads.

    Parameters
    ----------
    model : fitted
    folder : made where it does not exist. A model that is there already is replaced in one step: a process that dies
        leaves the old one or the new one. Other files in the folder stay.
    encoder : what makes the embeddings; its name and fingerprint are kept
    data : name of the training data
    images_per_class : mapping of label to int; such as ``collections.Counter(y)``
    metrics : mapping of str to float, optional
    name, license, language : for the model card; see `model_card`

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    ModelError
        When the model could not be loaded again (NaN in it, labels of another type than text or numbers), or `folder`
        holds other files of these names.
    sklearn.exceptions.NotFittedError
    """
    details: dict[str, Any] = {
        "encoder": encoder_record(encoder),
        "data": data,
        "images_per_class": images_per_class,
        "metrics": metrics,
    }
    files = pack(model, **details)
    card = model_card(model, name=name or Path(folder).resolve().name, license=license, language=language, **details)
    write_folder(Path(folder), {**files, CARD: encoded(CARD, card)})
    return Path(folder)


def pack(
    model: HCEPClassifier,
    *,
    encoder: EncoderLike = None,
    data: str | None = None,
    images_per_class: Mapping[Any, int] | None = None,
    metrics: Mapping[str, float] | None = None,
    history: Sequence[ChangeRecord] = (),
) -> dict[str, bytes]:
    """The content of a model's files by name, the card left out; checked by reading it again.

    `model`, `encoder`, `data`, `images_per_class`, `metrics`: as of `save_model`. `history`: changes since the fit.
    """
    if not isinstance(model, HCEPClassifier):
        raise ModelError(f"model must be a fitted HCEPClassifier, got {type(model).__name__}")
    check_is_fitted(model, "dictionary_")
    record = encoder_record(encoder)
    try:
        head_name(model.head)
        hierarchy = encoded(HIERARCHY, model.hierarchy_.to_json())
        tensors = dump_tensors(_tensors(model))
        document = {
            **_document(model),
            "encoder": msgspec.to_builtins(record),
            "training": {
                "data": data,
                "images_per_class": {str(_plain(k)): _plain(n) for k, n in (images_per_class or {}).items()},
                "metrics": {name: _plain(value) for name, value in (metrics or {}).items()},
                "history": msgspec.to_builtins(list(history)),
            },
            "files": msgspec.to_builtins({HIERARCHY: file_record(hierarchy), TENSORS: file_record(tensors)}),
        }
        files = {HIERARCHY: hierarchy, TENSORS: tensors, DOCUMENT: seal(document)}
        _ = SavedModel(".", files).classifier
    except HCEPError as error:
        raise ModelError(f"this model cannot be saved: {error}") from None
    return files


def _document(model: HCEPClassifier) -> dict[str, Any]:
    parameters = {name: _plain(value) for name, value in model.get_params(deep=False).items()}
    parameters["head"] = head_name(model.head)
    parameters["priors"] = model.priors if isinstance(model.priors, str) else np.asarray(model.priors).tolist()
    if isinstance(model.head_, AdamWHead):
        parameters["random_state"] = _plain(model.head_.random_state)
    names = getattr(model, "feature_names_in_", None)
    head, transform = model.head_, model.dictionary_.transform
    return {
        "format": FORMAT,
        "version": VERSION,
        "hcep_version": hcep.__version__,
        "parameters": {**parameters, "hierarchy": None if model.hierarchy is None else "fitted"},
        "classes": class_record(model.classes_),
        "n_dims": model.n_features_in_,
        "feature_names": None if names is None else names.tolist(),
        "fitted": {
            "anchor": _plain(model.anchor_),
            "shrinkage": _plain(model.shrinkage_),
            "temperature": None if math.isnan(model.temperature_) else _plain(model.temperature_),
            "exponent": model.calibration_.exponent,
            "typical_gap": model.calibration_.typical_gap,
            **{name: _listed(getattr(model, f"{name}_")) for name in PER_CLASS},
            "n_grown": model.n_grown_,
            "n_unlike": model.n_unlike_,
            "n_held_out": 0 if model.held_out_ is None else len(model.held_out_),
            "stopping": None if model.stopping_ is None else list(model.stopping_),
        },
        "transform": {
            **_fields(TransformRecord, transform),
            "mean": transform.mean is not None,
            "whitener": transform.whitener is not None,
        },
        "head": None if head is None else _head_record(head),
        "leave_one_out": [_fields(LeaveOneOutRecord, score) for score in model.leave_one_out_],
    }


def _head_record(head: Any) -> dict[str, Any]:
    if isinstance(head, AdamWHead):
        settings = ("epochs", "batch_size", "lr", "weight_decay")
        return {"kind": "adamw", **{name: _plain(getattr(head, name)) for name in settings}}
    return {"kind": "logistic", "C": _penalty(_plain(head.C)), "max_iter": _plain(head.max_iter)}


def _fields(record: type[Struct], source: Any) -> dict[str, Any]:
    """The fields of a record, from the attributes of an object."""
    return {name: _plain(getattr(source, name)) for name in record.__struct_fields__}


def _tensors(model: HCEPClassifier) -> dict[str, NDArray[Any]]:
    transform, head = model.dictionary_.transform, model.head_
    arrays: dict[str, NDArray[Any] | None] = {
        "synset_embeddings": model.dictionary_.synset_embeddings,
        "transform.mean": transform.mean,
        "transform.whitener": transform.whitener,
        "transform.constants": transform.constants,
    }
    if head is not None:
        arrays["head.coef"], arrays["head.intercept"] = head.coef_, head.intercept_
        arrays["head.classes"] = head.classes_.astype(np.int64)
        arrays["head.n_iter"] = head.n_iter_.astype(np.int32)
    if model.held_out_ is not None:
        arrays["held_out.classes"], arrays["held_out.scores"] = model.held_out_.class_index, model.held_out_.scores
    if model.leave_one_out_:
        longest = max(len(score.correct) for score in model.leave_one_out_)  # powers are tried on fewer images
        padded = [np.pad(score.correct, (0, longest - len(score.correct))) for score in model.leave_one_out_]
        arrays["leave_one_out.correct"] = np.stack(padded)
    return {name: array for name, array in arrays.items() if array is not None}


def encoded(file: str, text: str) -> bytes:
    """Text as the bytes of a file."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ModelError(f"{file}: a name or id in it is not valid Unicode ({error})") from None


def _plain(value: Any) -> Any:
    """A numpy scalar as Python's own; everything else as it is."""
    return value.item() if isinstance(value, np.generic) else value


def _listed(numbers: NDArray[Any] | None) -> list[float] | None:
    return None if numbers is None else numbers.tolist()


def _penalty(C: Any) -> Any:
    return "inf" if math.inf == C else C
