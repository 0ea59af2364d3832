"""Hierarchies of CIFAR's classes: CIFAR-100's own two levels, and a small tree above CIFAR-10."""

from __future__ import annotations

from hcep.hierarchy import Hierarchy

ROOT = "cifar-100"
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


def cifar100_hierarchy() -> Hierarchy:
    """CIFAR-100's own hierarchy, coarse labels above fine ones, with the names of its files as ids.

    >>> from hcep.datasets.layouts.cifar_classes import cifar100_hierarchy
    >>> h = cifar100_hierarchy()
    >>> h
    Hierarchy(121 synsets, 100 leaves, 120 edges, depth 2, branching at most 20, root 'cifar-100')
    >>> h.parents("streetcar"), h.name("streetcar"), h.name("vehicles_2")
    (('vehicles_2',), 'streetcar', 'vehicles 2')
    """
    edges = [(ROOT, coarse) for coarse in SUPERCLASSES]
    edges += [(coarse, fine) for coarse, classes in SUPERCLASSES.items() for fine in classes]
    return Hierarchy.from_edges(edges, {child: child.replace("_", " ") for _, child in edges}, root=ROOT)


#: CIFAR-10 has no hierarchy of its own; these groups are ours.
CIFAR10_GROUPS: dict[str, dict[str, tuple[str, ...]]] = {
    "animal": {"mammal": ("cat", "deer", "dog", "horse"), "other animal": ("bird", "frog")},
    "vehicle": {"road vehicle": ("automobile", "truck"), "other craft": ("airplane", "ship")},
}


def cifar10_hierarchy() -> Hierarchy:
    """A small tree above CIFAR-10's ten classes, three levels deep.

    >>> from hcep.datasets import cifar10_hierarchy
    >>> cifar10_hierarchy().paths("cat")
    (('animal', 'mammal', 'cat'),)
    """
    edges = [("cifar-10", top) for top in CIFAR10_GROUPS]
    edges += [(top, group) for top, groups in CIFAR10_GROUPS.items() for group in groups]
    edges += [(group, c) for groups in CIFAR10_GROUPS.values() for group, members in groups.items() for c in members]
    return Hierarchy.from_edges(edges, root="cifar-10")
