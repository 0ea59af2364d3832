"""The layouts datasets are published in, in the order they are tried."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from hcep.datasets.layouts import cifar, folders, imagenet, table
from hcep.datasets.layouts.listing import Listing, Request


class Layout(NamedTuple):
    """How a layout is recognised and read, and the files that make it, for messages."""

    looks_for: str
    detect: Callable[[Path], bool]
    read: Callable[[Path, Request], Listing]


#: The particular ones first: any of them but CIFAR is an image folder too.
LAYOUTS = {
    "cifar": Layout(cifar.LOOKS_FOR, cifar.detect, cifar.read),
    "tiny_imagenet": Layout(folders.TINY_LOOKS_FOR, folders.detect_tiny, folders.read_tiny),
    "imagenet": Layout(imagenet.LOOKS_FOR, imagenet.detect, imagenet.read),
    "imagenette": Layout(folders.IMAGENETTE_LOOKS_FOR, folders.detect_imagenette, folders.read_imagenette),
    "table": Layout(table.LOOKS_FOR, table.detect, table.read),
    "folder": Layout(folders.LOOKS_FOR, folders.detect, folders.read),
}
