"""`hcep predict`: embeddings or photos into a table of classes and rooted paths."""

from typing import Annotated, Any

import typer

from hcep import models, ray as distributed
from hcep._files import refuse_existing
from hcep.cli import options as opt
from hcep.cli.config import RESOLVED, Config, save_resolved
from hcep.cli.console import say, say_json, tell
from hcep.cli.options import more, option
from hcep.errors import HCEPError, counted
from hcep.formats.answers import WRITTEN, is_folder, written_files


def predict(
    context: typer.Context,
    model: opt.Model,
    data: opt.Data,
    *,
    output: opt.Output,
    split: opt.Split = None,
    encoder: opt.Encoder = None,
    decode: opt.Decode = "sure",
    sure: opt.Sure = 0.9,
    only: opt.Only = None,
    rank: opt.Rank = None,
    group: opt.Group = None,
    format: Annotated[
        list[str] | None,
        option(f"Write the answers for another tool: {', '.join(WRITTEN)}. Repeatable.", "--format NAME"),
    ] = None,
    overwrite: opt.Overwrite = False,
    as_json: opt.Json = False,
    boxes: Annotated[
        str | None,
        more(
            "Which boxes of MegaDetector results to use, such as animal,person:0.5.", "--boxes CATEGORIES[:CONFIDENCE]"
        ),
    ] = None,
    vectors: opt.Vectors = None,
    labels: opt.Labels = None,
    corrections: opt.Corrections = None,
    ray: opt.Ray = None,
    config: Config = None,
) -> None:
    """Write the answer, the class and the path of every image to a file.

    A .json file is in MegaDetector's format unless --format names another one; docs/tools.md describes them. If the
    output is a folder, the files of every --format are written into it. With --ray, the output is a folder. Columns:
    id, label (if known), answer, answer_name, answer_probability, rank, class, class_probability, doubt,
    answer_estimate, kind, path, names, coefficients, residual_norm; and one per rank of the hierarchy, such as
    rank_family.

    --decode says how the answer is chosen. `sure` is the most specific concept that is as likely as --sure
    says, and is empty if there is none. `class` is always the most probable class: choose it if only the exact class
    counts. `distance` makes the mildest mistakes: choose it if a wrong answer costs more the further it is from the
    truth in the hierarchy. `f1` names many concepts of the true path and few others: choose it if concepts are counted.
    All four use the same probabilities, so the class and the path stay the same; only the columns of the answer and
    the doubt change. `hcep evaluate --compare decoders` measures them on your images.
    """
    from hcep.classify.right_level import SURE
    from hcep.explain.predictions import predict_data

    if decode != "sure" and sure != SURE:
        raise HCEPError(f"--sure has no effect with --decode {decode}; leave out one of them")
    if ray is not None:
        alone = ("corrections", "encoder", "only", "rank", "group", "vectors", "labels", "format", "boxes")
        opt.refuse_with_ray(context, *alone)
        options: dict[str, Any] = {"force": overwrite, "address": ray, "progress": not as_json}
        options |= {"decode": decode, "sure": sure}
        n = distributed.predict(model, data, output, split=split, **options)
    else:
        formats = format or (["megadetector"] if output.suffix == ".json" else [])
        if not formats and output.suffix not in (".parquet", ".csv"):
            raise HCEPError(
                f"--output: expected a name ending in .parquet, .csv or .json, or a folder and --format, got "
                f"{str(output)!r}"
            )
        files = written_files(output, formats) if formats else [output]
        resolved = output / RESOLVED if formats and is_folder(output) else output.with_name(output.name + ".toml")
        for path in (*files, resolved) if files else ():
            refuse_existing(path, overwrite, "--output")
        n = predict_data(
            models.read_model(model),
            data,
            output,
            split,
            corrections=corrections,
            only=only,
            decode=decode,
            sure=sure,
            rank=rank,
            formats=formats,
            group=group,
            progress=not as_json,
            on_note=tell,
            encoder=encoder,
            boxes=boxes,
            **opt.columns(vectors, labels),
        )
        if files:
            save_resolved(context, resolved)
    if as_json:
        say_json({"predictions": output, "n_images": n})
    else:
        say(f"{output}: {counted(n, 'group' if group else 'image')}")
