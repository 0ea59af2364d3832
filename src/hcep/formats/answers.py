"""Answers for images and boxes, as the writers of other tools' files take them."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from hcep._files import replacing
from hcep.errors import HCEPError, quote
from hcep.formats.annotations import Region


class WrittenFormat(NamedTuple):
    """The endings of a format's files, and the names of those that it writes into a folder; none for sidecars.

    `beside` is the ending of a second file, which is written beside the first one.
    """

    endings: tuple[str, ...]
    names: tuple[str, ...] = ()
    beside: str = ""


#: The formats that can be written.
WRITTEN = {
    "megadetector": WrittenFormat((".json",), ("classified.json",)),
    "label-studio": WrittenFormat((".json",), ("tasks.json",), ".xml"),
    "camtrap-dp": WrittenFormat((".csv",), ("observations.csv", "media.csv")),
    "darwin-core": WrittenFormat((".csv", ".txt"), ("occurrence.txt",)),
    "xmp": WrittenFormat(()),
}
#: What the names of an answer say about its kind, in the words of Camtrap DP; anything else is an animal.
KINDS = {
    **dict.fromkeys(("person", "human", "homo sapiens"), "human"),
    **dict.fromkeys(("blank", "empty"), "blank"),
    "vehicle": "vehicle",
}
_EXIF, _TAKEN, _OFFSET, _CHANGED = 0x8769, 0x9003, 0x9011, 0x0132


class Concept(NamedTuple):
    """A concept that answers: the names on the way to it, the highest first, those of ranks, and how likely it is."""

    names: tuple[str, ...]
    rank: str | None
    lineage: Mapping[str, str]
    probability: float

    @property
    def name(self) -> str:
        return self.names[-1]

    @property
    def kind(self) -> str:
        return next((KINDS[name.lower()] for name in self.names if name.lower() in KINDS), "animal")

    @property
    def scientific_name(self) -> str:
        """The name; for a species that is named by its epithet alone, the genus comes first."""
        genus = self.lineage.get("genus")
        is_epithet = (self.rank or "").lower() == "species" and " " not in self.name
        return f"{genus} {self.name}" if is_epithet and genus else self.name


class AnsweredImage(NamedTuple):
    """An image or box, its photo if there is one, the answer that is sure enough, and the likeliest class.

    `corrected` is what a person said, if the answer is that person's.
    """

    region: Region
    path: Path | None
    answer: Concept | None
    best: Concept
    corrected: str | None = None


class Writing(NamedTuple):
    """What a writer needs beside the answers.

    Attributes
    ----------
    data : the folder or file that the images came from
    classifier : name of the model and of the program
    on_note : called with each sentence for the user
    classes : the names on the way to every class of the model, the highest first
    """

    data: Path
    classifier: str
    on_note: Callable[[str], object]
    classes: Sequence[tuple[str, ...]] = ()


def is_folder(output: Path) -> bool:
    """Whether answers are written into a folder, which is there or whose name has no ending."""
    return output.is_dir() or not output.suffix


def written_files(output: Path, formats: Sequence[str]) -> list[Path]:
    """The files that will be written anew; HCEPError for an unknown format, or a name that does not go with it."""
    files: list[Path] = []
    for format in formats:
        if format not in WRITTEN:
            raise HCEPError(f"--format: expected one of {', '.join(WRITTEN)}, got {quote(format)}")
        endings, names, beside = WRITTEN[format]
        if is_folder(output):
            files += [output / name for name in names]
        elif len(formats) > 1 or output.suffix not in endings:
            wanted = f"a name ending in {' or '.join(endings)}, or a folder" if endings else "the name of a folder"
            what = "several formats need" if len(formats) > 1 else f"{format} needs"
            raise HCEPError(
                f"--output: {what} {'the name of a folder' if len(formats) > 1 else wanted}, got {str(output)!r}"
            )
        else:
            files.append(output)
        files += [files[-1].with_suffix(beside)] if beside else []
    return files


def write_answers(answers: Iterable[AnsweredImage], output: Path, format: str, writing: Writing) -> None:
    """Write answers in the format of another tool, completely or not at all; sidecars are written one by one.

    In a folder, files have the names of `WRITTEN`.
    """
    files = written_files(output, [format])
    is_whole_folder = format in ("xmp", "camtrap-dp") and is_folder(output)
    module = import_module(f"hcep.formats.{format.replace('-', '_')}")
    module.write(answers, output if is_whole_folder else files[0], writing)


def path_below(output: Path, one: AnsweredImage, data: Path) -> Path:
    """The path of a photo below the output if it is there, or else as it is below its own folder."""
    file = one.region.file
    for folder in (output, data if data.is_dir() else data.parent):
        if one.path is not None and one.path.resolve().is_relative_to(folder.resolve()):
            return one.path.resolve().relative_to(folder.resolve())
    if ".." in Path(file).parts or Path(file).is_absolute():
        raise HCEPError(f"--output: the photo {quote(file)} would be outside {str(output)!r}")
    return Path(file)


def write_rows(output: Path, columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> None:
    """A table as CSV, or with tabs as .txt; missing values are empty."""
    with replacing(output) as partial, partial.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, columns, delimiter="\t" if output.suffix == ".txt" else ",")
        table.writeheader()
        for row in rows:
            table.writerow({name: "" if value is None else value for name, value in row.items()})


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def taken_at(path: Path | None) -> tuple[str, str] | None:
    """When a photo was taken, as in its EXIF data, and its offset from UTC, "" if unknown; None without a time."""
    from PIL import Image

    with suppress(Exception):  # damaged metadata is the same as none
        assert path is not None
        with Image.open(path) as image:
            exif = image.getexif()
        own = exif.get_ifd(_EXIF)
        text = str(own.get(_TAKEN) or exif.get(_CHANGED)).strip("\0 ")
        return datetime.strptime(text, "%Y:%m:%d %H:%M:%S").isoformat(), str(own.get(_OFFSET) or "").strip("\0 ")
    return None


def by_file(answers: Iterable[AnsweredImage]) -> Iterator[tuple[str, list[AnsweredImage]]]:
    """The answers of each file, in the order in which files first appear."""
    groups: dict[str, list[AnsweredImage]] = {}
    for one in answers:
        groups.setdefault(one.region.file, []).append(one)
    yield from groups.items()
