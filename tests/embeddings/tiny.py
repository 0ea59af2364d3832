"""A tiny encoder whose vectors depend on the whole batch, as rounding can make a real one's; also run as a program."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from PIL import Image

from hcep.embeddings.images import ImageItem
from hcep.embeddings.store.encoding import EncodeReport, encode_to_store


class TinyEncoder:
    """Mean colours of a picture's quarters; place in the batch and the batch's mean leave a mark on every vector."""

    name = "tiny"
    n_dims = 12
    has_text = False

    def __init__(self, fingerprint: str = "tiny-1", delay: float = 0.0) -> None:
        self.fingerprint = fingerprint
        self.preprocessing = {"size": [2, 2], "interpolation": "box"}
        self.delay = delay
        self.batches: list[int] = []

    def preprocess(self, image: Image.Image) -> np.ndarray:
        return np.asarray(image.resize((2, 2), Image.Resampling.BOX), dtype=np.float32) / 255

    def encode_images(self, batch: np.ndarray) -> np.ndarray:
        time.sleep(self.delay)
        self.batches.append(len(batch))
        place = np.arange(len(batch), dtype=np.float32)[:, None]
        return batch.reshape(len(batch), -1) + place / 64 + batch.mean() / 16

    def encode_texts(self, texts: object) -> np.ndarray:
        raise NotImplementedError


def make_images(folder: Path, n: int, seed: int = 0) -> list[ImageItem]:
    """Small pictures of random colours in two classes; the items of all of them, in order."""
    rng = np.random.default_rng(seed)
    for i in range(n):
        path = folder / ("cat", "dog")[i % 2] / f"{i:04d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (6, 5, 3), dtype=np.uint8)).save(path)
    return folder_items(folder)


def folder_items(folder: Path) -> list[ImageItem]:
    paths = sorted(path for path in folder.rglob("*") if path.parent != folder)
    return [ImageItem(path, path.parent.name, path.relative_to(folder).as_posix()) for path in paths]


def encode(items, folder: Path, encoder: TinyEncoder | None = None, **options) -> EncodeReport:
    """Small batches and shards, so that a few images make several of both."""
    return encode_to_store(items, encoder or TinyEncoder(), folder, **{"batch_size": 4, "shard_size": 8, **options})


if __name__ == "__main__":
    images, store, delay = sys.argv[1:]
    items = folder_items(Path(images))
    with TemporaryDirectory() as scratch:  # what is slow only the first time comes before the moments that are timed
        encode(items[:1], Path(scratch))
    print("encoding", flush=True)
    encode(items, Path(store), TinyEncoder(delay=float(delay)))
