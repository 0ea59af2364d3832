"""Tiny datasets in the published formats, for the tests of the layouts."""

from pathlib import Path

import numpy as np

CIFAR10 = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def touch(root: Path, *names: str) -> Path:
    """Empty files: listing opens none of them."""
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return root


def write(root: Path, name: str, text: str) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


# -- CIFAR -------------------------------------------------------------------------------------------


def cifar_pixels(n: int, seed: int) -> np.ndarray:
    """Images as the files hold them, (n, 3072): 1,024 red values, then green, then blue."""
    return np.random.default_rng(seed).integers(0, 256, (n, 3072), dtype=np.uint8)


def cifar10(root: Path) -> Path:
    """CIFAR-10 with two images in each of its six files; image i of the set has class i % 10."""
    root.mkdir()
    for b, name in enumerate([*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]):
        labels = np.array([[2 * b % 10], [(2 * b + 1) % 10]], dtype=np.uint8)
        (root / f"{name}.bin").write_bytes(np.hstack([labels, cifar_pixels(2, b)]).tobytes())
    (root / "batches.meta.txt").write_text("\n".join(CIFAR10) + "\n\n")
    return root


def cifar100(root: Path) -> Path:
    """CIFAR-100 with three images in train and two in test, of two superclasses of two classes each."""
    fine, coarse = ["apple", "bear", "bed", "lion"], ["fruit_and_vegetables", "large_carnivores", "household_furniture"]
    root.mkdir()
    for name, labels in (("train", [(0, 0), (1, 1), (1, 3)]), ("test", [(2, 2), (1, 1)])):
        pixels = cifar_pixels(len(labels), seed=len(labels))
        (root / f"{name}.bin").write_bytes(np.hstack([np.array(labels, dtype=np.uint8), pixels]).tobytes())
    for kind, names in (("fine", fine), ("coarse", coarse)):
        (root / f"{kind}_label_names.txt").write_text("\n".join(names))
    return root


# -- ImageNet and its kin ------------------------------------------------------------------------------

VAL = [f"ILSVRC2012_val_{i:08d}.JPEG" for i in range(1, 4)]
#: Labels of VAL: tench, kit fox, tench.
VAL_LABELS = ["n01440764", "n02119789", "n01440764"]


def imagenet(root: Path) -> Path:
    """Train by class, val and test flat; the annotation file is still missing."""
    train = [f"train/{c}/{c}_{i}.JPEG" for c in ("n01440764", "n02119789") for i in (10, 9)]
    return touch(root, *train, *(f"val/{name}" for name in VAL), "test/ILSVRC2012_test_00000001.JPEG")


def tiny_imagenet(root: Path) -> Path:
    classes = ("n01443537", "n02124075")
    touch(root, *(f"train/{c}/images/{c}_{i}.JPEG" for c in classes for i in range(3)))
    for c in classes:
        write(root, f"train/{c}/{c}_boxes.txt", f"{c}_0.JPEG\t0\t10\t63\t58\n")
    touch(root, "val/images/val_0.JPEG", "val/images/val_1.JPEG", "test/images/test_0.JPEG")
    write(
        root, "val/val_annotations.txt", "val_1.JPEG\tn01443537\t0\t32\t44\t62\nval_0.JPEG\tn02124075\t52\t55\t57\t59\n"
    )
    write(root, "wnids.txt", "n02124075\nn01443537\n")
    write(root, "words.txt", "n00001740\tentity\nn01443537\tgoldfish, Carassius auratus\nn02124075\tEgyptian cat\n")
    return root
