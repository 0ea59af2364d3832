"""The audit of a model: all checks and what they mean together, as JSON and as an HTML page; what `hcep audit` does."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from hcep._checks import render_html, rounded
from hcep.classify import HCEPClassifier
from hcep.classify.base import as_labels
from hcep.classify.coarse import read_labels
from hcep.datasets.layouts.table import group_values
from hcep.embeddings import Embeddings, EmbeddingStore, read_embeddings
from hcep.errors import HCEPError, counted, quote
from hcep.evaluate.audit_checks import Check, Subject, per_cent, run_checks
from hcep.evaluate.drawing import write_figures
from hcep.evaluate.model_scores import training_images
from hcep.explain.neighbours import fitted_on, recorded_photos
from hcep.models.fitting import IN_MEMORY
from hcep.models.loading import SavedModel, read_model
from hcep.models.model_encoder import embeddings_for, own_labels

#: The share of training images among those of an audit from which on it concludes nothing.
FEW_FITTED = 0.02
NOTHING_CONCLUDED = (
    "This audit allows no conclusions: it used images that the model was fitted on. Audit the model on labelled "
    "images that it has not seen."
)
#: Instead of those of `MEANING`, for a model that was not calibrated.
NOT_CALIBRATED = (
    "Its probabilities can be relied on for images like these. It promises no coverage itself; calibrated with half of "
    "these images, it kept the promise on the other half.",
    "Its probabilities, and coverage after calibration with images like these, must not be relied on",
)
NO_CONTROLS = (
    "three checks are left out: they compare the model with models fitted to training images, and neither the data "
    "nor the folder of the model has any. Give data with the splits train and val (for photos, two folders), or name "
    "the split with --train-split"
)
WORDS = {True: "passed", False: "failed", None: "open"}
#: What the model can be used for if all of some checks pass, and what it must not be used for if one of them fails.
MEANING = {
    ("leakage", "concepts removed", "deletion and insertion"): (
        "Its paths can be shown as the reason for its answers: the answers come from them and change with them.",
        "Its paths must not be shown as the reason for its answers",
    ),
    ("calibration and coverage",): (
        "Its probabilities and its promised coverage can be relied on for images like these.",
        "Its probabilities and its promised coverage must not be relied on",
    ),
    ("noise", "other training images"): (
        "Its answers are stable: they can be compared between photos and between training sets.",
        "Single answers must not be relied on if small changes matter",
    ),
    ("shuffled labels", "random tree"): (
        "Its hierarchy can be read as knowledge: controls without it are worse.",
        "Its hierarchy must not be read as knowledge",
    ),
    ("thin classes",): ("All of its classes can be used.", "Its classes with few images must not be used on their own"),
    ("groups",): (
        "It can be used in all groups that were checked.",
        "It must not be used in groups with lower accuracy",
    ),
}


@dataclass(frozen=True)
class Audit:
    """The results of all checks of a model; `name` is that of the model.

    `n_images` counts the images that were used, which are labelled with a class; `n_coarse` are labelled above the
    classes, and `n_unlabelled` with the root. `n_fitted` of the images are training images of the model: if they are
    more than a few, no check is decided. `promises` says whether the model was calibrated. `warnings` are all
    sentences about the data, as the terminal shows them. `data` and `date` are known if a saved model was audited.
    """

    name: str
    n_images: int
    n_classes: int
    accuracy: float
    checks: tuple[Check, ...]
    n_coarse: int = 0
    n_unlabelled: int = 0
    n_fitted: int = 0
    warnings: tuple[str, ...] = ()
    promises: bool = True
    data: str = ""
    date: str = ""

    @property
    def is_void(self) -> bool:
        """Whether so many images are training images that nothing can be concluded."""
        return self.n_fitted > FEW_FITTED * (self.n_images + self.n_coarse + self.n_unlabelled)

    @property
    def failed(self) -> tuple[str, ...]:
        """Names of the checks that failed."""
        return tuple(check.name for check in self.checks if check.passed is False)

    @property
    def sentences(self) -> tuple[str, ...]:
        """What the model can and cannot be used for."""
        if self.is_void:
            return (NOTHING_CONCLUDED,)
        by_name = {check.name: check for check in self.checks}
        sentences = [
            f"It is right on {per_cent(self.accuracy)} of {self.n_images:,} images of {self.n_classes:,} classes."
        ]
        if n_others := self.n_coarse + self.n_unlabelled:
            coarse = f"{counted(self.n_coarse, 'image')} labelled above the classes" if self.n_coarse else ""
            unlabelled = counted(self.n_unlabelled, "unlabelled image") if self.n_unlabelled else ""
            others = " and ".join(filter(None, (coarse, unlabelled)))
            sentences.append(f"{others} {'is' if n_others == 1 else 'are'} not used.")
        for names, (can, must_not) in MEANING.items():
            checks = [by_name[name] for name in names if name in by_name]
            if not self.promises and "calibration and coverage" in names:
                can, must_not = NOT_CALIBRATED
            failed = [f"{check.name}: {check.measured}" for check in checks if check.passed is False]
            if failed:
                sentences.append(f"{must_not} ({'; '.join(failed)}).")
            elif checks and all(check.passed for check in checks):
                sentences.append(can)
        undecided = [f"{check.name} ({check.measured})" for check in self.checks if check.passed is None]
        return (*sentences, *([f"Not decided: {'; '.join(undecided)}."] if undecided else []))

    def to_json(self) -> str:
        """Return everything as one JSON object."""
        first = {"warnings": self.warnings, "sentences": self.sentences}
        document = {**first, **asdict(self), **first, "failed": self.failed}
        return msgspec.json.format(msgspec.json.encode(document, enc_hook=float), indent=2).decode()

    def to_html(self) -> str:
        """Return an HTML page that loads nothing from elsewhere."""
        template = Path(__file__).parent / "templates/audit.html"
        return render_html(template, audit=self, words=WORDS, rounded=rounded)


def audit(
    model: HCEPClassifier,
    X: ArrayLike | EmbeddingStore,
    y: ArrayLike,
    *,
    train: tuple[ArrayLike | EmbeddingStore, ArrayLike] | None = None,
    groups: ArrayLike | None = None,
    sure: float = 0.9,
    random_state: int = 0,
    name: str = "the model",
    progress: bool = False,
) -> Audit:
    """Check a fitted model on labelled images it has not seen.

    Parameters
    ----------
    X, y : (n_images, n_dims) embeddings, or a store, which is read in blocks; and their labels
        Images that are labelled above the classes are counted and not used: most checks need the class.
    train : (X, y); the training images. Control models are fitted to them
    groups : (n_images,) array; a group of every image, such as its camera
    sure : the promised share of right answers to check: on half of the images if the model is not calibrated, otherwise
        on those that it was not calibrated on
    name : name of the model in the report
    progress : show a progress bar
    """
    labels = list(as_labels(y))
    truths = read_labels(labels, model.hierarchy_, classes=model.classes_.tolist())
    unknown = {str(labels[i]) for i in np.flatnonzero(truths.unknown)}
    if unknown:
        raise HCEPError(f"y: {len(unknown):,} labels are not classes of the model, such as {quote(min(unknown))}")
    image_groups = None if groups is None else np.asarray(groups)
    if image_groups is not None and len(image_groups) != len(labels):
        raise HCEPError(f"groups must have one value for each of {len(labels):,} images; got {len(image_groups):,}")
    images, own, image_groups = exact_images(model, X, labels, image_groups)
    if labels and not len(own):
        raise HCEPError(f"y: none of {len(labels):,} images is labelled with a class, which an audit needs")
    arrays = None if train is None else exact_images(model, train[0], train[1])[:2]
    subject = Subject(model, images, own, arrays, image_groups, sure, random_state, progress)
    checks = tuple(run_checks(subject))
    counts = int((truths.label >= 0).sum()), int(truths.dropped.sum())
    accuracy = subject.sums.mean("correct")
    return Audit(name, len(own), len(model.classes_), accuracy, checks, *counts, promises=subject.promises)


def exact_images(model: HCEPClassifier, X: Any, y: Any, groups: Any = None) -> tuple[Any, NDArray[Any], Any]:
    """Return the images that are labelled with a class of a model, their classes, and their groups."""
    own = read_labels(as_labels(y), model.hierarchy_, classes=model.classes_.tolist()).own
    rows, images = own >= 0, X if isinstance(X, EmbeddingStore) else np.asarray(X)
    if not rows.all():
        images = images.select(rows=rows) if isinstance(images, EmbeddingStore) else images[rows]
        groups = None if groups is None else groups[rows]
    return images, model.classes_[own[rows]], groups


def audit_model(
    model: Path,
    data: Path,
    split: str | None = None,
    *,
    train_split: str = "train",
    by: str | None = None,
    groups: Path | None = None,
    sure: float = 0.9,
    figures: Path | None = None,
    progress: bool = False,
    on_note: Callable[[str], object] = lambda note: None,
    **reading: Any,
) -> Audit:
    """Audit a saved model on labelled data, as `hcep.evaluate.audit` does.

    Parameters
    ----------
    model : folder
    data, reading : as `hcep.models.model_encoder.embeddings_for` takes them
    split : the split to check; by default "val", if there is one
    train_split : the split that controls are fitted to; without it, they are fitted to the model's own store
    by, groups : a column of a .csv or .parquet table (by default the data) whose values are checked one by one
    figures : a folder to write figures to; all images are then read into memory
    on_note : called with each sentence about the data
    """
    saved = read_model(model)
    classifier = saved.classifier
    reading |= {"progress": progress, "in_memory": IN_MEMORY if figures is None else None}
    test = embeddings_for(saved, data, split, default_split="val", **reading)
    warnings: list[str] = []

    def note(sentence: str) -> None:
        warnings.append(sentence)
        on_note(sentence)

    n_fitted = _n_fitted(saved, test)
    if is_void := n_fitted > FEW_FITTED * len(test.y):
        note(NOTHING_CONCLUDED)
    if n_fitted:
        note(f"{n_fitted:,} of {len(test.y):,} images are training images of the model; new images may score lower")
    for sentence in test.notes:
        note(sentence)
    train = None
    if split != train_split:
        try:
            controls = embeddings_for(saved, data, train_split, **reading)
            train = controls.X, own_labels(classifier, controls.y)
        except HCEPError:
            train = _own_training_images(saved, reading["in_memory"])
            if train is None:
                note(NO_CONTROLS)
    y = own_labels(classifier, test.y)
    values = (
        None if by is None else group_values(groups or data, by, test.image_ids.tolist(), "--by", missing="unknown")
    )
    options: dict[str, Any] = {"sure": sure, "name": str(model), "progress": progress}
    report = replace(audit(classifier, test.X, y, train=train, groups=values, **options), n_fitted=n_fitted)
    if is_void:
        report = replace(report, checks=tuple(replace(check, passed=None) for check in report.checks))
    report = replace(report, warnings=tuple(warnings), data=test.source, date=datetime.now().date().isoformat())
    if figures is not None:
        write_figures(figures, classifier, *exact_images(classifier, test.X, y)[:2])
    return report


def _own_training_images(saved: SavedModel, in_memory: int | None) -> tuple[Any, NDArray[Any]] | None:
    """Return the training images that the folder of a model keeps or that it names, if they have all of its classes."""
    store = recorded_photos(saved)
    if store is None or not {*saved.classes.tolist()} <= {*store.labels.tolist()}:
        return None
    images = read_embeddings(store, in_memory=in_memory)
    return images.X, own_labels(saved.classifier, images.y)


def _n_fitted(saved: SavedModel, test: Embeddings) -> int:
    """How many images a model was fitted on: by their hashes, or else because they are the data that it names."""
    n_fitted = int(fitted_on(saved, test.hashes).sum())
    if n_fitted or not training_images(saved, test):
        return n_fitted
    return min(len(test.y), saved.training.n_images or len(test.y))
