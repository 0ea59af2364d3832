"""``model.json``, version 2: what it holds, and the checks on its way in. Version 1 is still read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcep.errors import near_matches
from hcep.models.fields import Fields, ModelError
from hcep.models.labels import read_classes
from hcep.models.records import (
    EncoderRecord,
    FileRecord,
    HeadRecord,
    LeaveOneOutRecord,
    ModelSummary,
    TrainingRecord,
    TransformRecord,
)

FORMAT = "hcep-model"
VERSION = 2
#: Version 1 knew one kind of linear head.
READABLE = (1, VERSION)
#: What the names of atoms call themselves.
ATOMS_FORMAT = "hcep-atom-names"

DOCUMENT = "model.json"
TENSORS = "model.safetensors"
HIERARCHY = "hierarchy.json"
CARD = "README.md"
ATOMS = "atoms.json"
#: The files whose size and hash the document keeps. The card is for people, who may edit it.
SEALED = (HIERARCHY, TENSORS)
#: Sealed as well, where they are there.
OPTIONAL = (ATOMS,)

_KEYS = (
    "format", "version", "hcep_version", "parameters", "classes", "n_dims", "feature_names", "fitted", "transform",
    "head", "leave_one_out", "encoder", "training", "files", "checksum",
)  # fmt: skip


# -- out -----------------------------------------------------------------------------------------------


def seal(document: Mapping[str, Any]) -> bytes:
    """The text of a document with its own checksum in it.

    Raises
    ------
    ModelError
        When a value is not of JSON's types, or a text is not valid Unicode.
    """
    try:
        sealed = {**document, "checksum": checksum(document)}
        return (json.dumps(sealed, ensure_ascii=False, indent=2) + "\n").encode("utf-8")
    except (TypeError, UnicodeEncodeError) as error:
        raise ModelError(f"{DOCUMENT}: not a text that JSON can hold ({error})") from None


def checksum(document: Mapping[str, Any]) -> str:
    """Hash of everything in the document but the checksum itself, whatever its spacing and order."""
    rest = {key: value for key, value in document.items() if key != "checksum"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, separators=(",", ":")).encode("ascii")).hexdigest()


def file_record(data: bytes) -> FileRecord:
    return FileRecord(len(data), hashlib.sha256(data).hexdigest())


# -- in ------------------------------------------------------------------------------------------------


def parse_document(data: bytes) -> ModelSummary:
    """Read ``model.json`` and check every field.

    Raises
    ------
    ModelError
        Text that is not JSON, another format or version, a field that is unknown, missing or of a wrong type or range,
        a text that changed since it was saved.
    """
    document = json_object(DOCUMENT, data)
    _check_version(document)
    fields = Fields(DOCUMENT, "", _upgraded(document), _KEYS)
    summary = _summary(fields)
    if fields.text("checksum") != checksum(document):
        raise ModelError(
            f"{DOCUMENT}: the content does not match its field 'checksum', so it changed after it was saved; "
            "copy or download it again"
        )
    return summary


def json_object(file: str, data: bytes) -> dict[str, Any]:
    """The JSON object that a file holds."""
    try:
        document = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{file}: not valid JSON ({error}); copy or download it again") from None
    if not isinstance(document, dict):
        raise ModelError(f"{file}: the file must be a JSON object, got a {type(document).__name__}")
    return document


def _check_version(document: Mapping[str, Any]) -> None:
    if "format" not in document:
        raise ModelError(f"{DOCUMENT}: field 'format' is missing.{near_matches('format', document)}")
    if document["format"] != FORMAT:
        raise ModelError(f'{DOCUMENT}: not a saved model: format must be "{FORMAT}", got {document["format"]!r:.60}')
    version = document.get("version")
    if version not in READABLE or isinstance(version, bool):
        raise ModelError(
            f"{DOCUMENT}: version is {version!r:.60}; this release of hcep reads versions 1 to {VERSION}: "
            "upgrade hcep, or save the model again"
        )


def _upgraded(document: dict[str, Any]) -> dict[str, Any]:
    """A document of version 1 as one of version 2: what it could not say yet, said by the defaults."""
    parameters, head = document.get("parameters"), document.get("head")
    if document["version"] != 1 or not isinstance(parameters, dict):
        return document
    upgraded = {**document, "parameters": {"epochs": 500, "batch_size": 4096, "random_state": 0, **parameters}}
    return {**upgraded, "head": {"kind": "logistic", **head}} if isinstance(head, dict) else upgraded


def _summary(fields: Fields) -> ModelSummary:
    fitted = fields.inner("fitted", ("anchor", "shrinkage", "temperature"))
    classes = read_classes(fields)
    summary = ModelSummary(
        hcep_version=fields.text("hcep_version"),
        parameters=_parameters(fields),
        classes=classes,
        n_dims=fields.integer("n_dims", 1),
        feature_names=None if fields.is_null("feature_names") else fields.texts("feature_names"),
        anchor=fitted.number("anchor"),
        shrinkage=_shrinkage(fitted),
        temperature=float("nan") if fitted.is_null("temperature") else fitted.number("temperature", above=True),
        transform=_transform(fields),
        head=_head(fields),
        leave_one_out=_leave_one_out(fields),
        encoder=_encoder(fields),
        training=_training(fields, classes),
        files=_files(fields),
    )
    if summary.feature_names is not None and len(summary.feature_names) != summary.n_dims:
        fields.fail("feature_names", f"a list of {summary.n_dims:,} names, one for each of n_dims")
    if fitted.is_null("temperature") and summary.head is None and len(classes) > 1:
        fitted.fail("temperature", "a number above 0, since there is no head")
    if (summary.head is not None) and len(classes) == 1:
        fields.fail("head", "null for a single class")
    return summary


def _shrinkage(fields: Fields) -> float | None:
    return None if fields.is_null("shrinkage") else fields.number("shrinkage", 0.0, 1.0, above=True)


def _positive_or_null(fields: Fields, key: str) -> int | None:
    return None if fields.is_null(key) else fields.integer(key, 1)


def _n_jobs(fields: Fields, key: str) -> int | None:
    value = fields.values[key]
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    return fields.fail(key, "an integer or null")


def _auto_or(fields: Fields, key: str, otherwise: Callable[[Fields, str], Any]) -> Any:
    return "auto" if fields.values[key] == "auto" else otherwise(fields, key)


def _inverse_penalty(fields: Fields, key: str) -> float:
    # scikit-learn takes C = inf for no penalty, which JSON has no number for.
    return float("inf") if fields.values[key] == "inf" else fields.number(key, above=True)


_PARAMETERS: dict[str, Callable[[Fields, str], Any]] = {
    "hierarchy": lambda fields, key: fields.choice(key, (None, "fitted")),
    "tree": lambda fields, key: fields.choice(key, (None, "first", "shortest", "longest")),
    "collapse": Fields.boolean,
    "unit_norm": Fields.boolean,
    "center": Fields.boolean,
    "shrinkage": lambda fields, key: _auto_or(fields, key, lambda f, _: _shrinkage(f)),
    "beam_width": _positive_or_null,
    "max_steps": _positive_or_null,
    "tol": Fields.number,
    "signed": Fields.boolean,
    "anchor": lambda fields, key: _auto_or(fields, key, Fields.number),
    "head": lambda fields, key: fields.choice(key, ("path", "logistic", "adamw")),
    "C": _inverse_penalty,
    "max_iter": lambda fields, key: fields.integer(key, 1),
    "epochs": lambda fields, key: fields.integer(key, 1),
    "batch_size": lambda fields, key: fields.integer(key, 1),
    "random_state": lambda fields, key: None if fields.is_null(key) else fields.integer(key),
    "n_jobs": _n_jobs,
}


_HEADS: dict[str, dict[str, Callable[[Fields, str], Any]]] = {
    "logistic": {key: _PARAMETERS[key] for key in ("C", "max_iter")},
    "adamw": {
        **{key: _PARAMETERS[key] for key in ("epochs", "batch_size")},
        "lr": Fields.number,
        "weight_decay": Fields.number,
    },
}


def _parameters(fields: Fields) -> dict[str, Any]:
    inner = fields.inner("parameters", _PARAMETERS)
    return {key: read(inner, key) for key, read in _PARAMETERS.items()}


def _transform(fields: Fields) -> TransformRecord:
    inner = fields.inner("transform", ("unit_norm", "mean", "whitener", "scale", "shrinkage"))
    record = TransformRecord(
        unit_norm=inner.boolean("unit_norm"),
        mean=inner.boolean("mean"),
        whitener=inner.boolean("whitener"),
        scale=inner.number("scale", above=True),
        shrinkage=_shrinkage(inner),
    )
    if record.whitener != (record.shrinkage is not None):
        inner.fail("shrinkage", "a number where whitener is true, null where it is false")
    return record


def _head(fields: Fields) -> HeadRecord | None:
    if fields.is_null("head"):
        return None
    outer = fields.mapping("head")
    kind = outer.choice("kind", tuple(_HEADS)) if "kind" in outer.values else "logistic"
    inner = fields.inner("head", ("kind", *_HEADS[kind]))
    return HeadRecord(kind, {key: read(inner, key) for key, read in _HEADS[kind].items()})


def _leave_one_out(fields: Fields) -> tuple[LeaveOneOutRecord, ...]:
    rows = fields.values["leave_one_out"]
    if not isinstance(rows, list):
        fields.fail("leave_one_out", "a list")
    return tuple(_leave_one_out_row(fields.file, f"leave_one_out[{i}]", row) for i, row in enumerate(rows))


def _leave_one_out_row(file: str, path: str, row: object) -> LeaveOneOutRecord:
    inner = Fields(file, path, row, ("shrinkage", "anchor", "accuracy", "log_loss", "temperature"))
    return LeaveOneOutRecord(
        shrinkage=_shrinkage(inner),
        anchor=inner.number("anchor"),
        accuracy=inner.number("accuracy", 0.0, 1.0),
        log_loss=inner.number("log_loss", -np.inf),
        temperature=inner.number("temperature", above=True),
    )


def _encoder(fields: Fields) -> EncoderRecord | None:
    if fields.is_null("encoder"):
        return None
    inner = fields.inner("encoder", ("name", "fingerprint", "preprocessing"))
    return EncoderRecord(
        name=inner.text("name"),
        fingerprint=None if inner.is_null("fingerprint") else inner.text("fingerprint"),
        preprocessing=None if inner.is_null("preprocessing") else dict(inner.mapping("preprocessing").values),
    )


def _training(fields: Fields, classes: NDArray[Any]) -> TrainingRecord:
    inner = fields.inner("training", ("data", "images_per_class", "metrics"))
    counts, metrics = inner.mapping("images_per_class"), inner.mapping("metrics")
    labels = {str(label) for label in classes.tolist()}
    unknown = [label for label in counts.values if label not in labels]
    if unknown:
        raise ModelError(
            f"{fields.file}: training.images_per_class has {unknown[0]!r}, which is not a class of the model."
            + near_matches(unknown[0], labels)
        )
    return TrainingRecord(
        data=None if inner.is_null("data") else inner.text("data"),
        images_per_class={label: counts.integer(label) for label in counts.values},
        metrics={name: metrics.number(name, -np.inf) for name in metrics.values},
    )


def _files(fields: Fields) -> dict[str, FileRecord]:
    names = (*SEALED, *(name for name in OPTIONAL if name in fields.mapping("files").values))
    inner = fields.inner("files", names)
    records = {name: inner.inner(name, ("bytes", "sha256")) for name in names}
    return {name: FileRecord(r.integer("bytes"), r.text("sha256")) for name, r in records.items()}
