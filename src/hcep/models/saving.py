"""A fitted classifier -> a folder of safetensors, JSON and Markdown; and its changes, each a version of its own.

The folder of a model holds its newest version, replaced in one step; the versions before are in ``versions/``, each
under its number and the first letters of its checksum. A process that dies leaves the old model or the new one.
"""

import math
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

import hcep
from hcep.classify import HCEPClassifier
from hcep.classify.heads import AdamWHead, head_name
from hcep.errors import HCEPError
from hcep.models import schema
from hcep.models.atom_names import dump_names, sealed_names
from hcep.models.card import EncoderLike, encoder_record, model_card
from hcep.models.folder import NAMES, ModelFiles, write_folder, writing
from hcep.models.loading import LEFT_OUT, SavedModel
from hcep.models.schema import CARD, DOCUMENT, HIERARCHY, TENSORS, ChangeRecord, ModelError, ModelSummary, file_record

VERSIONS = "versions"


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
    """Write a fitted classifier to a folder, which `load_model` reads; the folder is returned.

    Parameters
    ----------
    folder : made where it does not exist. A model that is there already is replaced in one step: a process that dies
        leaves the old one or the new one. Other files in the folder stay.
    encoder : what makes the embeddings; its name and fingerprint are kept
    data : name of the training data
    images_per_class : mapping of label to int; such as ``collections.Counter(y)``
    metrics : mapping of str to float
    name, license, language : for the model card; see `model_card`
    """
    details: dict[str, Any] = {"encoder": encoder_record(encoder), "data": data}
    details |= {"images_per_class": images_per_class, "metrics": metrics}
    files = pack(model, **details)
    card = model_card(model, name=name or Path(folder).resolve().name, license=license, language=language, **details)
    write_folder(Path(folder), {**files, CARD: encoded(CARD, card)})
    return Path(folder)


#: The same, as `hcep.save`.
save = save_model


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

    Parameters are those of `save_model`, and the changes since the fit.
    """
    if not isinstance(model, HCEPClassifier):
        raise ModelError(f"model must be a fitted HCEPClassifier, got {type(model).__name__}")
    check_is_fitted(model, "dictionary_")
    record = encoder_record(encoder)
    try:
        head_name(model.head)
        hierarchy = encoded(HIERARCHY, model.hierarchy_.to_json())
        tensors = safetensors.numpy.save({name: np.ascontiguousarray(a) for name, a in _tensors(model).items()})
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
        files = {HIERARCHY: hierarchy, TENSORS: tensors, DOCUMENT: schema.seal(document)}
        _ = SavedModel(".", files).classifier
    except HCEPError as error:
        raise ModelError(f"this model cannot be saved: {error}") from None
    return files


def _document(model: HCEPClassifier) -> dict[str, Any]:
    head, transform, calibration = model.head_, model.dictionary_.transform, model.calibration_
    parameters = {name: _plain(value) for name, value in model.get_params(deep=False).items()}
    parameters |= {"head": head_name(model.head), "hierarchy": None if model.hierarchy is None else "fitted"}
    parameters["priors"] = model.priors if isinstance(model.priors, str) else np.asarray(model.priors).tolist()
    if isinstance(head, AdamWHead):
        parameters["random_state"] = _plain(head.random_state)
    names = getattr(model, "feature_names_in_", None)
    return {
        "format": schema.FORMAT,
        "version": schema.VERSION,
        "hcep_version": hcep.__version__,
        "parameters": parameters,
        "classes": schema.class_record(model.classes_),
        "n_dims": model.n_features_in_,
        "feature_names": _plain(names),
        "fitted": {
            **{name: _plain(getattr(model, f"{name}_")) for name in ("anchor", "shrinkage", *schema.PER_CLASS)},
            "temperature": None if math.isnan(model.temperature_) else _plain(model.temperature_),
            "exponent": calibration.exponent,
            "typical_gap": calibration.typical_gap,
            "n_grown": model.n_grown_,
            "n_unlike": model.n_unlike_,
            "n_held_out": 0 if model.held_out_ is None else len(model.held_out_),
            "stopping": None if model.stopping_ is None else list(model.stopping_),
        },
        "transform": {
            **_fields(schema.TransformRecord, transform),
            "mean": transform.mean is not None,
            "whitener": transform.whitener is not None,
        },
        "head": None if head is None else _head_record(head),
        "leave_one_out": [_fields(schema.LeaveOneOutRecord, score) for score in model.leave_one_out_],
    }


def _head_record(head: Any) -> dict[str, Any]:
    if isinstance(head, AdamWHead):
        return {"kind": "adamw", **_fields(schema.AdamWRecord, head)}
    found = {"kind": "logistic", **_fields(schema.LogisticRecord, head)}
    return {**found, "C": "inf" if math.inf == found["C"] else found["C"]}


def _fields(record: type[msgspec.Struct], source: Any) -> dict[str, Any]:
    """The fields of a record, from the attributes of an object."""
    return {name: _plain(getattr(source, name)) for name in record.__struct_fields__}


def _tensors(model: HCEPClassifier) -> dict[str, NDArray[Any]]:
    transform, head, held = model.dictionary_.transform, model.head_, model.held_out_
    arrays: dict[str, Any] = {"synset_embeddings": model.dictionary_.synset_embeddings}
    arrays |= {f"transform.{name}": getattr(transform, name) for name in ("mean", "whitener", "constants")}
    if head is not None:
        arrays |= {"head.coef": head.coef_, "head.intercept": head.intercept_}
        arrays |= {"head.classes": head.classes_.astype(np.int64), "head.n_iter": head.n_iter_.astype(np.int32)}
    if held is not None:
        arrays |= {"held_out.classes": held.class_index, "held_out.scores": held.scores}
    if model.leave_one_out_:
        longest = max(len(score.correct) for score in model.leave_one_out_)  # powers are tried on fewer images
        padded = [np.pad(score.correct, (0, longest - len(score.correct))) for score in model.leave_one_out_]
        arrays[LEFT_OUT] = np.stack(padded)
    return {name: array for name, array in arrays.items() if array is not None}


def encoded(file: str, text: str) -> bytes:
    """Text as the bytes of a file."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ModelError(f"{file}: a name or id in it is not valid Unicode ({error})") from None


def _plain(value: Any) -> Any:
    """Numpy's scalars and arrays as Python's own; of a mean or a whitener nothing but that it is there is asked."""
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value


def change_model(
    folder: str | PathLike[str], what: str, change: Callable[[HCEPClassifier], Any], *, keep_metrics: bool = False
) -> HCEPClassifier:
    """Load a model, change it, and save it as a new version beside the old one.

    Parameters
    ----------
    what : the change in words, for `model_log`
    change : called with the classifier, which it changes in place; when it raises, the saved model stays as it is
    keep_metrics : whether metrics that were measured before still hold
    """
    folder = Path(folder)
    _ = SavedModel(folder).summary
    with writing(folder):
        saved = SavedModel(folder)
        summary, model = saved.summary, saved.classifier
        change(model)
        training, counts = summary.training, model.images_per_class_
        by_class = training.images_per_class
        if counts is not None:
            by_class = {str(c): n for c, n in zip(model.classes_.tolist(), counts.tolist(), strict=True)}
        facts: dict[str, Any] = {"encoder": summary.encoder, "data": training.data, "images_per_class": by_class}
        facts["metrics"] = training.metrics if keep_metrics else None
        when = datetime.now(UTC).isoformat(timespec="seconds")
        history = [*summary.training.history, ChangeRecord(what, when, summary.checksum)]
        files = pack(model, **facts, history=history)
        files[CARD] = encoded(CARD, model_card(model, name=folder.resolve().name, **facts))
        if saved.atom_names is not None:
            edges = set(model.hierarchy_.edges)
            left = tuple(atom for atom in saved.atom_names.atoms if (atom.parent, atom.child) in edges)
            names = dump_names(replace(saved.atom_names, atoms=left), model.hierarchy_)
            files |= sealed_names(files[DOCUMENT], names)
        _keep(folder, summary)
        write_folder(folder, files)
    return model


def model_log(folder: str | PathLike[str]) -> list[ChangeRecord]:
    """The changes of a model since it was fitted, the first one first."""
    return SavedModel(folder).summary.training.history


def undo_change(folder: str | PathLike[str]) -> ChangeRecord:
    """Go back to the version before the last change; return what is undone. The newer version is kept as well."""
    folder = Path(folder)
    _ = SavedModel(folder).summary
    with writing(folder):
        summary = SavedModel(folder).summary
        if not summary.training.history:
            raise ModelError(f"{str(folder)!r}: there is no change to undo")
        last = summary.training.history[-1]
        before = _version(folder, len(summary.training.history) - 1, last.before)
        old = SavedModel(before)
        if not before.is_dir() or old.summary.checksum != last.before:
            raise ModelError(f"{str(folder)!r}: the version before the last change is not in {before}")
        _ = old.classifier  # whole and undamaged, before it replaces anything
        _keep(folder, summary)
        write_folder(folder, {name: ModelFiles(before).read(name) for name in NAMES if (before / name).is_file()})
    return last


def _version(folder: Path, number: int, checksum: str) -> Path:
    return folder / VERSIONS / f"{number:04d}-{checksum[:12]}"


def _keep(folder: Path, summary: ModelSummary) -> None:
    """Put the version that the folder holds beside it, all or nothing."""
    target = _version(folder, len(summary.training.history), summary.checksum)
    if target.exists():
        return
    unfinished = target.with_name(target.name + ".part")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    for name in (*summary.files, DOCUMENT, CARD):
        if (folder / name).is_file() or name != CARD:
            (unfinished / name).write_bytes(ModelFiles(folder).read(name))
    os.replace(unfinished, target)
