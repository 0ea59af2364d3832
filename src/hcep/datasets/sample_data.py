"""The bundled sample: embeddings of a thousand ImageNette images with the WordNet DAG above them, and six photos."""

import os
from collections.abc import Iterator
from importlib.resources import files
from io import BytesIO
from pathlib import Path

import numpy as np
from sklearn.utils import Bunch

from hcep._files import write_bytes
from hcep.errors import HCEPError
from hcep.hierarchy import Hierarchy

#: Classes of photos that are not named after them; the new class is not part of the training set.
CLASSES, NEW_CLASS = {"china": "pagoda", "flower": "dahlia"}, "dahlia"
#: Crops of each photo by split, and the side of a crop in pixels.
N_CROPS, CROP = {"train": 10, "val": 4}, 192


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


def sample_photos() -> dict[str, Path]:
    """The files of the bundled photos by their names, such as ``cat``; two of them come with scikit-learn."""
    folders = (files("hcep.datasets") / "sample" / "photos", files("sklearn.datasets") / "images")
    return {file.stem: file for folder in map(str, folders) for file in sorted(Path(folder).glob("*.jpg"))}


def photo_credits() -> dict[str, str]:
    """Who took each bundled photo, and its licence."""
    lines = (files("hcep.datasets") / "sample" / "photos" / "CREDITS.txt").read_text("utf-8").splitlines()
    return {file.removesuffix(".jpg"): credit for file, _, credit in (line.partition(": ") for line in lines)}


def write_sample(folder: str | os.PathLike[str]) -> Path:
    """Write the sample to files, for trying commands.

    - ``embeddings.npz``, ``tree.json``, ``classes.txt``, ``sentences.txt`` (about the classes) and ``scores.csv`` (of a
      classifier that is often wrong) are about ImageNette.
    - ``cat.jpg`` and others are photos, with ``CREDITS.txt``.
    - ``photos/train/CLASS/*.jpg``, ``photos/val/CLASS/*.jpg`` and ``things.csv`` are a small training set and its tree,
      made of crops of these photos; ``dahlia/train/*.jpg`` and ``dahlia/val/*.jpg`` are crops of one more class.

    HCEPError is raised if one of the files exists with different content: nothing is overwritten.
    """
    sample = files("hcep.datasets") / "sample"
    tree = Hierarchy.from_json((sample / "hierarchy.json").read_text(encoding="utf-8"))
    contents = {
        "embeddings.npz": (sample / "imagenette.npz").read_bytes(),
        "tree.json": (sample / "hierarchy.json").read_bytes(),
        "classes.txt": "".join(f"{tree.name(leaf)}\n" for leaf in tree.leaves).encode(),
        "sentences.txt": (sample / "sentences.txt").read_bytes(),
        "scores.csv": (sample / "scores.csv").read_bytes(),
        "CREDITS.txt": (sample / "photos" / "CREDITS.txt").read_bytes(),
        "things.csv": (sample / "things.csv").read_bytes(),
    }
    for name, photo in sample_photos().items():
        contents[f"{name}.jpg"] = photo.read_bytes()
        label = CLASSES.get(name, name)
        for split, n in N_CROPS.items():
            crops = enumerate(_crops(photo, n, mirrored=split == "val"))
            within = f"{label}/{split}" if label == NEW_CLASS else f"photos/{split}/{label}"
            contents |= {f"{within}/{i}.jpg": crop for i, crop in crops}
    for name, content in contents.items():
        place = Path(folder) / name
        if place.exists() and place.read_bytes() != content:
            raise HCEPError(f"{str(place)!r} exists with different content; give another folder")
        write_bytes(place, content)
    return Path(folder)


def _crops(photo: Path, n: int, mirrored: bool = False) -> Iterator[bytes]:
    """Square crops of a photo as JPEG files; mirrored ones are from the other side of the photo."""
    from PIL import Image, ImageOps

    from hcep.embeddings.images import open_image

    image, rng = open_image(photo), np.random.default_rng(n)
    image = ImageOps.mirror(image) if mirrored else image
    for size, left, top in rng.uniform((0.55, 0.0, 0.0), (0.85, 0.6, 1.0), (n, 3)):
        side = int(size * min(image.size))
        x, y = int(left * (image.width - side)), int(top * (image.height - side))
        data = BytesIO()
        image.crop((x, y, x + side, y + side)).resize((CROP, CROP), Image.Resampling.LANCZOS).save(data, "JPEG")
        yield data.getvalue()
