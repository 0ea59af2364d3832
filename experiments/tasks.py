"""The data of an experiment: embeddings with labels, splits, and the hierarchy above the classes."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from hashlib import blake2b, sha256
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from experiments.baselines.words import Vocabulary
from hcep.datasets import load_sample
from hcep.datasets.hierarchies import cifar10_hierarchy
from hcep.embeddings import read_embeddings
from hcep.errors import HCEPError
from hcep.hierarchy import Hierarchy
from hcep.hierarchy.imagenet import imagenet_hierarchy

#: The environment variable with the folder that holds the measured embeddings in `data`.
SHARED = "HCEP_SHARED"
LITE = "EfficientNet-Lite2"
Pair = tuple[Any, Any]


@dataclass(frozen=True, eq=False)
class Task:
    """Classify the images of one data set, embedded by one encoder, with one hierarchy.

    Attributes
    ----------
    hierarchy : restricted to the classes, with single-child chains collapsed
    X, y : (n_train, n_dims) float32 array of training images, and their classes
    X_val, y_val : (n_val, n_dims) float32 array of validation images, and their classes
    ids : (n_train,) array; a draw of k images per class depends on the ids
    note : why these are not the paper's data, if they are not
    tuning : (X, y) of further images, on which baselines may choose their settings
    vocabularies : words with text embeddings by the same encoder, by name; that of the classes is `CLASS_NAMES`
    """

    name: str
    encoder: str
    hierarchy: Hierarchy
    X: NDArray[Any]
    y: NDArray[np.str_]
    X_val: NDArray[Any]
    y_val: NDArray[np.str_]
    ids: NDArray[np.str_]
    note: str = ""
    tuning: Pair | None = None
    vocabularies: dict[str, Vocabulary] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """The first 16 digits of the SHA-256 of embeddings, labels and hierarchy; rows of other data differ in it."""
        digest = sha256()
        for array in (self.X, self.X_val):
            digest.update(np.ascontiguousarray(array).tobytes())
        for labels in (self.y, self.y_val):
            digest.update("\n".join(labels.tolist()).encode())
        digest.update(self.hierarchy.to_json().encode())
        return digest.hexdigest()[:16]

    @property
    def images_per_class(self) -> int:
        """Number of training images of the smallest class."""
        return int(np.unique(self.y, return_counts=True)[1].min())

    def shots(self, k: int | None, seed: int) -> Self:
        """Return the task with k training images per class, drawn by the ids of the images; None keeps all."""
        if k is None or k >= self.images_per_class:
            return self
        return self.only(self.ranks(seed) < k)

    def ranks(self, seed: int) -> NDArray[np.intp]:
        """Return the place of each training image in a random order of its class, (n_train,), starting with 0."""
        # A hash decides, so that a draw does not depend on the order of the files or on images of other classes.
        lots = np.array([blake2b(f"{seed}\0{image}".encode(), digest_size=16).hexdigest() for image in self.ids])
        ranks = np.empty(len(self.y), dtype=np.intp)
        for label in np.unique(self.y):
            own = np.flatnonzero(self.y == label)
            ranks[own[np.argsort(lots[own], kind="stable")]] = np.arange(len(own))
        return ranks

    def only(self, rows: NDArray[Any]) -> Self:
        """Return the task with some of its training images: a mask or row numbers."""
        return replace(self, X=self.X[rows], y=self.y[rows], ids=self.ids[rows])

    def first_images(self, n_val: int | None) -> Self:
        """Return the task with at most n_val validation images, spread evenly; None keeps all."""
        if n_val is None:
            return self
        rows = np.unique(np.linspace(0, len(self.y_val) - 1, min(n_val, len(self.y_val))).astype(int))
        return replace(self, X_val=self.X_val[rows], y_val=self.y_val[rows])

    def first_classes(self, n_classes: int) -> Self:
        """Return the task with at most n_classes classes, spread over the hierarchy."""
        leaves = [self.hierarchy.class_of(leaf) for leaf in self.hierarchy.leaves]
        if n_classes >= len(leaves) or not len(self.y):  # the classes of a classifier fitted elsewhere are fixed
            return self
        classes = np.array(leaves)[np.linspace(0, len(leaves) - 1, n_classes).astype(int)]
        train, val = np.isin(self.y, classes), np.isin(self.y_val, classes)
        tree = self.hierarchy.restrict(classes.tolist()).collapse()
        few = replace(self.only(train), hierarchy=tree, X_val=self.X_val[val], y_val=self.y_val[val])
        if self.tuning is None:
            return few
        X, y = self.tuning
        return replace(few, tuning=(X[np.isin(y, classes)], y[np.isin(y, classes)]))

    def under(self, hierarchy: Hierarchy) -> Self:
        """Return the task with another hierarchy of the same classes."""
        return replace(self, hierarchy=hierarchy)

    def __repr__(self) -> str:
        images = f"{len(self.y):,} + {len(self.y_val):,} images, {len(self.hierarchy.leaves):,} classes"
        return f"Task({self.name}, {self.encoder}: {images}, depth {self.hierarchy.depth})"


def task_from_arrays(
    name: str, encoder: str, hierarchy: Hierarchy, train: Pair, val: Pair, *, ids: Any = None, note: str = ""
) -> Task:
    """Make a task from (X, y) pairs; the hierarchy is restricted to the training classes and collapsed."""
    X, X_val = (np.ascontiguousarray(pair[0], dtype=np.float32) for pair in (train, val))
    y, y_val = (np.asarray(pair[1], dtype=str) for pair in (train, val))
    classes = np.unique(y).tolist()
    unknown = sorted(set(y_val.tolist()) - set(classes))
    if unknown:
        raise HCEPError(f"{len(unknown):,} validation labels have no training image, such as {unknown[0]!r}")
    if not len(y_val):
        raise HCEPError(f"{name}: there are no validation images; pass data with a `val` or `test` split")
    names = np.arange(len(y)).astype(str) if ids is None else np.asarray(ids, dtype=str)
    return Task(name, encoder, hierarchy.restrict(classes).collapse(), X, y, X_val, y_val, names, note)


def sample(tree: bool = False) -> Task:
    """Return the bundled sample, a thousand images of ImageNette; with `tree`, under the first-hypernym tree."""
    data = load_sample()
    graph = data.hierarchy.as_tree("first") if tree else data.hierarchy
    both = (data.X_train, data.y_train), (data.X_val, data.y_val)
    note = "the sample bundled with the package: 50 training and 50 validation images per class"
    return task_from_arrays("ImageNette sample", LITE, graph, *both, note=note)


def imagenette() -> Task:
    """Return ImageNette if its embeddings are available, otherwise the bundled sample."""
    file = shared_data("imagenette_efficientnet_lite2.npz")
    return _from_npz("ImageNette", file, NO_CLIP) if file.is_file() else sample()


def tiny_imagenet() -> Task:
    """Return Tiny-ImageNet-200 with 50 training images per class."""
    file = required("tinyimagenet200_efficientnet_lite2.npz")
    return _from_npz("Tiny-ImageNet-200", file, f"ImageNet-1k and {NO_CLIP}")


def cifar10() -> Task:
    """Return 500 CIFAR-10 images with CLIP ViT-B/32 embeddings and a small tree; every other image is for training."""
    note = "CIFAR-100 is not available here; 500 images of CIFAR-10 with a small tree of our own are used instead"
    file, tree = required("cifar10_500_clip_vitb32.npz"), cifar10_hierarchy()
    return _from_npz("CIFAR-10 (500 images)", file, note, CLIP, tree, "class_names")


def imagenet_6shot() -> Task:
    """Return ImageNet-1k by CLIP ViT-B/32: four training images per class, and two to test on."""
    with np.load(required(f"{CLIP_SETS}/imagenet1k_6shot.npz"), allow_pickle=False) as data:
        X, y, train = data["embeddings"], data["wnids"][data["labels"]], data["shot_file"] == 4
        classes = Vocabulary(CLASS_NAMES, tuple(data["wnids"].tolist()), data["text_photo"], are_synsets=True)
    with np.load(required(f"{CLIP_SETS}/text_vocabularies.npz"), allow_pickle=False) as data:
        lvis = Vocabulary(LVIS_NAMES, tuple(data["lvis_names"].tolist()), data["lvis"])
    pairs = ((X[part], y[part]) for part in (train, ~train))
    task = task_from_arrays(IMAGENET_6SHOT, CLIP, imagenet_hierarchy(), *pairs, note=FEW_IMAGES)
    return replace(task, vocabularies={one.name: one for one in (classes, lvis)})


def imagenet_photos() -> Task:
    """Return the 500 validation images of ImageNet among those of ImageNette, for a classifier of all its classes.

    There are no training images.
    """
    with np.load(required("imagenette_efficientnet_lite2.npz"), allow_pickle=False) as data:
        rows = np.char.find(data["paths"].astype(str), "ILSVRC2012_val") >= 0
        X, y = data["embeddings"][rows].astype(np.float32), data["wnids"][data["labels"][rows]].astype(str)
    none = np.array([], dtype=str)
    tree = imagenet_hierarchy().collapse()
    return Task(VALIDATION_PHOTOS, LITE, tree, X[:0], none, X, y, none, "500 validation images of ten classes")


def imagenette_clip() -> Task:
    """Return ImageNette by CLIP ViT-B/16, with 60 training images per class; if it is missing, the bundled sample."""
    file = shared_data("imagenette_clip_vitb16.npz")
    if not file.is_file():
        return sample()
    with np.load(file, allow_pickle=False) as data:
        X, y, train = data["embeddings"], data["wnid"], data["split"] == "train"
    pairs = ((X[part], y[part]) for part in (train, ~train))
    return task_from_arrays("ImageNette by CLIP", "CLIP ViT-B/16", imagenet_hierarchy(), *pairs)


def clip_set(name: str, file: str) -> Task:
    """Return a public few-shot set by CLIP ViT-B/32, with the most training images per class that the file has.

    Pets are cats or dogs; the classes of other sets hang from the root. A file with one training image per class lends
    its validation images to the training images, and a file without test images is tested on its validation images;
    validation images that serve for neither are for tuning.
    """
    with np.load(required(f"{CLIP_SETS}/{file}.npz"), allow_pickle=False) as data:
        largest = max((k for k in (1, 2, 4, 8, 16) if f"train{k}" in data), default=1)
        train = [f"train{largest}", *(["val"] if largest == 1 else [])]
        splits = [train, ["test" if "test" in data else "val"]]
        splits += [["val"]] if not any("val" in parts for parts in splits) else []
        names = data.get("class_names")
        pairs = [
            (np.concatenate([data[part] for part in parts]), np.concatenate([data[f"{part}_labels"] for part in parts]))
            for parts in splits
        ]
    if names is None:
        names = np.array([f"class {i}" for i in range(int(pairs[0][1].max()) + 1)])
    # Breeds of cats, and no others, have names in capitals.
    above = {str(label): ("cat" if label[0].isupper() else "dog") if file == PETS else "any" for label in names}
    edges = [(parent, label) for label, parent in above.items()]
    edges += [("any", parent) for parent in dict.fromkeys(above.values()) if parent != "any"]
    tree = Hierarchy.from_edges(edges, root="any")
    named = [(X.astype(np.float32), names[own].astype(str)) for X, own in pairs]
    return replace(task_from_arrays(name, CLIP, tree, *named[:2]), tuning=named[2] if len(named) > 2 else None)


CLASS_NAMES, LVIS_NAMES, IMAGENET_6SHOT = "class names", "LVIS names", "ImageNet-1k (6 per class)"
CLIP, CLIP_SETS, PETS = "CLIP ViT-B/32", "clip_vitb32", "oxford_pets"
FEW_IMAGES = "each vector is the mean of ten augmentations of one training image of ImageNet"
VALIDATION_PHOTOS = "ImageNet validation photos"
NO_CLIP = "CLIP ViT-L/14 embeddings are not available here; EfficientNet-Lite2, which was trained on ImageNet, "
NO_CLIP += "is used instead"
BUNDLED: dict[str, Callable[[], Task]] = {
    "sample": lambda: sample(tree=True),
    "imagenette": imagenette,
    "tiny-imagenet": tiny_imagenet,
    "cifar10": cifar10,
    "imagenet-6shot": imagenet_6shot,
    "imagenet-photos": imagenet_photos,
    "imagenette-clip": imagenette_clip,
    "pets": lambda: clip_set("Oxford pets", PETS),
    "caltech101": lambda: clip_set("Caltech-101", "caltech101"),
    "dtd": lambda: clip_set("Textures (DTD)", "dtd"),
    "aircraft": lambda: clip_set("Aircraft (FGVC)", "fgvc"),
    "sun397": lambda: clip_set("SUN397", "sun397"),
    "ucf101": lambda: clip_set("UCF-101", "ucf101"),
}


def shared_data(name: str) -> Path:
    """Return the path of a file in the `data` folder of HCEP_SHARED."""
    return Path(os.environ.get(SHARED, "../shared")) / "data" / name


def required(name: str) -> Path:
    """Return the path of a file in the `data` folder of HCEP_SHARED; a missing file is an error."""
    if not shared_data(name).is_file():
        own = "pass your own data with --data STORE_OR_FILE, or --data FOLDER --encoder NAME"
        raise HCEPError(f"no data: {name} is not in the `data` folder of {SHARED} (default ../shared); {own}")
    return shared_data(name)


def _from_npz(
    name: str, file: Path, note: str, encoder: str = LITE, tree: Hierarchy | None = None, labels: str = "wnids"
) -> Task:
    """Read a task from a file; without splits, every other image is for training."""
    arrays = read_embeddings(file, label=labels)
    assert arrays.labels is not None
    train = np.arange(len(arrays)) % 2 == 0 if arrays.splits is None else arrays.splits == "train"
    ids = arrays.paths[train] if arrays.paths is not None else None
    data = ((arrays.X[part], arrays.labels[part]) for part in (train, ~train))
    return task_from_arrays(name, encoder, tree or imagenet_hierarchy(), *data, ids=ids, note=note)
