"""`hcep correct`: record what is right or wrong about the answers for single photos."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from hcep import models
from hcep.cli import options as opt
from hcep.cli.console import say, tell
from hcep.cli.explain import model_and_images
from hcep.cli.options import option
from hcep.errors import HCEPError, quote

if TYPE_CHECKING:
    from hcep.explain.corrections import Correction
    from hcep.hierarchy import Hierarchy

#: Photos whose earlier corrections are shown.
SHOWN = 3


def correct(
    images: opt.Images,
    *,
    label: opt.Class = None,
    none: Annotated[bool, option("The images show none of the model's classes.", "--none")] = False,
    under: opt.Under = None,
    force: opt.Force = None,
    forbid: opt.Forbid = None,
    undo: Annotated[bool, option("Undo the last correction of each image.", "--undo")] = False,
    why: Annotated[str, option("Reason for the correction.", "--why TEXT")] = "",
    who: Annotated[
        str | None, option("Name of the person who makes the correction (default: your user name).", "--who NAME")
    ] = None,
    model: opt.ModelOption = None,
    corrections: opt.CorrectionsFile = Path("corrections.jsonl"),
) -> None:
    """Record corrections of answers in a file that other commands take with --corrections.

    --class gives the right class, or a concept above it if nobody can tell the class; with --under, the class may be
    new. --none says that no class is right, --forbid which concepts are wrong, and --force which ones are right. A
    photo is recognised by its content, so it may be moved and renamed. Concepts are ids, names or synonyms of the
    model's hierarchy; give the model folder first if it is not the built-in model. `hcep model learn` teaches
    corrections to a model.
    """
    from hcep.explain.corrections import Corrections, image_hash
    from hcep.explain.finding import find_images
    from hcep.models.opening import builtin_model

    if undo == bool(label or none or force or forbid):
        raise HCEPError("say what is right or wrong (--class, --none, --force or --forbid), or pass --undo")
    if none and (label or force or forbid):
        raise HCEPError("--none says that no class is right; give it without --class, --force and --forbid")
    if under is not None and label is None:
        raise HCEPError("--under is for a new class; give its name with --class")
    model, images = model_and_images(model, images)
    hierarchy = (builtin_model() if model is None else models.read_model(model)).path_model.hierarchy
    file = Corrections(corrections, hierarchy, missing=True, lenient=True)
    hashes = {photo: image_hash(photo) for photo in find_images(images)}
    for photo, image in hashes.items():
        if undo and image not in file:
            raise HCEPError(f"{str(photo)!r} has no correction in {str(corrections)!r}")
    earlier = {} if undo else {image: file.in_force[image] for image in hashes.values() if image in file}
    name = who if who is not None else getpass.getuser()
    for photo, image in hashes.items():
        request: dict[str, Any] = {"label": label, "none": none, "under": under, "undo": undo}
        request |= {"force": force or (), "forbid": forbid or ()}
        file.add(image, **request, file=str(photo), who=name, why=why)
    n = len(hashes)
    whose = model or "ImageNet, the built-in model (for your own model: hcep correct MODEL PHOTO)"
    replaced = {photo: earlier[image] for photo, image in hashes.items() if image in earlier}
    for photo, old in list(replaced.items())[:SHOWN]:
        if (said := _words(old, hierarchy)) != _words(file.in_force[hashes[photo]], hierarchy):
            tell(f"{photo}: this replaces the earlier correction {quote(said)}")
    if len(replaced) > SHOWN:
        tell(f"{len(replaced) - SHOWN:,} more of these photos had a correction before")
    done = "undone" if undo else f"added, with the concepts of {whose}"
    say(f"{corrections}: {n:,} correction{'' if n == 1 else 's'} {done}")


def _words(correction: Correction, hierarchy: Hierarchy) -> str:
    try:
        return correction.words(hierarchy)
    except HCEPError:  # it has concepts of another model
        return correction.label or ", ".join(correction.force)
