"""`hcep predict`: embeddings or photos into a table of classes and rooted paths."""

from typing import Any

import typer

from hcep import models, ray as distributed
from hcep._files import refuse_existing
from hcep.cli import options as opt
from hcep.cli.config import Config, save_resolved
from hcep.cli.console import say, say_json, tell
from hcep.errors import HCEPError


def predict(
    context: typer.Context,
    model: opt.Model,
    data: opt.Data,
    *,
    output: opt.Output,
    split: opt.Split = None,
    encoder: opt.Encoder = None,
    sure: opt.Sure = 0.9,
    only: opt.Only = None,
    rank: opt.Rank = None,
    overwrite: opt.Overwrite = False,
    as_json: opt.Json = False,
    vectors: opt.Vectors = None,
    labels: opt.Labels = None,
    corrections: opt.Corrections = None,
    ray: opt.Ray = None,
    config: Config = None,
) -> None:
    """Write the answer, the class and the path of every image to a .parquet or .csv file.

    With --ray, the output is a folder. Columns: id, label (if known), answer, answer_name, answer_probability, rank,
    class, class_probability, doubt, kind, path, names, coefficients, residual_norm; and one per rank of the hierarchy,
    such as rank_family.
    """
    from hcep.explain.predictions import predict_data

    if ray is not None:
        opt.refuse_with_ray(context, "corrections", "encoder", "only", "rank", "vectors", "labels")
        options: dict[str, Any] = {"force": overwrite, "address": ray, "progress": not as_json, "sure": sure}
        n = distributed.predict(model, data, output, split=split, **options)
    else:
        if output.suffix not in (".parquet", ".csv"):
            raise HCEPError(f"--output: expected a name ending in .parquet or .csv, got {str(output)!r}")
        resolved = output.with_name(output.name + ".toml")
        for path in (output, resolved):
            refuse_existing(path, overwrite, "--output")
        n = predict_data(
            models.read_model(model),
            data,
            output,
            split,
            corrections=corrections,
            only=only,
            sure=sure,
            rank=rank,
            progress=not as_json,
            on_note=tell,
            encoder=encoder,
            **opt.columns(vectors, labels),
        )
        save_resolved(context, resolved)
    if as_json:
        say_json({"predictions": output, "n_images": n})
    else:
        say(f"{output}: {n:,} images")
