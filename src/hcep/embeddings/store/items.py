"""An image as datasets list it and the encoding pipeline takes it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ImageItem:
    """One image: its file, its class, and the id that tells it apart.

    Parameters
    ----------
    path : where the file is
    label : its class, a synset of the hierarchy
    id : what the image is known by from run to run, unique in a store; the path where none is given. A path relative to
        the images' folder keeps its meaning when the folder moves.
    split : such as "train" or "val"; `EmbeddingStore.select` knows it
    """

    path: Path
    label: str | None = None
    id: str = ""
    split: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", Path(self.path))
        object.__setattr__(self, "id", storable(self.id or str(self.path)))


def storable(text: str) -> str:
    """Text as Parquet can hold it: bytes of a file name that are no UTF-8 become visible escapes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
