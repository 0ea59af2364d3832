"""Save a fitted classifier to a folder of safetensors, JSON and Markdown, and keep a version for each later change.

The folder holds the newest version, which is replaced in one step: a process that dies leaves the old model or the new
one. Earlier versions are in ``versions/``, under their number and the first letters of their checksum.
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
from hcep._files import write_bytes
from hcep.classify import HCEPClassifier
from hcep.classify.coarse_counts import CoarseCounts
from hcep.classify.heads import AdamWHead, head_name
from hcep.errors import HCEPError
from hcep.models import schema
from hcep.models.atom_names import dump_names, sealed_names
from hcep.models.card import EncoderLike, encoder_record, model_card
from hcep.models.folder import NAMES, ModelFiles, write_folder, writing
from hcep.models.loading import LEFT_OUT, SavedModel, read_model
from hcep.models.schema import CARD, DOCUMENT, HIERARCHY, TENSORS, Change, ModelError, file_record

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
    """Save a fitted classifier to a folder, which `load_model` reads; return the folder.

    Parameters
    ----------
    folder : created if needed. A model that is there is replaced in one step; other files in the folder stay.
    encoder : the encoder of the embeddings; its name, fingerprint and preprocessing are recorded
    data : name of the training data
    images_per_class : mapping of label to int, such as ``collections.Counter(y)``
    metrics : mapping of str to float
    name, license, language : for the model card, see `model_card`
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
    history: Sequence[Change] = (),
) -> dict[str, bytes]:
    """The contents of a model's files by name, without the card; they are checked by reading them back.

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
    held = model.held_out_
    # A dictionary of the user's own is in the tensors, like any other.
    given = {name: value for name, value in model.get_params(deep=False).items() if name != "dictionary"}
    parameters = {name: _plain(value) for name, value in given.items()}
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
            # Fields that say nothing are left out, so that earlier releases can read the model.
            **({"coarse_counts": _coarse_record(model.coarse_counts_)} if model.coarse_counts_ else {}),
            **({"anchor_unit": unit} if model.anchor_ > 0.0 and (unit := model.dictionary_.anchor_unit) != 1.0 else {}),
            **({"free_atoms": True} if model.dictionary_.has_free_atoms else {}),
            **({} if model.unseen_odds_ == 1.0 else {"unseen_odds": model.unseen_odds_}),
            **({} if model.typical_ is None else {"typical": True}),
            **({} if model.prior_ is None else {"prior": list(model.prior_)}),
            **({"held_out_only": list(held.only)} if held is not None and held.only else {}),
            **({"held_out_by_group": True} if held is not None and held.by_group else {}),
            **({} if model.words_ is None else {"words": list(model.words_)}),
        },
        "transform": {
            **{name: value for name, value in _fields(schema.TransformRecord, transform).items() if name != "words"},
            **({"words": transform.words} if transform.words else {}),
            "mean": transform.mean is not None,
            "whitener": transform.whitener is not None,
        },
        "head": None if head is None else _head_record(head),
        "leave_one_out": [_fields(schema.LeaveOneOutRecord, score) for score in model.leave_one_out_],
    }


def _coarse_record(counts: CoarseCounts) -> dict[str, Any]:
    return {name: {"n_images": count.n_images, "classes": count.classes} for name, count in counts.items()}


def _head_record(head: Any) -> dict[str, Any]:
    if isinstance(head, AdamWHead):
        return {"kind": "adamw", **_fields(schema.AdamWRecord, head)}
    record = {"kind": "logistic", **_fields(schema.LogisticRecord, head)}
    return {**record, "C": "inf" if math.inf == record["C"] else record["C"]}


def _fields(record: type[msgspec.Struct], source: Any) -> dict[str, Any]:
    """The fields of a record, taken from the attributes of an object."""
    return {name: _plain(getattr(source, name)) for name in record.__struct_fields__}


def _tensors(model: HCEPClassifier) -> dict[str, NDArray[Any]]:
    transform, head, held = model.dictionary_.transform, model.head_, model.held_out_
    arrays: dict[str, Any] = {"synset_embeddings": model.dictionary_.synset_embeddings}
    arrays |= {"atoms": model.dictionary_.atoms if model.dictionary_.has_free_atoms else None}
    arrays |= {"class_means": model.class_means_, "typical": model.typical_}
    arrays |= {f"transform.{name}": getattr(transform, name) for name in ("mean", "whitener", "constants")}
    if head is not None:
        arrays |= {"head.coef": head.coef_, "head.intercept": head.intercept_}
        arrays |= {"head.classes": head.classes_.astype(np.int64), "head.n_iter": head.n_iter_.astype(np.int32)}
    if held is not None:
        arrays |= {"held_out.classes": held.class_index, "held_out.scores": held.scores}
    if model.leave_one_out_:
        longest = max(len(score.correct) for score in model.leave_one_out_)  # powers were tried on fewer images
        padded = [np.pad(score.correct, (0, longest - len(score.correct))) for score in model.leave_one_out_]
        arrays[LEFT_OUT] = np.stack(padded)
    return {name: array for name, array in arrays.items() if array is not None}


def encoded(file: str, text: str) -> bytes:
    """Text as the bytes of a file; ModelError if it is not valid Unicode."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ModelError(f"{file}: a name or id in it is not valid Unicode ({error})") from None


def _plain(value: Any) -> Any:
    """NumPy's scalars and arrays as Python's own."""
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value


def change_model(
    folder: str | PathLike[str],
    what: str,
    change: Callable[[HCEPClassifier], Any],
    *,
    keep_metrics: bool = False,
    learned: tuple[str, int] = ("", 0),
) -> HCEPClassifier:
    """Load a model, change it, and save it as a new version beside the old one; return the changed classifier.

    Parameters
    ----------
    folder : the model's folder
    what : a description of the change; ``read_model(folder).training.history`` lists them
    change : called with the classifier, which it changes in place; if it raises, the saved model stays as it is
    keep_metrics : whether metrics that were measured before still hold
    learned : `base` and `n_corrections` of the change, if it learned from corrections
    """
    folder = Path(folder)
    read_model(folder)
    with writing(folder):
        saved = SavedModel(folder)
        training, model = saved.training, saved.classifier
        change(model)
        by_class = training.images_per_class
        if model.images_per_class_ is not None:
            labels, counts = model.classes_.tolist(), model.images_per_class_.tolist()
            by_class = {str(label): n for label, n in zip(labels, counts, strict=True)}
        facts: dict[str, Any] = {"encoder": saved.encoder, "data": training.data, "images_per_class": by_class}
        facts["metrics"] = training.metrics if keep_metrics else None
        when = datetime.now(UTC).isoformat(timespec="seconds")
        history = [*training.history, Change(what, when, saved.document.checksum, *learned)]
        files = pack(model, **facts, history=history)
        files[CARD] = encoded(CARD, model_card(model, name=folder.resolve().name, **facts))
        if saved.atom_names is not None:
            edges = set(model.hierarchy_.edges)
            atoms = tuple(atom for atom in saved.atom_names.atoms if (atom.parent, atom.child) in edges)
            names = dump_names(replace(saved.atom_names, atoms=atoms), model.hierarchy_)
            files |= sealed_names(files[DOCUMENT], names)
        _keep_version(saved)
        write_folder(folder, files)
    return model


def undo_change(folder: str | PathLike[str]) -> Change:
    """Go back to the version before the last change; return that change. The newer version is kept, too."""
    folder = Path(folder)
    read_model(folder)
    with writing(folder):
        saved = SavedModel(folder)
        history = saved.training.history
        if not history:
            raise ModelError(f"{str(folder)!r}: there is no change to undo")
        place = _version(folder, len(history) - 1, history[-1].before)
        before = SavedModel(place)
        if not place.is_dir() or before.document.checksum != history[-1].before:
            raise ModelError(f"{str(folder)!r}: the version before the last change is not in {place}")
        _ = before.classifier  # check that it is whole before it replaces anything
        _keep_version(saved)
        write_folder(folder, {name: ModelFiles(place).read(name) for name in NAMES if (place / name).is_file()})
    return history[-1]


def learning_base(saved: SavedModel) -> SavedModel:
    """The version that learning starts from: the one before the last learnings in a row, or the model itself."""
    base = saved.training.history[-1].base if saved.training.history else ""
    if not base:
        return saved
    place = next((saved.folder / VERSIONS).glob(f"[0-9]*-{base[:12]}"), None)
    if place is None or SavedModel(place).document.checksum != base:
        raise ModelError(f"{str(saved.folder)!r}: the version before learning is not in {VERSIONS}/")
    return SavedModel(place)


def _version(folder: Path, number: int, checksum: str) -> Path:
    return folder / VERSIONS / f"{number:04d}-{checksum[:12]}"


def _keep_version(saved: SavedModel) -> None:
    """Copy the model to its place among the versions, all files or none."""
    target = _version(saved.folder, len(saved.training.history), saved.document.checksum)
    if target.exists():
        return
    unfinished = target.with_name(target.name + ".part")
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        unfinished.mkdir(parents=True)
        for name in (*saved.document.files, DOCUMENT, CARD):
            if (saved.folder / name).is_file() or name != CARD:
                write_bytes(unfinished / name, ModelFiles(saved.folder).read(name), ModelError)
        os.replace(unfinished, target)
    except OSError as error:
        raise ModelError(f"cannot keep the old version in {str(target)!r}: {error.strerror}") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
