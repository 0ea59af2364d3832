"""`hcep predict`: a model on a store of embeddings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.console import Console

from hcep.cli.config import Config, save_resolved
from hcep.errors import HCEPError

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

    from hcep.cli.outputs import replacing

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
    with replacing(output) as partial:
        pq.write_table(pa.table(columns), partial)
    return len(found)
