"""ImageNette and Imagewoof as published: train/<wnid>/, val/<wnid>/ and a table of noisy labels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hcep.datasets.layouts import class_folders
from hcep.datasets.layouts.listing import OWN_LABEL, DatasetError, Listing, Request, column_error
from hcep.datasets.layouts.table import read_columns
from hcep.errors import quoted

NOISY = ("noisy_imagenette.csv", "noisy_imagewoof.csv")
LOOKS_FOR = f"train/<wnid>/, val/<wnid>/ and {' or '.join(NOISY)}"


def detect(source: Path) -> bool:
    """Whether the table of noisy labels is there; without it the set is a plain image folder."""
    return _noisy(source) is not None and (source / "train").is_dir()


def read(source: Path, request: Request) -> Listing:
    """List the images, labelled by their folders or by a column of the table, such as ``noisy_labels_5``."""
    listing = class_folders.read(source, replace(request, label_column=OWN_LABEL))
    if request.label_column in (OWN_LABEL, None):
        return listing
    table = _noisy(source)
    if table is None:
        raise DatasetError(
            f"label_column={request.label_column!r} needs {' or '.join(NOISY)} in {str(source)!r}, and it is not there"
        )
    return replace(listing, labels=_noisy_labels(table, request.label_column, listing))


def _noisy(source: Path) -> Path | None:
    return next((source / name for name in NOISY if (source / name).is_file()), None)


def _noisy_labels(table: Path, column: str, listing: Listing) -> list[str]:
    columns = read_columns(table)
    noisy = [name for name in columns if name.startswith("noisy_labels")]
    if column not in noisy:
        raise column_error("label_column", column, noisy, table)
    if "path" not in columns:
        raise DatasetError(f"{str(table)!r} must have a column 'path', it has {quoted(columns)}")
    labels = dict(zip(columns["path"], columns[column], strict=True))
    unlisted = [f for f in listing.files if f not in labels]
    if unlisted:
        raise DatasetError(
            f"{len(unlisted):,} of {len(listing.files):,} images are not in {str(table)!r}: {quoted(unlisted)}"
        )
    return [labels[f] for f in listing.files]
