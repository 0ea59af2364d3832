"""The layouts datasets are published in: each module knows one, `LAYOUTS` has them in the order they are tried."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from hcep.datasets.layouts import cifar, class_folders, imagenet, imagenette, table, tiny_imagenet
from hcep.datasets.layouts.listing import Listing, Request

__all__ = ["LAYOUTS", "Layout"]


class Layout(Protocol):
    """How a layout is recognised and read: what each module of this package has.

    Attributes
    ----------
    LOOKS_FOR : the files and folders that make the layout, for messages
    """

    LOOKS_FOR: str

    def detect(self, source: Path) -> bool: ...

    def read(self, source: Path, request: Request) -> Listing: ...


#: The particular ones first: any of them but CIFAR is an image folder too.
LAYOUTS: dict[str, Layout] = {
    "cifar": cifar,
    "tiny_imagenet": tiny_imagenet,
    "imagenet": imagenet,
    "imagenette": imagenette,
    "table": table,
    "folder": class_folders,
}
