"""The encoder class that every adapter returns: functions of preprocessed batches, and what a store records."""

import hashlib
import inspect
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL.Image import Image

from hcep.embeddings.preprocessing import Preprocessing, PreprocessingLike, as_preprocessing
from hcep.errors import HCEPError, quote

ImageFunction = Callable[[NDArray[np.float32]], ArrayLike]
TextFunction = Callable[[Sequence[str]], ArrayLike]

TEXTS_AT_ONCE = 64
#: A map is exact, up to rounding, if its mean differs from the vector by at most this share of its length.
SAME = 1e-5
_log = logging.getLogger(__name__)


class OnnxNetwork(NamedTuple):
    """A network that an encoder runs: its file or content, the output that is the vector, and photos per batch.

    `n_at_once` returns the only number of photos that may be run together; None is any number.
    """

    content: Path | bytes
    output: str
    n_at_once: Callable[[], int | None] = lambda: None


class FunctionEncoder:
    """An `Encoder` made from functions.

    Parameters
    ----------
    images : takes preprocessed images, (n, 3, height, width) float32, and returns vectors, (n, n_dims)
    preprocessing : see `as_preprocessing`; 224 x 224 with values from 0 to 1 by default
    fingerprint : hash of the weights, or anything that changes when the vectors do. By default the source code of
        `images` is hashed, which does not cover weights: give a fingerprint if they may change.
    texts : takes texts and returns vectors, (n, n_dims), in the images' space; or the reason why there are none
    maps : takes the same as `images` and returns the last feature map, (n, n_dims, height, width)
    maps_are_exact : whether a vector is the mean of its map over positions; otherwise maps are only a hint. None tests
        it, and whether `maps` works at all, on a picture of noise at the first use.
    n_dims : length of a vector; if it is not given, a blank image is encoded
    one_core : returns a function that does the same as `images` in the calling thread alone, for use in several threads
    network : the ONNX network that computes `images`, if there is one

    Besides the attributes of `hcep.embeddings.Encoder` it has `has_maps`, whether `feature_map` works, and
    `maps_are_exact`.

    >>> from hcep.embeddings.encoders import FunctionEncoder
    >>> FunctionEncoder(lambda batch: batch.mean(axis=(2, 3)), name="mean-colour", preprocessing={"size": 8})
    <encoder mean-colour: 3 dimensions>
    """

    def __init__(
        self,
        images: ImageFunction,
        *,
        name: str,
        preprocessing: PreprocessingLike | None = None,
        fingerprint: str | None = None,
        texts: TextFunction | str = "the model has no text tower",
        maps: ImageFunction | None = None,
        maps_are_exact: bool | None = True,
        n_dims: int | None = None,
        one_core: Callable[[], ImageFunction] | None = None,
        network: OnnxNetwork | None = None,
    ) -> None:
        self.name = name
        self._steps = as_preprocessing(preprocessing)
        self.preprocessing: Mapping[str, Any] = self._steps.to_dict()
        self.shorter_side = self._steps.shorter_side
        self.fingerprint = digest(_source(images) if fingerprint is None else fingerprint, self._steps)
        self._images, self._texts, self._maps, self._declared_exact = images, texts, maps, maps_are_exact
        self.has_text = not isinstance(texts, str)
        self.n_dims = n_dims or self._try_a_blank_image()
        self.network = network
        self._one_core, self.has_one_core = one_core and cache(one_core), one_core is not None

    def __repr__(self) -> str:
        return f"<encoder {self.name}: {self.n_dims} dimensions{', images and texts' if self.has_text else ''}>"

    def preprocess(self, image: Image) -> NDArray[np.float32]:
        """One RGB image as a (3, height, width) array."""
        return self._steps(image)

    def encode_images(self, batch: NDArray[np.float32]) -> NDArray[np.float32]:
        """Vectors (n, n_dims) of a batch (n, 3, height, width) of preprocessed images."""
        return self._vectors(self._images, batch)

    def encode_on_one_core(self, batch: NDArray[np.float32]) -> NDArray[np.float32]:
        """`encode_images` in this thread alone, if `has_one_core`; several batches can then use all cores."""
        assert self._one_core is not None
        return self._vectors(self._one_core(), batch)

    def _vectors(self, images: ImageFunction, batch: NDArray[np.float32]) -> NDArray[np.float32]:
        if len(self._batch(batch)) == 0:
            return np.empty((0, self.n_dims), dtype=np.float32)
        return self._checked(images(self._batch(batch)), len(batch), "images")

    def feature_map(self, batch: NDArray[np.float32]) -> NDArray[np.float32]:
        """Last feature map (n, n_dims, height, width) of preprocessed images.

        Its mean over positions is the vector if `maps_are_exact`; otherwise positions are a hint.
        """
        if self._maps is None:
            raise HCEPError(f"encoder {quote(self.name)} has no feature maps")
        maps = np.ascontiguousarray(self._maps(self._batch(batch)), dtype=np.float32)
        if maps.ndim != 4 or maps.shape[:2] != (len(batch), self.n_dims):
            raise HCEPError(
                f"encoder {quote(self.name)} returned maps {maps.shape}, not (n, {self.n_dims}, height, width)"
            )
        return maps

    @property
    def has_maps(self) -> bool:
        return self._exact is not None

    @property
    def maps_are_exact(self) -> bool:
        return bool(self._exact)

    @cached_property
    def _exact(self) -> bool | None:
        """Whether maps are exact; None if there are no maps."""
        if self._maps is None or self._declared_exact is not None:
            return None if self._maps is None else self._declared_exact
        noise = np.random.default_rng(0).normal(size=(1, 3, *self._steps.size)).astype(np.float32)
        try:
            mean = self.feature_map(noise).mean(axis=(2, 3))
        except Exception as error:  # any library may raise anything; occlusion works without maps
            _log.warning("encoder %s has no feature map: %s", self.name, error)
            return None
        vector = self.encode_images(noise)
        return bool(np.linalg.norm(mean - vector) <= SAME * np.linalg.norm(vector))

    def _batch(self, batch: NDArray[np.float32]) -> NDArray[np.float32]:
        expected = (3, *self._steps.size)
        if np.ndim(batch) != 4 or batch.shape[1:] != expected:
            raise HCEPError(
                f"batch must have the shape (n, {', '.join(map(str, expected))}) of preprocessed images, "
                f"got {np.shape(batch)}"
            )
        return np.require(batch, np.float32, ["C", "W"])

    def encode_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors (n, n_dims) of texts, in the images' space."""
        if isinstance(self._texts, str):
            raise HCEPError(f"encoder {quote(self.name)} cannot encode texts: {self._texts}")
        if isinstance(texts, str):
            raise HCEPError(f"texts must be a list of strings, got one string {quote(texts)}")
        vectors = [np.empty((0, self.n_dims), dtype=np.float32)]
        for start in range(0, len(texts), TEXTS_AT_ONCE):
            batch = list(texts[start : start + TEXTS_AT_ONCE])
            vectors.append(self._checked(self._texts(batch), len(batch), "texts"))
        return np.concatenate(vectors)

    def _try_a_blank_image(self) -> int:
        """The number of dimensions; also shows at once whether the model accepts images of this size."""
        blank = np.zeros((1, 3, *self._steps.size), dtype=np.float32)
        try:
            vectors = np.asarray(self._images(blank))
        except HCEPError:
            raise
        except Exception as error:
            raise HCEPError(f"encoder {quote(self.name)} fails on a blank {blank.shape} batch: {error}") from error
        if vectors.ndim != 2 or len(vectors) != 1:
            raise HCEPError(
                f"encoder {quote(self.name)} must return (n, n_dims) vectors, got {vectors.shape} for one image"
            )
        return int(vectors.shape[1])

    def _checked(self, output: ArrayLike, n: int, what: str) -> NDArray[np.float32]:
        vectors = np.ascontiguousarray(output, dtype=np.float32)
        if vectors.shape != (n, self.n_dims):
            raise HCEPError(
                f"encoder {quote(self.name)} returned {vectors.shape} for {n} {what}, not ({n}, {self.n_dims})"
            )
        n_bad = int(n - np.isfinite(vectors).all(axis=1).sum())
        if n_bad:
            raise HCEPError(
                f"encoder {quote(self.name)}: {n_bad} of {n} {what} got a vector that is not finite; "
                "if the precision is 'fp16', try 'bf16' or 'fp32'"
            )
        return vectors


def load(
    path: str,
    *,
    device: str | None = None,
    precision: str | None = None,
    preprocessing: PreprocessingLike | None = None,
    fingerprint: str | None = None,
) -> FunctionEncoder:
    """Load the function at ``package.module:attribute`` as an encoder; this imports, and so runs, that module.

    Parameters
    ----------
    path : such as "package.module:attribute"
    device, precision : must be left out
    preprocessing, fingerprint : see `FunctionEncoder`
    """
    if device is not None or precision is not None:
        raise HCEPError("device and precision do not apply to function:…; leave them out")
    module, _, attribute = path.partition(":")
    try:
        function: Any = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise HCEPError(
            f"no function at {path!r}, expected package.module:attribute of something importable: {error}"
        ) from error
    if not callable(function):
        raise HCEPError(f"{path!r} is a {type(function).__name__}, not a function of a batch")
    return FunctionEncoder(function, name=f"function:{path}", preprocessing=preprocessing, fingerprint=fingerprint)


def digest(weights: str, steps: Preprocessing) -> str:
    """The fingerprint of an encoder, from the hash of its weights and its preprocessing."""
    text = json.dumps([weights, steps.to_dict()], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _source(function: ImageFunction) -> str:
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', type(function).__name__)}"
