"""`hcep correct`: what somebody says of single photos, kept in a file."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import Annotated

from hcep.cli.config import Config
from hcep.cli.console import say
from hcep.cli.explain import model_and_images, opened_model
from hcep.cli.options import Images, ModelOption, option
from hcep.errors import HCEPError


def correct(
    images: Images,
    *,
    label: Annotated[str | None, option("The true class.", "--class")] = None,
    force: Annotated[list[str] | None, option("Concept that is right, such as mammal.")] = None,
    forbid: Annotated[list[str] | None, option("Concept that is wrong; both may be repeated.")] = None,
    undo: Annotated[bool, option("Take the last correction of each image back.", "--undo")] = False,
    why: Annotated[str, option("The reason.")] = "",
    who: Annotated[str | None, option("Who says so; the user's name by default.")] = None,
    model: ModelOption = None,
    corrections: Annotated[Path, option("The file; it is only ever added to.")] = Path("corrections.jsonl"),
    config: Config = None,
) -> None:
    """Correct the answer for photos, for good: predict, explain, evaluate and fit honour the file with --corrections.

    A photo is known by its content: it may be moved and renamed. Concepts are ids, names or synonyms of the model's own
    hierarchy: give the model folder that is to honour them first.
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
    name = who if who is not None else getpass.getuser()
    for file, image in hashes.items():
        kept.add(image, **asked, label=label, undo=undo, file=str(file), who=name, why=why)
    n = len(hashes)
    whose = f", in the concepts of {model or 'ImageNet, the built-in model; of your own: hcep correct MODEL PHOTO'}"
    done = "taken back" if undo else f"added{whose}"
    say(f"{corrections}: {n:,} correction{'' if n == 1 else 's'} {done}")
