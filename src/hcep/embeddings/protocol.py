"""What an encoder is: a name that carries its source, a dimension, a preprocessing, images (and texts) to vectors."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray
from PIL.Image import Image


class EncoderRecord(Struct, frozen=True, forbid_unknown_fields=True):
    """What stores and models remember of an encoder.

    fingerprint : hash of what decides its vectors: another encoder with the same one is the same; None: not known
    preprocessing : how it prepares images, for `load_encoder` to make the same encoder again
    """

    name: str
    fingerprint: str | None = None
    preprocessing: dict[str, Any] | None = None


@runtime_checkable
class Encoder(Protocol):
    """Images to vectors; one small adapter per library implements it.

    Attributes
    ----------
    name : source and model, such as ``"open_clip:ViT-L-14/openai"`` or ``"onnx:models/encoder.onnx"``; `load_encoder`
        takes it back
    n_dims : length of a vector
    fingerprint : hash of what decides the vectors (weights or file content, preprocessing), so that stores of different
        models are never mixed
    preprocessing : JSON-able description of how an image becomes an array (size, interpolation, crop, mean, std)
    has_text : whether `encode_texts` works
    """

    name: str
    n_dims: int
    fingerprint: str
    preprocessing: Mapping[str, Any]
    has_text: bool

    def preprocess(self, image: Image) -> NDArray[np.float32]:
        """One RGB image as the model's input array, without the batch axis; called from several threads."""
        ...

    def encode_images(self, batch: NDArray[np.float32]) -> NDArray[np.float32]:
        """Vectors (n, n_dims) of a batch of preprocessed images."""
        ...

    def encode_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors (n, n_dims) of texts, in the images' space."""
        ...
