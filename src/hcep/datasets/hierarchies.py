"""Which hierarchy is meant: by its name, its place, or the classes it is to be above."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from hcep.datasets.layouts.cifar_classes import cifar10_hierarchy, cifar100_hierarchy
from hcep.datasets.wordnet import imagenet_hierarchy
from hcep.errors import HCEPError, quoted
from hcep.hierarchy import Hierarchy, match_classes, read_hierarchy

logger = logging.getLogger(__name__)

#: Hierarchies that have a name.
NAMED: dict[Any, Callable[[], Hierarchy]] = {
    "imagenet": imagenet_hierarchy,
    "cifar10": cifar10_hierarchy,
    "cifar100": cifar100_hierarchy,
}


def find_hierarchy(
    wanted: str | os.PathLike[str] | None = None,
    classes: Iterable[str] = (),
    *,
    format: str | None = None,
    on_note: Callable[[str], object] | None = None,
    **options: Any,
) -> Hierarchy | None:
    """The hierarchy a user means.

    Parameters
    ----------
    wanted : str or path, optional
        "imagenet" (WordNet above ImageNet's classes), "cifar10", "cifar100"; "flat" for none; otherwise a place that
        `Hierarchy.read` takes, or the folder of a model. A file called like one of the names is given as
        ``./imagenet``. Unsaid, it is the hierarchy above the classes: CIFAR's where they are exactly CIFAR's, else
        WordNet's where all of them are in it.
    classes : iterable of str; labels of the data: for the choice, and to find those that a file writes differently
        (`match_classes`). The hierarchy is neither restricted to them nor collapsed.
    format, **options : of `Hierarchy.read`
    on_note : callable, optional
        Told a sentence of what the file was taken for, then each of what the reader passed over; else they are logged.

    Returns
    -------
    Hierarchy or None
        None for "flat".

    >>> from hcep.datasets import find_hierarchy
    >>> find_hierarchy(classes=["n01440764", "n02979186"]).root
    'n00001740'
    """
    labels = list(dict.fromkeys(classes))
    if wanted == "flat":
        return None
    if wanted is None:
        wanted = next((n for n in ("cifar10", "cifar100") if set(labels) == set(NAMED[n]().leaves)), "imagenet")
    if wanted not in NAMED:
        read = read_hierarchy(place_of(wanted, format), format, told=on_note, **options)
        matched, notes = match_classes(read, labels)
        for note in notes:
            (on_note or logger.info)(note)
        return matched
    hierarchy = NAMED[wanted]()
    outside = [label for label in labels if label not in hierarchy]
    if outside:
        whose = "WordNet's above ImageNet" if wanted == "imagenet" else f"the hierarchy of {wanted}"
        raise HCEPError(
            f"--hierarchy: {len(outside):,} of {len(labels):,} classes are not in {whose}: {quoted(outside, 3)}; "
            "give a file (`hcep hierarchy formats` lists what is read), or `flat` for no hierarchy"
        )
    return hierarchy


def place_of(wanted: str | os.PathLike[str], format: str | None = None) -> str | os.PathLike[str]:
    """Where the hierarchy is: that of a model is in its folder."""
    of_model = Path(wanted, "hierarchy.json")
    return of_model if format is None and of_model.is_file() else wanted
