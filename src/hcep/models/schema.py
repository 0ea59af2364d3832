"""``model.json``, version 2: what it holds, and the checks on its way in. Version 1 is still read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import UNSET, Meta, Struct, UnsetType
from numpy.typing import NDArray

from hcep import _json
from hcep._json import Count, Finite, NotNegative, Positive, PositiveCount, PositiveShare, Share
from hcep.embeddings.protocol import EncoderRecord
from hcep.errors import HCEPError, near_matches
from hcep.models.labels import ClassRecord

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
#: Fields of `fitted` with a number for every class, and, with a final underscore, of the classifier.
PER_CLASS = ("priors", "leaf_moves", "explained_floor", "images_per_class")


class ModelError(HCEPError):
    """A saved model is damaged, of another version, or not a model; the message names the file and the field."""


# -- what is in it -------------------------------------------------------------------------------------


class _Record(Struct, frozen=True, forbid_unknown_fields=True):
    """An object whose fields are exactly those listed."""


class Parameters(_Record, frozen=True):
    """Parameters of the estimator; "hierarchy" is "fitted" (the one in the folder), or None for a flat one.

    Those that describe the head are in files of earlier releases, when they were the estimator's own.
    """

    hierarchy: Literal[None, "fitted"]
    tree: Literal[None, "first", "shortest", "longest"]
    collapse: bool
    unit_norm: bool
    center: bool
    shrinkage: PositiveShare | Literal["auto"] | None
    beam_width: PositiveCount | None
    max_steps: PositiveCount | None
    tol: NotNegative
    signed: bool
    anchor: NotNegative | Literal["auto"]
    head: Literal["path", "logistic", "adamw"]
    n_jobs: Annotated[int, Meta(description="an integer or null")] | None
    # scikit-learn takes C = inf for no penalty, which JSON has no number for.
    C: Positive | Literal["inf"] | UnsetType = UNSET
    max_iter: PositiveCount | UnsetType = UNSET
    epochs: PositiveCount | UnsetType = UNSET
    batch_size: PositiveCount | UnsetType = UNSET
    random_state: Count | UnsetType | None = UNSET
    # Models of earlier releases have none of these, and no power, refinement or priors.
    power: PositiveShare | Literal["auto"] = 1.0
    exact_where: bool = False
    refine: bool | Literal["auto"] = False
    priors: Literal["uniform", "empirical"] | list[NotNegative] = "uniform"


class FittedRecord(_Record, frozen=True):
    """What the fit settled on."""

    anchor: NotNegative
    shrinkage: PositiveShare | None
    temperature: Positive | None
    # One per class; models of earlier releases have none.
    explained_floor: list[Finite] | UnsetType | None = UNSET
    exponent: Finite = 0.0
    typical_gap: Positive = 1.0
    priors: list[NotNegative] | None = None
    leaf_moves: list[NotNegative] | None = None
    images_per_class: list[Count] | None = None
    # Since the metric was chosen, and of these unlike the training images.
    n_grown: Count = 0
    n_unlike: Count = 0
    # Images whose scores are kept in `held_out.scores`.
    n_held_out: Count = 0
    # Intercept and slope of the rule by which "auto" adds no further path.
    stopping: tuple[Finite, Finite] | None = None


class TransformRecord(_Record, frozen=True):
    """The scalars of an `EmbeddingTransform`, and which of its arrays there are."""

    unit_norm: bool
    mean: bool
    whitener: bool
    scale: Positive
    shrinkage: PositiveShare | None
    n_constants: Count = 0
    power: PositiveShare = 1.0

    def __post_init__(self) -> None:
        if self.whitener != (self.shrinkage is not None):
            raise ValueError("shrinkage must be a number where whitener is true, null where it is false")


class LogisticRecord(_Record, frozen=True, tag_field="kind", tag="logistic"):
    """How scikit-learn's logistic regression was fitted."""

    C: Positive | Literal["inf"]
    max_iter: PositiveCount


class AdamWRecord(_Record, frozen=True, tag_field="kind", tag="adamw"):
    """How the published linear head was trained."""

    epochs: PositiveCount
    batch_size: PositiveCount
    lr: NotNegative
    weight_decay: NotNegative


class LeaveOneOutRecord(_Record, frozen=True):
    """One row of the leave-one-out table."""

    shrinkage: PositiveShare | None
    anchor: NotNegative
    accuracy: Share
    log_loss: Finite
    temperature: Positive
    power: PositiveShare = 1.0


class ChangeRecord(_Record, frozen=True):
    """One change of a fitted model: what was done, when, and the checksum of the version before."""

    what: str
    when: str
    before: str


class TrainingRecord(_Record, frozen=True):
    """What the model was trained on, as far as it was said when it was saved.

    Attributes
    ----------
    data : name of the data
    images_per_class : dict of str to int; by the class as text; empty where it was not said
    metrics : dict of str to float
    history : changes since the fit, the first one first
    """

    data: str | None
    images_per_class: dict[str, Count]
    metrics: dict[str, Finite]
    history: list[ChangeRecord] = []

    @property
    def n_images(self) -> int:
        return sum(self.images_per_class.values())


class FileRecord(_Record, frozen=True):
    """Size and hash of another file of the folder."""

    bytes: Count
    sha256: str


class ModelSummary(_Record, frozen=True, dict=True, eq=False):
    """What ``model.json`` says of a model, without its arrays.

    Attributes
    ----------
    hcep_version : the release that saved it
    parameters : dict; of the estimator
    classes : (n_classes,) array; labels, of the type they had in y
    anchor, shrinkage, temperature : what was fitted
    transform, head, leave_one_out, encoder, training, files : records
    """

    format: str
    version: int
    hcep_version: str
    estimator: Parameters = msgspec.field(name="parameters")
    class_record: ClassRecord = msgspec.field(name="classes")
    n_dims: PositiveCount
    feature_names: list[str] | None
    fitted: FittedRecord
    transform: TransformRecord
    head: LogisticRecord | AdamWRecord | None
    leave_one_out: list[LeaveOneOutRecord]
    encoder: EncoderRecord | None
    training: TrainingRecord
    files: dict[str, FileRecord]
    checksum: str

    @cached_property
    def parameters(self) -> dict[str, Any]:
        given = msgspec.structs.asdict(self.estimator)
        return {key: float("inf") if value == "inf" else value for key, value in given.items() if value is not UNSET}

    @cached_property
    def classes(self) -> NDArray[Any]:
        return self.class_record.array()

    @property
    def anchor(self) -> float:
        return self.fitted.anchor

    @property
    def shrinkage(self) -> float | None:
        return self.fitted.shrinkage

    @property
    def temperature(self) -> float:
        return float("nan") if self.fitted.temperature is None else self.fitted.temperature

    def per_class(self, name: str) -> NDArray[Any] | None:
        """A field of `fitted` that has a number for every class, where it is known."""
        numbers, n_classes = getattr(self.fitted, name), len(self.class_record.labels)
        if not isinstance(numbers, list):
            return None
        if len(numbers) != n_classes:
            raise ModelError(f"{DOCUMENT}: fitted.{name} must be {n_classes:,} numbers, one per class")
        return np.array(numbers)

    def facts(self) -> dict[str, Any]:
        """What ``hcep info MODEL --json`` says."""
        moves = self.per_class("leaf_moves")
        return {
            "kind": "model",
            "saved_by": f"hcep {self.hcep_version}",
            "classes": len(self.classes),
            "dimensions": self.n_dims,
            "encoder": self.encoder.name if self.encoder else "not said",
            "anchor": self.anchor,
            "shrinkage": self.shrinkage,
            "power": self.transform.power,
            "refined": "no" if moves is None else f"class embeddings moved by {moves.mean():.2g} on average",
            "head": self.parameters["head"],
            "trained_on": self.training.data or "not said",
            "images": self.training.n_images,
            **self.training.metrics,
        }

    def __post_init__(self) -> None:
        n_classes = len(self.class_record.labels)
        if self.feature_names is not None and len(self.feature_names) != self.n_dims:
            raise ValueError(f"feature_names must be a list of {self.n_dims:,} names, one for each of n_dims")
        if self.fitted.temperature is None and self.head is None and n_classes > 1:
            raise ValueError("fitted.temperature must be a number above 0, since there is no head")
        if self.head is not None and n_classes == 1:
            raise ValueError("head must be null for a single class")
        for name in (*self.files, *SEALED):
            if name not in (*SEALED, *OPTIONAL):
                raise ValueError(f"unknown field {f'files.{name}'!r}")
            if name not in self.files:
                raise ValueError(f"field {f'files.{name}'!r} is missing")
        labels = {str(label) for label in self.class_record.labels}
        unknown = [label for label in self.training.images_per_class if label not in labels]
        if unknown:
            raise ValueError(
                f"training.images_per_class has {unknown[0]!r}, which is not a class of the model."
                + near_matches(unknown[0], labels)
            )


# -- out -----------------------------------------------------------------------------------------------


def seal(document: Mapping[str, Any]) -> bytes:
    """The text of a document with its own checksum in it.

    Raises ModelError: when a value is not of JSON's types, or a text is not valid Unicode.
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

    Raises ModelError: text that is not JSON, another format or version, a field that is unknown, missing or of a wrong
    type or range, a text that changed since it was saved.
    """
    document = json_object(DOCUMENT, data)
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
    summary = _json.convert(_upgraded(document), ModelSummary, DOCUMENT, ModelError)
    if summary.checksum != checksum(document):
        raise ModelError(
            f"{DOCUMENT}: the content does not match its field 'checksum', so it changed after it was saved; "
            "copy or download it again"
        )
    return summary


def json_object(file: str, data: bytes) -> dict[str, Any]:
    """The JSON object that a file holds."""
    try:
        document = _json.parse(data)
    except ValueError as error:
        raise ModelError(f"{file}: not valid JSON ({error}); copy or download it again") from None
    if not isinstance(document, dict):
        raise ModelError(f"{file}: the file must be a JSON object, got a {type(document).__name__}")
    return document


def _upgraded(document: dict[str, Any]) -> dict[str, Any]:
    """A document of version 1 as one of version 2: its head could only be of one kind."""
    head = document.get("head")
    return {**document, "head": {"kind": "logistic", **head}} if isinstance(head, dict) else document
