"""What is known of a saved model, as plain records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray


@dataclass(frozen=True)
class EncoderRecord:
    """The encoder whose embeddings the model takes.

    Attributes
    ----------
    name : str
    fingerprint : str or None
        Hash of what decides its vectors.
    preprocessing : mapping or None
        How it prepares images, for `load_encoder` to make the same encoder again.
    """

    name: str
    fingerprint: str | None = None
    preprocessing: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class TrainingRecord:
    """What the model was trained on, as far as it was said when it was saved.

    Attributes
    ----------
    data : str or None
        Name of the data.
    images_per_class : mapping of str to int
        By the class as text; empty where it was not said.
    metrics : mapping of str to float
    """

    data: str | None
    images_per_class: Mapping[str, int]
    metrics: Mapping[str, float]

    @property
    def n_images(self) -> int:
        return sum(self.images_per_class.values())


@dataclass(frozen=True)
class TransformRecord:
    """The scalars of an `EmbeddingTransform`, and which of its arrays there are."""

    unit_norm: bool
    mean: bool
    whitener: bool
    scale: float
    shrinkage: float | None


@dataclass(frozen=True)
class HeadRecord:
    """How the linear head was fitted.

    Attributes
    ----------
    kind : {"logistic", "adamw"}
    settings : dict
        ``C`` and ``max_iter`` of a logistic head; ``epochs``, ``batch_size``, ``lr`` and ``weight_decay`` of AdamW's.
    """

    kind: str
    settings: dict[str, Any]


@dataclass(frozen=True)
class LeaveOneOutRecord:
    """One row of the leave-one-out table."""

    shrinkage: float | None
    anchor: float
    accuracy: float
    log_loss: float
    temperature: float


@dataclass(frozen=True)
class FileRecord:
    """Size and hash of another file of the folder."""

    bytes: int
    sha256: str


@dataclass(frozen=True, eq=False)
class ModelSummary:
    """What ``model.json`` says of a model, without its arrays.

    Attributes
    ----------
    hcep_version : str
        The release that saved it.
    parameters : dict
        Of the estimator. ``hierarchy`` is "fitted" (the one in the folder), or None for a flat one.
    classes : (n_classes,) array
        Labels, of the type they had in y.
    n_dims : int
    feature_names : list of str or None
    anchor, shrinkage, temperature : what was fitted
    transform, head, leave_one_out, encoder, training, files : records
    """

    hcep_version: str
    parameters: dict[str, Any]
    classes: NDArray[Any]
    n_dims: int
    feature_names: list[str] | None
    anchor: float
    shrinkage: float | None
    temperature: float
    transform: TransformRecord
    head: HeadRecord | None
    leave_one_out: tuple[LeaveOneOutRecord, ...]
    encoder: EncoderRecord | None
    training: TrainingRecord
    files: dict[str, FileRecord]
