"""Lists of what is possible at a place or time: a checklist for all images, or one for each image."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from hcep._files import read_csv, read_lines
from hcep.classify.hedging import held_out_levels, is_limited
from hcep.classify.path_model import PathModel
from hcep.classify.right_level import promise
from hcep.errors import HCEPError, quote, quoted
from hcep.hierarchy import Hierarchy
from hcep.hierarchy.names import spelling_key

#: Titles of the column of classes or concepts, and of the column of images.
CONCEPTS = ("class", "concept", "label", "species", "taxon", "name")
IMAGES = ("image", "id", "image_id", "file", "file_name", "filename", "path")


@dataclass(frozen=True)
class Possible:
    """The classes and concepts that are possible everywhere, or for each image, by its id, path or file name."""

    everywhere: tuple[str, ...] = ()
    by_image: Mapping[str, tuple[str, ...]] | None = None

    def of(self, image: str) -> tuple[str, ...]:
        """What is possible for an image; raises HCEPError for an image that the list does not have."""
        if self.by_image is None:
            return self.everywhere
        for key in (image, Path(image).name):
            if key in self.by_image:
                return self.by_image[key]
        raise HCEPError(
            f"--only: the list has no row for image {quote(image)}; add the classes that are possible there"
        )

    def same_everywhere(self) -> tuple[str, ...]:
        """What is possible for all images; raises HCEPError if the list differs by image."""
        if self.by_image is not None:
            raise HCEPError("--only: calibrate with one list for all images; this one has a column of images")
        return self.everywhere


def promise_note(model: PathModel, sure: float, possible: Possible | None, by_group: bool) -> str | None:
    """What a calibrated model promises about its answers, or why it promises nothing; None if it is not calibrated."""
    held_out = model.held_out
    if held_out is None:
        return None
    what = "groups of photos" if by_group else "photos"
    if held_out.by_group != by_group:
        these, others = ("groups of photos", "single photos") if held_out.by_group else ("single photos", "groups")
        return f"no accuracy is promised for {others}: the model was calibrated with {these} (`hcep model calibrate`)"
    everywhere = () if possible is None else possible.everywhere
    if (possible is None or possible.by_image is None) and not is_limited(model, model.limits(only=everywhere), 1)[0]:
        return (
            promise(sure, held_out_levels(model, by_group), what)
            or f"{len(held_out):,} held-out {what} are too few to promise {sure:g}"
        )
    how = f"with the list of {quoted(held_out.only, 3)}" if held_out.only else "without the list"
    return f"no accuracy is promised: the photos used for calibration were answered {how}"


def read_possible(path: Path, hierarchy: Hierarchy, on_note: Callable[[str], object]) -> Possible:
    """Read a list of classes or concepts, by id or name, one per line.

    A .csv or .tsv file may have several columns: that of the concepts is called class, concept, label, species, taxon
    or name. With a column of images (image, id, file or path) the list differs by image, which may have several rows.
    Checklists may name more than the hierarchy has: `on_note` gets how many names are unknown. HCEPError is raised if
    none is known.
    """
    rows = _rows(path)
    if not rows:
        raise HCEPError(f"--only: {str(path)!r} is empty; give one class or concept per line")
    names = list(dict.fromkeys(name for _, name in rows))
    known = _concepts(names, hierarchy)
    unknown = [name for name, concept in known.items() if concept is None]
    if len(unknown) == len(names):
        raise HCEPError(f"--only: none of the {len(names):,} names in {str(path)!r} is a concept: {quoted(unknown, 3)}")
    if unknown:
        on_note(
            f"{len(unknown):,} of {len(names):,} names in {path.name} are not in the hierarchy: {quoted(unknown, 3)}"
        )
    if rows[0][0] is None:
        return Possible(tuple(concept for concept in known.values() if concept is not None))
    by_image: dict[str, list[str]] = {}
    for image, name in rows:
        concepts = by_image.setdefault(str(image), [])
        if (concept := known[name]) is not None:
            concepts.append(concept)
    nothing = [image for image, concepts in by_image.items() if not concepts]
    if nothing:
        raise HCEPError(f"--only: the hierarchy has no possible concept for images {quoted(nothing, 3)}")
    return Possible(by_image={image: tuple(concepts) for image, concepts in by_image.items()})


def _concepts(names: list[str], hierarchy: Hierarchy) -> dict[str, str | None]:
    """The concept of each name, which is an id or a name but for its spelling; None if there is no such concept."""
    by_key: dict[str, list[str]] = {}
    for concept in hierarchy:
        if hierarchy.class_of(concept) == concept:  # a class and its own leaf have one name, which means the class
            for key in {spelling_key(concept), spelling_key(hierarchy.name(concept))}:
                by_key.setdefault(key, []).append(concept)
    known: dict[str, str | None] = {}
    for name in names:
        matches = [name] if name in hierarchy else by_key.get(spelling_key(name), [])
        if len(matches) > 1:
            several = f"{quote(name)} is the name of {len(matches)} concepts"
            raise HCEPError(f"--only: {several}; give one of the ids {quoted(matches)}")
        known[name] = matches[0] if matches else None
    return known


def _rows(path: Path) -> list[tuple[str | None, str]]:
    """The image, if there is a column of images, and the concept of every row."""
    if path.suffix.lower() not in (".csv", ".tsv"):
        return [(None, line) for line in read_lines(path, option="--only: ")]
    rows = read_csv(path, marks="\t" if path.suffix.lower() == ".tsv" else ",;\t", option="--only: ")
    cells = [[cell.strip() for cell in row] for row in rows if any(map(str.strip, row))]
    if not cells:
        return []
    titles = [cell.lower() for cell in cells[0]]
    concept = next((titles.index(title) for title in CONCEPTS if title in titles), None)
    image = next((titles.index(title) for title in IMAGES if title in titles), None)
    if concept is None and len(titles) > 1:
        raise HCEPError(
            f"--only: {str(path)!r} has the columns {quoted(cells[0], 10)}; name the column of concepts `class`"
        )
    rows = cells if concept is None else cells[1:]
    empty = next((i for i, row in enumerate(rows, 1) if not row[concept or 0]), None)
    if empty is not None:
        raise HCEPError(f"--only: row {empty:,} of {str(path)!r} has no concept")
    return [(None if image is None else row[image], row[concept or 0]) for row in rows]
