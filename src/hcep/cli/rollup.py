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
    group: Annotated[
        str | None, option("Column of bursts or observations: one answer for each.", "--group COLUMN")
    ] = None,
    overwrite: opt.Overwrite = False,
    as_json: opt.Json = False,
    options: opt.ReaderOptions = None,
) -> None:
    """Answer each image with the most specific concept that is sure enough, from any classifier's scores.

    SCORES has a column of ids and one per class, or the columns image, class and score. With --labels (a .csv file with
    the columns image and label, or a column of SCORES) the answers are right as often as --sure says. The output is a
    .csv, .parquet or .json file with the columns of `hcep predict` up to doubt.
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
        group=group,
        on_note=tell,
        **opt.reader_options(options),
    )
    if as_json:
        say_json({"answers": output, **result._asdict()})
        return
    n, what = result.n_images, "groups" if group else "images"
    above, nothing = result.n_answered - result.n_classes, n - result.n_answered
    say(f"{output}: {n:,} {what}: {result.n_classes:,} answered with a class, {above:,} with a concept above")
    if nothing:
        say(f"Nothing is sure about the other {nothing:,}.")
    if result.promise is not None or labels is None:
        say(result.promise or f"Nothing is promised: labelled {what} (--labels) turn {100 * sure:g} % into a promise.")
