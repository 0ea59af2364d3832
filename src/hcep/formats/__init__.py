"""The files of other tools: one module per format, which reads what the format holds, and one table of them all."""

from __future__ import annotations

import csv
from collections.abc import Set
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.etree import ElementTree

import msgspec

from hcep._files import MAX_LINE, json_bytes, json_keys
from hcep.errors import DatasetError, HCEPError, quoted, reason_of

if TYPE_CHECKING:
    from hcep.formats.annotations import Annotations
    from hcep.formats.scores import Scores


DESCRIPTOR = "datapackage.json"
#: Delimiters of CSV files; spreadsheet programs write other ones than the tools themselves.
MARKS = ",;\t"


class ToolFormat(NamedTuple):
    """A format, how to recognise it, and what it holds; the module of its name reads and writes it.

    Attributes
    ----------
    suffix : of the file; "" for a folder
    keys : what it must have: keys of a JSON object or of the first entry of a JSON list, columns of a CSV file, the
        root element of an XML file, or files of a folder
    holds : what can be read: "scores" (of classes, for `hcep rollup`), "labels", "boxes"; "levels" if concepts above
        the classes come with it
    """

    title: str
    suffix: str
    keys: Set[str]
    holds: Set[str]


#: In the order in which they are tried: a format whose keys another one has, too, comes after it.
FORMATS = {
    "megadetector": ToolFormat(
        "MegaDetector results", ".json", {"images", "detection_categories"}, {"boxes", "scores", "levels"}
    ),
    "label_studio": ToolFormat("Label Studio tasks", ".json", {"data", "annotations"}, {"labels", "boxes"}),
    "speciesnet": ToolFormat("SpeciesNet predictions", ".json", {"predictions"}, {"scores", "levels"}),
    "coco": ToolFormat("COCO annotations", ".json", {"images", "annotations", "categories"}, {"labels", "boxes"}),
    "camtrap_dp": ToolFormat("a Camtrap DP package", "", {"media.csv", "observations.csv"}, {"labels", "boxes"}),
    "fiftyone": ToolFormat("a FiftyOne dataset", "", {"samples.json"}, {"labels", "boxes"}),
    "fiftyone_labels": ToolFormat("FiftyOne labels", "", {"labels.json", "data"}, {"labels", "boxes"}),
    "cvat": ToolFormat("CVAT annotations", ".xml", {"annotations"}, {"labels", "boxes"}),
    "pybioclip": ToolFormat("pybioclip predictions", ".csv", {"file_name", "kingdom", "score"}, {"scores", "levels"}),
}


def format_of(source: Path) -> str | None:
    """The name of a file's or folder's format; None if it is none of these."""
    if source.name == DESCRIPTOR:  # what describes a Camtrap DP package stands for its folder
        source = source.parent
    keys = keys_of(source)
    suffix = "" if source.is_dir() else source.suffix.lower()
    return next((name for name, one in FORMATS.items() if one.suffix == suffix and one.keys <= keys), None)


def keys_of(source: Path) -> set[str]:
    """The keys, columns or files that `ToolFormat.keys` names; empty if there are none or the file cannot be read."""
    if source.is_dir():
        return {path.name for path in source.iterdir()}
    if source.suffix.lower() == ".json":
        return json_keys(source)
    try:
        if source.suffix.lower() == ".xml":
            _, root = next(ElementTree.iterparse(source, ["start"]))
            return {root.tag}
        if source.suffix.lower() == ".csv":
            with source.open(encoding="utf-8-sig", newline="") as file:
                line = file.readline(MAX_LINE)
            return set(next(csv.reader([line], delimiter=max(MARKS, key=line.count)), []))
    except (OSError, UnicodeError, csv.Error, ElementTree.ParseError):
        pass
    return set()


def decode(source: Path, kind: Any, title: str) -> Any:
    """The content of a JSON file as a `msgspec.Struct`; HCEPError says where another type was expected."""
    try:
        return msgspec.json.decode(json_bytes(source), type=kind)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise HCEPError(f"{str(source)!r} cannot be read as {title}: {reason_of(error)}") from None


def why_unknown(source: Path) -> str | None:
    """Why a JSON or XML file lists no photos in a known format; None for other files and for folders."""
    kind = source.suffix.lower()
    if not source.is_file() or kind not in (".json", ".xml"):
        return None
    where = repr(str(source))
    if source.name == DESCRIPTOR:
        return f"{where} does not describe a Camtrap DP package: media.csv and observations.csv must be beside it"
    if kind == ".json":
        decode(source, Any, "JSON")
    if name := format_of(source):
        return f"{where} has {FORMATS[name].title}, which are scores, not a list of photos; use `hcep rollup` for them"
    listing = [one for one in FORMATS.values() if one.suffix == kind and one.holds & {"labels", "boxes"}]
    known = [f"{one.title} ({', '.join(sorted(one.keys))})" for one in listing]
    keys = quoted(sorted(keys_of(source)), 6) or "nothing"
    return f"{where} is not in a known format: it has {keys}; expected {'; '.join(known)}"


def read_annotations(source: Path, boxes: str | None = None) -> Annotations:
    """The labels and boxes in a file of another tool; `boxes` chooses among those of MegaDetector."""
    name = format_of(source)
    if name is None or not FORMATS[name].holds & {"labels", "boxes"}:
        raise DatasetError(f"{str(source)!r} has neither labels nor boxes of images in a known format")
    if boxes is not None and name != "megadetector":
        raise DatasetError(f"--boxes: {source.name} has {FORMATS[name].title}, and all of its boxes are used")
    module = import_module(f"hcep.formats.{name.removesuffix('_labels')}")
    annotations: Annotations = module.read_annotations(source, *([boxes] if name == "megadetector" else []))
    return annotations


def read_scores(source: Path) -> Scores | None:
    """The scores in a file of another tool, and the tree above its classes; None if the file is a plain table.

    Raises HCEPError if the file is of a known format that has no scores.
    """
    name = format_of(source)
    if name is None:
        return None
    if "scores" not in FORMATS[name].holds:
        holders = ", ".join(one.title for one in FORMATS.values() if "scores" in one.holds)
        raise HCEPError(f"{source.name} has {FORMATS[name].title}, and no class scores; {holders} have them")
    scores: Scores = import_module(f"hcep.formats.{name}").read_scores(source)
    return scores
