"""`hcep evaluate`: score a model on labelled images, alone or beside baselines."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

from rich.table import Table

from hcep import embeddings, evaluate as ev, hierarchy as hi, models, ray as distributed
from hcep._checks import NO_NUMBER, escape_markup as escape, rounded
from hcep._files import refuse_existing, replacing, write_text
from hcep.cli import options as opt
from hcep.cli.console import Console, say, show_notes, table_of, tell
from hcep.cli.options import more, option
from hcep.errors import HCEPError, near_matches, quoted
from hcep.evaluate.compare import RunningScores
from hcep.evaluate.grade import Graded, limited
from hcep.evaluate.table import Score, ScoreTable

#: The name that stands for every method that can run here.
ALL = "all"
FORMATS = {".md": "markdown", ".tex": "latex", ".csv": "csv", ".json": "json"}
#: Names of columns of `ImageScores` in the JSON of one model, if they differ.
KEYS = {"correct": "accuracy", "tree_distance": "mistake_tree_distance", "lca_height": "mistake_lca_height"}
#: Columns with one value per level, and the name of their list.
BY_LEVEL = {"prefix": "prefix_accuracy", "explained": "explained_energy"}
#: Scores of each class.
OF_CLASS = ("accuracy", "support_precision", "support_recall")
#: A terminal narrower than this gets means without intervals.
WIDE = 120
#: Titles of metrics, if they differ from their names.
TITLES = {
    "n_images": "images",
    "mistake_tree_distance": "mistakes: steps to the truth",
    "mistake_lca_height": "mistakes: height they share",
    "support_precision": "concepts named that are right",
    "support_recall": "right concepts that are named",
    "support_f1": "these two as one (F1)",
    "one_path": "answers that are one path",
    "complete_path": "paths that end in a class",
    "prefix_accuracy": "right down to level 1, 2, …",
    "n_atoms": "concepts per answer",
    "reconstruction_error": "image left unexplained",
    "explained_energy": "explained to level 1, 2, …",
    "ece": "confidence off by (ECE)",
}


def evaluate(
    model: opt.Model,
    data: opt.Data,
    *,
    split: opt.Split = None,
    by_class: Annotated[bool, option("Also show per-class scores.", "--by-class")] = False,
    compare: opt.Compare = None,
    output: opt.OptionalOutput = None,
    per_image: Annotated[
        Path | None, option("Write every score of every image: .parquet or .csv.", "--per-image FILE")
    ] = None,
    encoder: opt.Encoder = None,
    overwrite: opt.Overwrite = False,
    as_json: opt.Json = False,
    interventions: Annotated[bool, more("Accuracy after correcting 0, 1, 2, … levels.", "--interventions")] = False,
    top_k: Annotated[
        list[int] | None, more("Top-k accuracy to show. Repeatable (default: 1 and 5).", "--top-k N", min=1)
    ] = None,
    train_split: opt.TrainSplit = "train",
    vectors: opt.Vectors = None,
    labels: opt.Labels = None,
    corrections: opt.Corrections = None,
    ray: opt.Ray = None,
    config: opt.Config = None,
) -> None:
    """Score a model on labelled images, alone or beside other methods on the same images.

    The split `val` is used if there is one. Scores come with 95 % bootstrap intervals; docs/metrics.md defines them.
    --compare prints one table with paired tests against the model: † differs significantly; bold is the best, and what
    is not significantly worse. --output writes the scores or the table: .md, .tex, .csv or .json.
    """
    from hcep.classify.methods.all_methods import METHODS
    from hcep.models.fitting import IN_MEMORY, blocks
    from hcep.models.model_encoder import embeddings_for

    form, ranks = _form(output, as_json), tuple(top_k or (1, 5))
    if ray is not None:
        if compare or output or per_image or corrections or interventions:
            alone = "--compare, --output, --per-image, --corrections and --interventions"
            raise HCEPError(f"{alone} are not supported with --ray")
        scores = distributed.evaluate(model, data, split=split, top_k=ranks, address=ray, progress=not as_json)
        facts = _facts(scores, str(data), models.read_model(model).classifier.hierarchy_, by_class)
        _show("json" if as_json else "table", None, facts, {}, None, as_json)
        return
    if per_image is not None and per_image.suffix not in (".parquet", ".csv"):
        raise HCEPError(f"--per-image: expected a name ending in .parquet or .csv, got {str(per_image)!r}")
    refuse_existing(output, overwrite, "--output")
    refuse_existing(per_image, overwrite, "--per-image")
    names = compare or []
    _check_names(names)
    saved = models.read_model(model)
    classifier = saved.classifier
    file_parts = {**opt.columns(vectors, labels), "encoder": encoder}

    def read(wanted: str | None, **options: Any) -> embeddings.Embeddings:
        return embeddings_for(saved, data, wanted, progress=not as_json, **file_parts, **options)

    # Comparisons of single images need a row for each image; everything else needs only sums.
    rows = names or per_image or interventions or corrections
    test = read(split, default_split="val", in_memory=None if rows else IN_MEMORY, own_classes=True)
    show_notes(test.notes)
    _warn_of_training_images(saved.summary.training.data, test)
    train = None
    if any(name == ALL or name in METHODS for name in names):
        train = _read_training(read, data, train_split, classifier.classes_.tolist())
    rivals, optional = _rivals(names, classifier.hierarchy_, test)
    limits = opt.corrected_limits(corrections, classifier.hierarchy_, test)
    own = model.resolve().name
    own = str(model.resolve()) if own in rivals else own
    columns = (*ev.DEFAULT_COLUMNS, *(f"top_{k}" for k in top_k or ()))
    if isinstance(test.X, embeddings.EmbeddingStore):
        read_blocks = blocks(test.X, test.y, not as_json and "evaluating")
        running = ev.evaluate_blocks(classifier, read_blocks, top_k=ranks)
        facts = _facts(running, test.source, classifier.hierarchy_, by_class)
        table = running.table(columns, own) if form not in ("table", "json") else None
        _show(form, table, facts, {}, output, as_json)
        return
    skipped: dict[str, str] = {}
    with Console(stderr=True).status("evaluating …") as status:
        grades = ev.grade_methods(
            {own: classifier if limits is None else limited(classifier, limits), **rivals},
            (test.X, test.y),
            None if train is None else (train.X, train.y),
            optional=optional,
            top_k=ranks,
            on_method=lambda label: status.update(f"{escape(label)} …"),
            on_skip=skipped.__setitem__,
        )
    if per_image is not None:
        _write_images(per_image, grades, test)
    facts = _facts(grades[own].scores, test.source, classifier.hierarchy_, by_class)
    if interventions:
        facts["interventions"] = [row._asdict() for row in ev.intervention_curve(classifier, test.X, test.y)]
    table = (
        ev.compare_scores({label: one.scores for label, one in grades.items()}, columns=columns)
        if names or form not in ("table", "json")
        else None
    )
    for name, reason in skipped.items():
        tell(f"{name}: {reason}", "skipped")
    # The model's own warnings were shown when it was fitted.
    others = {label: one.warnings for label, one in grades.items() if label != own}
    for text in dict.fromkeys(text for texts in others.values() for text in texts):
        tell(f"{', '.join(label for label, texts in others.items() if text in texts)}: {text}", "warning")
    _show(form, table, facts, skipped, output, as_json)


def _show(
    form: str,
    table: ScoreTable | None,
    facts: dict[str, Any],
    skipped: dict[str, str],
    output: Path | None,
    as_json: bool,
) -> None:
    """Print the facts and the table in this form, or write them to the output."""
    if form == "table":
        _print_scores(facts, table)
        return
    if table is None or form == "json":
        whole = facts
        if table is not None:
            reasons = [{"method": name, "reason": reason} for name, reason in skipped.items()]
            more = {key: facts[key] for key in ("classes", "interventions") if facts.get(key) is not None}
            whole = {"data": facts["data"], **json.loads(table.to_json()), "skipped": reasons, **more}
        text = json.dumps(whole, indent=2, ensure_ascii=False)
    else:
        text = {"markdown": table.to_markdown, "latex": table.to_latex, "csv": table.to_csv}[form]().rstrip("\n")
    if output is None:
        say(text)
        return
    write_text(output, text + "\n")
    say(json.dumps({"table": str(output), "n_images": facts["n_images"]}) if as_json else output)


def _check_names(names: Iterable[str]) -> None:
    """Refuse, before any work, what is neither a method nor the folder of a model."""
    from hcep.classify.methods.all_methods import METHODS

    known = [ALL, *METHODS]
    for name in (name for name in names if name not in known):
        if not Path(name).is_dir():
            close = near_matches(name, known) or f" The methods are {quoted(known, len(known))}."
            raise HCEPError(f"--compare: {name!r} is neither a method nor the folder of a model.{close}")
        models.load_summary(Path(name))  # says what is missing before the other methods are fitted


def _rivals(names: Sequence[str], tree: hi.Hierarchy, test: embeddings.Embeddings) -> tuple[dict[str, Any], set[str]]:
    """What the model is compared with, by label: methods to fit and models from folders; and what may be skipped."""
    from hcep.classify.methods.all_methods import METHODS, make_method
    from hcep.models.model_encoder import refuse_labels, refuse_other_encoder

    asked = [name for name in dict.fromkeys(names) if name != ALL]
    everything = [name for name in METHODS if name not in asked] if ALL in names else []
    found: dict[str, Any] = {}
    for name in [*asked, *everything]:
        if name in METHODS:
            found[METHODS[name].label] = make_method(name, tree)
            continue
        saved = models.read_model(name)
        refuse_other_encoder(saved.summary.encoder, test.encoder, test.source)
        found[name] = saved.classifier
        refuse_labels(found[name].classes_, test.y, f"the model {name!r}")
    return found, {METHODS[name].label for name in everything}


def _read_training(
    read: Callable[[str], embeddings.Embeddings], data: Path, split: str, classes: Sequence[object]
) -> embeddings.Embeddings:
    """The images methods are fitted on; data without such a split, or without a class of the model, is refused."""
    try:
        train = read(split)
    except HCEPError as error:
        wanted = f"the training images of {str(data)!r} (--train-split {split})"
        raise HCEPError(f"--compare fits methods on {wanted}: {error}") from None
    absent = sorted({str(c) for c in classes} - set(train.y.tolist()))
    if absent:
        raise HCEPError(
            f"--train-split {split}: {len(absent):,} classes of the model have no image in {train.source}: "
            f"{quoted(absent, 3)}; compare on the data that the model was fitted on"
        )
    return train


def _warn_of_training_images(data: str | None, test: embeddings.Embeddings) -> None:
    """Scores on images that a model was fitted on say little of others."""
    from hcep.embeddings.vectors import OF_SPLIT

    fitted, tested = os.path.abspath(data or ""), os.path.abspath(test.source)
    if data is not None and (fitted == tested or fitted.startswith(tested + OF_SPLIT)):
        told = f"{test.source} {'is' if fitted == tested else 'includes'} what the model was fitted on, so the scores "
        tell(f"{told}flatter it; evaluate on other images (--split, or another file)", "warning")


def _form(output: Path | None, as_json: bool) -> str:
    """The form of what is printed or written; a file whose name does not tell its form is refused."""
    if output is None or as_json:
        return "json" if as_json else "table"
    if output.suffix not in FORMATS:
        raise HCEPError(f"--output: expected a name ending in {', '.join(FORMATS)}, got {str(output)!r}")
    return FORMATS[output.suffix]


def _write_images(path: Path, grades: dict[str, Graded], test: embeddings.Embeddings) -> None:
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    ids, tables = test.image_ids.astype(str).tolist(), []
    for label, one in grades.items():
        names = pa.array([label] * len(one.scores), pa.string())
        tables.append(one.scores.to_table(ids).add_column(0, "method", names))
    # Hierarchies of other models may be deeper; levels that one lacks are null.
    whole = pa.concat_tables(tables, promote_options="default")
    write = pyarrow.parquet.write_table if path.suffix == ".parquet" else pyarrow.csv.write_csv
    with replacing(path) as partial:
        write(whole, partial)


def _facts(scores: Any, source: str, tree: hi.Hierarchy, by_class: bool) -> dict[str, Any]:
    """Everything about one model, for JSON and for people, from `ImageScores` or `RunningScores`."""
    columns = [*(column for column in scores.columns if column != "confidence"), "ece"]
    running = scores if isinstance(scores, RunningScores) else None
    table = running.table(columns) if running else ev.compare_scores({"model": scores}, columns=columns)
    means: dict[str, Any] = {}
    intervals: dict[str, list[float]] = {}
    for score in table.scores:
        family, mean = score.metric.rpartition("_")[0], None if math.isnan(score.mean) else score.mean
        if family in BY_LEVEL:
            means.setdefault(BY_LEVEL[family], []).append(mean)
            continue
        key = KEYS.get(score.metric, score.metric)
        means[key] = mean
        if score.n_images:
            intervals[key] = [score.low, score.high]
    classes = None
    if by_class:
        sums, classes = (running or RunningScores.of(scores)).by_class, []
        for label in sorted(sums):
            n_images, *totals = sums[label].tolist()
            known = {"class": label, "name": tree.name(tree.leaf_of(label)), "n_images": int(n_images)}
            classes.append(known | {name: total / n_images for name, total in zip(OF_CLASS, totals, strict=True)})
    return {"data": source, "n_images": len(scores), **means, "intervals": intervals, "classes": classes}


def _print_scores(facts: dict[str, Any], table: ScoreTable | None) -> None:
    """Print one model's metrics, or the table of several methods; classes below, where they were asked for."""
    console = Console()
    if table is None:
        shown = []
        for key in (key for key in facts if key not in ("data", "intervals", "classes", "interventions")):
            low, high = facts["intervals"].get(key, (None, None))
            between = "" if low is None else f"[dim]{_shown(low)} to {_shown(high)}[/]"
            title = TITLES.get(key, key.replace("top_", "right among the first ").replace("_", " "))
            shown.append((title, escape(_shown(facts[key])), between))
        console.print(table_of(None, shown))
        read = "last column: 95 % intervals over images; a mistake two steps away is a sibling"
        told = f"{escape(facts['data'])}; {read}; docs/metrics.md tells more"
        console.print(f"\n[dim]{told}[/]", highlight=False, soft_wrap=True)
    else:
        console.print(_method_table(table, console.width))
        note = table.note if console.is_terminal else table.plain_note
        console.print(f"\n[dim]{escape(facts['data'])}: {escape(note)}[/]", highlight=False)
    if facts["classes"] is not None:
        rows = [
            (r["class"], r["name"], f"{r['n_images']:,}", *(f"{r[m]:.3f}" for m in OF_CLASS)) for r in facts["classes"]
        ]
        console.print(table_of(("class", "name", "images", "accuracy", "precision", "recall"), rows, n_left=2))
    if facts.get("interventions"):
        console.print("\nwith the first levels of every path corrected by the truth:")
        lines = []
        for row in facts["interventions"]:
            between, gained = (f"[dim]{row[f'{of}low']:.3f} to {row[f'{of}high']:.3f}[/]" for of in ("", "gain_"))
            more = (f"{row['gain']:+.3f}", gained) if row["n_levels"] else ("", "")
            lines.append((str(row["n_levels"]), f"{row['accuracy']:.3f}", between, *more))
        console.print(table_of(("levels", "accuracy", "", "more by this level", ""), lines, n_left=0))


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(NO_NUMBER if one is None else f"{one:.3f}" for one in value)
    if isinstance(value, float):
        return f"{value:.4f}"
    return NO_NUMBER if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def _method_table(table: ScoreTable, width: int) -> Table:
    """Methods as rows, with intervals where the terminal is wide enough."""

    def cell(score: Score) -> str:
        text = f"[bold green]{rounded(score.mean)}[/]" if score.best else rounded(score.mean)
        text += "†" if table.is_significant(score) else ""
        return f"{text}\n[dim]{escape(score.between)}[/]" if width >= WIDE and score.n_images else text

    rows = [[escape(m), *(cell(table.score(m, metric)) for metric in table.metrics)] for m in table.methods]
    return table_of(["method", *table.titles], rows, gap=2 if width >= WIDE else 1)
