"""`hcep predict`: a model on a store of embeddings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from hcep.cli.config import Config, save_resolved
from hcep.cli.console import say
from hcep.cli.data_options import Data, Label, Labels, Ray, Vectors, show_notes
from hcep.errors import HCEPError

Model = Annotated[Path, typer.Argument(help="Model folder made by `hcep fit`.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]


def predict(
    context: typer.Context,
    model: Model,
    data: Data,
    *,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="File to write: .parquet or .csv; with --ray, a folder.")
    ],
    split: Annotated[str | None, typer.Option(help="Only this split; all images by default.")] = None,
    vectors: Vectors = None,
    label: Label = None,
    labels: Labels = None,
    encoder: Annotated[
        str | None, typer.Option("--encoder", "-e", help="Of photos; the model's own by default.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", "-f", help="Replace a file that is there already.")] = False,
    ray: Ray = None,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Predict class and rooted path of every image into a Parquet or CSV file.

    Columns: id, label (where known), predicted, probability, path, names, coefficients, residual_norm.

    [bold]Examples[/]

      hcep predict model/ store/ -o predictions.parquet

      hcep predict model/ embeddings.npz --split val -o predictions.parquet

      hcep predict model/ photos/ -o predictions.csv

      hcep predict model/ store/ -o predictions/ --ray head:6379
    """
    from hcep import distributed
    from hcep._files import refuse_existing
    from hcep.explain.predictions import write_predictions
    from hcep.models import read_model
    from hcep.models.model_encoder import embeddings_for

    if ray is not None:
        n = distributed.predict(model, data, output, split=split, force=force, address=ray, progress=not as_json)
        say(json.dumps({"predictions": str(output), "n_images": n}) if as_json else f"{output}: {n:,} images")
        return
    if output.suffix not in (".parquet", ".csv"):
        raise HCEPError(
            f"--output: predictions are Parquet or CSV; expected a name ending in .parquet or .csv, got {str(output)!r}"
        )
    refuse_existing(output, force, "--output")
    saved = read_model(model)
    columns = {"vectors": vectors, "label": label, "labels": labels}
    found = embeddings_for(saved, data, split, encoder=encoder, progress=not as_json, **columns)
    show_notes(found.notes)
    write_predictions(saved.path_model, found.X, output, ids=found.ids, labels=found.labels, progress=not as_json)
    save_resolved(context, output.with_name(output.name + ".toml"))
    n = len(found.X)
    say(json.dumps({"predictions": str(output), "n_images": n}) if as_json else f"{output}: {n:,} images")
