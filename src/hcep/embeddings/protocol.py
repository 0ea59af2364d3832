"""The interface of an encoder, and what stores and models record of one."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray
from PIL.Image import Image


class EncoderRecord(Struct, frozen=True, forbid_unknown_fields=True):
    """What stores and models record of an encoder.

    Attributes
    ----------
    name : source and model, as `load_encoder` takes it
    fingerprint : hash of everything that determines its vectors, or None; equal fingerprints mean equal encoders
    preprocessing : how it prepares images, so that `load_encoder` can load the same encoder again
    """

    name: str
    fingerprint: str | None = None
    preprocessing: dict[str, Any] | None = None


@runtime_checkable
class Encoder(Protocol):
    """Encodes images, and perhaps texts, as vectors; one small adapter per library implements it.

    Attributes
    ----------
    name : source and model, as `load_encoder` takes it, such as ``"open_clip:ViT-L-14/openai"``
    n_dims : length of a vector
    fingerprint : hash of everything that determines the vectors (weights, preprocessing), so that vectors of different
        encoders are never mixed
    preprocessing : description, ready for JSON, of how an image becomes an array (size, interpolation, crop, mean, std)
    has_text : whether `encode_texts` works
    """

    name: str
    n_dims: int
    fingerprint: str
    preprocessing: Mapping[str, Any]
    has_text: bool

    def preprocess(self, image: Image) -> NDArray[np.float32]:
        """One RGB image as the model's input array, without the batch axis; may be called from several threads."""
        ...

    def encode_images(self, batch: NDArray[np.float32]) -> NDArray[np.float32]:
        """Vectors (n, n_dims) of a batch of preprocessed images."""
        ...

    def encode_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors (n, n_dims) of texts, in the images' space."""
        ...
