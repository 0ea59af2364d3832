"""`hcep model`: change a fitted model without fitting it again, see what was done, go back; `hcep open`: make one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from hcep import classify, datasets, embeddings, models
from hcep.cli import options as opt
from hcep.cli.console import say, tell
from hcep.cli.options import argument, option
from hcep.errors import HCEPError

app = opt.group(
    "Change a fitted model: classes added, moved, renamed and removed, images added, coverage calibrated. Every change "
    "is a new version; the one before stays in the folder `versions/`."
)
Concept = Annotated[str, argument("Concept, by id or name.")]
Class = Annotated[str, argument("Label of the class.")]
Source = Annotated[str, argument("efficientnet-lite2, timm:…, onnx:FILE, a .pth, or an .npz with coef and intercept.")]


def open(
    encoder: Source,
    *,
    output: Annotated[Path, option("Model folder to write.", "--output", "-o")],
    classes: Annotated[Path | None, option("Text file, a class per line in order; ImageNet's by default.")] = None,
    hierarchy: Annotated[str | None, option("File or name; of ImageNet WordNet's.", "--hierarchy", "-H")] = None,
    options: opt.ReaderOptions = None,
    images: Annotated[Path | None, option("Typical embeddings: they set the scale and the anchor.")] = None,
    of: Annotated[str | None, option("The encoder that a bare layer goes with.", "--encoder", "-e")] = None,
    force: opt.Force = False,
) -> None:
    """Open a classifier that exists: its own last layer becomes rooted paths, no training image needed.

    The path's class is the classifier's own on at least 99 % of the given images; the command says on how many.
    """
    from hcep.embeddings.encoders import SOURCES
    from hcep.models.opening import linear_head

    if output.exists() and not force:
        raise HCEPError(f"--output: {str(output)!r} is there already; pass --force to replace it, or give another name")
    labels, tree = opt.lines_in(classes), None
    if hierarchy is not None:
        tree = datasets.find_hierarchy(hierarchy, labels or (), on_note=tell, **opt.reader_options(options))
    X = None if images is None else embeddings.read_embeddings(images).X
    head = linear_head(encoder)
    model = models.open_encoder(encoder, head=head, classes=labels, hierarchy=tree, images=X)
    inside = f"#{head.features}" if head.features else ""
    models.save_model(model, output, encoder=of or (encoder + inside if encoder.partition(":")[0] in SOURCES else None))
    agreed = "" if np.isnan(model.agreement_) else f", agrees with the layer on {model.agreement_:.1%}"
    say(f"{output}: {len(model.classes_):,} classes, {model.hierarchy_.depth} levels, anchor {model.anchor_:g}{agreed}")


@app.command()
def add_class(
    model: opt.Model,
    name: Class,
    images: opt.Data,
    *,
    parent: Annotated[str | None, option("Concept above it; the root by default.", "--under")] = None,
    split: opt.Split = None,
    vectors: opt.Vectors = None,
    label: opt.Label = None,
    labels: opt.Labels = None,
    encoder: opt.Encoder = None,
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
def remove(model: opt.Model, name: Class) -> None:
    """Remove a class."""
    _change(model, f"removed class {name!r}", lambda fitted: fitted.remove_class(own_labels(fitted, [name])[0]))


@app.command()
def move(model: opt.Model, concept: Concept, parent: Annotated[str, argument("Its new parent.")]) -> None:
    """Hang a concept, with all below it, under another parent."""
    _change(model, f"moved {concept!r} under {parent!r}", lambda fitted: fitted.move(concept, parent))


@app.command()
def rename(model: opt.Model, concept: Concept, name: Annotated[str, argument("Its new name.")]) -> None:
    """Give a concept another name for people; its id stays."""
    _change(model, f"renamed {concept!r} {name!r}", lambda fitted: fitted.rename(concept, name), keep_metrics=True)


@app.command()
def update(
    model: opt.Model,
    images: opt.Data,
    *,
    split: opt.Split = None,
    vectors: opt.Vectors = None,
    label: opt.Label = None,
    labels: opt.Labels = None,
    encoder: opt.Encoder = None,
) -> None:
    """Add labelled images to the classes that are there."""
    found = _read(model, images, split, encoder, vectors=vectors, label=label, labels=labels, own_classes=True)
    what = f"added {len(found.X):,} images of {len(set(found.y.tolist())):,} classes"
    _change(model, what, lambda fitted: fitted.partial_fit(found.X, own_labels(fitted, found.y.tolist())))


@app.command()
def calibrate(
    model: opt.Model,
    images: opt.Data,
    *,
    split: Annotated[str | None, option("Only this split; val where there is one.")] = None,
    vectors: opt.Vectors = None,
    label: opt.Label = None,
    labels: opt.Labels = None,
    encoder: opt.Encoder = None,
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
    X, y, what = found.X[used], found.y[used].tolist(), f"calibrated on {used.sum():,} images of {found.source}"
    _change(model, what, lambda fitted: fitted.calibrate(X, own_labels(fitted, y)), keep_metrics=True)


@app.command()
def log(model: opt.Model) -> None:
    """What was done to a model since its fit, the newest last."""
    summary = models.read_model(model).summary
    say(f"0  fitted by hcep {summary.hcep_version} on {summary.training.data or 'data that was not recorded'}")
    for number, change in enumerate(summary.training.history, 1):
        say(f"{number}  {change.when}  {change.what}")


@app.command()
def undo(model: opt.Model) -> None:
    """Go back to the version before the last change; the newer one is kept in `versions/`."""
    say(f"{model}: undone: {models.undo_change(model).what}")


def _read(model: Path, data: Path, split: str | None, encoder: str | None, **columns: Any) -> embeddings.Embeddings:
    return opt.embeddings_for(models.read_model(model), data, split, encoder=encoder, progress=True, **columns)


def own_labels(fitted: classify.HCEPClassifier, labels: list[str]) -> list[Any]:
    """Labels as the model has them: in a file they are text, in the model maybe numbers."""
    known = {str(label): label for label in fitted.classes_.tolist()}
    return [known.get(label, label) for label in labels]


def _change(model: Path, what: str, change: Callable[[Any], Any], *, keep_metrics: bool = False) -> None:
    fitted = models.change_model(model, what, change, keep_metrics=keep_metrics)
    say(f"{model}: {what}; {len(fitted.classes_):,} classes")
    if fitted.images_per_class_ is not None and (note := fitted.drift()):
        tell(note)
    if fitted.held_out_ is None:
        tell(f"coverage and unknowns need held-out images: hcep model calibrate {model} STORE")
