"""`hcep predict`: a model on a store of embeddings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hcep.cli.config import Config, save_resolved
from hcep.cli.console import say
from hcep.cli.data_options import Data, Label, Labels, Ray, Vectors, show_notes
from hcep.errors import HCEPError

if TYPE_CHECKING:
    from hcep.embeddings import Embeddings
    from hcep.explain.corrections import Corrections
    from hcep.hierarchy import Hierarchy
    from hcep.pursuit.limits import PathLimits

Model = Annotated[Path, typer.Argument(help="Model folder made by `hcep fit`.")]
Coverage = Annotated[
    float | None,
    typer.Option(
        min=0.01, max=0.999, help="Stop at the lowest concept that is right so often, such as 0.9 (calibrated models)."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
CorrectionsFile = Annotated[
    Path | None, typer.Option("--corrections", help="File of `hcep correct`: what people said of single images.")
]


def kept_corrections(path: Path | None, hierarchy: Hierarchy | None) -> Corrections | None:
    """The corrections of a file, with a note where its last line is torn."""
    from hcep.explain.corrections import Corrections

    if path is None:
        return None
    kept = Corrections(path, hierarchy)
    if kept.torn:
        show_notes([f"the last line of {path} was not written to its end and does not count"])
    return kept


def corrected_limits(path: Path | None, hierarchy: Hierarchy, found: Embeddings) -> PathLimits | None:
    """Paths that corrections leave open to each image, with a note how many they are about."""
    kept = kept_corrections(path, hierarchy)
    limits = None if kept is None else kept.limits(hierarchy, found.hashes)
    if kept is not None:
        n = sum(image in kept for image in found.hashes)
        show_notes([f"{n:,} of {len(found.X):,} images have a correction in {path}"])
    return limits


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
    coverage: Coverage = None,
    corrections: CorrectionsFile = None,
    force: Annotated[bool, typer.Option("--force", "-f", help="Replace a file that is there already.")] = False,
    ray: Ray = None,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Predict class and rooted path of every image into a Parquet or CSV file.

    Columns: id, label (where known), predicted, probability, path, names, coefficients, residual_norm; with --coverage
    also answer, answer_name, answer_probability and kind.
    """
    from hcep import distributed
    from hcep._files import refuse_existing
    from hcep.explain.predictions import BLOCK, write_predictions
    from hcep.models import read_model
    from hcep.models.model_encoder import embeddings_for

    if ray is not None:
        if coverage is not None or corrections is not None:
            raise HCEPError("--coverage and --corrections are for one process: leave out --ray")
        n = distributed.predict(model, data, output, split=split, force=force, address=ray, progress=not as_json)
        say(json.dumps({"predictions": str(output), "n_images": n}) if as_json else f"{output}: {n:,} images")
        return
    if output.suffix not in (".parquet", ".csv"):
        raise HCEPError(
            f"--output: predictions are Parquet or CSV; expected a name ending in .parquet or .csv, got {str(output)!r}"
        )
    kept = output.with_name(output.name + ".toml")
    for path in (output, kept):
        refuse_existing(path, force, "--output")
    saved = read_model(model)
    options: dict[str, Any] = {"vectors": vectors, "label": label, "labels": labels, "in_memory": BLOCK}
    found = embeddings_for(saved, data, split, encoder=encoder, progress=not as_json, **options)
    show_notes(found.notes)
    limits = corrected_limits(corrections, saved.hierarchy, found)
    told: dict[str, Any] = {"ids": found.ids, "labels": found.labels, "limits": limits, "coverage": coverage}
    write_predictions(saved.path_model, found.X, output, **told, progress=not as_json)
    save_resolved(context, kept)
    n = len(found.X)
    say(json.dumps({"predictions": str(output), "n_images": n}) if as_json else f"{output}: {n:,} images")
