"""Fit a model to photos or embeddings and a hierarchy, and save it: what `hcep fit` does."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow.csv import CSVWriter

from hcep._files import replacing
from hcep._progress import waiting
from hcep.classify import HCEPClassifier
from hcep.classify.base import class_hierarchy, refuse_unknown
from hcep.classify.coarse import EITHER, concepts_in, only_classes
from hcep.classify.coarse_counts import coarse_lines, only_class_lines
from hcep.classify.growing import with_class
from hcep.classify.words import refuse_missing_texts
from hcep.datasets import find_hierarchy
from hcep.datasets.encoding import embeddings_of, tree_notes
from hcep.datasets.hierarchies import NAMED, concept_ids
from hcep.dictionary.from_text import TEMPLATES, text_vectors
from hcep.embeddings import Embeddings, Encoder
from hcep.embeddings.files import label_array_in
from hcep.embeddings.texts import read_text_vectors
from hcep.errors import HCEPError, HierarchyError, quote
from hcep.hierarchy import Hierarchy
from hcep.models.fitting import IN_MEMORY, coarse_classes, fit_model

logger = logging.getLogger(__name__)
#: Columns of the file with the classes of images whose labels are above the classes.
COARSE_COLUMNS = pa.schema(
    [("image", pa.string()), ("label", pa.string()), ("class", pa.string()), ("probability", pa.float64())]
)
OnNote = Callable[[str], object]
#: Text vectors of concepts, given the hierarchy above the classes.
TextsOf = Callable[[Hierarchy | None], Mapping[str, NDArray[Any]]]


def fit_data(
    data: Path,
    folder: Path,
    hierarchy: str | None = None,
    *,
    reading: Mapping[str, Any] | None = None,
    split: str | None = None,
    encoder: Encoder | str | None = None,
    preprocessing: Any = None,
    texts: TextsOf | None = None,
    columns: Mapping[str, Any] | None = None,
    corrections: Any = None,
    leave_out: bool = False,
    say_coarse: Path | None = None,
    progress: bool = False,
    on_note: OnNote = logger.info,
    **fitting: Any,
) -> HCEPClassifier:
    """Read or encode labelled data, find the hierarchy above its classes, fit a classifier and save it.

    Errors in the hierarchy, and classes that it lacks, are raised before any photo is encoded.

    Parameters
    ----------
    data : photos or embeddings, as `hcep.datasets.encoding.embeddings_of` reads them
    folder : folder of the model; vectors of photos are kept in its subfolder ``store``
    hierarchy, reading : the hierarchy and the options of its reader, see `hcep.datasets.find_hierarchy`
    split : the split to fit to; by default "train", if there is one
    encoder, preprocessing : of photos; an encoder that is not a name is also that of the texts
    texts : text vectors of concepts by their ids in the hierarchy, see `texts_in_files` and `texts_by_encoder`
    columns : ``vectors``, ``label`` and ``labels`` of `hcep.embeddings.read_embeddings`
    corrections : `hcep.explain.corrections.Corrections`; images get the classes that it fixes
    leave_out : leave out images without a label, unless all are without; by default they are an error
    say_coarse : a CSV file for the likeliest class of each image whose label is above the classes, and its probability;
        a file that is there is replaced
    progress : show progress bars
    on_note : called with each sentence about the data and the hierarchy; they are logged by default
    **fitting : other parameters of `fit_model`, and those of `hcep.HCEPClassifier`
    """
    tree_above = hierarchy_above(data, hierarchy, reading, on_note, corrections)

    @cache
    def by_concept(labels: tuple[str, ...]) -> Mapping[str, NDArray[Any]]:
        assert texts is not None
        tree = tree_above(labels)
        vectors, classes = texts(tree), concepts_in(labels, tree)
        refuse_missing_texts(vectors, [label for label in classes if tree is None or tree.is_leaf(label)])
        return vectors

    def checked(labels: tuple[str, ...]) -> None:
        if (tree := tree_above(labels)) is not None:
            concepts = np.array(list(dict.fromkeys(concepts_in(labels, tree))))
            class_hierarchy(tree, concepts, fitting.get("tree"))  # refuses too many rooted paths
        if texts is not None:
            by_concept(labels)

    # Corrections may give every photo another class, so that labels cannot be checked before them.
    check = {} if corrections is not None else {"on_labels": lambda y: checked(_classes(y))}
    place: dict[str, Any] = {"encoder": encoder, "preprocessing": preprocessing, "store": folder / "store", **check}
    place |= {"progress": progress, "in_memory": IN_MEMORY, **(columns or {})}
    images = embeddings_of(data, split, default_split="train", **place)
    for note in images.notes:
        on_note(note)
    n_labels = 0
    if corrections is not None:
        images, n_labels = corrections.corrected(images)
    if leave_out and images.labels is not None:
        known = np.flatnonzero(images.labels != None)  # noqa: E711 - element by element
        images = images.take(known) if 0 < len(known) < len(images) else images
    if corrections is not None:
        # Forced concepts become labels of a hierarchy, which must be above the classes that others are corrected to.
        images, n_forced = corrections.corrected(images, tree_above(_classes(images.y)))
        changed = f"{n_labels + n_forced:,} of {len(images.X):,} images get another class from {corrections.path}"
        on_note(changed + _other_corrections(corrections, images, n_labels + n_forced))
    tree = tree_above(_classes(images.y))
    if tree is not None and hierarchy not in (None, "imagenet"):
        for note in tree_notes(concepts_in(images.y.tolist(), tree), tree):
            on_note(note)
    with waiting("fitting … (the first run compiles kernels)", progress):
        if texts is not None:
            fitting |= {"texts": by_concept(_classes(images.y))}
            fitting |= {} if isinstance(encoder, str | None) else {"encoder": encoder}
        model = fit_model(images, tree, folder, **fitting)
    only = only_classes(images.y, tree, model.coarse, model.unlabelled)
    for line in [
        *only_class_lines(images.y.tolist(), only),
        *coarse_lines(model.coarse_counts_ or {}, model.hierarchy_),
    ]:
        on_note(line)
    if say_coarse is not None:
        n_images = write_coarse_classes(model, images, say_coarse, progress)
        on_note(f"{say_coarse}: the likeliest class of {n_images:,} images that are labelled above the classes")
    if tree is not None and (merged := _merged(model.hierarchy_)):
        on_note(merged)
    return model


def texts_in_files(places: Iterable[str | PathLike[str]], on_note: OnNote = logger.info) -> TextsOf:
    """Text vectors of concepts in files, which are read at once; several texts of a concept are averaged.

    Names are matched as labels are: by id, by name, ignoring case and spacing. An unknown name raises HierarchyError.

    Parameters
    ----------
    places : see `hcep.embeddings.texts.read_text_vectors`
    on_note : called with a sentence about each file, and about names that are not ids
    """
    files = [read_text_vectors(place) for place in places]
    names, n_dims = [name for file in files for name in file.names], {file.vectors.shape[1] for file in files}
    for file in files:
        on_note(file.note)
    if len(n_dims) > 1:
        raise HCEPError(f"--vocabulary: the files have vectors of {' and '.join(map(str, sorted(n_dims)))} dimensions")
    vectors = np.concatenate([file.vectors for file in files])

    def of(tree: Hierarchy | None) -> dict[str, NDArray[Any]]:
        ids = {} if tree is None else concept_ids(tree, names, on_note)
        rows: dict[str, list[int]] = {}
        for row, name in enumerate(names):
            rows.setdefault(ids.get(name, name), []).append(row)
        refuse_unknown(tree, list(rows), "names of texts", "correct the names")
        return {concept: vectors[own] for concept, own in rows.items()}

    return of


def texts_by_encoder(
    encoder: Encoder,
    templates: Sequence[str] | None = None,
    descriptions: Callable[[Hierarchy], Mapping[str, str]] | None = None,
) -> TextsOf:
    """Text vectors of the leaves, by the text tower of an encoder; see `hcep.dictionary.from_text.text_vectors`."""

    def of(tree: Hierarchy | None) -> dict[str, NDArray[Any]]:
        assert tree is not None, "a flat hierarchy has no names to encode"
        collapsed = tree.collapse()
        described = None if descriptions is None else descriptions(collapsed)
        vectors = text_vectors(collapsed, encoder, templates or TEMPLATES, described)
        return dict(zip(map(collapsed.class_of, collapsed.leaves), vectors, strict=True))

    return of


def _other_corrections(corrections: Any, images: Embeddings, n_changed: int) -> str:
    """Why the other corrections change no label; empty if there are no others."""
    n_here = len({key for key in images.hashes if key in corrections})
    n_elsewhere, n_same = len(corrections) - n_here, n_here - n_changed
    are = "is" if n_elsewhere == 1 else "are"
    reasons = [f"{n_elsewhere:,} {are} about other photos; `hcep model learn` uses them"] if n_elsewhere > 0 else []
    what = "confirms the label or only excludes" if n_same == 1 else "confirm the label or only exclude"
    reasons += [f"{n_same:,} {what} concepts"] if n_same > 0 else []
    return f"; of its {len(corrections):,} corrections {' and '.join(reasons)}" if reasons else ""


def write_coarse_classes(model: HCEPClassifier, images: Embeddings, path: Path, progress: bool = False) -> int:
    """Write the likeliest class of each image whose label is above the classes to a CSV file; return their number."""
    ids, labels, n_images = images.image_ids, images.y, 0
    with replacing(path) as partial, CSVWriter(partial, COARSE_COLUMNS) as file:
        for rows, classes, probabilities in coarse_classes(model, images, progress):
            columns = (ids[rows].astype(str), labels[rows].astype(str), classes.astype(str), probabilities.round(4))
            file.write_table(pa.table(list(map(pa.array, columns)), COARSE_COLUMNS))
            n_images += len(rows)
    return n_images


def hierarchy_above(
    data: Path,
    hierarchy: str | None,
    reading: Mapping[str, Any] | None = None,
    on_note: OnNote = logger.info,
    corrections: Any = None,
) -> Callable[[Sequence[str]], Hierarchy | None]:
    """A function from classes to the hierarchy above them; a file is read at once, so that its errors come early.

    Classes that corrections added are below the concepts that were named with them, if the hierarchy is a file.

    The function raises HierarchyError if the hierarchy lacks a class. The error names arrays of the data whose names
    are in the hierarchy.
    """
    source: Hierarchy | str | None = hierarchy
    if hierarchy not in (None, "flat", *NAMED):
        source = find_hierarchy(hierarchy, on_note=on_note, **(reading or {}))
    if corrections is not None and isinstance(source, Hierarchy):
        for label, parent in corrections.new_classes(source).items():
            source = with_class(source, label, parent) if parent in source else source

    @cache
    def above(classes: tuple[str, ...]) -> Hierarchy | None:
        parts = [part.strip() for label in classes for part in label.split(EITHER)]
        # A label with the separator may be the name of a concept in a file; hierarchies by name have no such concept.
        tree = find_hierarchy(source, [*classes, *parts] if isinstance(source, Hierarchy) else parts, on_note=on_note)
        try:
            refuse_unknown(tree, list(dict.fromkeys(concepts_in(classes, tree))))
        except HierarchyError as error:
            assert tree is not None
            other = label_array_in(data, {*tree.ids, *map(tree.name, tree)})
            hint = f" The names in {quote(other)} of {data.name} are in the hierarchy: pass --labels {other}."
            raise HierarchyError(f"{error}{hint if other else ''}") from None
        return tree

    return lambda classes: above(tuple(classes))


def _classes(y: Any) -> tuple[str, ...]:
    return tuple(sorted(set(y.tolist())))


def _merged(tree: Hierarchy) -> str:
    """A note about concepts with a single child, which the model merges into that child; empty without any."""
    merged = [f"{quote(name)} in {quote(tree.name(s))}" for s in tree.ids for _, name in tree.merged(s)]
    shown = ", ".join(merged[:3]) + (f" and {len(merged) - 3:,} more" if len(merged) > 3 else "")
    many = f"{len(merged):,} concepts have a single child and are shown together with it, not as a separate step"
    return f"{many}: {shown}" if merged else ""
