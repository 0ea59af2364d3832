"""CIFAR-10's classes, a good outline of them, and its tree."""

from __future__ import annotations

CIFAR = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
GOOD = """\
1. animal
1.1 mammal
1.1.1 cat
1.1.2 dog
1.1.3 deer
1.1.4 horse
1.2 bird
1.3 frog
2. vehicle
2.1 land vehicle
2.1.1 automobile
2.1.2 truck
2.2 airplane
2.3 ship
"""
TREE = {
    ("entity", "animal"),
    ("entity", "vehicle"),
    ("animal", "mammal"),
    ("animal", "bird"),
    ("animal", "frog"),
    ("mammal", "cat"),
    ("mammal", "dog"),
    ("mammal", "deer"),
    ("mammal", "horse"),
    ("vehicle", "land vehicle"),
    ("vehicle", "airplane"),
    ("vehicle", "ship"),
    ("land vehicle", "automobile"),
    ("land vehicle", "truck"),
}


def without(*lines):
    return "\n".join(line for line in GOOD.splitlines() if not line.endswith(lines))
