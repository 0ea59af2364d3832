"""Tiny datasets in the published formats, for the tests of the layouts."""

import pickle
import struct
from io import BytesIO
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


class Python2Pickler(pickle._Pickler):
    """Writes bytes as Python 2 wrote its strings, with which CIFAR's files were made."""

    dispatch = dict(pickle._Pickler.dispatch)  # noqa: RUF012

    def save_bytes(self, obj):
        self.write(pickle.BINSTRING + struct.pack("<i", len(obj)) + obj)
        self.memoize(obj)

    def save_str(self, obj):
        self.save_bytes(obj.encode("ascii"))

    dispatch[bytes] = save_bytes
    dispatch[str] = save_str


def python2_pickle(content) -> bytes:
    """A protocol 2 pickle as Python 2 and the NumPy of 2009 wrote it."""
    buffer = BytesIO()
    Python2Pickler(buffer, protocol=2).dump(content)
    return buffer.getvalue().replace(b"numpy._core.multiarray", b"numpy.core.multiarray")


def cifar_pixels(n: int, seed: int) -> np.ndarray:
    """Images as the files hold them, (n, 3072): 1,024 red values, then green, then blue."""
    return np.random.default_rng(seed).integers(0, 256, (n, 3072), dtype=np.uint8)


def cifar10(root: Path, *, binary: bool) -> Path:
    """CIFAR-10 with two images in each of its six files; image i of the set has class i % 10."""
    root.mkdir()
    for b, name in enumerate([*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]):
        pixels, labels = cifar_pixels(2, b), [2 * b % 10, (2 * b + 1) % 10]
        batch = {b"batch_label": b"batch", b"labels": labels, b"data": pixels, b"filenames": [b"a.png", b"b.png"]}
        records = np.hstack([np.array(labels, dtype=np.uint8)[:, None], pixels]).tobytes()
        (root / f"{name}{'.bin' * binary}").write_bytes(records if binary else python2_pickle(batch))
    meta = {b"num_cases_per_batch": 2, b"label_names": [c.encode() for c in CIFAR10], b"num_vis": 3072}
    names = ("\n".join(CIFAR10) + "\n\n").encode()
    (root / f"batches.meta{'.txt' * binary}").write_bytes(names if binary else python2_pickle(meta))
    return root


def cifar100(root: Path, *, binary: bool) -> Path:
    """CIFAR-100 with three images in train and two in test, of two superclasses of two classes each."""
    fine, coarse = ["apple", "bear", "bed", "lion"], ["fruit_and_vegetables", "large_carnivores", "household_furniture"]
    root.mkdir()
    for name, labels in (("train", [(0, 0), (1, 1), (1, 3)]), ("test", [(2, 2), (1, 1)])):
        pixels = cifar_pixels(len(labels), seed=len(labels))
        batch = {
            b"filenames": [b"x.png"] * len(labels),
            b"batch_label": b"batch 1 of 1",
            b"fine_labels": [f for _, f in labels],
            b"coarse_labels": [c for c, _ in labels],
            b"data": pixels,
        }
        records = np.hstack([np.array(labels, dtype=np.uint8), pixels]).tobytes()
        (root / f"{name}{'.bin' * binary}").write_bytes(records if binary else python2_pickle(batch))
    meta = {b"fine_label_names": [n.encode() for n in fine], b"coarse_label_names": [n.encode() for n in coarse]}
    texts = {"fine_label_names.txt": fine, "coarse_label_names.txt": coarse}
    files = {name: "\n".join(names).encode() for name, names in texts.items()} if binary else {}
    for name, content in (files or {"meta": python2_pickle(meta)}).items():
        (root / name).write_bytes(content)
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
