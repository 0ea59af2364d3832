"""`hcep predict`: a model on a store of embeddings."""

from pathlib import Path
from typing import Annotated, Any

import typer

from hcep import distributed, models
from hcep._files import refuse_existing
from hcep.cli import options as opt
from hcep.cli.console import say, say_json
from hcep.cli.options import option
from hcep.errors import HCEPError


def predict(
    context: typer.Context,
    model: opt.Model,
    data: opt.Data,
    *,
    output: Annotated[Path, option("File to write: .parquet or .csv; with --ray, a folder.", "--output", "-o")],
    split: opt.Split = None,
    vectors: opt.Vectors = None,
    label: opt.Label = None,
    labels: opt.Labels = None,
    encoder: opt.Encoder = None,
    coverage: opt.Coverage = None,
    corrections: opt.CorrectionsFile = None,
    force: opt.Force = False,
    ray: opt.Ray = None,
    as_json: opt.Json = False,
    config: opt.Config = None,
) -> None:
    """Predict class and rooted path of every image into a Parquet or CSV file.

    Columns: id, label (where known), predicted, probability, path, names, coefficients, residual_norm; with --coverage
    also answer, answer_name, answer_probability and kind.
    """
    from hcep.explain.predictions import BLOCK, write_predictions

    if ray is not None:
        if coverage is not None or corrections is not None:
            raise HCEPError("--coverage and --corrections are for one process: leave out --ray")
        n = distributed.predict(model, data, output, split=split, force=force, address=ray, progress=not as_json)
    else:
        if output.suffix not in (".parquet", ".csv"):
            known = "predictions are Parquet or CSV; expected a name ending in .parquet or .csv"
            raise HCEPError(f"--output: {known}, got {str(output)!r}")
        kept = output.with_name(output.name + ".toml")
        for path in (output, kept):
            refuse_existing(path, force, "--output")
        saved = models.read_model(model)
        columns: dict[str, Any] = {"vectors": vectors, "label": label, "labels": labels, "in_memory": BLOCK}
        found = opt.embeddings_for(saved, data, split, encoder=encoder, progress=not as_json, **columns)
        limits, n = opt.corrected_limits(corrections, saved.hierarchy, found), len(found.X)
        told: dict[str, Any] = {"ids": found.ids, "labels": found.labels, "limits": limits, "coverage": coverage}
        write_predictions(saved.path_model, found.X, output, **told, progress=not as_json)
        opt.save_resolved(context, kept)
    if as_json:
        say_json({"predictions": output, "n_images": n})
    else:
        say(f"{output}: {n:,} images")
