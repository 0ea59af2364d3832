"""`hcep explain`: photos into rooted paths of concepts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding

from hcep.cli.config import Config
from hcep.cli.encode import Preprocessing
from hcep.cli.predict import Json, Model

if TYPE_CHECKING:
    from hcep.explain import ExplainedImage, ExplainedImages


def explain(
    model: Model,
    images: Annotated[list[str], typer.Argument(help="Images, folders of images, or globs.")],
    *,
    encoder: Annotated[str | None, typer.Option("--encoder", "-e", help="The model's own by default.")] = None,
    preprocessing: Preprocessing = None,
    tree: Annotated[bool, typer.Option("--tree", help="Draw each path as a tree.")] = False,
    n_best: Annotated[int, typer.Option("--n-best", "-n", min=1, help="Paths to show for each image.")] = 1,
    html: Annotated[Path | None, typer.Option(help="Write an HTML report with thumbnails.")] = None,
    as_json: Json = False,
    strict: Annotated[bool, typer.Option(help="Make an image that cannot be used an error.")] = False,
    config: Config = None,
) -> None:
    """Explain images: one line each, as a tree, as JSON or as an HTML report.

    [bold]Examples[/]

      hcep explain model/ photo.jpg

      hcep explain model/ photos/ --html report.html

      hcep explain model/ 'photos/*.jpg' --tree --n-best 3
    """
    from hcep._files import write_text
    from hcep.explain import explain_images, report

    found = explain_images(
        images, model, encoder=encoder, preprocessing=preprocessing, n_best=n_best, strict=strict, progress=not as_json
    )
    for file, reason in found.skipped:
        Console(stderr=True).print(f"[yellow]skipped[/] {escape(file)}: {escape(reason)}", highlight=False)
    if html is not None:
        write_text(html, report.photo_report(found))
    if as_json:
        typer.echo(json.dumps([_record(one) for one in found], indent=2, ensure_ascii=False))
    else:
        _print(found, tree, html)
    if not found:
        raise typer.Exit(1)


def _record(one: ExplainedImage) -> dict[str, Any]:
    return {
        "image": one.file,
        "class": one.label,
        "name": one.name,
        "probability": one.probability,
        "path": [step._asdict() for step in one.explanation.steps],
        "residual_norm": one.explanation.residual_norm,
        "runners_up": [rival._asdict() for rival in one.explanation.runners_up],
    }


def _print(found: ExplainedImages, tree: bool, html: Path | None) -> None:
    from hcep.cli.render import path_tree

    console = Console()
    for one in found:
        line = f"{escape(Path(one.file).name)}: " if len(found) > 1 or tree else ""
        if tree:
            console.print(f"{line}[bold]{escape(one.name)}[/] [dim]{one.probability:.2f}[/]")
            console.print(Padding(path_tree(one.explanation), (0, 0, 1, 2)))
        else:
            console.print(f"{line}{escape(one.explanation.trail())}", soft_wrap=True, highlight=False)
            for step in one.explanation.steps:
                if step.meaning:
                    words = f"  {escape(step.name)}: [italic]{escape(step.meaning)}[/]"
                    console.print(words, soft_wrap=True, highlight=False)
        for rival in one.rivals:
            console.print(f"  [dim]or {escape(rival)}[/]", soft_wrap=True, highlight=False)
    if html is not None:
        console.print(f"report: [bold]{escape(str(html))}[/]")
