"""A saved model on labelled data, alone or beside other methods: what `hcep evaluate` does."""

import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hcep import models
from hcep._files import replacing
from hcep.classify.coarse import read_labels
from hcep.classify.methods import all_methods
from hcep.embeddings import Embeddings, EmbeddingStore
from hcep.embeddings.vectors import OF_SPLIT
from hcep.errors import HCEPError, near_matches, quote, quoted
from hcep.evaluate.compare import DEFAULT_COLUMNS, RunningScores, compare_scores
from hcep.evaluate.grade import Graded, evaluate_blocks, grade_decoders, grade_methods, intervention_curve, limited
from hcep.evaluate.image_scores import ImageScores
from hcep.evaluate.table import ScoreTable
from hcep.explain.corrections import corrected_limits
from hcep.hierarchy import Hierarchy
from hcep.models.fitting import IN_MEMORY, blocks
from hcep.models.loading import SavedModel
from hcep.models.model_encoder import embeddings_for, refuse_labels, refuse_other_encoder

#: The name that stands for every method that can run here, and the one for the model's other decoders.
ALL, OTHER_ANSWERS = "all", "decoders"
#: Names of columns of `ImageScores` in the facts about one model, if they differ.
KEYS = {"correct": "accuracy", "tree_distance": "mistake_tree_distance", "lca_height": "mistake_lca_height"}
#: Scores of each class.
OF_CLASS = ("accuracy", "support_precision", "support_recall")
Tell = Callable[[str], object]


@dataclass(frozen=True)
class Evaluation:
    """The scores of a model on labelled images, and of the methods that it is compared with.

    Attributes
    ----------
    source : what the images are
    hierarchy : of the model
    name : the model's name in tables
    scores : of the model; only sums, if there are many images
    grades : by label, the model and the methods, if they were scored image by image
    ids : of the images
    skipped : by label, why a method did not run
    interventions : rows of `hcep.evaluate.grade.intervention_curve`, if they were wanted
    columns : of the table
    """

    source: str
    hierarchy: Hierarchy
    name: str
    scores: ImageScores | RunningScores
    grades: dict[str, Graded] = field(default_factory=dict)
    ids: Sequence[str] = ()
    skipped: dict[str, str] = field(default_factory=dict)
    interventions: Sequence[Any] = ()
    columns: Sequence[str] = DEFAULT_COLUMNS

    def table(self, top_k: Sequence[int] = ()) -> ScoreTable:
        """Return the table of all methods, with paired tests against the model."""
        columns = (*self.columns, *(f"top_{k}" for k in top_k))
        if isinstance(self.scores, RunningScores):
            return self.scores.table(columns, self.name)
        return compare_scores({label: one.scores for label, one in self.grades.items()}, columns=columns)

    def facts(self, by_class: bool = False) -> dict[str, Any]:
        """Return everything about the model alone: means, intervals and, on request, the scores of each class."""
        columns = [*(column for column in self.scores.columns if column not in ("confidence", "coarse")), "ece"]
        if isinstance(self.scores, RunningScores):
            running, table = self.scores, self.scores.table(columns)
        else:
            running, table = RunningScores.of(self.scores), compare_scores({"model": self.scores}, columns=columns)
        means: dict[str, Any] = {}
        intervals: dict[str, list[float]] = {}
        for score in table.scores:
            mean = None if math.isnan(score.mean) else score.mean
            if score.metric.startswith("prefix_"):  # one value per level
                means.setdefault("prefix_accuracy", []).append(mean)
                continue
            key = KEYS.get(score.metric, score.metric)
            means[key] = mean
            if score.n_images:
                intervals[key] = [score.low, score.high]
        classes = [self._class(label, running.by_class[label]) for label in sorted(running.by_class)]
        counts = {name: getattr(table, name) for name in ("n_images", "n_coarse", "n_unlabelled")}
        facts = {"data": self.source, **counts, **means, "intervals": intervals}
        facts["classes"] = classes if by_class else None
        return facts | ({"interventions": [row._asdict() for row in self.interventions]} if self.interventions else {})

    def _class(self, label: str, sums: Any) -> dict[str, Any]:
        n_images, *totals = sums.tolist()
        name = self.hierarchy.name(self.hierarchy.leaf_of(label))
        means = {score: total / n_images for score, total in zip(OF_CLASS, totals, strict=True)}
        return {"class": label, "name": name, "n_images": int(n_images), **means}

    def write_images(self, path: Path) -> None:
        """Write every metric of every image and method to a .parquet or .csv file."""
        import pyarrow as pa
        import pyarrow.csv
        import pyarrow.parquet

        tables = []
        for label, one in self.grades.items():
            names = pa.array([label] * len(one.scores), pa.string())
            tables.append(one.scores.to_table(list(map(str, self.ids))).add_column(0, "method", names))
        # Hierarchies of other models may be deeper; levels that one lacks are null.
        whole = pa.concat_tables(tables, promote_options="default")
        write = pyarrow.parquet.write_table if path.suffix == ".parquet" else pyarrow.csv.write_csv
        with replacing(path) as partial:
            write(whole, partial)


def evaluate_model(
    model: Path,
    data: Path,
    split: str | None = None,
    *,
    compare: Sequence[str] = (),
    train_split: str = "train",
    top_k: Sequence[int] = (1, 5),
    interventions: bool = False,
    by_image: bool = False,
    corrections: Path | None = None,
    progress: bool = False,
    on_note: Tell = lambda note: None,
    on_warning: Tell = lambda warning: None,
    on_method: Callable[[str], None] = lambda label: None,
    **reading: Any,
) -> Evaluation:
    """Score a saved model on labelled data, alone or beside other methods on the same images.

    Parameters
    ----------
    model : folder
    data : as `hcep.models.model_encoder.embeddings_for` takes it, with its options in `reading`
    split : the split to score; by default "val", if there is one
    compare : names of methods, folders of models, "decoders" for the model's other answers from the same
        probabilities, or "all" for all methods
    train_split : the split that methods are fitted to
    interventions : also measure the accuracy after correcting 0, 1, 2, … levels
    by_image : keep the scores of every image, for `Evaluation.write_images`
    corrections : a file of corrections that answers follow
    on_note, on_warning : called with sentences about the data and the scores
    on_method : called with the label of each method before its turn
    """
    refuse_unknown_methods(compare)
    saved = models.read_model(model)
    classifier = saved.classifier
    rows = bool(compare or by_image or interventions or corrections)
    reading |= {"progress": progress}
    in_memory = None if rows else IN_MEMORY
    test = embeddings_for(saved, data, split, default_split="val", in_memory=in_memory, own_classes=True, **reading)
    for note in test.notes:
        on_note(note)
    if flattery := training_images(saved, test):
        on_warning(flattery)
    truths = read_labels(test.y, saved.hierarchy, classes=saved.classes)
    if n_coarse := int((truths.label >= 0).sum()):
        n_known = len(truths.own) - int(truths.dropped.sum())
        on_note(
            f"{n_coarse:,} of {n_known:,} labels are above the classes: an answer below such a label is right; the "
            f"calibration error and the scores per class use the other {n_known - n_coarse:,}"
        )
    name = model.resolve().name
    if isinstance(test.X, EmbeddingStore):
        running = evaluate_blocks(classifier, blocks(test.X, test.y, progress and "evaluating"), top_k=top_k)
        return Evaluation(test.source, classifier.hierarchy_, name, running)
    train = None
    if any(one == ALL or one in all_methods.METHODS for one in compare):
        train = _training(saved, data, train_split, reading, on_note)
    rivals, optional = _rivals(compare, classifier.hierarchy_, test)
    name = str(model.resolve()) if name in rivals else name
    limits, _ = corrected_limits(corrections, classifier.hierarchy_, test, on_note)
    skipped: dict[str, str] = {}
    grades = grade_methods(
        {name: classifier if limits is None else limited(classifier, limits), **rivals},
        (test.X, test.y),
        None if train is None else (train.X, train.y),
        optional=optional,
        top_k=top_k,
        on_method=on_method,
        on_skip=skipped.__setitem__,
    )
    # The model's own warnings were shown when it was fitted.
    others = {label: one.warnings for label, one in grades.items() if label != name}
    for text in dict.fromkeys(text for texts in others.values() for text in texts):
        on_warning(f"{', '.join(label for label, texts in others.items() if text in texts)}: {text}")
    columns: tuple[str, ...] = DEFAULT_COLUMNS
    if OTHER_ANSWERS in compare:
        grades |= grade_decoders(name, grades[name], test.y, limits)
        columns += ("answer_distance",)
    exact = truths.own >= 0
    curve = intervention_curve(classifier, test.X[exact], test.y[exact]) if interventions else ()
    ids = test.image_ids.tolist()
    facts = (test.source, classifier.hierarchy_, name, grades[name].scores, grades, ids, skipped, tuple(curve))
    return Evaluation(*facts, columns)


def refuse_unknown_methods(names: Iterable[str]) -> None:
    """Raise HCEPError, before any work, for names that are neither methods nor folders of models."""
    known = [ALL, OTHER_ANSWERS, *all_methods.METHODS]
    for name in (name for name in names if name not in known):
        if not Path(name).is_dir():
            close = near_matches(name, known) or f" The methods are {quoted(known, len(known))}."
            raise HCEPError(f"--compare: {quote(name)} is neither a method nor a model folder.{close}")
        models.read_model(Path(name))  # raises if it is incomplete, before methods are fitted


def training_images(model: SavedModel, test: Embeddings) -> str:
    """Return a warning if the images include those that the model was fitted to, else an empty string."""
    data = model.training.data
    fitted, tested = os.path.abspath(data or ""), os.path.abspath(test.source)
    if data is None or not (fitted == tested or fitted.startswith(tested + OF_SPLIT)):
        return ""
    what = f"{test.source} {'is' if fitted == tested else 'includes'} what the model was fitted on"
    return f"{what}, so the scores are too optimistic; evaluate on other images (--split, or another file)"


def _rivals(names: Sequence[str], tree: Hierarchy, test: Embeddings) -> tuple[dict[str, Any], set[str]]:
    """The methods to fit and the models from folders, by label; and the labels that may be skipped."""
    chosen = [name for name in dict.fromkeys(names) if name not in (ALL, OTHER_ANSWERS)]
    everything = [name for name in all_methods.METHODS if name not in chosen] if ALL in names else []
    rivals: dict[str, Any] = {}
    for name in [*chosen, *everything]:
        if name in all_methods.METHODS:
            rivals[all_methods.METHODS[name].label] = all_methods.make_method(name, tree)
            continue
        saved = models.read_model(name)
        refuse_other_encoder(saved.encoder, test.encoder, test.source)
        rivals[name] = saved.classifier
        refuse_labels(rivals[name].classes_, test.y, f"the model {quote(name)}", rivals[name].hierarchy_)
    return rivals, {all_methods.METHODS[name].label for name in everything}


def _training(model: SavedModel, data: Path, split: str, reading: dict[str, Any], on_note: Tell) -> Embeddings:
    """The images that methods are fitted to; raises without such a split, or if a class has no image in it.

    Most methods cannot learn from a label above the classes, so that all are fitted to images labelled with a class.
    """
    try:
        train = embeddings_for(model, data, split, **reading)
    except HCEPError as error:
        wanted = f"the training images of {str(data)!r} (--train-split {split})"
        raise HCEPError(f"--compare fits methods to {wanted}: {error}") from None
    exact = np.isin(train.y, model.classes.astype(str))
    if not exact.all():
        n, all_images = int(exact.sum()), len(exact)
        on_note(
            f"{n:,} of {all_images:,} training images are labelled with a class; compared methods are fitted on them "
            "alone"
        )
        train = train.take(exact)
    absent = sorted({str(c) for c in model.classifier.classes_.tolist()} - set(train.y.tolist()))
    if absent:
        raise HCEPError(
            f"--train-split {split}: {len(absent):,} classes of the model have no image in {train.source}: "
            f"{quoted(absent, 3)}; compare on the data that the model was fitted on"
        )
    return train
