"""`hcep model`: change a fitted model without fitting it again, see what was done, and go back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from hcep import models
from hcep.cli.console import say, tell
from hcep.cli.options import Data, Encoder, Label, Labels, Model, Split, Vectors, argument, embeddings_for, option
from hcep.errors import HCEPError

if TYPE_CHECKING:
    from hcep.classify import HCEPClassifier
    from hcep.embeddings import Embeddings

app = typer.Typer(
    help="Change a fitted model: classes added, moved, renamed and removed, images added, coverage calibrated. Every "
    "change is a new version; the one before stays in the folder `versions/`.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)
Concept = Annotated[str, argument("Concept, by id or name.")]
Class = Annotated[str, argument("Label of the class.")]


@app.command()
def add_class(
    model: Model,
    name: Class,
    images: Data,
    *,
    parent: Annotated[str | None, option("Concept above it; the root by default.", "--under")] = None,
    split: Split = None,
    vectors: Vectors = None,
    label: Label = None,
    labels: Labels = None,
    encoder: Encoder = None,
) -> None:
    """Add a class from its images: of labelled ones those with this label, else all."""
    before = models.read_model(model).classifier
    own = int(name) if before.classes_.dtype.kind in "iu" and name.isdigit() else name
    above = before.place_of_class(own, parent)  # refused before anything is encoded
    found = _read(model, images, split, encoder, vectors=vectors, label=label, labels=labels)
    given = None if found.labels is None else np.asarray(found.labels, dtype=object)
    X = found.X if given is None or name not in given else found.X[given == name]
    what = f"added class {name!r} under {parent or 'the root'!r} from {len(X):,} images"
    _change(model, what, lambda fitted: fitted.add_class(own, parent, X))
    if above in map(str, before.classes_.tolist()):
        shown = f"what is {above!r} but not {name!r} is answered {f'{above} (itself)'!r}"
        tell(f"{above!r} is a class, and now a group as well: {shown}; `hcep model undo {model}` goes back")


@app.command()
def remove(model: Model, name: Class) -> None:
    """Remove a class."""
    _change(model, f"removed class {name!r}", lambda fitted: fitted.remove_class(own_labels(fitted, [name])[0]))


@app.command()
def move(model: Model, concept: Concept, parent: Annotated[str, argument("Its new parent.")]) -> None:
    """Hang a concept, with all below it, under another parent."""
    _change(model, f"moved {concept!r} under {parent!r}", lambda fitted: fitted.move(concept, parent))


@app.command()
def rename(model: Model, concept: Concept, name: Annotated[str, argument("Its new name.")]) -> None:
    """Give a concept another name for people; its id stays."""
    _change(model, f"renamed {concept!r} {name!r}", lambda fitted: fitted.rename(concept, name), keep_metrics=True)


@app.command()
def update(
    model: Model,
    images: Data,
    *,
    split: Split = None,
    vectors: Vectors = None,
    label: Label = None,
    labels: Labels = None,
    encoder: Encoder = None,
) -> None:
    """Add labelled images to the classes that are there."""
    found = _read(model, images, split, encoder, vectors=vectors, label=label, labels=labels, own_classes=True)
    what = f"added {len(found.X):,} images of {len(set(found.y.tolist())):,} classes"
    _change(model, what, lambda fitted: fitted.partial_fit(found.X, own_labels(fitted, found.y.tolist())))


@app.command()
def calibrate(
    model: Model,
    images: Data,
    *,
    split: Annotated[str | None, option("Only this split; val where there is one.")] = None,
    vectors: Vectors = None,
    label: Label = None,
    labels: Labels = None,
    encoder: Encoder = None,
) -> None:
    """Keep the scores of labelled images that the model was not fitted on: `--coverage` and unknowns need them.

    Of data with splits those of val, unless --split says another; images that the model is known to be fitted on are
    left out.
    """
    from hcep.explain.neighbours import fitted_on

    columns = {"vectors": vectors, "label": label, "labels": labels}
    found = _read(model, images, split, encoder, default_split="val", own_classes=True, **columns)
    used = ~fitted_on(models.read_model(model), found.hashes)
    if not used.any():
        raise HCEPError(f"{found.source}: the model was fitted on all of these {len(used):,} images; give it others")
    if not used.all():
        tell(f"{(~used).sum():,} of {len(used):,} images are left out: the model was fitted on them")

    def change(fitted: HCEPClassifier) -> None:
        fitted.calibrate(found.X[used], own_labels(fitted, found.y[used].tolist()))

    _change(model, f"calibrated on {used.sum():,} images of {found.source}", change, keep_metrics=True)


@app.command()
def log(model: Model) -> None:
    """What was done to a model since its fit, the newest last."""
    summary = models.read_model(model).summary
    say(f"0  fitted by hcep {summary.hcep_version} on {summary.training.data or 'data that was not recorded'}")
    for number, change in enumerate(summary.training.history, 1):
        say(f"{number}  {change.when}  {change.what}")


@app.command()
def undo(model: Model) -> None:
    """Go back to the version before the last change; the newer one is kept in `versions/`."""
    from hcep.models.saving import undo_change

    say(f"{model}: undone: {undo_change(model).what}")


def _read(model: Path, data: Path, split: str | None, encoder: str | None, **columns: Any) -> Embeddings:
    return embeddings_for(models.read_model(model), data, split, encoder=encoder, progress=True, **columns)


def own_labels(fitted: HCEPClassifier, labels: list[str]) -> list[Any]:
    """Labels as the model has them: in a file they are text, in the model maybe numbers."""
    known = {str(label): label for label in fitted.classes_.tolist()}
    return [known.get(label, label) for label in labels]


def _change(model: Path, what: str, change: Callable[[HCEPClassifier], Any], *, keep_metrics: bool = False) -> None:
    from hcep.models.saving import change_model

    fitted = change_model(model, what, change, keep_metrics=keep_metrics)
    say(f"{model}: {what}; {len(fitted.classes_):,} classes")
    if fitted.images_per_class_ is not None and (note := fitted.drift()):
        tell(note)
    if fitted.held_out_ is None:
        tell(f"coverage and unknowns need held-out images: hcep model calibrate {model} STORE")
