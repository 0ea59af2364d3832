"""Lists of what is possible at a place or time: a checklist for all images, or one for each image."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from hcep.errors import HCEPError, quoted
from hcep.hierarchy import Hierarchy
from hcep.hierarchy.names import spelling_key

#: Titles of the column of classes or concepts, and of the column of images.
CONCEPTS = ("class", "concept", "label", "species", "taxon", "name")
IMAGES = ("image", "id", "image_id", "file", "file_name", "filename", "path")
#: What a calibrated model says about a list.
VOID = "with --only, nothing is promised: the photos that the model was calibrated with were answered without the list"


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
        raise HCEPError(f"--only: the list has no row for image {image!r}; add what is possible there")


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
    ids = {spelling_key(hierarchy.name(i)): i for i in reversed(hierarchy.ids)}
    names = list(dict.fromkeys(name for _, name in rows))
    known = {name: name if name in hierarchy else ids.get(spelling_key(name)) for name in names}
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
        raise HCEPError(f"--only: the hierarchy has nothing that is possible for images {quoted(nothing, 3)}")
    return Possible(by_image={image: tuple(concepts) for image, concepts in by_image.items()})


def _rows(path: Path) -> list[tuple[str | None, str]]:
    """The image, if there is a column of images, and the concept of every row."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise HCEPError(f"--only: cannot read {str(path)!r}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise HCEPError(f"--only: {str(path)!r} is not text in UTF-8") from None
    if path.suffix.lower() not in (".csv", ".tsv"):
        return [(None, line.strip()) for line in text.splitlines() if line.strip()]
    lines = text.splitlines()
    mark = "\t" if path.suffix.lower() == ".tsv" else max(",;\t", key=(lines or [""])[0].count)
    cells = [[cell.strip() for cell in row] for row in csv.reader(lines, delimiter=mark) if any(map(str.strip, row))]
    if not cells:
        return []
    titles = [cell.lower() for cell in cells[0]]
    concept = next((titles.index(title) for title in CONCEPTS if title in titles), None)
    image = next((titles.index(title) for title in IMAGES if title in titles), None)
    if concept is None and len(titles) > 1:
        raise HCEPError(
            f"--only: {str(path)!r} has the columns {quoted(cells[0], 10)}; call the one with the concepts `class`"
        )
    rows = cells if concept is None else cells[1:]
    short = next((i for i, row in enumerate(rows, 1) if len(row) != len(titles) or not row[concept or 0]), None)
    if short is not None:
        raise HCEPError(f"--only: row {short} of {str(path)!r} has no concept, or not as many cells as the first line")
    return [(None if image is None else row[image], row[concept or 0]) for row in rows]
