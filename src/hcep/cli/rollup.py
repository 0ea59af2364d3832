"""`hcep rollup`: the right level of an answer for the scores of any classifier."""

from pathlib import Path
from typing import Annotated

from hcep._files import refuse_existing
from hcep.cli import options as opt
from hcep.cli.console import say, say_json, tell
from hcep.cli.options import argument, option


def rollup(
    scores: Annotated[Path, argument("Table of scores: .csv, .tsv or .parquet.", metavar="SCORES")],
    *,
    output: opt.Output,
    hierarchy: opt.HierarchyOption = None,
    labels: opt.Labels = None,
    sure: opt.Sure = 0.9,
    temperature: Annotated[
        float | None, option("Take the scores as logits, and divide them by this number.", "--temperature NUMBER")
    ] = None,
    only: opt.Only = None,
    overwrite: opt.Overwrite = False,
    as_json: opt.Json = False,
    options: opt.ReaderOptions = None,
) -> None:
    """Answer each image with the most specific concept that is sure enough, from any classifier's scores.

    SCORES has one row per image (a column of ids and one per class), or the columns image, class and score with a row
    for each of the best few classes. With --labels, a .csv file with the columns image and label or a column of SCORES,
    the answers are right as often as --sure says. Columns of the output (.csv, .parquet or .json): id, answer,
    answer_name, answer_probability, rank, class, class_probability, doubt.
    """
    from hcep.explain.score_tables import roll_up_table

    refuse_existing(output, overwrite, "--output")
    result = roll_up_table(
        scores,
        output,
        hierarchy,
        sure=sure,
        temperature=temperature,
        labels=labels,
        only=only,
        on_note=tell,
        **opt.reader_options(options),
    )
    if as_json:
        say_json({"answers": output, **result._asdict()})
        return
    above = result.n_answered - result.n_classes
    say(
        f"{output}: {result.n_images:,} images: {result.n_classes:,} answered with a class, {above:,} with a concept "
        f"above, {result.n_images - result.n_answered:,} not sure of anything"
    )
    say(
        result.promise
        or f"Nothing is promised: pass labelled images with --labels to be right {100 * sure:g} % of the time."
    )
