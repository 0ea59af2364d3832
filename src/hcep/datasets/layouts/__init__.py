"""The layouts datasets are published in: each module knows one, `LAYOUTS` has them in the order they are tried."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hcep.datasets.layouts import cifar, class_folders, imagenet, imagenette, table, tiny_imagenet
from hcep.datasets.layouts.listing import Listing, Request

__all__ = ["LAYOUTS", "Layout"]


@dataclass(frozen=True)
class Layout:
    """How a layout is recognised and read.

    Attributes
    ----------
    looks_for : str
        The files and folders that make the layout, for messages.
    detect : (source) -> bool
    read : (source, request) -> Listing
    """

    looks_for: str
    detect: Callable[[Path], bool]
    read: Callable[[Path, Request], Listing]


#: The particular ones first: any of them but CIFAR is an image folder too.
LAYOUTS = {
    "cifar": Layout(cifar.LOOKS_FOR, cifar.detect, cifar.read),
    "tiny_imagenet": Layout(tiny_imagenet.LOOKS_FOR, tiny_imagenet.detect, tiny_imagenet.read),
    "imagenet": Layout(imagenet.LOOKS_FOR, imagenet.detect, imagenet.read),
    "imagenette": Layout(imagenette.LOOKS_FOR, imagenette.detect, imagenette.read),
    "table": Layout(table.LOOKS_FOR, table.detect, table.read),
    "folder": Layout(class_folders.LOOKS_FOR, class_folders.detect, class_folders.read),
}
