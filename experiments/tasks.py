"""The data an experiment runs on: embeddings with labels, split, and the hierarchy above the classes."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from hcep.datasets import cifar10_hierarchy, imagenet_hierarchy, load_sample
from hcep.datasets.image_dataset import k_shot_rows
from hcep.embeddings import read_embeddings
from hcep.errors import HCEPError
from hcep.hierarchy import Hierarchy

#: Folder with a `data` folder of measured embeddings, beside the project by default.
SHARED = "HCEP_SHARED"
LITE = "EfficientNet-Lite2"
Pair = tuple[Any, Any]


@dataclass(frozen=True, eq=False)
class Task:
    """Classify the images of one data set, embedded by one encoder, under one hierarchy."""

    name: str
    encoder: str
    hierarchy: Hierarchy  # restricted to the classes, chains collapsed
    X: NDArray[Any]  # (n_train, n_dims) float32
    y: NDArray[np.str_]  # (n_train,)
    X_val: NDArray[Any]  # (n_val, n_dims) float32
    y_val: NDArray[np.str_]  # (n_val,)
    ids: NDArray[np.str_]  # (n_train,), what a k-shot draw depends on
    note: str = ""  # why it is this data and not the paper's, where it is not

    @property
    def digest(self) -> str:
        """SHA-256 over embeddings, labels and hierarchy, its first 16 digits: rows of other data are not mixed up."""
        found = sha256()
        for array in (self.X, self.X_val):
            found.update(np.ascontiguousarray(array).tobytes())
        for labels in (self.y, self.y_val):
            found.update("\n".join(labels.tolist()).encode())
        found.update(self.hierarchy.to_json().encode())
        return found.hexdigest()[:16]

    @property
    def images_per_class(self) -> int:
        """Training images of the smallest class."""
        return int(np.unique(self.y, return_counts=True)[1].min())

    def shots(self, k: int | None, seed: int) -> Self:
        """The same task with k training images per class, drawn by the images' ids; None keeps all."""
        if k is None or k >= self.images_per_class:
            return self
        rows = k_shot_rows(self.ids.tolist(), self.y.tolist(), k, seed)
        return replace(self, X=self.X[rows], y=self.y[rows], ids=self.ids[rows])

    def first_images(self, n_val: int | None) -> Self:
        """The same task with at most n_val validation images, spread evenly; None keeps all."""
        if n_val is None:
            return self
        rows = np.unique(np.linspace(0, len(self.y_val) - 1, min(n_val, len(self.y_val))).astype(int))
        return replace(self, X_val=self.X_val[rows], y_val=self.y_val[rows])

    def first_classes(self, n_classes: int) -> Self:
        """The same task with at most n_classes classes, spread over the hierarchy."""
        leaves = [self.hierarchy.class_of(leaf) for leaf in self.hierarchy.leaves]
        if n_classes >= len(leaves):
            return self
        kept = np.array(leaves)[np.linspace(0, len(leaves) - 1, n_classes).astype(int)]
        train, val = np.isin(self.y, kept), np.isin(self.y_val, kept)
        tree = self.hierarchy.restrict(kept.tolist()).collapse()
        fewer = replace(self, hierarchy=tree, X=self.X[train], y=self.y[train], ids=self.ids[train])
        return replace(fewer, X_val=self.X_val[val], y_val=self.y_val[val])

    def under(self, hierarchy: Hierarchy) -> Self:
        """The same images under another hierarchy of the same classes."""
        return replace(self, hierarchy=hierarchy)

    def __repr__(self) -> str:
        images = f"{len(self.y):,} + {len(self.y_val):,} images, {len(self.hierarchy.leaves):,} classes"
        return f"Task({self.name}, {self.encoder}: {images}, depth {self.hierarchy.depth})"


def task_from_arrays(
    name: str, encoder: str, hierarchy: Hierarchy, train: Pair, val: Pair, *, ids: Any = None, note: str = ""
) -> Task:
    """A task from (X, y) pairs; the hierarchy is restricted to the training classes and collapsed."""
    X, X_val = (np.ascontiguousarray(pair[0], dtype=np.float32) for pair in (train, val))
    y, y_val = (np.asarray(pair[1], dtype=str) for pair in (train, val))
    classes = np.unique(y).tolist()
    strangers = sorted(set(y_val.tolist()) - set(classes))
    if strangers:
        raise HCEPError(f"{len(strangers):,} validation labels have no training image, such as {strangers[0]!r}")
    if not len(y_val):
        raise HCEPError(f"{name}: no validation images; give data with a `val` or `test` split")
    names = np.arange(len(y)).astype(str) if ids is None else np.asarray(ids, dtype=str)
    return Task(name, encoder, hierarchy.restrict(classes).collapse(), X, y, X_val, y_val, names, note)


def sample(tree: bool = False) -> Task:
    """The bundled sample, a thousand images of ImageNette; on request under WordNet's first-hypernym tree."""
    data = load_sample()
    graph = data.hierarchy.as_tree("first") if tree else data.hierarchy
    both = (data.X_train, data.y_train), (data.X_val, data.y_val)
    note = "the sample bundled with the package: 50 training and 50 validation images per class"
    return task_from_arrays("ImageNette sample", LITE, graph, *both, note=note)


def imagenette() -> Task:
    """ImageNette where its embeddings are at hand, else the bundled sample of a thousand of its images."""
    file = shared_data("imagenette_efficientnet_lite2.npz")
    return _from_npz("ImageNette", file, NO_CLIP) if file.is_file() else sample()


def tiny_imagenet() -> Task:
    """Tiny-ImageNet-200, 50 training images per class."""
    file = required("tinyimagenet200_efficientnet_lite2.npz")
    return _from_npz("Tiny-ImageNet-200", file, f"ImageNet-1k is not at hand; {NO_CLIP}")


def cifar10() -> Task:
    """500 CIFAR-10 images with real CLIP ViT-B/32 embeddings, every other one for training, under a small tree."""
    note = "CIFAR-100 is not at hand; 500 images of CIFAR-10 under a small tree of our own"
    file, tree = required("cifar10_500_clip_vitb32.npz"), cifar10_hierarchy()
    return _from_npz("CIFAR-10 (500 images)", file, note, "CLIP ViT-B/32", tree, "class_names")


NO_CLIP = "CLIP ViT-L/14 embeddings are not at hand; EfficientNet-Lite2, trained on ImageNet, instead"
BUNDLED: dict[str, Callable[[], Task]] = {
    "sample": lambda: sample(tree=True),
    "imagenette": imagenette,
    "tiny-imagenet": tiny_imagenet,
    "cifar10": cifar10,
}


def shared_data(name: str) -> Path:
    """A place in the data folder of the folder that HCEP_SHARED names."""
    return Path(os.environ.get(SHARED, "../shared")) / "data" / name


def required(name: str) -> Path:
    """As `shared_data`, an error where the file is absent."""
    if not shared_data(name).is_file():
        own = "give your own with --data STORE_OR_FILE, or --data FOLDER --encoder NAME"
        raise HCEPError(f"no data: {name} is not in the `data` folder of {SHARED} (default ../shared); {own}")
    return shared_data(name)


def _from_npz(
    name: str, file: Path, note: str, encoder: str = LITE, tree: Hierarchy | None = None, labels: str = "wnids"
) -> Task:
    """Without splits every other image is for training."""
    arrays = read_embeddings(file, label_names=labels)
    assert arrays.labels is not None
    train = np.arange(len(arrays)) % 2 == 0 if arrays.splits is None else arrays.splits == "train"
    ids = arrays.paths[train] if arrays.paths is not None else None
    data = ((arrays.X[part], arrays.labels[part]) for part in (train, ~train))
    return task_from_arrays(name, encoder, tree or imagenet_hierarchy(), *data, ids=ids, note=note)
