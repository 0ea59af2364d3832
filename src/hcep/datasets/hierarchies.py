"""Find the hierarchy that a user means, by its name, its place or the classes; and the hierarchies of CIFAR."""

import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from hcep.errors import DatasetError, HCEPError, quote, quoted
from hcep.hierarchy import Hierarchy
from hcep.hierarchy.files import how_matched, match_classes, read_hierarchy, with_ids
from hcep.hierarchy.imagenet import (
    everyday_hierarchy as everyday_hierarchy,
    imagenet_classes as imagenet_classes,
    imagenet_hierarchy as imagenet_hierarchy,
    imagenet_wnid as imagenet_wnid,
    imagenet_wnids,
    synset_gloss as synset_gloss,
    synset_lemmas as synset_lemmas,
)

logger = logging.getLogger(__name__)

#: CIFAR-100's coarse and fine classes, as its files name them.
SUPERCLASSES = {
    "aquatic_mammals": ("beaver", "dolphin", "otter", "seal", "whale"),
    "fish": ("aquarium_fish", "flatfish", "ray", "shark", "trout"),
    "flowers": ("orchid", "poppy", "rose", "sunflower", "tulip"),
    "food_containers": ("bottle", "bowl", "can", "cup", "plate"),
    "fruit_and_vegetables": ("apple", "mushroom", "orange", "pear", "sweet_pepper"),
    "household_electrical_devices": ("clock", "keyboard", "lamp", "telephone", "television"),
    "household_furniture": ("bed", "chair", "couch", "table", "wardrobe"),
    "insects": ("bee", "beetle", "butterfly", "caterpillar", "cockroach"),
    "large_carnivores": ("bear", "leopard", "lion", "tiger", "wolf"),
    "large_man-made_outdoor_things": ("bridge", "castle", "house", "road", "skyscraper"),
    "large_natural_outdoor_scenes": ("cloud", "forest", "mountain", "plain", "sea"),
    "large_omnivores_and_herbivores": ("camel", "cattle", "chimpanzee", "elephant", "kangaroo"),
    "medium_mammals": ("fox", "porcupine", "possum", "raccoon", "skunk"),
    "non-insect_invertebrates": ("crab", "lobster", "snail", "spider", "worm"),
    "people": ("baby", "boy", "girl", "man", "woman"),
    "reptiles": ("crocodile", "dinosaur", "lizard", "snake", "turtle"),
    "small_mammals": ("hamster", "mouse", "rabbit", "shrew", "squirrel"),
    "trees": ("maple_tree", "oak_tree", "palm_tree", "pine_tree", "willow_tree"),
    "vehicles_1": ("bicycle", "bus", "motorcycle", "pickup_truck", "train"),
    "vehicles_2": ("lawn_mower", "rocket", "streetcar", "tank", "tractor"),
}
#: CIFAR-10 has no hierarchy; these groups are ours.
CIFAR10_GROUPS: dict[str, dict[str, tuple[str, ...]]] = {
    "animal": {"mammal": ("cat", "deer", "dog", "horse"), "other animal": ("bird", "frog")},
    "vehicle": {"road vehicle": ("automobile", "truck"), "other craft": ("airplane", "ship")},
}


def cifar100_hierarchy() -> Hierarchy:
    """CIFAR-100's own hierarchy: coarse labels above fine ones, with the names in its files as ids.

    >>> from hcep.datasets.hierarchies import cifar100_hierarchy
    >>> cifar100_hierarchy().parents("streetcar")
    ('vehicles_2',)
    """
    edges = [("cifar-100", coarse) for coarse in SUPERCLASSES]
    edges += [(coarse, fine) for coarse, classes in SUPERCLASSES.items() for fine in classes]
    return Hierarchy.from_edges(edges, {child: child.replace("_", " ") for _, child in edges}, root="cifar-100")


def cifar10_hierarchy() -> Hierarchy:
    """A small tree above CIFAR-10's ten classes, with three levels.

    >>> from hcep.datasets.hierarchies import cifar10_hierarchy
    >>> cifar10_hierarchy().paths("cat")
    (('animal', 'mammal', 'cat'),)
    """
    edges = [("cifar-10", top) for top in CIFAR10_GROUPS]
    edges += [(top, group) for top, groups in CIFAR10_GROUPS.items() for group in groups]
    edges += [(group, c) for groups in CIFAR10_GROUPS.values() for group, members in groups.items() for c in members]
    return Hierarchy.from_edges(edges, root="cifar-10")


#: Names of WordNet's DAG above ImageNet's classes.
WORDNET = ("imagenet", "wordnet")
#: Hierarchies by name.
NAMED: dict[Any, Callable[[], Hierarchy]] = {
    "imagenet": imagenet_hierarchy,
    "wordnet": imagenet_hierarchy,
    "everyday": everyday_hierarchy,
    "cifar10": cifar10_hierarchy,
    "cifar100": cifar100_hierarchy,
}


def find_hierarchy(
    wanted: Hierarchy | str | os.PathLike[str] | None = None,
    classes: Iterable[str] = (),
    *,
    format: str | None = None,
    on_note: Callable[[str], object] | None = None,
    **options: Any,
) -> Hierarchy | None:
    """Find the hierarchy that a user means; None for "flat".

    Parameters
    ----------
    wanted : "imagenet" or "wordnet" (WordNet above ImageNet's classes), "everyday" (the same without WordNet's abstract
        top), "cifar10", "cifar100"; "flat" for none; otherwise a place that `read_hierarchy` takes, the folder of a
        model, or a hierarchy that was read before. Write ``./imagenet`` for a file that has one of these names. By
        default it is the hierarchy above the classes: CIFAR's if they are exactly CIFAR's, otherwise WordNet's if it
        has all of them.
    classes : labels of the data, for the default choice, and to find labels that a file spells differently
        (`match_classes`). The hierarchy is neither restricted to them nor collapsed.
    format, **options : options of `hcep.read_hierarchy`
    on_note : called with each sentence about how the file was read; they are logged by default

    >>> from hcep.datasets import find_hierarchy
    >>> find_hierarchy(classes=["n01440764", "n02979186"]).root
    'n00001740'
    """
    labels = list(dict.fromkeys(classes))
    if wanted == "flat":
        return None
    is_chosen = wanted is not None
    if wanted is None:
        wanted = next((n for n in ("cifar10", "cifar100") if set(labels) == set(NAMED[n]().leaves)), "imagenet")
    if isinstance(wanted, Hierarchy) or wanted not in NAMED:
        read = wanted
        if not isinstance(read, Hierarchy):
            read = read_hierarchy(place_of(read, format), format, on_note=on_note, **options)
        matched, notes = match_classes(read, labels)
        for note in notes:
            (on_note or logger.info)(note)
        return matched
    hierarchy = NAMED[wanted]()
    if is_chosen and wanted in (*WORDNET, "everyday"):
        hierarchy, notes = _named_in_wordnet(hierarchy, labels)
        for note in notes:
            (on_note or logger.info)(note)
    outside = [label for label in labels if label not in hierarchy]
    if outside:
        whose = "WordNet's hierarchy of ImageNet" if wanted in WORDNET else f"the hierarchy of {wanted}"
        by_name = not is_chosen and all(map(imagenet_wnids, outside))
        raise HCEPError(
            f"--hierarchy: {len(outside):,} of {len(labels):,} classes are not in {whose}: {quoted(outside, 3)}; "
            + ("pass --hierarchy wordnet to find them by name, " if by_name else "")
            + "give a file (`hcep info --formats` lists what is read), or `flat` for no hierarchy"
        )
    return hierarchy


def _named_in_wordnet(hierarchy: Hierarchy, labels: list[str]) -> tuple[Hierarchy, tuple[str, ...]]:
    """The hierarchy with labels as ids of the synsets that they name, and a sentence that says which.

    A name of several synsets is an error that lists them.
    """
    own: dict[str, str] = {}
    for label in (label for label in labels if label not in hierarchy):
        if not imagenet_wnids(label):
            continue
        wnid = imagenet_wnid(label)
        if wnid in own or wnid in labels:
            other = own.get(wnid, wnid)
            raise DatasetError(f"--hierarchy: {quote(other)} and {quote(label)} are the same synset of WordNet, {wnid}")
        if wnid in hierarchy:
            own[wnid] = label
    sentence = how_matched({label: wnid for wnid, label in own.items()}, "by name")
    return with_ids(hierarchy, own), (sentence,) if own else ()


def concept_ids(hierarchy: Hierarchy, names: Iterable[str], on_note: Callable[[str], object]) -> dict[str, str]:
    """The id of each concept that a name means, as labels are matched; unknown and ambiguous names are left out."""
    labels = list(dict.fromkeys(names))
    matched, notes = match_classes(hierarchy, labels)
    ids = {label: label for label in labels if label in hierarchy} | dict(zip(matched, hierarchy, strict=True))
    lemmas = {label: [wnid for wnid in imagenet_wnids(label) if wnid in hierarchy] for label in labels}
    by_lemma = {label: wnids[0] for label, wnids in lemmas.items() if label not in ids and len(wnids) == 1}
    for note in (*notes, *([how_matched(by_lemma, "by name")] if by_lemma else [])):
        on_note(note)
    return ids | by_lemma


def place_of(wanted: str | os.PathLike[str], format: str | None = None) -> str | os.PathLike[str]:
    """The place of a hierarchy: for a model, the file in its folder."""
    of_model = Path(wanted, "hierarchy.json")
    return of_model if format is None and of_model.is_file() else wanted
