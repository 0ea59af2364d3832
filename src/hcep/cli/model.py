"""`hcep model`: change a fitted model without fitting it again, list the changes and undo them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from hcep import classify, embeddings, models, taxonomy
from hcep.cli import options as opt
from hcep.cli.console import say, show_notes, tell
from hcep.cli.options import option
from hcep.errors import HCEPError
from hcep.taxonomy.edits import Edit, parse_edits

if TYPE_CHECKING:
    from hcep.classify.coarse_counts import CoarseCounts


def add(
    model: opt.Model,
    data: opt.Data,
    *,
    label: opt.Class = None,
    under: Annotated[str | None, option("Concept above the new class (default: the root).", "--under CONCEPT")] = None,
    parameter: opt.Parameter = None,
    split: opt.Split = None,
    encoder: opt.Encoder = None,
    vectors: opt.Vectors = None,
    labels: opt.Labels = None,
) -> None:
    """Add labelled images to the classes of a model; with --class, add a new class.

    A new class takes the images with its label, or all images if none has that label. Images with a label above classes
    teach the classes below it. Parameters, which the model keeps: coarse (below, own, drop), unlabelled (ignore, use).
    """
    from hcep.models.model_encoder import own_labels

    parameters = opt.parameters(parameter, also=("coarse", "unlabelled"))
    reading: dict[str, Any] = {"encoder": encoder, **opt.columns(vectors, labels)}
    if label is not None:
        _add_class(model, data, label, under, split, parameters, **reading)
        return
    if under is not None:
        raise HCEPError("--under needs the label of a new class: pass --class as well")
    images, before = _read(model, data, split, own_classes=True, **reading), models.read_model(model)
    classes = set(map(str, before.classes.tolist()))
    n_above = sum(label not in classes for label in images.y.tolist())
    what = f"added {len(images.X):,} images of {len(classes.intersection(images.y.tolist())):,} classes"
    what += f", {n_above:,} of them labelled above the classes" if n_above else ""

    def extend(fitted: classify.HCEPClassifier) -> None:
        fitted.set_params(**parameters).partial_fit(images.X, own_labels(fitted, images.y))

    _show_coarse(before.coarse_counts or {}, _change(model, what, extend))


def _show_coarse(before: CoarseCounts, fitted: classify.HCEPClassifier) -> None:
    """Say what images that were added with labels above the classes teach."""
    from hcep.classify.coarse_counts import coarse_lines

    n_before = {name: count.n_images for name, count in before.items()}
    after = fitted.coarse_counts_ or {}
    added = {name: count._replace(n_images=count.n_images - n_before.get(name, 0)) for name, count in after.items()}
    new = {name: count for name, count in added.items() if count.n_images}
    for line in coarse_lines(new, fitted.hierarchy_, "--class with -P coarse=own"):
        tell(line)


def _add_class(
    model: Path,
    data: Path,
    name: str,
    parent: str | None,
    split: str | None,
    parameters: dict[str, Any],
    **reading: Any,
) -> None:
    """Add a class from its images; its place is checked before anything is encoded."""
    before = models.read_model(model).classifier.set_params(**parameters)
    own = int(name) if before.classes_.dtype.kind in "iu" and name.isdigit() else name
    above = before.place_of_class(own, parent)
    images = _read(model, data, split, **reading)
    known = None if images.labels is None else np.asarray(images.labels, dtype=object)
    X = images.X if known is None or name not in known else images.X[known == name]
    what = f"added class {name!r} under {parent or 'the root'!r} from {len(X):,} images"
    _change(model, what, lambda fitted: fitted.set_params(**parameters).add_class(own, parent, X))
    if above in map(str, before.classes_.tolist()):
        shown = f"an image that is {above!r} but not {name!r} is still answered with {above!r}"
        tell(f"{above!r} is a class, and now also a group: {shown}; `hcep model undo {model}` undoes this")


def edit(
    model: opt.Model,
    *,
    move: opt.Move = None,
    remove: opt.Remove = None,
    rename: opt.Rename = None,
) -> None:
    """Move, rename and remove concepts and classes; one command makes one version.

    Concepts are given by id, or by a name that only one concept has. They are moved, then removed, then renamed.
    """
    tree = models.read_model(model).classifier.hierarchy_
    edits = parse_edits(tree, move=move or (), remove=remove or (), rename=rename or ())
    if not edits:
        raise HCEPError("nothing to do: give --move, --remove or --rename")
    changes = [_model_edit(one) for one in edits]

    def apply(fitted: classify.HCEPClassifier) -> None:
        for _, change in changes:
            change(fitted)

    only_names = all(isinstance(one, taxonomy.Rename) for one in edits)
    _change(model, "; ".join(what for what, _ in changes), apply, keep_metrics=only_names)


def _model_edit(edit: Edit) -> tuple[str, Callable[[Any], Any]]:
    """An edit of a tree as a sentence and a change of a model."""
    from hcep.models.model_encoder import own_labels

    if isinstance(edit, taxonomy.Move):
        if edit.from_parent is not None:
            raise HCEPError("--move: a concept of a model leaves all of its parents; give CONCEPT:NEW")
        concept, parent = edit.synset, edit.to_parent
        return f"moved {concept!r} under {parent!r}", lambda fitted: fitted.move(concept, parent)
    if isinstance(edit, taxonomy.Rename):
        concept, name = edit.synset, edit.name
        return f"renamed {concept!r} {name!r}", lambda fitted: fitted.rename(concept, name)
    assert isinstance(edit, taxonomy.Remove)
    label = edit.synset
    return f"removed class {label!r}", lambda fitted: fitted.remove_class(own_labels(fitted, np.array([label]))[0])


def calibrate(
    model: opt.Model,
    data: opt.Data,
    *,
    split: opt.Split = None,
    encoder: opt.Encoder = None,
    vectors: opt.Vectors = None,
    labels: opt.Labels = None,
) -> None:
    """Calibrate a model on labelled images it was not fitted on.

    Held-out images turn the estimate of --sure into a promise, and tell unknown classes. The split `val` is used if
    there is one. Training images, and images that are labelled above the classes, are ignored.
    """
    from hcep.explain.neighbours import fitted_on
    from hcep.models.model_encoder import own_labels

    reading = {"encoder": encoder, **opt.columns(vectors, labels)}
    images = _read(model, data, split, default_split="val", own_classes=True, **reading)
    used = ~fitted_on(models.read_model(model), images.hashes)
    if not used.any():
        raise HCEPError(f"{images.source}: all {len(used):,} images are training images of the model; give others")
    if not used.all():
        tell(f"{(~used).sum():,} of {len(used):,} images are training images of the model and are ignored")
    X, y = images.X[used], images.y[used]
    exact = np.isin(y, models.read_model(model).classes.astype(str))
    if not exact.all():
        tell(f"{(~exact).sum():,} of {len(exact):,} images are not labelled with a class and cannot be used")
    what = f"calibrated on {exact.sum():,} images of {images.source}"
    _change(model, what, lambda fitted: fitted.calibrate(X, own_labels(fitted, y)), keep_metrics=True)


def undo(model: opt.Model) -> None:
    """Go back to the version before the last change; the newer one stays in `versions/`."""
    from hcep.models.saving import undo_change

    say(f"{model}: undone: {undo_change(model).what}")


def _read(model: Path, data: Path, split: str | None, **options: Any) -> embeddings.Embeddings:
    from hcep.models.model_encoder import embeddings_for

    images = embeddings_for(models.read_model(model), data, split, progress=True, **options)
    show_notes(images.notes)
    return images


def _change(
    model: Path, what: str, change: Callable[[Any], Any], *, keep_metrics: bool = False
) -> classify.HCEPClassifier:
    from hcep.models.saving import change_model

    fitted = change_model(model, what, change, keep_metrics=keep_metrics)
    say(f"{model}: {what}; {len(fitted.classes_):,} classes")
    if fitted.images_per_class_ is not None and (note := fitted.drift()):
        tell(note)
    if fitted.held_out_ is None:
        tell(
            f"held-out images turn --sure into a promise, and tell unknown classes: hcep model calibrate {model} STORE"
        )
    return fitted
