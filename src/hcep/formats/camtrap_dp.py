"""Camtrap DP, the data package of camera traps: media and observations as labels, answers as observations, packages."""

import json
import mimetypes
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from hcep._files import read_csv, write_text
from hcep.errors import DatasetError, HCEPError, counted, quote, quoted
from hcep.formats import DESCRIPTOR, MARKS, decode, megadetector
from hcep.formats.annotations import Annotations, PhotoLabels, annotations_of
from hcep.formats.answers import AnsweredImage, Concept, Writing, is_folder, now, path_below, taken_at, write_rows
from hcep.formats.scores import RANKS

COLUMNS = (
    *("observationID", "deploymentID", "mediaID", "eventID", "eventStart", "eventEnd", "observationLevel"),
    *("observationType", "cameraSetupType", "scientificName", "count", "lifeStage", "sex", "behavior", "individualID"),
    *("individualPositionRadius", "individualPositionAngle", "individualSpeed"),
    *("bboxX", "bboxY", "bboxWidth", "bboxHeight", "classificationMethod", "classifiedBy"),
    *("classificationTimestamp", "classificationProbability", "observationTags", "observationComments"),
)
MEDIA = (
    *("mediaID", "deploymentID", "captureMethod", "timestamp", "filePath", "filePublic", "fileName", "fileMediatype"),
    *("exifData", "favorite", "mediaComments"),
)
DEPLOYMENTS = (
    *("deploymentID", "locationID", "locationName", "latitude", "longitude", "coordinateUncertainty"),
    *("deploymentStart", "deploymentEnd", "setupBy", "cameraID", "cameraModel", "cameraDelay", "cameraHeight"),
    *("cameraDepth", "cameraTilt", "cameraHeading", "detectionDistance", "timestampIssues", "baitUse", "featureType"),
    *("habitat", "deploymentGroups", "deploymentTags", "deploymentComments"),
)
BOX = ("bboxX", "bboxY", "bboxWidth", "bboxHeight")
#: What stands for no value.
MISSING = ("", "NA", "NaN", "nan")
#: Where the standard's own profile and table schemas are.
STANDARD = "https://raw.githubusercontent.com/tdwg/camtrap-dp/1.0.2"
#: What a package must say about itself that no photo tells.
ASKED = {"contributors": (), "project": ("title", "samplingDesign", "captureMethod")}
Row = dict[str, str]


def read_annotations(source: Path) -> Annotations:
    """The scientific names of media, and of boxes in them; observations of whole events are about no single image.

    Packages before version 1.0 have no observation levels; there, an observation without media is of an event.
    """
    media, observations = _tables(source)
    by_media: dict[str, list[Row]] = {}
    for row in observations:
        if row.get("mediaID") and row.get("observationLevel", "media") == "media":
            by_media.setdefault(row["mediaID"], []).append(row)
    unknown = [key for key in by_media if key not in media]
    if unknown:
        raise DatasetError(f"{str(source)!r}: observations name the media {quoted(unknown)}, which media.csv lacks")
    return annotations_of(_photo(file_of(row), by_media.get(key, [])) for key, row in media.items())


def _photo(file: str, rows: list[Row]) -> PhotoLabels:
    boxes = [
        ([row["scientificName"]], [_number(row.get(name, "")) for name in BOX]) for row in rows if row.get("bboxX")
    ]
    return PhotoLabels(file, [row["scientificName"] for row in rows], boxes)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def file_of(media: Row) -> str:
    """The path of a photo; of one on the web its name, which may be in the folder."""
    path = media.get("filePath", "")
    return media.get("fileName") or urlparse(path).path.rpartition("/")[2] if "://" in path else path


def _tables(source: Path) -> tuple[dict[str, Row], list[Row]]:
    """Media by their ids, and observations; `source` is the folder of a package or a file in it."""
    folder = source if source.is_dir() else source.parent
    media: dict[str, Row] = {}
    for row in _rows(folder / "media.csv", "mediaID", "filePath"):
        if row["mediaID"] in media:
            raise DatasetError(f"{str(folder / 'media.csv')!r} has the mediaID {quote(row['mediaID'])} twice")
        media[row["mediaID"]] = row
    return media, _rows(folder / "observations.csv", "observationID", "scientificName")


def _rows(table: Path, *columns: str) -> list[Row]:
    if not table.is_file():
        raise DatasetError(f"a Camtrap DP package needs {table.name}, which is not in {str(table.parent)!r}")
    header, *rows = read_csv(table, DatasetError, MARKS) or [[]]
    missing = [name for name in columns if name not in header]
    if missing:
        raise DatasetError(f"{str(table)!r} is not a table of Camtrap DP 1.0: it has no column {quote(missing[0])}")
    return [{name: "" if cell in MISSING else cell for name, cell in zip(header, row, strict=True)} for row in rows]


def write(answers: Iterable[AnsweredImage], output: Path, writing: Writing) -> None:
    """Write one observation per image or box; media and deployments are the package's, or the files and folders.

    Into a folder, a whole package is written: ``datapackage.json`` and the tables. Raises HCEPError if there is neither
    a package nor a time in the EXIF data of a photo, as times are required.
    """
    folder = writing.data if writing.data.is_dir() else writing.data.parent
    is_package = (folder / "media.csv").is_file() and (folder / "observations.csv").is_file()
    package = _tables(folder)[0] if is_package else {}
    known = {file_of(row): row for row in package.values()}
    times = megadetector.capture_times(writing.data)
    zones, without, records, taxa = set[str](), list[str](), list[dict[str, object]](), dict[str, Concept]()
    for one in answers:
        file = one.region.file
        if file not in known:
            time = times.get(file) or taken_at(one.path)
            if time is None:
                without.append(file)
                continue
            zones.add(time[1])
            known[file] = _medium(one, output, writing.data, time[0] + (time[1] or "Z"))
        record = _observation(one, known[file], writing.classifier)
        records.append(record)
        if one.answer and record["scientificName"]:
            taxa[str(record["scientificName"])] = one.answer
    if without:
        raise HCEPError(
            "--format camtrap-dp: observations need the time of capture, which the EXIF data of "
            f"{counted(len(without), 'photo')} lack: {quoted(without, 3)}; give a Camtrap DP package as DATA, "
            "MegaDetector results with times (datetime), or another format"
        )
    if is_folder(output):
        ids = {str(row["observationID"]) for row in records}
        before = _rows(folder / "observations.csv", "observationLevel") if is_package else []
        # What this model said before is replaced, also about boxes that are not wanted any more.
        others = [row for row in before if row.get("classifiedBy") != writing.classifier]
        rows = [*(row for row in others if row["observationID"] not in ids), *records]
        _write_package(output, folder, list(known.values()), rows, taxa, writing)
    else:
        write_rows(output, COLUMNS, records)
    if "" in zones:
        writing.on_note("the photos record no time zone, so their times were written as UTC")


def _medium(one: AnsweredImage, output: Path, data: Path, timestamp: str) -> Row:
    """The row of a photo, whose folder is its deployment."""
    place = path_below(output, one, data).as_posix()
    name = one.region.file.replace("\\", "/")
    above = (place if re.match(r"([A-Za-z]:)?/", name) else name).rpartition("/")[0]
    return {
        "mediaID": one.region.file,
        "deploymentID": above or (data if data.is_dir() else data.parent).resolve().name,
        "timestamp": timestamp,
        "filePath": place,
        "filePublic": "false",
        "fileName": place.rpartition("/")[2],
        "fileMediatype": mimetypes.guess_type(place)[0] or "image/jpeg",
    }


def _write_package(
    output: Path,
    source: Path,
    media: list[Row],
    observations: list[Any],
    taxa: Mapping[str, Concept],
    writing: Writing,
) -> None:
    """Write the tables and their description; what people wrote in deployments.csv and datapackage.json is kept."""
    places = [folder for folder in dict.fromkeys((source, output)) if folder.is_dir()]
    tables = [folder / "deployments.csv" for folder in places if (folder / "deployments.csv").is_file()]
    deployments = {row["deploymentID"]: row for table in tables for row in _rows(table, "deploymentID")}
    described: dict[str, Any] = {}
    for folder in places:
        if (folder / DESCRIPTOR).is_file():
            described |= decode(folder / DESCRIPTOR, dict[str, Any], "a Camtrap DP package")
    moments: dict[str, list[str]] = {}
    for row in media:
        moments.setdefault(row["deploymentID"], []).append(row["timestamp"])
    for key, own in moments.items():
        row = deployments.setdefault(key, {"deploymentID": key})
        row["deploymentStart"] = row.get("deploymentStart") or min(own, key=_moment)
        row["deploymentEnd"] = row.get("deploymentEnd") or max(own, key=_moment)
    rows = list(deployments.values())
    content = _description(described, rows, taxa, output)
    for name, columns, table in (
        ("deployments.csv", DEPLOYMENTS, rows),
        ("media.csv", MEDIA, media),
        ("observations.csv", COLUMNS, observations),
    ):
        write_rows(output / name, list(dict.fromkeys(chain(columns, *table))), table)
    write_text(output / DESCRIPTOR, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    lacks = [key for key in ASKED if not content.get(key)]
    lacks += [f"project.{key}" for key in ASKED["project"] if not content["project"].get(key)]
    unplaced = sum(not (row.get("latitude") and row.get("longitude")) for row in rows)
    needs = [f"deployments.csv needs latitude and longitude of {counted(unplaced, 'deployment')}"] if unplaced else []
    needs += [f"{DESCRIPTOR} needs {', '.join(lacks)}"] if lacks else []
    if needs:
        writing.on_note(f"before you publish the package, {' and '.join(needs)}; the next run keeps what you fill in")


def _moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        expected = "expected a timestamp such as 2024-06-15T12:00:00Z"
        raise HCEPError(f"media.csv and deployments.csv: {expected}, got {quote(text)}") from None


def _description(
    described: dict[str, Any], deployments: list[Row], taxa: Mapping[str, Concept], output: Path
) -> dict[str, Any]:
    """The content of datapackage.json: what it says already, and what is known from the tables."""
    names = ("deployments", "media", "observations")
    listed = {one["name"]: one for one in described.get("resources", ()) if isinstance(one, dict) and "name" in one}
    tables = [
        {"name": name, "path": f"{name}.csv", "profile": "tabular-data-resource", "format": "csv", "encoding": "utf-8"}
        | {"mediatype": "text/csv", "schema": f"{STANDARD}/{name}-table-schema.json"}
        for name in names
    ]
    start = min((text for row in deployments if (text := row.get("deploymentStart"))), key=_moment)
    end = max((text for row in deployments if (text := row.get("deploymentEnd"))), key=_moment)
    old = [one for one in described.get("taxonomic", ()) if isinstance(one, dict)]
    new = [_taxon(name, one) for name, one in taxa.items() if name not in {one.get("scientificName") for one in old}]
    project = described.get("project")
    content = {"profile": f"{STANDARD}/camtrap-dp-profile.json", "name": _slug(output), **_spatial(deployments)}
    return (
        content
        | described
        | {
            "resources": [listed.pop(one["name"], one) for one in tables] + list(listed.values()),
            "created": now(),
            "project": {"individualAnimals": False, "observationLevel": ["media"]} | (project or {}),
            "temporal": {"start": start[:10], "end": end[:10]},
            "taxonomic": old + new,
        }
    )


def _slug(output: Path) -> str:
    return re.sub(r"[^a-z0-9._-]+", "-", output.resolve().name.lower()).strip("-") or "package"


def _spatial(deployments: list[Row]) -> dict[str, Any]:
    """The rectangle around all deployments, as GeoJSON, if all of them have a place."""
    x, y = ([_number(row.get(name, "")) for row in deployments] for name in ("longitude", "latitude"))
    if any(number != number for number in x + y):
        return {}
    west, east, south, north = min(x), max(x), min(y), max(y)
    corners = [[west, south], [east, south], [east, north], [west, north], [west, south]]
    return {"spatial": {"type": "Polygon", "coordinates": [corners]}}


def _taxon(name: str, answer: Concept) -> dict[str, str]:
    rank, taxa = (answer.rank or "").lower(), {rank.lower(): taxon for rank, taxon in answer.lineage.items()}
    higher = {one: taxa[one] for one in RANKS[:-1] if one in taxa}
    return {"scientificName": name, **({"taxonRank": rank} if rank in RANKS else {}), **higher}


def _observation(one: AnsweredImage, media: Row, classifier: str) -> dict[str, object]:
    answer = one.answer
    kind = answer.kind if answer else "unclassified"
    by_machine = answer is not None and not one.corrected
    box = dict(zip(BOX, (round(share, 6) for share in one.region.box or ()), strict=False))
    return box | {
        "observationID": one.region.id,
        **{key: media[key] for key in ("deploymentID", "mediaID")},
        **dict.fromkeys(("eventStart", "eventEnd"), media["timestamp"]),
        "observationLevel": "media",
        "observationType": kind,
        "scientificName": answer.scientific_name if answer and kind in ("animal", "human") else None,
        "classificationMethod": "human" if one.corrected else "machine" if answer else None,
        "classifiedBy": classifier if by_machine else None,
        "classificationTimestamp": now() if by_machine else None,
        "classificationProbability": round(answer.probability, 5) if by_machine and answer else None,
        "observationComments": one.corrected,
    }
