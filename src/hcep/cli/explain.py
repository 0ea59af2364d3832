"""`hcep explain`: photos into rooted paths, as lines, trees, JSON or an HTML report."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer
from rich.padding import Padding

from hcep import explain as explaining, models
from hcep._files import refuse_existing, write_text
from hcep.cli import options as opt
from hcep.cli.config import Config
from hcep.cli.console import Console, escape, path_tree, say, tell, verdict
from hcep.cli.options import more, option
from hcep.errors import HCEPError, quote
from hcep.hierarchy import Hierarchy

if TYPE_CHECKING:
    from hcep.explain.answer import Answers

#: Labels above the classes that a report lists.
REPORTED_LABELS = 20


def explain(
    images: opt.Images,
    *,
    model: opt.ModelOption = None,
    tree: Annotated[bool, option("Draw each path as a tree.", "--tree")] = False,
    n_best: opt.NBest = None,
    why_not: Annotated[
        opt.Names, option("Class or concept to compare the answer with. Repeatable.", "--why-not CONCEPT")
    ] = None,
    force: opt.Force = None,
    forbid: opt.Forbid = None,
    only: opt.Only = None,
    sure: opt.Sure = 0.9,
    rank: opt.Rank = None,
    group: opt.Group = None,
    html: Annotated[Path | None, option("Write an HTML report with the photos.", "--html FILE")] = None,
    where: Annotated[bool, option("In the report, show where in the photo each concept is.", "--where")] = False,
    overwrite: opt.Overwrite = False,
    as_json: opt.Json = False,
    objects: Annotated[
        str | None, more("Find several objects in a photo: at most N, or `auto`.", "--objects N")
    ] = None,
    change: Annotated[
        opt.Names,
        more("Change the coefficient of a concept on the path, such as dog=0 or dog*2.", "--set CONCEPT=VALUE"),
    ] = None,
    store: opt.Store = None,
    corrections: opt.Corrections = None,
    encoder: opt.Encoder = None,
    preprocessing: opt.Preprocessing = None,
    config: Config = None,
) -> None:
    """Say what photos show, as specifically as the model can be sure of, and explain why by a path of concepts."""
    from hcep.explain.finding import find_images, refuse_no_images

    model, images = model_and_images(model, images)
    unused: list[tuple[str, str]] = []
    files = find_images(images, unused)
    refuse_no_images(files)
    refuse_existing(html, overwrite, "--html")
    from hcep.datasets.layouts.table import group_values
    from hcep.embeddings.images import not_used
    from hcep.explain.answer import Answers
    from hcep.explain.corrections import read_corrections
    from hcep.explain.photos import ExplainOptions, answer_batches
    from hcep.explain.possible import promise_note, read_possible

    if objects not in (None, "auto") and not (objects.isdigit() and int(objects) > 0):
        raise HCEPError(f"--objects: expected a number of objects or `auto`, got {quote(objects)}")
    from hcep.models.opening import builtin_model  # here, so that errors above come before anything is loaded

    opened = builtin_model() if model is None else models.read_model(model)
    hierarchy, answers = opened.path_model.hierarchy, Answers()
    if objects == "auto" and opened.path_model.stopping is None:
        tell(
            "the model has not learned when to stop looking for objects (`hcep fit -P several_objects=true` learns it)"
        )
    if where and html is None and not as_json:
        tell("--where has no effect without --html FILE")
    possible = None if only is None else read_possible(only, hierarchy, tell)
    options = ExplainOptions(
        where=where,
        n_best=n_best or 3,
        encoder=encoder,
        preprocessing=preprocessing,
        training=store or html is not None,
        sure=sure,
        rank=rank,
        n_paths=int(objects) if objects and objects.isdigit() else cast(Literal["auto"] | None, objects),
        why_not=why_not or (),
        force=force or (),
        forbid=forbid or (),
        only=() if possible is None else possible,
        groups=None if group is None else group_values(None, group, files).tolist(),
        corrections=read_corrections(corrections, hierarchy, tell),
        # Lines on a terminal are progress enough, unless they wait for the training photos of a report.
        progress=not as_json and (html is not None or not sys.stdout.isatty()),
    )
    batches = answer_batches(files, opened, options, answers.skipped)
    each = _each(batches, change or [], answers, html is not None)
    if as_json:
        n_answers = _print_json(each)
    else:
        paths = {file if isinstance(file, Path) else file.path for file in files}
        same_names = len({path.name for path in paths}) < len(paths)
        n_answers = _print(each, tree, n_best is not None, hierarchy, n_parts=0 if len(files) == 1 else 1 + same_names)
    # After the answers that it is about.
    if n_answers and (note := promise_note(opened.path_model, sure, possible, group is not None)):
        tell("no accuracy is promised for paths that are forced" if force or forbid else note)
    if html is not None and not n_answers:
        tell("no report was written, because there is no answer to show")
    elif html is not None:
        by_label = list(opened.images_by_label().items())[:REPORTED_LABELS]
        rows = [("label", "training images"), *((label, str(n)) for label, n in by_label)]
        tables = [explaining.report.ReportTable("Labels above the classes", "", rows)] if by_label else []
        write_text(html, explaining.report.photo_report(answers, tables=tables))
        if not as_json:
            Console().print(f"report: [bold]{escape(str(html))}[/]", soft_wrap=True)
    left_out = not_used([reason for _, reason in (*unused, *answers.skipped)], len(unused) + len(files))
    if left_out and (unused or len(files) > 1):  # a single file was named above
        tell(left_out)
    if not n_answers:
        raise typer.Exit(1)


def _each(
    batches: Iterator[list[explaining.Answer]], change: list[str], answers: Answers, drawn: bool
) -> Iterator[explaining.Answer]:
    """Answers as they come, changed by --set; skipped images are printed, and answers to draw are collected."""
    n_printed = 0

    def print_skipped() -> int:
        for file, reason in answers.skipped[n_printed:]:
            Console(stderr=True).print(f"[yellow]skipped[/] {escape(file)}: {escape(reason)}", highlight=False)
        return len(answers.skipped)

    for batch in batches:
        n_printed = print_skipped()
        for one in batch:
            answer = one.with_coefficients(change) if change else one
            answers += [answer] if drawn else []
            yield answer
    print_skipped()


def _print_json(answers: Iterable[explaining.Answer]) -> int:
    """Print a JSON list, one answer at a time; return how many."""
    n, last = 0, "["
    for one in answers:
        say(last)
        n, last = n + 1, indent(json.dumps(one.to_dict(), indent=2, ensure_ascii=False), "  ") + ","
    say(last.removesuffix(",") + "\n]")
    return n


def model_and_images(model: Path | None, images: list[str]) -> tuple[Path | None, list[str]]:
    """Split off the model folder, which may be the first argument; None stands for the built-in model."""
    if model is not None or not (Path(images[0]) / "model.json").exists():
        return model, images
    if len(images) == 1:
        raise HCEPError(f"{images[0]!r} is a model folder; add the images to explain")
    return Path(images[0]), images[1:]


def _print(answers: Iterable[explaining.Answer], tree: bool, all_rivals: bool, h: Hierarchy, n_parts: int) -> int:
    """Print one answer after the other, each after the last `n_parts` parts of its path; return how many."""
    console, n = Console(), 0
    for n, one in enumerate(answers, start=1):  # noqa: B007 - the last n is returned
        file = f"{escape('/'.join(Path(one.file).parts[-max(n_parts, 1) :]))}: " if n_parts or tree else ""
        head = [file + verdict(one, path=not tree), *_above(one, h)]
        tail = list(_below(one, all_rivals))
        if not tree:
            steps = [step for step in one.path if step.meaning]
            tail = [f"{escape(step.name)}: [italic]{escape(str(step.meaning))}[/]" for step in steps] + tail
        console.print("\n  ".join(head), soft_wrap=True, highlight=False)
        if tree:
            console.print(Padding(path_tree(one), (0, 0, 1, 2)))
        for line in tail:
            console.print(f"  {line}", soft_wrap=True, highlight=False)
    return n


def _above(one: explaining.Answer, h: Hierarchy) -> Iterator[str]:
    """Lines above the path: the correction, what was forced and forbidden, the objects."""
    from hcep.explain.answer import percent

    if one.correction is not None:
        yield f"[bold]{escape(one.correction.summary())}[/]"
    for what, names in (("with", one.force), ("without", one.forbid)):
        if names and one.correction is None:
            concepts = ", ".join(map(h.called, names))
            yield f"[dim]as requested, {what} {escape(concepts)}[/]"
    for part in one.objects if len(one.objects) > 1 else ():
        yield f"{percent(part.share)} of the evidence: [bold]{escape(part.name)}[/] ({escape(' → '.join(part.names))})"
    if one.objects_doubt():
        yield f"[dim]{one.objects_doubt()}[/]"


def _below(one: explaining.Answer, all_rivals: bool) -> Iterator[str]:
    """Lines below the path: its name or its look, other classes it may be, similar photos, why not another class."""
    from hcep.explain.answer import percent

    if one.by_name is not None:
        yield f"[dim]{one.views()}[/]"
    if all_rivals:
        yield from (f"[dim]also by {escape(route)}[/]" for route in one.other_routes())
        for rival in one.rivals:
            yield f"[dim]or {escape(rival.name)}, {percent(rival.probability)} ({escape(rival.trail())})[/]"
    if one.nearest:
        like = [f"{escape(Path(photo.file).name)} ({escape(photo.name)})" for photo in one.nearest]
        yield f"[dim]nearest training photos: {', '.join(like)}[/]"
    for why in one.contrasts:
        yield from (f"{'  ' if i else ''}{escape(line)}" for i, line in enumerate(why.lines()))
