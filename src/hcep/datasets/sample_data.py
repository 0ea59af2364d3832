"""The bundled sample: embeddings of a thousand ImageNette images, and the WordNet DAG above their classes."""

import os
from importlib.resources import files
from pathlib import Path

import numpy as np
from sklearn.utils import Bunch

from hcep._files import write_bytes
from hcep.errors import HCEPError
from hcep.hierarchy import Hierarchy


def load_sample() -> Bunch:
    """Load the bundled ImageNette sample.

    Returns
    -------
    sklearn.utils.Bunch
        ``X_train``, ``X_val`` : (500, 1280) float32, features of EfficientNet-Lite2.
        ``y_train``, ``y_val`` : (500,) str, WordNet ids.
        ``images_train``, ``images_val`` : (500,) str, file names in ImageNette.
        ``hierarchy`` : the WordNet DAG above the ten classes, with its single-child chains.

    Notes
    -----
    These are the first 50 images of each class in ImageNette's train and val folders. The encoder was trained on
    ImageNet, so that the sample shows how the method works, not how well an encoder generalises.

    >>> from hcep.datasets import load_sample
    >>> sample = load_sample()
    >>> sample.X_train.shape, len(sample.hierarchy.leaves)
    ((500, 1280), 10)
    """
    folder = files("hcep.datasets") / "sample"
    with (folder / "imagenette.npz").open("rb") as file:
        data = dict(np.load(file, allow_pickle=False))
    train = data["split"] == "train"
    hierarchy = Hierarchy.from_json((folder / "hierarchy.json").read_text(encoding="utf-8"))
    X = data["embeddings"].astype(np.float32)
    columns = {"X": X, "y": data["labels"], "images": data["images"]}
    parts = {f"{name}_train": column[train] for name, column in columns.items()}
    parts |= {f"{name}_val": column[~train] for name, column in columns.items()}
    return Bunch(**parts, hierarchy=hierarchy)


def write_sample(folder: str | os.PathLike[str]) -> Path:
    """Write the sample to files, for trying commands, with two photos that come with scikit-learn.

    The files are ``embeddings.npz``, ``tree.json``, ``classes.txt``, ``sentences.txt`` (about the classes),
    ``scores.csv`` (of a classifier that is often wrong) and ``photos/CLASS/*.jpg``. HCEPError is
    raised if one of them exists with different content: nothing is overwritten.
    """
    sample, photos = files("hcep.datasets") / "sample", files("sklearn.datasets") / "images"
    tree = Hierarchy.from_json((sample / "hierarchy.json").read_text(encoding="utf-8"))
    contents = {
        "embeddings.npz": (sample / "imagenette.npz").read_bytes(),
        "tree.json": (sample / "hierarchy.json").read_bytes(),
        "classes.txt": "".join(f"{tree.name(leaf)}\n" for leaf in tree.leaves).encode(),
        "sentences.txt": (sample / "sentences.txt").read_bytes(),
        "scores.csv": (sample / "scores.csv").read_bytes(),
        "photos/palace/china.jpg": (photos / "china.jpg").read_bytes(),
        "photos/daisy/flower.jpg": (photos / "flower.jpg").read_bytes(),
    }
    for name, content in contents.items():
        place = Path(folder) / name
        if place.exists() and place.read_bytes() != content:
            raise HCEPError(f"{str(place)!r} exists with different content; give another folder")
        write_bytes(place, content)
    return Path(folder)
