"""`hcep evaluate`: score a model on labelled images, alone or beside baselines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from hcep import models, ray as distributed
from hcep._checks import NO_NUMBER, rounded
from hcep._files import refuse_existing, write_text
from hcep.cli import options as opt
from hcep.cli.config import Config
from hcep.cli.console import Console, escape, say, table_of, tell
from hcep.cli.options import more, option
from hcep.errors import HCEPError
from hcep.evaluate.table import Score, ScoreTable

FORMATS = {".md": "markdown", ".tex": "latex", ".csv": "csv", ".json": "json"}
#: A terminal narrower than this gets means without intervals.
WIDE = 120
#: Titles of metrics, if they differ from their names.
TITLES = {
    "n_images": "images",
    "n_coarse": "labels above the classes",
    "n_unlabelled": "unlabelled images, not scored",
    "mistake_tree_distance": "mistakes: tree distance to the label",
    "mistake_lca_height": "mistakes: height of the shared concept",
    "answer_distance": "all answers: tree distance to the label",
    "support_precision": "concept precision",
    "support_recall": "concept recall",
    "support_f1": "concept F1",
    "one_path": "answers that form one path",
    "complete_path": "paths that end in a class",
    "prefix_accuracy": "accuracy down to level 1, 2, …",
    "n_atoms": "concepts per answer",
    "ece": "calibration error (ECE)",
}


def evaluate(
    context: typer.Context,
    model: opt.Model,
    data: opt.Data,
    *,
    split: opt.Split = None,
    by_class: Annotated[bool, option("Also show per-class scores.", "--by-class")] = False,
    compare: opt.Compare = None,
    output: opt.OptionalOutput = None,
    per_image: Annotated[
        Path | None, option("Write the scores of every image (.parquet or .csv).", "--per-image FILE")
    ] = None,
    encoder: opt.Encoder = None,
    overwrite: opt.Overwrite = False,
    as_json: opt.Json = False,
    interventions: Annotated[
        bool, more("Show the accuracy after correcting 0, 1, 2, … levels.", "--interventions")
    ] = False,
    top_k: Annotated[
        list[int] | None, more("Show the top-N accuracy. Repeatable (default: 1 and 5).", "--top-k N", min=1)
    ] = None,
    train_split: opt.TrainSplit = "train",
    vectors: opt.Vectors = None,
    labels: opt.Labels = None,
    corrections: opt.Corrections = None,
    ray: opt.Ray = None,
    config: Config = None,
) -> None:
    """Score a model on labelled images, alone or beside other methods on the same images.

    The split `val` is used if there is one. Scores come with 95 % bootstrap intervals; docs/metrics.md defines them.
    --compare prints one table with paired tests against the model: † marks significant differences, and bold marks the
    best value and all values that are not significantly worse. `--compare decoders` adds what `hcep predict --decode`
    would answer from the same probabilities. --output writes the scores or the table: .md, .tex, .csv or .json.
    """
    from hcep.evaluate.model_scores import Evaluation, evaluate_model

    form, ranks = _form(output, as_json), tuple(top_k or (1, 5))
    if ray is not None:
        opt.refuse_with_ray(context, "compare", "output", "per_image", "corrections", "interventions")
        opt.refuse_with_ray(context, "encoder", "vectors", "labels")
        scores = distributed.evaluate(model, data, split=split, top_k=ranks, address=ray, progress=not as_json)
        result = Evaluation(str(data), models.read_model(model).classifier.hierarchy_, str(model), scores)
    else:
        if per_image is not None and per_image.suffix not in (".parquet", ".csv"):
            raise HCEPError(f"--per-image: expected a name ending in .parquet or .csv, got {str(per_image)!r}")
        refuse_existing(output, overwrite, "--output")
        refuse_existing(per_image, overwrite, "--per-image")
        status = Console(stderr=True).status("evaluating …")

        def on_method(label: str) -> None:  # not earlier: reading the data has progress bars of its own
            status.update(f"{escape(label)} …")
            status.start()

        try:
            result = evaluate_model(
                model,
                data,
                split,
                compare=compare or (),
                train_split=train_split,
                top_k=ranks,
                interventions=interventions,
                by_image=per_image is not None,
                corrections=corrections,
                progress=not as_json,
                on_note=tell,
                on_warning=lambda text: tell(text, "warning"),
                on_method=on_method,
                encoder=encoder,
                **opt.columns(vectors, labels),
            )
        finally:
            status.stop()
    for name, reason in result.skipped.items():
        tell(f"{name}: {reason}", "skipped")
    if per_image is not None:
        result.write_images(per_image)
    table = result.table(top_k or ()) if compare or form not in ("table", "json") else None
    facts = result.facts(by_class)
    if form == "table":
        _print_scores(facts, table)
        return
    text = _text(form, table, facts, result.skipped)
    if output is None:
        say(text)
        return
    write_text(output, text + "\n")
    say(json.dumps({"table": str(output), "n_images": facts["n_images"]}) if as_json else output)


def _text(form: str, table: ScoreTable | None, facts: dict[str, Any], skipped: dict[str, str]) -> str:
    """The table, or the facts about the model alone, in a form for files and programs."""
    if table is not None and form != "json":
        return {"markdown": table.to_markdown, "latex": table.to_latex, "csv": table.to_csv}[form]().rstrip("\n")
    if table is not None:
        reasons = [{"method": name, "reason": reason} for name, reason in skipped.items()]
        more = {key: facts[key] for key in ("classes", "interventions") if facts.get(key) is not None}
        facts = {"data": facts["data"], **json.loads(table.to_json()), "skipped": reasons, **more}
    return json.dumps(facts, indent=2, ensure_ascii=False)


def _form(output: Path | None, as_json: bool) -> str:
    """The form of what is printed or written; a file whose name does not tell its form is refused."""
    if output is None or as_json:
        return "json" if as_json else "table"
    if output.suffix not in FORMATS:
        raise HCEPError(f"--output: expected a name ending in {', '.join(FORMATS)}, got {str(output)!r}")
    return FORMATS[output.suffix]


def _print_scores(facts: dict[str, Any], table: ScoreTable | None) -> None:
    """Print the metrics of one model, or the table of several methods; below them, classes and interventions."""
    console = Console()
    if table is None:
        shown = []
        hidden = {"data", "intervals", "classes", "interventions"}
        hidden |= {key for key in ("n_coarse", "n_unlabelled") if not facts[key]}
        hidden |= {"top_1"} if facts.get("top_1") == facts["accuracy"] else set()
        for key in (key for key in facts if key not in hidden):
            low, high = facts["intervals"].get(key, (None, None))
            between = "" if low is None else f"[dim]{_shown(low)} to {_shown(high)}[/]"
            title = TITLES.get(key, key.replace("top_", "top-").replace("_", " "))
            shown.append((title, escape(_shown(facts[key])), between))
        console.print(table_of(None, shown))
        read = "the last column is the 95 % interval over images; siblings are two steps apart"
        note = f"{escape(facts['data'])}; {read}; docs/metrics.md defines the metrics"
        console.print(f"\n[dim]{note}[/]", highlight=False, soft_wrap=True)
    else:
        console.print(_method_table(table, console.width))
        note = table.note if console.is_terminal else table.plain_note
        console.print(f"\n[dim]{escape(facts['data'])}: {escape(note)}[/]", highlight=False)
    if facts["classes"] is not None:
        rows = [
            (label, name, f"{n_images:,}", *(f"{mean:.3f}" for mean in means))
            for label, name, n_images, *means in (row.values() for row in facts["classes"])
        ]
        console.print(table_of(("class", "name", "images", "accuracy", "precision", "recall"), rows, n_left=2))
    if facts.get("interventions"):
        console.print("\nafter correcting the first levels of every path:")
        lines = []
        for row in facts["interventions"]:
            between, gained = (f"[dim]{row[f'{of}low']:.3f} to {row[f'{of}high']:.3f}[/]" for of in ("", "gain_"))
            more = (f"{row['gain']:+.3f}", gained) if row["n_levels"] else ("", "")
            lines.append((str(row["n_levels"]), f"{row['accuracy']:.3f}", between, *more))
        console.print(table_of(("levels", "accuracy", "", "gain from this level", ""), lines, n_left=0))


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
