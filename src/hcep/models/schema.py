"""The content of ``model.json``, version 2, and the checks when it is read. Version 1 can still be read."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import UNSET, Meta, Struct, UnsetType
from numpy.typing import NDArray

from hcep._checks import (
    Count,
    Finite,
    NotNegative,
    Positive,
    PositiveCount,
    PositiveShare,
    Share,
    convert_record,
    parse_json,
)
from hcep.embeddings.protocol import EncoderRecord
from hcep.errors import HCEPError, near_matches, quote

FORMAT = "hcep-model"
VERSION = 2
#: Version 1 had one kind of linear head.
READABLE = (1, VERSION)
#: Format of the file with the names of atoms.
ATOMS_FORMAT = "hcep-atom-names"

DOCUMENT = "model.json"
TENSORS = "model.safetensors"
HIERARCHY = "hierarchy.json"
CARD = "README.md"
ATOMS = "atoms.json"
#: Files whose size and hash ``model.json`` records. The card is not among them, so that people can edit it.
SEALED = (HIERARCHY, TENSORS)
#: Recorded in the same way, if they exist.
OPTIONAL = (ATOMS,)
#: Fields of `fitted` with one number per class; the classifier has them with a final underscore.
PER_CLASS = ("priors", "leaf_moves", "explained_floor", "images_per_class", "class_weights")
#: Widest string type that is kept if the labels themselves are shorter.
MAX_WIDTH = 1024


class ModelError(HCEPError):
    """A saved model is damaged, has another version, or is not a model; the message names the file and the field."""


class _Record(Struct, frozen=True, forbid_unknown_fields=True):
    """A JSON object with exactly these fields."""


class Parameters(_Record, frozen=True):
    """Parameters of the estimator; the hierarchy is "fitted", the one in the folder, or None for a flat model."""

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
    # Parameters of the head, in files of earlier releases. JSON has no number for C = inf, which means no penalty.
    C: Positive | Literal["inf"] | UnsetType = UNSET
    max_iter: PositiveCount | UnsetType = UNSET
    epochs: PositiveCount | UnsetType = UNSET
    batch_size: PositiveCount | UnsetType = UNSET
    random_state: Count | UnsetType | None = UNSET
    # Missing in models of earlier releases, which had no power, refinement or priors.
    power: PositiveShare | Literal["auto"] = 1.0
    exact_where: bool = False  # the power of 1, in files of earlier releases
    refine: bool | Literal["auto", "atoms"] = False
    priors: Literal["uniform", "empirical"] | list[NotNegative] = "uniform"
    sparse_output: bool = True
    # Models of earlier releases took every label for a class.
    coarse: Literal["below", "own", "drop"] = "own"
    unlabelled: Literal["ignore", "use"] = "ignore"
    # Models of earlier releases had no prior for class means.
    prior: Literal["auto", "tree", "flat"] | None = None
    unseen: Literal["ignore", "use"] = "ignore"


class CoarseRecord(_Record, frozen=True):
    """Images with a label above the classes, and how many of them each class has learned from."""

    n_images: PositiveCount
    classes: dict[str, NotNegative]  # by the class as text; empty if they were not used

    def __post_init__(self) -> None:
        if sum(self.classes.values()) > 1.01 * self.n_images + 1.0:
            raise ValueError(f"classes must be at most {self.n_images:,} images in all, as n_images says")


class FittedRecord(_Record, frozen=True):
    """Values that the fit chose."""

    anchor: NotNegative
    shrinkage: PositiveShare | None
    temperature: Positive | None
    # The weight that an anchor of 1 stands for; other than 1 only with a dictionary of the user's own.
    anchor_unit: Positive = 1.0
    # Whether the array `atoms` is there, because atoms are not the differences of embeddings.
    free_atoms: bool = False
    # One per class; missing in models of earlier releases.
    explained_floor: list[Finite] | UnsetType | None = UNSET
    exponent: Finite = 0.0
    typical_gap: Positive = 1.0
    priors: list[NotNegative] | None = None
    leaf_moves: list[NotNegative] | None = None
    images_per_class: list[Count] | None = None
    # Prior odds of a class without images to one with images.
    unseen_odds: Positive = 1.0
    # Noise, own and shared variance and exponent of the prior of class means; then the array `class_means` is there.
    prior: tuple[Positive, NotNegative, NotNegative, Positive] | None = None
    # Share of the evidence, norm of a class's word part, inner concepts with a text; missing if there are no texts.
    words: tuple[Share, Positive, tuple[str, ...]] | None = None
    # Total weight of each class's images; null if each image counts once.
    class_weights: list[NotNegative] | None = None
    # Whether the array `typical` is there.
    typical: bool = False
    # Images added or removed since the metric was chosen, and those of them that are unlike the training images.
    n_grown: Count = 0
    n_unlike: Count = 0
    # Rows of the array `held_out.scores`.
    n_held_out: Count = 0
    # What the held-out images were answered with, or as: the only possible concepts; groups of photos.
    held_out_only: list[str] = []
    held_out_by_group: bool = False
    # Intercept and slope of the rule that ends a search with ``n_paths="auto"``.
    stopping: tuple[Finite, Finite] | None = None
    # By label; missing if all images are labelled with their class.
    coarse_counts: dict[str, CoarseRecord] | None = None


class TransformRecord(_Record, frozen=True):
    """The scalars of an `EmbeddingTransform`, and which of its arrays exist."""

    unit_norm: bool
    mean: bool
    whitener: bool
    scale: NotNegative
    shrinkage: PositiveShare | None
    n_constants: Count = 0
    power: PositiveShare = 1.0
    words: NotNegative = 0.0

    def __post_init__(self) -> None:
        if self.scale == 0.0 and self.words == 0.0:
            raise ValueError(f"scale must be a finite number above 0, got {quote(self.scale)}")
        if self.whitener != (self.shrinkage is not None):
            raise ValueError("shrinkage must be a number if whitener is true, and null if it is false")


class LogisticRecord(_Record, frozen=True, tag_field="kind", tag="logistic"):
    """Parameters of scikit-learn's logistic regression."""

    C: Positive | Literal["inf"]
    max_iter: PositiveCount


class AdamWRecord(_Record, frozen=True, tag_field="kind", tag="adamw"):
    """Training parameters of the published linear head."""

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


class Change(_Record, frozen=True, omit_defaults=True):
    """One change of a fitted model: a description, the time, and the checksum of the version before.

    A change that learned from corrections also has the checksum of the version that it started from, and how many lines
    of the corrections file it has read.
    """

    what: str
    when: str
    before: str
    base: str = ""
    n_corrections: Count = 0


_DTYPES = r"^(U[1-9][0-9]{0,8}|object|u?int(8|16|32|64)|float(32|64)|bool)$"
_DTYPE_WORDS = "'object' or 'U' and a width for strings, or an integer, float or boolean type of numpy"


class ClassRecord(_Record, frozen=True):
    """Labels, sorted and without duplicates, and the name of their NumPy type."""

    dtype: Annotated[str, Meta(pattern=_DTYPES, description=_DTYPE_WORDS)]
    labels: Annotated[list[Any], Meta(min_length=1, description="a list of at least one label")]

    def array(self) -> NDArray[Any]:
        """The labels as an array of their type."""
        return np.array(self.labels, dtype=self.dtype)

    def __post_init__(self) -> None:
        kind = self._label_type()
        if not all(type(label) is kind for label in self.labels):
            self._refuse("labels", f"a list of values of type {kind.__name__}")
        if self.dtype.startswith("U") and int(self.dtype[1:]) > max(MAX_WIDTH, *map(len, self.labels)):
            self._refuse("dtype", f"a string type of at most {MAX_WIDTH} characters, or as long as the longest label")
        try:
            array = self.array()
        except OverflowError:
            array = np.empty(0)
        # Text that is too long is cut off, and a float may be rounded or NaN: then these are not the labels.
        if array.tolist() != self.labels:
            self._refuse("labels", f"values that fit {self.dtype}")
        if not np.array_equal(np.unique(array), array):
            self._refuse("labels", "sorted, each label once")

    def _label_type(self) -> type:
        if self.dtype == "object":
            return int if type(self.labels[0]) is int else str
        kinds = {"U": str, "float": float, "bool": bool}
        return next((kind for start, kind in kinds.items() if self.dtype.startswith(start)), int)

    def _refuse(self, field: str, expected: str) -> None:
        raise ValueError(f"{field} must be {expected}, got {quote(getattr(self, field))}")


class Training(_Record, frozen=True):
    """The training data, metrics and later changes, as far as they were recorded."""

    data: str | None
    images_per_class: dict[str, Count]  # by the class as text; empty if not recorded
    metrics: dict[str, Finite]
    history: list[Change] = []  # changes since the fit, oldest first

    @property
    def n_images(self) -> int:
        return sum(self.images_per_class.values())


class FileRecord(_Record, frozen=True):
    """Size and hash of another file in the folder."""

    bytes: Count
    sha256: str


class Document(_Record, frozen=True, dict=True, eq=False):
    """The content of ``model.json``."""

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
    training: Training
    files: dict[str, FileRecord]
    checksum: str

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """Parameters of the estimator by name."""
        values = msgspec.structs.asdict(self.estimator)
        return {key: float("inf") if value == "inf" else value for key, value in values.items() if value is not UNSET}

    def per_class(self, name: str) -> NDArray[Any] | None:
        """A field of `fitted` with one number per class, or None if it is missing."""
        numbers, n_classes = getattr(self.fitted, name), len(self.class_record.labels)
        if not isinstance(numbers, list):
            return None
        if len(numbers) != n_classes:
            raise ModelError(f"{DOCUMENT}: fitted.{name} must be {n_classes:,} numbers, one per class")
        return np.array(numbers)

    def __post_init__(self) -> None:
        n_classes = len(self.class_record.labels)
        if self.feature_names is not None and len(self.feature_names) != self.n_dims:
            raise ValueError(f"feature_names must be a list of {self.n_dims:,} names, one for each of n_dims")
        if self.fitted.temperature is None and self.head is None and n_classes > 1:
            raise ValueError("fitted.temperature must be a number above 0, since there is no head")
        if (self.fitted.words is None) != (self.transform.words == 0.0):
            raise ValueError("fitted.words must be a list if transform.words is above 0, and missing if it is not")
        if self.head is not None and n_classes == 1:
            raise ValueError("head must be null for a single class")
        for name in (*self.files, *SEALED):
            if name not in (*SEALED, *OPTIONAL):
                raise ValueError(f"unknown field {quote(f'files.{name}')}")
            if name not in self.files:
                raise ValueError(f"field {quote(f'files.{name}')} is missing")
        labels = {str(label) for label in self.class_record.labels}
        by_class: dict[str, Iterable[str]] = {"training.images_per_class": self.training.images_per_class}
        for name, count in (self.fitted.coarse_counts or {}).items():
            by_class[f"fitted.coarse_counts.{name}.classes"] = count.classes
        for field, classes in by_class.items():
            for label in classes:
                if label not in labels:
                    close = near_matches(label, labels)
                    raise ValueError(f"{field} has {quote(label)}, which is not a class of the model.{close}")


def class_record(classes: NDArray[Any]) -> dict[str, Any]:
    """Labels as JSON, with the NumPy type that restores the same array."""
    labels, name = classes.tolist(), classes.dtype.name
    if classes.dtype.kind == "U":
        name = f"U{max(*map(len, labels), min(classes.dtype.itemsize // 4, MAX_WIDTH), 1)}"
    return {"dtype": name, "labels": labels}


def seal(document: Mapping[str, Any]) -> bytes:
    """The JSON text of a document, with its checksum added."""
    try:
        sealed = {**document, "checksum": checksum(document)}
        return (json.dumps(sealed, ensure_ascii=False, indent=2) + "\n").encode("utf-8")
    except (TypeError, UnicodeEncodeError) as error:
        raise ModelError(f"{DOCUMENT}: JSON cannot hold this content ({error})") from None


def checksum(document: Mapping[str, Any]) -> str:
    """Hash of a document without its checksum; spacing and order do not matter."""
    rest = {key: value for key, value in document.items() if key != "checksum"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, separators=(",", ":")).encode("ascii")).hexdigest()


def file_record(data: bytes) -> FileRecord:
    return FileRecord(len(data), hashlib.sha256(data).hexdigest())


def parse_document(data: bytes) -> Document:
    """Read ``model.json`` and check every field."""
    document = json_object(DOCUMENT, data)
    if "format" not in document:
        raise ModelError(f"{DOCUMENT}: field 'format' is missing.{near_matches('format', document)}")
    if document["format"] != FORMAT:
        raise ModelError(f'{DOCUMENT}: not a saved model: format must be "{FORMAT}", got {quote(document["format"])}')
    version = document.get("version")
    if version not in READABLE or isinstance(version, bool):
        raise ModelError(
            f"{DOCUMENT}: version is {quote(version)}; this release of hcep reads versions 1 to {VERSION}: "
            "upgrade hcep, or save the model again"
        )
    head = document.get("head")  # version 1 had one kind, which it did not name
    newer = {**document, "head": {"kind": "logistic", **head}} if isinstance(head, dict) else document
    parsed = convert_record(newer, Document, DOCUMENT, ModelError)
    if parsed.checksum != checksum(document):
        raise ModelError(
            f"{DOCUMENT}: the content does not match its field 'checksum', so it changed after it was saved; "
            "copy or download it again"
        )
    return parsed


def json_object(file: str, data: bytes) -> dict[str, Any]:
    try:
        document = parse_json(data)
    except ValueError as error:
        raise ModelError(f"{file}: not valid JSON ({error}); copy or download it again") from None
    if not isinstance(document, dict):
        raise ModelError(f"{file}: the file must be a JSON object, got a {type(document).__name__}")
    return document
