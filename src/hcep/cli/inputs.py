"""What commands read: embeddings from stores, array files or image folders, hierarchies by file or by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hcep.errors import HCEPError, quoted
from hcep.hierarchy import Hierarchy, read_hierarchy

if TYPE_CHECKING:
    from hcep.datasets.image_dataset import ImageDataset
    from hcep.embeddings import EmbeddingArrays, Encoder
    from hcep.embeddings.store.items import ImageItem
    from hcep.models import EncoderRecord

ARRAY_SUFFIXES = (".npy", ".npz", ".parquet")
#: What stands between the place and the split in the name of a source.
OF_SPLIT = ", split "


@dataclass(frozen=True)
class Embeddings:
    """Embeddings of images with what is known of them."""

    X: NDArray[Any]
    labels: NDArray[Any] | None
    ids: NDArray[Any]
    encoder: EncoderRecord | None
    source: str

    @property
    def y(self) -> NDArray[np.str_]:
        """Labels, all of them there."""
        if self.labels is None or any(label is None for label in self.labels.tolist()):
            raise HCEPError(f"{self.source}: images have no labels; give a store or file with one label an image")
        return np.asarray(self.labels, dtype=str)


def is_store(path: Path) -> bool:
    from hcep.embeddings.store.manifest import MANIFEST

    return (path / MANIFEST).is_file()


def read_embeddings(path: Path, split: str | None, default_split: str | None = None) -> Embeddings:
    """Embeddings of a store or an array file; `split`, or `default_split` where the data has it.

    Raises
    ------
    HCEPError
        When there is nothing to read at the path, or no image in the split.
    """
    from hcep.embeddings import EmbeddingStore
    from hcep.models.card import encoder_record

    if is_store(path):
        store = EmbeddingStore(path)
        wanted = split or (default_split if default_split in store.splits.tolist() else None)
        chosen = store.select(splits=wanted) if wanted else store
        record = encoder_record(store.encoder)
        return Embeddings(chosen.to_numpy(np.float32), chosen.labels, chosen.ids, record, _source(path, wanted))
    if path.suffix in ARRAY_SUFFIXES and path.is_file():
        arrays = read_array_file(path)
        wanted = _wanted_split(arrays.splits, split, default_split, path)
        rows = slice(None) if wanted is None else np.asarray(arrays.splits) == wanted
        ids = arrays.ids if arrays.ids is not None else arrays.paths
        ids = np.arange(len(arrays)).astype(str) if ids is None else ids
        labels = None if arrays.labels is None else arrays.labels[rows]
        return Embeddings(arrays.vectors[rows], labels, ids[rows], None, _source(path, wanted))
    raise HCEPError(
        f"no embeddings at {str(path)!r}: expected a store made by `hcep encode`, or a .npy, .npz or .parquet file"
    )


def read_array_file(path: Path) -> EmbeddingArrays:
    """The arrays of a file, integer labels named where the file has their names."""
    from hcep.embeddings import read_arrays

    return read_arrays(path, label_names=_label_names(path))


def _source(path: Path, split: str | None) -> str:
    return str(path) if split is None else f"{path}{OF_SPLIT}{split}"


def _label_names(path: Path) -> str | None:
    """The array of an .npz that names the classes its integer labels count, by its usual names."""
    if path.suffix != ".npz":
        return None
    with np.load(path, allow_pickle=False) as archive:
        return next((name for name in ("wnids", "label_names", "class_names") if name in archive.files), None)


def _wanted_split(splits: NDArray[Any] | None, split: str | None, default_split: str | None, path: Path) -> str | None:
    if splits is None:
        if split:
            raise HCEPError(
                f"{str(path)!r} has no splits, so no image of it is in split {split!r}; "
                "give data with that split, or, where all images will do, name no split"
            )
        return None
    known = splits.tolist()
    wanted = split or (default_split if default_split in known else None)
    if wanted is not None and wanted not in known:
        raise HCEPError(f"no image of {str(path)!r} is in split {wanted!r}; there are {quoted(sorted(set(known)))}")
    return wanted


def image_items(dataset: ImageDataset, export_to: Path) -> list[ImageItem]:
    """What the encoding pipeline takes; images that are not files (CIFAR's) are written to a folder first."""
    return list(dataset.export(export_to) if dataset.pixels is not None else dataset)


def find_hierarchy(wanted: str | None, classes: Sequence[str]) -> Hierarchy | None:
    """The hierarchy a user means: a file, "imagenet", "flat", or, unsaid, WordNet's where all classes are in it.

    Raises
    ------
    HCEPError
        When none is said and the classes are not ImageNet's.
    """
    if wanted == "flat":
        return None
    if wanted not in (None, "imagenet"):
        assert wanted is not None
        return read_hierarchy(wanted)
    from hcep.datasets import imagenet_hierarchy

    whole = imagenet_hierarchy()
    outside = [label for label in classes if label not in whole]
    if not outside:
        return whole
    raise HCEPError(
        f"--hierarchy: {len(outside):,} of {len(classes):,} classes are not in WordNet's above ImageNet: "
        f"{quoted(outside, 3)}; give a file (`hcep hierarchy formats` lists what is read), or `flat` for no hierarchy"
    )


def load_named_encoder(name: str, preprocessing: Any = None, device: str | None = None) -> Encoder:
    """The encoder of a name; `preprocessing` is what the model itself does not say (see `load_encoder`)."""
    from hcep.embeddings.encoders import load_encoder

    return load_encoder(with_absolute_path(name), device=device, preprocessing=preprocessing)


def with_absolute_path(name: str) -> str:
    """A name that leads to a file from every folder: what a store and a model remember."""
    source, _, place = name.partition(":")
    return f"{source}:{Path(place).resolve()}" if place and Path(place).exists() else name
