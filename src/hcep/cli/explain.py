"""`hcep explain`: photos into rooted paths of concepts."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer
from rich.padding import Padding

from hcep._escape import markup as escape
from hcep.cli.config import Config
from hcep.cli.console import Console, say
from hcep.cli.encode import Preprocessing
from hcep.cli.predict import CorrectionsFile, Coverage, Json, kept_corrections
from hcep.errors import HCEPError

if TYPE_CHECKING:
    from hcep.explain import ExplainedImage, ExplainedImages
    from hcep.hierarchy import Hierarchy
    from hcep.models import SavedModel

#: A runner-up of at least this probability is named where the answer is not sure.
NAMED = 0.05
#: Photos whose maps fit one picture.
MAX_STRIPS = 100


def explain(
    images: Annotated[list[str], typer.Argument(help="Images, folders of images, or globs; a model folder first.")],
    *,
    model: Annotated[Path | None, typer.Option("--model", "-m", help="Model folder; ImageNet's by default.")] = None,
    encoder: Annotated[str | None, typer.Option("--encoder", "-e", help="The model's own by default.")] = None,
    preprocessing: Preprocessing = None,
    tree: Annotated[bool, typer.Option("--tree", help="Draw each path as a tree.")] = False,
    n_best: Annotated[int | None, typer.Option("--n-best", "-n", min=1, help="Classes to show for each image.")] = None,
    where: Annotated[bool, typer.Option("--where", help="Map where in the photo each concept is.")] = False,
    where_png: Annotated[Path | None, typer.Option(help="Write the maps as one PNG, a row per photo.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write an HTML report with the photos.")] = None,
    store: Annotated[
        Path | None,
        typer.Option(help="Store of the training photos, to show those nearest; of a model fitted on photos its own."),
    ] = None,
    coverage: Coverage = None,
    why_not: Annotated[
        list[str] | None, typer.Option(help="Class or concept to compare the answer with; may be repeated.")
    ] = None,
    force: Annotated[
        list[str] | None, typer.Option(help="Concept that must be on the path; may be repeated, as all these.")
    ] = None,
    forbid: Annotated[list[str] | None, typer.Option(help="Concept that must not be on the path.")] = None,
    objects: Annotated[
        str | None,
        typer.Option(metavar="N|auto", help="Several objects in a photo: at most N, or as many as there are."),
    ] = None,
    change: Annotated[
        list[str] | None, typer.Option("--set", help="New coefficient of a concept on the path: dog=0, or dog*2.")
    ] = None,
    corrections: CorrectionsFile = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace files that are there already.")] = False,
    as_json: Json = False,
    strict: Annotated[bool, typer.Option(help="Make an image that cannot be used an error.")] = False,
    config: Config = None,
) -> None:
    """Explain images: one line each, as a tree, as JSON or as an HTML report."""
    from hcep._files import refuse_existing, replacing, write_text
    from hcep.explain.finding import find_images, refuse_no_images

    model, images = model_and_images(model, images)
    files = find_images(images)
    refuse_no_images(files)
    for path, option in ((html, "--html"), (where_png, "--where-png")):
        refuse_existing(path, replace, option, "--replace")
    if where_png is not None and len(files) > MAX_STRIPS:
        raise HCEPError(f"--where-png: {len(files):,} photos are too many for one picture; use --where --html")
    from hcep.explain import report
    from hcep.explain.explained import ExplainedImages
    from hcep.explain.photos import explained_batches

    opened, kept, drawn = opened_model(model), ExplainedImages(), html is not None or where_png is not None
    if where and not drawn and not as_json:
        Console(stderr=True).print("note: maps are drawn in a report (--html FILE) or a picture (--where-png FILE)")
    batches = explained_batches(
        files,
        opened,
        None if strict else kept.skipped,
        where=where or where_png is not None,
        n_best=n_best or 3,
        encoder=encoder,
        preprocessing=preprocessing,
        training=store or html is not None,
        coverage=coverage,
        n_paths=_n_objects(objects),
        why_not=why_not or (),
        force=force or (),
        forbid=forbid or (),
        corrections=kept_corrections(corrections, opened.path_model.hierarchy),
        progress=not as_json and not sys.stdout.isatty(),  # lines on a terminal are progress enough
    )
    each = _each(batches, change or [], kept, drawn)
    if as_json:
        n_found = _print_json(each)
    else:
        n_found = _print(each, tree, n_best is not None, opened.path_model.hierarchy, files=len(files) > 1)
    if html is not None:
        write_text(html, report.photo_report(kept))
    if where_png is not None and kept:
        from hcep.explain.map_drawing import stacked

        with replacing(where_png) as partial:
            stacked([one.strip() for one in kept]).save(partial, "PNG")
    for what, path in (("report", html), ("maps", where_png if kept else None)):
        if path is not None and not as_json:
            Console().print(f"{what}: [bold]{escape(str(path))}[/]", soft_wrap=True)
    if not n_found:
        raise typer.Exit(1)


def _each(
    batches: Iterator[list[ExplainedImage]], change: list[str], kept: ExplainedImages, drawn: bool
) -> Iterator[ExplainedImage]:
    """Images as they are explained, with what --set says; those that were skipped are told, those to draw are kept."""
    from hcep.explain.questions import changed

    told = 0

    def tell() -> int:
        for file, reason in kept.skipped[told:]:
            Console(stderr=True).print(f"[yellow]skipped[/] {escape(file)}: {escape(reason)}", highlight=False)
        return len(kept.skipped)

    for batch in batches:
        told = tell()
        for one in batch:
            done = changed(one, change) if change else one
            kept += [done] if drawn else []
            yield done
    tell()


def _print_json(found: Iterable[ExplainedImage]) -> int:
    """Print a JSON list, an image at a time; return how many."""
    from hcep.explain.record import record

    n, last = 0, "["
    for one in found:
        say(last)
        n, last = n + 1, indent(json.dumps(record(one), indent=2, ensure_ascii=False), "  ") + ","
    say(last.removesuffix(",") + "\n]")
    return n


def _n_objects(text: str | None) -> int | Literal["auto"] | None:
    if text is None or text == "auto":
        return cast(Literal["auto"] | None, text)
    if not (text.isdigit() and int(text) > 0):
        raise HCEPError(f"--objects: a number of objects or `auto`, got {text!r}")
    return int(text)


def model_and_images(model: Path | None, images: list[str]) -> tuple[Path | None, list[str]]:
    """The model, which may also be the first of the arguments; None for the built-in one."""
    if model is None and (Path(images[0]) / "model.json").exists():
        model, images = Path(images[0]), images[1:]
        if not images:
            raise HCEPError(f"{str(model)!r} is a model; say which images it is to explain")
    return model, images


def opened_model(model: Path | None) -> SavedModel:
    """A model by its folder; the built-in one by default."""
    from hcep.models import builtin_model, read_model

    return builtin_model() if model is None else read_model(model)


def _print(found: Iterable[ExplainedImage], tree: bool, all_rivals: bool, h: Hierarchy, files: bool) -> int:
    """Print images one after the other; return how many."""
    from hcep.cli.render import path_tree, verdict
    from hcep.explain.explained import percent
    from hcep.pursuit.limits import find_concept

    console, n = Console(), 0
    for n, one in enumerate(found, start=1):  # noqa: B007 - the last one is returned
        file = f"{escape(Path(one.file).name)}: " if files or tree else ""
        path = " → ".join(step.name for step in one.explanation.steps) or "no concept"
        console.print(file + verdict(one) + ("" if tree else f" ({escape(path)})"), soft_wrap=True, highlight=False)
        for what, names in zip(("with", "without"), one.request, strict=True):
            if names:
                asked = ", ".join(h.name(find_concept(h, name)) for name in names)
                console.print(f"  [dim]as asked, {what} {escape(asked)}[/]", soft_wrap=True, highlight=False)
        if one.hedged is not None:
            console.print(f"  answer: [bold]{escape(str(one.hedged))}[/]", soft_wrap=True, highlight=False)
        for part in one.objects if len(one.objects) > 1 else ():
            line = f"  {percent(part.share)} [bold]{escape(part.name)}[/] ({escape(' → '.join(part.names))})"
            console.print(line, soft_wrap=True, highlight=False)
        if tree:
            console.print(Padding(path_tree(one.explanation), (0, 0, 1, 2)))
        for step in () if tree else one.explanation.steps:
            if step.meaning:
                words = f"  {escape(step.name)}: [italic]{escape(step.meaning)}[/]"
                console.print(words, soft_wrap=True, highlight=False)
        if all_rivals:
            for rival in one.rivals:
                line = f"  [dim]or {escape(rival.name)}, {percent(rival.probability)} ({escape(rival.trail())})[/]"
                console.print(line, soft_wrap=True, highlight=False)
        elif one.doubt:
            named = [r for r in one.rivals if r.probability >= NAMED] or list(one.rivals[:1])
            others = [f"{escape(r.name)}, {percent(r.probability)}" for r in named]
            if others:
                console.print(f"  [dim]or {'; '.join(others)}[/]", soft_wrap=True, highlight=False)
        if one.nearest:
            like = [f"{escape(Path(photo.file).name)} ({escape(photo.name)})" for photo in one.nearest]
            console.print(f"  [dim]like {', '.join(like)}[/]", soft_wrap=True, highlight=False)
        for why in one.contrasts:
            for i, line in enumerate(why.lines()):
                console.print(f"  {'  ' if i else ''}{escape(line)}", soft_wrap=True, highlight=False)
    return n
