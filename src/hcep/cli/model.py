"""`hcep model`: change a fitted model without fitting it again, list the changes and undo them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from hcep import classify, embeddings, models, taxonomy
from hcep._files import refuse_existing
from hcep.cli import options as opt
from hcep.cli.console import say, show_notes, tell
from hcep.cli.options import argument, option
from hcep.errors import HCEPError, HierarchyError, quote
from hcep.taxonomy.edits import Edit, parse_edits

if TYPE_CHECKING:
    from hcep.classify.coarse_counts import CoarseCounts


def add(
    model: opt.Model,
    data: opt.Data,
    *,
    label: opt.Class = None,
    under: opt.Under = None,
    vocabulary: opt.Vocabulary = None,
    parameter: opt.Parameter = None,
    split: opt.Split = None,
    encoder: opt.Encoder = None,
    vectors: opt.Vectors = None,
    labels: opt.Labels = None,
) -> None:
    """Add labelled images to the classes of a model; with --class, add a new class.

    --class makes a class of the images with this label, or of all images if none has it. Without --under, the class is
    placed below the root. In a model of words and pictures, its text comes from --vocabulary, or else its name is
    encoded by the text tower of the encoder. Images whose label is a concept above the classes teach the classes below
    that concept. Parameters, which are saved with the model: coarse (below, own, drop), unlabelled (ignore, use).
    """
    from hcep.models.model_encoder import own_labels

    parameters = opt.parameters(parameter, also=("coarse", "unlabelled"))
    reading: dict[str, Any] = {"encoder": encoder, **opt.columns(vectors, labels)}
    if label is not None:
        _add_class(model, data, label, under, split, parameters, vocabulary, **reading)
        return
    if under is not None or vocabulary:
        flag = "--vocabulary" if under is None else "--under"
        raise HCEPError(f"{flag} needs the label of a new class: pass --class as well")
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
    vocabulary: list[Path] | None,
    **reading: Any,
) -> None:
    """Add a class from its images and texts; its place and texts are checked before anything is encoded."""
    from hcep.evaluate.learning import NO_TEXT
    from hcep.models.model_encoder import text_of_class

    saved = models.read_model(model)
    before = saved.classifier.set_params(**parameters)
    own = int(name) if before.classes_.dtype.kind in "iu" and name.isdigit() else name
    above = before.place_of_class(own, parent)
    text = text_of_class(saved, name, parent, vocabulary, reading["encoder"])
    if before.words_ is not None and text is None:
        tell(NO_TEXT.format(quote(name)))
    images = _read(model, data, split, **reading)
    known = None if images.labels is None else np.asarray(images.labels, dtype=object)
    X = images.X if known is None or name not in known else images.X[known == name]
    what = f"added class {quote(name)} under {quote(parent or 'the root')} from {len(X):,} images"
    _change(model, what, lambda fitted: fitted.set_params(**parameters).add_class(own, parent, X, text))
    if above in map(str, before.classes_.tolist()):
        shown = f"an image that is {quote(above)} but not {quote(name)} is still answered with {quote(above)}"
        tell(f"{quote(above)} is a class, and now also a group: {shown}; `hcep model undo {model}` undoes this")


def edit(
    model: opt.Model,
    *,
    move: opt.Move = None,
    remove: opt.Remove = None,
    rename: opt.Rename = None,
) -> None:
    """Move, rename and remove concepts and classes; each command saves one version.

    Concepts are given by id, or by a name that only one concept has. They are moved, then removed, then renamed.
    """
    before = models.read_model(model).classifier
    tree = before.hierarchy_
    edits = parse_edits(tree, move=move or (), remove=remove or (), rename=rename or ())
    if not edits:
        raise HCEPError("nothing to do: give --move, --remove or --rename")
    changes = [_model_edit(one, before) for one in edits]

    def apply(fitted: classify.HCEPClassifier) -> None:
        for _, change in changes:
            change(fitted)

    only_names = all(isinstance(one, taxonomy.Rename) for one in edits)
    _change(model, "; ".join(what for what, _ in changes), apply, keep_metrics=only_names)


def _model_edit(edit: Edit, before: classify.HCEPClassifier) -> tuple[str, Callable[[Any], Any]]:
    """An edit of a tree as a sentence and a change of a model."""
    from hcep.classify.growing import unmerged
    from hcep.models.model_encoder import own_labels

    if isinstance(edit, taxonomy.Move):
        if edit.from_parent is not None:
            raise HCEPError("--move: in a model, a concept is moved away from all of its parents; give CONCEPT:NEW")
        concept, parent = edit.synset, edit.to_parent
        return f"moved {quote(concept)} under {quote(parent)}", lambda fitted: fitted.move(concept, parent)
    if isinstance(edit, taxonomy.Rename):
        concept, name = edit.synset, edit.name
        return f"renamed {quote(concept)} {quote(name)}", lambda fitted: fitted.rename(concept, name)
    assert isinstance(edit, taxonomy.Remove)
    label, labels, tree = edit.synset, set(map(str, before.classes_.tolist())), unmerged(before.hierarchy_)
    if label not in labels:
        with suppress(HierarchyError):  # remove_class says that it is unknown
            label = tree.class_of(tree.find(label))
    if label not in labels and label in tree:
        return f"removed concept {quote(label)}", lambda fitted: fitted.remove_concept(label)
    return f"removed class {quote(label)}", lambda fitted: fitted.remove_class(own_labels(fitted, np.array([label]))[0])


def calibrate(
    model: opt.Model,
    data: opt.Data,
    *,
    split: opt.Split = None,
    encoder: opt.Encoder = None,
    only: opt.Only = None,
    group: opt.Group = None,
    vectors: opt.Vectors = None,
    labels: opt.Labels = None,
) -> None:
    """Calibrate a model on labelled images it was not fitted on.

    Held-out images turn the estimate of --sure into a promise, and help to recognise unknown classes. The split `val`
    is used if there is one. Training images, and images that are labelled above the classes, are ignored. With --only
    or --group, the promise holds for answers with the same list, or for groups of photos.
    """
    from hcep.classify.right_level import SURE
    from hcep.datasets.layouts.table import group_values
    from hcep.evaluate.model_scores import training_images
    from hcep.explain.neighbours import fitted_on
    from hcep.explain.possible import Possible, promise_note, read_possible
    from hcep.models.model_encoder import own_labels

    reading = {"encoder": encoder, **opt.columns(vectors, labels)}
    images = _read(model, data, split, default_split="val", own_classes=True, **reading)
    used = ~fitted_on(models.read_model(model), images.hashes)
    # A file of embeddings has no hashes: what is known is that the model was fitted on the file, or on a part of it.
    if not used.any() or (used.all() and training_images(models.read_model(model), images)):
        these = "some or all of the" if used.all() else f"all {len(used):,}"
        raise HCEPError(
            f"{images.source}: {these} images are training images of the model; give other images (--split)"
        )
    if not used.all():
        tell(f"{(~used).sum():,} of {len(used):,} images are training images of the model and are ignored")
    X, y = images.X[used], images.y[used]
    saved = models.read_model(model)
    exact = np.isin(y, saved.classes.astype(str))
    if not exact.all():
        tell(f"{(~exact).sum():,} of {len(exact):,} images are not labelled with a class and cannot be used")
    options: dict[str, Any] = {}
    if only is not None:
        options["only"] = read_possible(only, saved.hierarchy, tell).same_everywhere()
        listed = np.isin(y, saved.classes[saved.path_model.levels.possible(options["only"])].astype(str))
        if (exact & ~listed).any():
            tell(f"{(exact & ~listed).sum():,} of {len(exact):,} images are of classes that are not in the list")
        exact &= listed
    what = f"calibrated on {exact.sum():,} images of {images.source}"
    if group is not None:
        options["groups"] = group_values(data, group, images.image_ids.tolist())[used].tolist()
        what += f", in {len(set(np.array(options['groups'])[exact])):,} groups"
    if only is not None:
        what += f", with the list {only.name}"

    def change(fitted: classify.HCEPClassifier) -> None:
        fitted.calibrate(X, own_labels(fitted, y), **options)

    calibrated = _change(model, what, change, keep_metrics=True).path_model()
    note = promise_note(calibrated, SURE, Possible(options.get("only", ())), group is not None)
    say(f"With --sure {SURE:g}: {note}")


def learn(
    model: opt.Model,
    corrections: Annotated[Path, argument("Corrections file (see `hcep correct`).", metavar="CORRECTIONS")],
    *,
    data: opt.LabelledData = None,
    vocabulary: opt.Vocabulary = None,
    encoder: opt.Encoder = None,
    as_json: opt.Json = False,
) -> None:
    """Learn from corrections, and measure the effect on photos that were not corrected.

    Corrected photos are searched for among the model's training photos, in --data and where they were when they were
    corrected. The effect is measured on labelled photos of --data that were neither corrected nor used to fit the
    model. In a model of words and pictures, the text of a new class comes from --vocabulary, or else its name is
    encoded by the text tower of the encoder. The model gets a new version; `hcep model undo` goes back to the previous
    one.
    """
    import msgspec

    from hcep.evaluate.learning import learn as learn_corrections
    from hcep.explain.corrections import read_corrections
    from hcep.explain.photos import encode_files
    from hcep.models.model_encoder import text_of_class

    saved = models.read_model(model)
    file = read_corrections(corrections, saved.hierarchy, tell)
    assert file is not None
    sources = [] if data is None else [_read(model, data, None, encoder=encoder)]
    learned = learn_corrections(
        model,
        file,
        sources,
        encode=lambda files: encode_files(files, saved, encoder),
        text_of=lambda name, under: text_of_class(saved, name, under, vocabulary, encoder),
    )
    if as_json:
        scores = {"before": learned.before, "after": learned.after}
        figures = {name: one and {"accuracy": one[0], "calibration_error": one[1]} for name, one in scores.items()}
        changed = [dict(zip(("photo", "before", "after"), row, strict=True)) for row in learned.changed]
        record = {"what": learned.what, "notes": learned.notes, "n_photos": len(learned.ids), **figures}
        effect = {**record, "answered_as_corrected": learned.answered, "changed": changed}
        say(msgspec.json.format(msgspec.json.encode(effect)).decode())
        return
    say(f"{model}: {learned.what}; to undo this: hcep model undo {model}")
    for line in learned.lines():
        say(line)


def undo(model: opt.Model) -> None:
    """Go back to the version before the last change; the newer one stays in `versions/`."""
    from hcep.models.saving import undo_change

    say(f"{model}: undid the last change: {undo_change(model).what}")


Repository = Annotated[str, argument("Repository on the Hugging Face hub, such as someone/pets.", metavar="REPOSITORY")]


def push(
    model: opt.Model,
    repository: Repository,
    *,
    private: Annotated[bool, option("Make the repository private when it is created.", "--private")] = False,
) -> None:
    """Upload a model, with its model card, to the Hugging Face hub in one commit."""
    say(models.push_model(model, repository, private=private or None))


def pull(repository: Repository, *, output: opt.Output, overwrite: opt.Overwrite = False) -> None:
    """Download a model from the Hugging Face hub to a folder."""
    from hcep.models.folder import ModelFiles, write_folder

    refuse_existing(output, overwrite, "--output", folder=True)
    folder = models.download_model(repository)
    n_classes, files = len(models.read_model(folder).classes), ModelFiles(folder)
    write_folder(output, {name: files.read(name) for name in files.names})
    say(f"{output}: {n_classes:,} classes")


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
            "held-out images turn --sure into a promise and help to recognise unknown classes: "
            f"hcep model calibrate {model} LABELLED_PHOTOS"
        )
    return fitted
