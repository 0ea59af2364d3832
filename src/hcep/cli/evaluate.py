"""`hcep evaluate`: a model on labelled embeddings, alone or beside baselines."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from hcep._escape import markup as escape
from hcep._files import refuse_existing, replacing, write_text
from hcep.cli import options as opt
from hcep.cli.config import Config
from hcep.cli.console import Console, say, show_notes, tell
from hcep.cli.options import option
from hcep.cli.render import show_scores
from hcep.errors import HCEPError, near_matches, quoted

if TYPE_CHECKING:
    from hcep.embeddings import Embeddings
    from hcep.evaluate import Grades, ImageScores, RunningScores, ScoreTable
    from hcep.hierarchy import Hierarchy

Format = Literal["table", "markdown", "latex", "csv"]
#: Stands for every method that can run here.
ALL = "all"
FORMATS = {".md": "markdown", ".tex": "latex", ".csv": "csv", ".json": "json"}
#: What columns of `ImageScores` are called in the JSON of one model; those left out keep their name.
KEYS = {"correct": "accuracy", "tree_distance": "mistake_tree_distance", "lca_height": "mistake_lca_height"}
#: Columns with one value per level, and what the list of them is called.
BY_LEVEL = {"prefix": "prefix_accuracy", "explained": "explained_energy"}


def evaluate(
    model: opt.Model,
    data: opt.Data,
    *,
    split: Annotated[str | None, option("Split to evaluate on; val where there is one.")] = None,
    by_class: Annotated[bool, option("A line per class, too.")] = False,
    compare: Annotated[
        list[str] | None, option("Method to fit and compare with, folder of another model, or `all`; may be repeated.")
    ] = None,
    vectors: opt.Vectors = None,
    label: opt.Label = None,
    labels: opt.Labels = None,
    encoder: opt.Encoder = None,
    train_split: Annotated[str, option("Split that compared methods are fitted on.")] = "train",
    top_k: Annotated[list[int] | None, option("Top-k accuracies; may be repeated. 1 and 5.", min=1)] = None,
    form: Annotated[Format | None, option("Form of the table; otherwise by --output's name.", "--format")] = None,
    output: Annotated[Path | None, option("File for the table: .md, .tex, .csv or .json.", "--output", "-o")] = None,
    per_image: Annotated[Path | None, option("File for every metric of every image: .parquet or .csv.")] = None,
    interventions: Annotated[bool, option("Also accuracy after correcting 0, 1, 2, … levels of every path.")] = False,
    corrections: opt.CorrectionsFile = None,
    force: Annotated[bool, option("Replace files that are there.", "--force")] = False,
    ray: opt.Ray = None,
    as_json: opt.Json = False,
    config: Config = None,
) -> None:
    """Score a model on labelled embeddings, alone or beside other methods on the same images.

    Accuracy, top-k, support precision and recall, prefix accuracy by level, how far mistakes are, reconstruction
    error, calibration; each with a 95% bootstrap interval. With --compare one table with paired tests against the
    model: † differs significantly, bold is the best and what is not significantly worse. docs/metrics.md defines all.
    """
    from hcep import distributed
    from hcep.embeddings import EmbeddingStore
    from hcep.evaluate import DEFAULT_COLUMNS, Grades, evaluate_blocks, grade_methods, intervention_curve, limited
    from hcep.models import read_model
    from hcep.models.fitting import IN_MEMORY, blocks
    from hcep.models.model_encoder import embeddings_for

    wanted, ranks = _form(form, output, as_json), tuple(top_k or (1, 5))
    if ray is not None:
        if compare or output or per_image or corrections or interventions:
            alone = "--compare, --output, --per-image, --corrections and --interventions"
            raise HCEPError(f"{alone} are for one process: leave out --ray")
        scores = distributed.evaluate(model, data, split=split, top_k=ranks, address=ray, progress=not as_json)
        facts = _facts(scores, str(data), read_model(model).classifier.hierarchy_, by_class)
        say(json.dumps(facts, indent=2, ensure_ascii=False)) if as_json else show_scores(facts, None)
        return
    if per_image is not None and per_image.suffix not in (".parquet", ".csv"):
        raise HCEPError(f"--per-image: expected a name ending in .parquet or .csv, got {str(per_image)!r}")
    refuse_existing(output, force, "--output")
    refuse_existing(per_image, force, "--per-image")
    names = compare or []
    _check_names(names)
    saved = read_model(model)
    classifier = saved.classifier
    file_parts: dict[str, Any] = {"vectors": vectors, "label": label, "labels": labels, "encoder": encoder}

    def read(wanted: str | None, **options: Any) -> Embeddings:
        return embeddings_for(saved, data, wanted, progress=not as_json, **file_parts, **options)

    # What compares images one by one has a row for each; the rest needs sums alone.
    rows = names or per_image or interventions or corrections
    test = read(split, default_split="val", in_memory=None if rows else IN_MEMORY, own_classes=True)
    show_notes(test.notes)
    _warn_of_training_images(model, test)
    train = _read_training(read, data, train_split, classifier.classes_.tolist()) if needs_training(names) else None
    rivals, optional = _rivals(names, classifier.hierarchy_, test)
    limits = opt.corrected_limits(corrections, classifier.hierarchy_, test)
    own = model.resolve().name
    own = str(model.resolve()) if own in rivals else own
    columns = (*DEFAULT_COLUMNS, *(f"top_{k}" for k in top_k or ()))
    if isinstance(test.X, EmbeddingStore):
        read_blocks = blocks(test.X, test.y, not as_json and "evaluating")
        running = evaluate_blocks(classifier, read_blocks, top_k=ranks)
        facts = _facts(running, test.source, classifier.hierarchy_, by_class)
        table = running.table(columns, own) if wanted not in ("table", "json") else None
        _show(wanted, table, facts, Grades(), output, as_json)
        return
    with Console(stderr=True).status("evaluating …") as status:
        grades = grade_methods(
            {own: classifier if limits is None else limited(classifier, limits), **rivals},
            (test.X, test.y),
            None if train is None else (train.X, train.y),
            optional=optional,
            top_k=ranks,
            on_method=lambda label: status.update(f"{escape(label)} …"),
        )
    if per_image is not None:
        _write_images(per_image, {label: one.scores for label, one in grades.graded.items()}, test)
    facts = _facts(grades.graded[own].scores, test.source, classifier.hierarchy_, by_class)
    if interventions:
        facts["interventions"] = [row._asdict() for row in intervention_curve(classifier, test.X, test.y)]
    table = grades.table(columns) if names or wanted not in ("table", "json") else None
    _report_trouble(grades, own)
    _show(wanted, table, facts, grades, output, as_json)


def _show(
    wanted: str, table: ScoreTable | None, facts: dict[str, Any], grades: Grades, output: Path | None, as_json: bool
) -> None:
    if output is not None:
        write_text(output, _text(wanted, table, facts, grades).rstrip("\n") + "\n")
        say(json.dumps({"table": str(output), "n_images": facts["n_images"]}) if as_json else str(output))
    elif wanted == "table":
        show_scores(facts, table)
    else:
        say(_text(wanted, table, facts, grades).rstrip("\n"))


def _check_names(names: Iterable[str]) -> None:
    """Refuse, before any work, what is neither a method nor the folder of a model."""
    from hcep.classify.methods.all_methods import METHODS
    from hcep.models import load_summary

    for name in names:
        if name == ALL or name in METHODS:
            continue
        if Path(name).is_dir():
            load_summary(Path(name))  # says what is missing before the other methods are fitted
            continue
        known = [ALL, *METHODS]
        close = near_matches(name, known) or f" The methods are {quoted(known, len(known))}."
        raise HCEPError(f"--compare: {name!r} is neither a method nor the folder of a model.{close}")


def needs_training(names: Iterable[str]) -> bool:
    """Whether any of the names is a method to fit."""
    from hcep.classify.methods.all_methods import METHODS

    return any(name == ALL or name in METHODS for name in names)


def _rivals(names: Sequence[str], hierarchy: Hierarchy, test: Embeddings) -> tuple[dict[str, Any], set[str]]:
    """What the model is compared with, by label: methods to fit and models from folders; and what may be skipped."""
    from hcep.classify.methods.all_methods import METHODS, make_method
    from hcep.models import read_model
    from hcep.models.model_encoder import refuse_labels, refuse_other_encoder

    asked = [name for name in dict.fromkeys(names) if name != ALL]
    everything = [name for name in METHODS if name not in asked] if ALL in names else []
    found: dict[str, Any] = {}
    for name in [*asked, *everything]:
        if name in METHODS:
            found[METHODS[name].label] = make_method(name, hierarchy)
            continue
        saved = read_model(name)
        refuse_other_encoder(saved.summary.encoder, test.encoder, test.source)
        found[name] = saved.classifier
        refuse_labels(found[name].classes_, test.y, f"the model {name!r}")
    return found, {METHODS[name].label for name in everything}


def _read_training(read: Callable[[str], Embeddings], data: Path, split: str, classes: Sequence[object]) -> Embeddings:
    """The images methods are fitted on; data without such a split, or without a class of the model, is refused."""
    try:
        train = read(split)
    except HCEPError as error:
        raise HCEPError(
            f"--compare fits methods on the training images of {str(data)!r} (--train-split {split}): {error}"
        ) from None
    absent = sorted({str(c) for c in classes} - set(train.y.tolist()))
    if absent:
        raise HCEPError(
            f"--train-split {split}: {len(absent):,} classes of the model have no image in {train.source}: "
            f"{quoted(absent, 3)}; compare on the data that the model was fitted on"
        )
    return train


def _warn_of_training_images(model: Path, test: Embeddings) -> None:
    """Scores on images that a model was fitted on say little of others."""
    from hcep.embeddings.reading import OF_SPLIT
    from hcep.models import load_summary

    data = load_summary(model).training.data
    if data is None:
        return
    fitted, tested = os.path.abspath(data), os.path.abspath(test.source)
    if fitted == tested or fitted.startswith(tested + OF_SPLIT):
        told = f"{test.source} {'is' if fitted == tested else 'includes'} what the model was fitted on, so the scores "
        tell(f"{told}flatter it; evaluate on other images (--split, or another file)", "warning")


def _form(form: str | None, output: Path | None, as_json: bool) -> str:
    """The form of what is printed or written; two at once, or a file whose name does not say its form, are refused."""
    if as_json and form is not None:
        raise HCEPError(f"--json and --format {form} exclude each other; leave one out")
    if output is None:
        return "json" if as_json else form or "table"
    if form == "table":
        raise HCEPError("--format table is for terminals; write markdown, latex or csv to a file")
    if form is None and not as_json and output.suffix not in FORMATS:
        raise HCEPError(f"--output: expected a name ending in {', '.join(FORMATS)}, or --format; got {str(output)!r}")
    return "json" if as_json else form or FORMATS[output.suffix]


def _write_images(path: Path, methods: Mapping[str, ImageScores], test: Embeddings) -> None:
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    ids = test.ids.astype(str).tolist()
    tables = [
        scores.to_table(ids).add_column(0, "method", pa.array([label] * len(scores), pa.string()))
        for label, scores in methods.items()
    ]
    # Hierarchies of other models may be deeper; levels that one lacks are null.
    whole = pa.concat_tables(tables, promote_options="default")
    write = pyarrow.parquet.write_table if path.suffix == ".parquet" else pyarrow.csv.write_csv
    with replacing(path) as partial:
        write(whole, partial)


def _facts(scores: ImageScores | RunningScores, source: str, hierarchy: Hierarchy, by_class: bool) -> dict[str, Any]:
    """Everything about one model, for JSON and for people."""
    from hcep.evaluate import RunningScores, compare_scores

    columns = [*(column for column in scores.columns if column != "confidence"), "ece"]
    running = scores if isinstance(scores, RunningScores) else None
    table = running.table(columns) if running else compare_scores({"model": cast("Any", scores)}, columns=columns)
    means: dict[str, Any] = {}
    intervals: dict[str, list[float]] = {}
    for score in table.scores:
        family = score.metric.rpartition("_")[0]
        if family in BY_LEVEL:
            means.setdefault(BY_LEVEL[family], []).append(_defined(score.mean))
            continue
        key = KEYS.get(score.metric, score.metric)
        means[key] = _defined(score.mean)
        if score.n_images:
            intervals[key] = [score.low, score.high]
    classes = None
    if by_class:
        sums = (running or RunningScores.of(cast("Any", scores))).by_class
        classes = [_class_row(label, hierarchy, sums[label].tolist()) for label in sorted(sums)]
    return {"data": source, "n_images": len(scores), **means, "intervals": intervals, "classes": classes}


def _class_row(label: str, hierarchy: Hierarchy, sums: list[float]) -> dict[str, Any]:
    n_images, correct, precision, recall = sums
    facts = {"class": label, "name": hierarchy.name(hierarchy.leaf_of(label)), "n_images": int(n_images)}
    means = {"accuracy": correct, "support_precision": precision, "support_recall": recall}
    return {**facts, **{name: value / n_images for name, value in means.items()}}


def _defined(value: float) -> float | None:
    return None if math.isnan(value) else value


def _text(wanted: str, table: ScoreTable | None, facts: dict[str, Any], grades: Grades) -> str:
    if table is None:
        return json.dumps(facts, indent=2, ensure_ascii=False)
    if wanted == "json":
        skipped = [{"method": label, "reason": reason} for label, reason in grades.skipped.items()]
        whole = {"data": facts["data"], **json.loads(table.to_json()), "skipped": skipped}
        whole |= {key: facts[key] for key in ("classes", "interventions") if facts.get(key) is not None}
        return json.dumps(whole, indent=2, ensure_ascii=False)
    return {"markdown": table.to_markdown, "latex": table.to_latex, "csv": table.to_csv}[wanted]()


def _report_trouble(grades: Grades, own: str) -> None:
    for label, reason in grades.skipped.items():
        tell(f"{label}: {reason}", "skipped")
    for text, labels in grades.warnings.items():
        rivals = ", ".join(label for label in labels if label != own)
        if rivals:  # the model's own warnings were shown when it was fitted
            tell(f"{rivals}: {text}", "warning")
