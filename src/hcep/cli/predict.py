"""`hcep predict` and `hcep evaluate`: a model on a store of embeddings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from hcep.cli.config import Config, save_resolved
from hcep.errors import HCEPError, quoted

if TYPE_CHECKING:
    from hcep.classify import HCEPClassifier
    from hcep.cli.inputs import Embeddings

Model = Annotated[Path, typer.Argument(help="Model folder made by `hcep fit`.")]
Data = Annotated[Path, typer.Argument(help="Store, or .npy/.npz/.parquet file of embeddings.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]


def predict(
    context: typer.Context,
    model: Model,
    data: Data,
    output: Annotated[Path, typer.Option("--output", "-o", help="Parquet file to write.")],
    split: Annotated[str | None, typer.Option(help="Only this split; all images by default.")] = None,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Predict class and rooted path of every image of a store into a Parquet file.

    Columns: id, label (where known), predicted, probability, path, names, coefficients, residual_norm.

    [bold]Examples[/]

      hcep predict model/ store/ -o predictions.parquet

      hcep predict model/ embeddings.npz --split val -o predictions.parquet
    """
    from hcep.cli.inputs import read_embeddings

    if output.suffix != ".parquet":
        raise HCEPError(f"--output: predictions are Parquet; expected a name ending in .parquet, got {str(output)!r}")
    classifier = load(model)
    embeddings = read_embeddings(data, split)
    check_encoder(model, embeddings)
    n = _write(classifier, embeddings, output)
    save_resolved(context, output.with_name(output.name + ".toml"))
    if as_json:
        typer.echo(json.dumps({"predictions": str(output), "n_images": n}))
    else:
        typer.echo(f"{output}: {n:,} images")


def evaluate(
    model: Model,
    data: Data,
    split: Annotated[str | None, typer.Option(help="Split to evaluate on; val where there is one.")] = None,
    by_class: Annotated[bool, typer.Option(help="A line a class, too.")] = False,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Score a model on labelled embeddings: accuracy, support precision and recall, how far mistakes are.

    [bold]Examples[/]

      hcep evaluate model/ store/

      hcep evaluate model/ store/ --split test --by-class --json
    """
    from hcep.cli.inputs import read_embeddings

    classifier = load(model)
    embeddings = read_embeddings(data, split, default_split="val")
    check_encoder(model, embeddings)
    scores = _scores(classifier, embeddings)
    if as_json:
        typer.echo(json.dumps(scores if by_class else {**scores, "classes": None}, indent=2, ensure_ascii=False))
        return
    console = Console()
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for key, value in scores.items():
        if key != "classes":
            table.add_row(key.replace("_", " "), _shown(value))
    console.print(table)
    if by_class:
        console.print(_class_table(scores["classes"]))


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.4f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def load(folder: Path) -> HCEPClassifier:
    from hcep.models import load_model

    return load_model(folder)


def check_encoder(model: Path, embeddings: Embeddings) -> None:
    """Refuse embeddings of another encoder than the model's, where both are known."""
    from hcep.models import load_summary

    expected, given = load_summary(model).encoder, embeddings.encoder
    if expected is None or given is None or None in (expected.fingerprint, given.fingerprint):
        return
    if expected.fingerprint != given.fingerprint:
        raise HCEPError(
            f"{embeddings.source} was encoded by {given.name!r}, the model is of {expected.name!r}; "
            "encode the images with the model's encoder"
        )


def _write(classifier: HCEPClassifier, embeddings: Embeddings, output: Path) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with Console(stderr=True).status("predicting …"):
        found = classifier.pursue(embeddings.X)
        probabilities = classifier.predict_proba(embeddings.X)
        predicted = classifier.classes_[np.argmax(probabilities, axis=1)]
        hierarchy = classifier.hierarchy_
        columns: dict[str, Any] = {"id": embeddings.ids.astype(str).tolist()}
        if embeddings.labels is not None:
            columns["label"] = embeddings.labels.tolist()
        columns |= {
            "predicted": predicted.tolist(),
            "probability": probabilities.max(axis=1),
            "path": [list(path) for path in found.paths],
            "names": [[hierarchy.name(synset) for synset in path] for path in found.paths],
            "coefficients": [found.coefficients(i).tolist() for i in range(len(found))],
            "residual_norm": found.residual_norms,
        }
    output.parent.mkdir(parents=True, exist_ok=True)
    partial = output.with_name(output.name + ".partial")
    pq.write_table(pa.table(columns), partial)
    partial.replace(output)
    return len(found)


def _scores(classifier: HCEPClassifier, embeddings: Embeddings) -> dict[str, Any]:
    from hcep.evaluate import lca_heights, support_scores, tree_distances

    y, hierarchy = embeddings.y, classifier.hierarchy_
    unknown = sorted(set(y.tolist()) - {str(c) for c in classifier.classes_.tolist()})
    if unknown:
        raise HCEPError(
            f"{len(unknown):,} labels are not classes of the model: {quoted(unknown)}; "
            "evaluate on data with the classes it was fitted on"
        )
    with Console(stderr=True).status("evaluating …"):
        predicted = classifier.predict(embeddings.X).astype(str)
        support = support_scores(classifier.pursue(embeddings.X), y, hierarchy)
        wrong = predicted != y
        distances = tree_distances(y[wrong], predicted[wrong], hierarchy)
        heights = lca_heights(y[wrong], predicted[wrong], hierarchy)
    classes = [
        {
            "class": label,
            "name": hierarchy.name(hierarchy.leaf_of(label)),
            "n_images": int(np.sum(y == label)),
            "accuracy": float(np.mean(predicted[y == label] == label)),
            "support_precision": float(support.precision[y == label].mean()),
            "support_recall": float(support.recall[y == label].mean()),
        }
        for label in sorted(set(y.tolist()))
    ]
    return {
        "data": embeddings.source,
        "n_images": len(y),
        "accuracy": float(np.mean(~wrong)),
        "support_precision": support.mean[0],
        "support_recall": support.mean[1],
        "support_f1": float(support.f1.mean()),
        "mistake_tree_distance": float(distances.mean()) if len(distances) else None,
        "mistake_lca_height": float(heights.mean()) if len(heights) else None,
        "classes": classes,
    }


def _class_table(rows: list[dict[str, Any]]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("class", "name", "images", "accuracy", "precision", "recall"):
        table.add_column(column, justify="left" if column in ("class", "name") else "right")
    for row in rows:
        numbers = (row["accuracy"], row["support_precision"], row["support_recall"])
        table.add_row(row["class"], row["name"], f"{row['n_images']:,}", *(f"{number:.3f}" for number in numbers))
    return table
