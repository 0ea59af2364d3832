"""`hcep rollup`: the right level of an answer for the scores of any classifier."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

from hcep import explain
from hcep._files import refuse_existing
from hcep.cli import options as opt
from hcep.cli.console import Console, escape, say, say_json, tell, verdict
from hcep.cli.options import argument, option
from hcep.errors import counted

if TYPE_CHECKING:
    from hcep.hierarchy import Hierarchy


def rollup(
    scores: Annotated[
        Path,
        argument(
            "Table of scores, or a file of SpeciesNet, MegaDetector or pybioclip.",
            metavar="SCORES",
        ),
    ],
    *,
    output: opt.OptionalOutput = None,
    hierarchy: opt.HierarchyOption = None,
    labels: opt.Labels = None,
    sure: opt.Sure = 0.9,
    temperature: Annotated[
        float | None, option("Treat the scores as logits and divide them by this number.", "--temperature NUMBER")
    ] = None,
    only: opt.Only = None,
    rank: opt.Rank = None,
    group: opt.Group = None,
    overwrite: opt.Overwrite = False,
    as_json: opt.Json = False,
    options: opt.ReaderOptions = None,
) -> None:
    """Find the most specific answer that is sure enough for each image, from any classifier's scores.

    SCORES has a column of ids and one per class, or the columns image, class and score. With --labels (a .csv file with
    the columns image and label, or a column of SCORES) at least the share of answers that --sure gives is right. The
    output is a .csv, .parquet or .json file with the columns of `hcep predict` up to doubt; without --output, answers
    are printed.
    """
    from hcep.explain.score_tables import roll_up_table

    is_printed = output is None or str(output) == "-"
    as_lines = output is None and not as_json and sys.stdout.isatty()
    if not is_printed:
        refuse_existing(output, overwrite, "--output")
    with TemporaryDirectory() as folder:  # so that nothing is printed unless all scores can be read
        kind = ".parquet" if as_lines else ".json" if as_json else ".csv"
        target = Path(folder, f"answers{kind}") if is_printed or output is None else output
        result = roll_up_table(
            scores,
            target,
            hierarchy,
            sure=sure,
            temperature=temperature,
            labels=labels,
            only=only,
            rank=rank,
            group=group,
            on_note=tell,
            **opt.reader_options(options),
        )
        if as_lines:
            for one in _answers(target, result.hierarchy, sure, result.promise):
                answer = verdict(one) if one.label else one.doubt  # a row of zeros has no likeliest class
                Console().print(f"{escape(one.file)}: {answer}", soft_wrap=True, highlight=False)
        elif is_printed:
            sys.stdout.flush()
            with target.open("rb") as file:
                shutil.copyfileobj(file, sys.stdout.buffer)
    if as_json and not is_printed:
        say_json({"answers": output, **{name: v for name, v in result._asdict().items() if name != "hierarchy"}})
        return
    n, what = result.n_images, "groups" if group else "images"
    above, nothing = result.n_answered - result.n_classes, n - result.n_answered
    place = ("" if is_printed else f"{output}: ") + counted(n, "group" if group else "image")
    summary = [f"{place}: {result.n_classes:,} answered with a class, {above:,} with a concept above"]
    if nothing:
        summary.append(f"{nothing:,} {'has' if nothing == 1 else 'have'} no answer that is sure enough.")
    if result.promise is not None:
        summary.append(result.promise)
    elif labels is None:
        summary.append(
            f"The scores are used as they are; with labelled {what} (--labels), {100 * sure:g} % becomes a promise."
        )
    for line in summary:
        say(line, err=is_printed)


def _answers(table: Path, hierarchy: Hierarchy, sure: float, promise: str | None) -> Iterator[explain.Answer]:
    """The rows of a table of answers, for the words that all commands use."""
    import pyarrow.parquet as pq

    same = ("answer", "answer_name", "answer_probability", "answer_estimate", "rank")
    with pq.ParquetFile(table) as file:
        for batch in file.iter_batches(1024):
            for row in batch.to_pylist():
                label = row["class"] or ""
                name = hierarchy.name(hierarchy.find(label)) if label else ""
                fields = {field: row[field] for field in same} | {"probability": row["class_probability"]}
                fields |= {"sure": sure, "promise": promise}
                yield explain.Answer(file=row["id"], label=label, name=name, **fields)
