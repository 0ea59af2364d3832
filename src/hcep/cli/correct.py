"""`hcep correct`: what somebody says of single photos, kept in a file."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import Annotated

import typer

from hcep.cli.config import Config
from hcep.cli.console import say
from hcep.cli.explain import model_and_images, opened_model
from hcep.errors import HCEPError


def correct(
    images: Annotated[list[str], typer.Argument(help="Images, folders of images, or globs; a model folder first.")],
    *,
    label: Annotated[str | None, typer.Option("--class", help="The true class.")] = None,
    force: Annotated[list[str] | None, typer.Option(help="Concept that is right, such as mammal.")] = None,
    forbid: Annotated[list[str] | None, typer.Option(help="Concept that is wrong; both may be repeated.")] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Take the last correction of each image back.")] = False,
    why: Annotated[str, typer.Option(help="The reason.")] = "",
    who: Annotated[str | None, typer.Option(help="Who says so; the user's name by default.")] = None,
    model: Annotated[Path | None, typer.Option("--model", "-m", help="Model folder; ImageNet's by default.")] = None,
    corrections: Annotated[Path, typer.Option(help="The file; it is only ever added to.")] = Path("corrections.jsonl"),
    config: Config = None,
) -> None:
    """Correct the answer for photos, for good: predict, explain, evaluate and fit honour the file with --corrections.

    A photo is known by its content: it may be moved and renamed. Concepts are ids, names or synonyms.
    """
    from hcep.explain.corrections import Corrections, class_meant, image_hash, request_of
    from hcep.explain.finding import find_images

    if undo == bool(label or force or forbid):
        raise HCEPError("say what is right or wrong (--class, --force, --forbid), or --undo")
    model, images = model_and_images(model, images)
    hierarchy = opened_model(model).path_model.hierarchy
    asked, kept = request_of(hierarchy, force or (), forbid or ())._asdict(), Corrections(corrections, missing=True)
    request_of(hierarchy, force or (), forbid or (), label)  # a class that is not below these
    label = label and class_meant(hierarchy, label)
    hashes = {file: image_hash(file) for file in find_images(images)}
    for file, image in hashes.items():
        if undo and image not in kept:
            raise HCEPError(f"{str(file)!r} has no correction in {str(corrections)!r}")
    for file, image in hashes.items():
        name = who if who is not None else getpass.getuser()
        kept.add(image, **asked, label=label, undo=undo, file=str(file), who=name, why=why)
    n = len(hashes)
    say(f"{corrections}: {n:,} correction{'' if n == 1 else 's'} {'taken back' if undo else 'added'}")
