"""How an image becomes a model's input, described by data: resize, crop and scale with Pillow and NumPy."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from hcep._files import regular
from hcep.embeddings.pixels import offset, preprocessed, resized_size
from hcep.errors import HCEPError, near_matches, quote, quoted

RESIZES = ("shortest", "longest", "squash")
INTERPOLATIONS = {
    name: Image.Resampling[name.upper()] for name in ("nearest", "box", "bilinear", "hamming", "bicubic", "lanczos")
}


class PreprocessingError(HCEPError):
    """A description of a preprocessing is not valid."""


def _numbers(field: str, value: Any, n: int, kind: type) -> tuple[Any, ...]:
    listed = list(value) if isinstance(value, list | tuple | np.ndarray) else [value] * n
    if len(listed) != n or not all(isinstance(v, (int, float)) and v == kind(v) for v in listed):
        raise PreprocessingError(f"{field} must be one {kind.__name__} or {n} of them, got {quote(value)}")
    return tuple(kind(v) for v in listed)


@dataclass(frozen=True)
class Preprocessing:
    """Resize, crop to `size`, then ``(value * rescale - mean) / std`` for each channel.

    Attributes
    ----------
    size : height and width of the model's input; one integer for a square
    resize : {'shortest', 'longest', 'squash'}; scale the shorter side to `edge`, or the longer side, and keep the
        proportions; or scale both sides, to a square. The result is then cropped around the centre to `size`, or padded
        with `fill`.
    edge : length to scale to, in pixels; `size` by default
    crop_square : whether a square image is treated like the others. False scales it to `size` without a crop.
    interpolation : {'nearest', 'box', 'bilinear', 'hamming', 'bicubic', 'lanczos'}
    rescale : factor on the values 0 to 255
    mean, std : in units of rescaled values; one number stands for all channels
    fill : colour of the padding; one number is a shade of grey

    >>> from PIL import Image
    >>> Preprocessing(size=8, mean=0.5, std=0.5)(Image.new("RGB", (20, 10), "white")).shape
    (3, 8, 8)
    """

    size: tuple[int, int] = (224, 224)
    resize: str = "shortest"
    edge: int | None = None
    crop_square: bool = True
    interpolation: str = "bicubic"
    rescale: float = 1 / 255
    mean: tuple[float, float, float] = (0.0, 0.0, 0.0)
    std: tuple[float, float, float] = (1.0, 1.0, 1.0)
    fill: tuple[int, int, int] = (0, 0, 0)

    def __post_init__(self) -> None:
        # Single numbers and lists become tuples, so that equal descriptions compare equal.
        for field, n, kind in (("size", 2, int), ("mean", 3, float), ("std", 3, float), ("fill", 3, int)):
            object.__setattr__(self, field, _numbers(field, getattr(self, field), n, kind))
        for field, choices in (("resize", RESIZES), ("interpolation", INTERPOLATIONS)):
            value = getattr(self, field)
            if not isinstance(value, str) or value not in choices:
                raise PreprocessingError(f"{field} must be one of {quoted(choices, limit=10)}, got {quote(value)}")
        size, edge, std, rescale = self.size, self.edge, self.std, self.rescale
        if not isinstance(edge, int | None):
            raise PreprocessingError(f"edge must be an integer, got {quote(edge)}")
        if not isinstance(rescale, int | float):
            raise PreprocessingError(f"rescale must be a number, got {quote(rescale)}")
        if min(size) < 1 or (edge is not None and edge < 1):
            raise PreprocessingError(f"size and edge must be positive, got size {size} and edge {edge}")
        if min(*std, rescale) <= 0:
            raise PreprocessingError(f"std and rescale must be positive, got std {std} and rescale {rescale}")
        if size[0] != size[1] and self.resize != "squash":
            raise PreprocessingError(f"size {size} is not square, which only resize='squash' supports")

    @classmethod
    def from_dict(cls, description: Mapping[str, Any], base: "Preprocessing | None" = None) -> "Preprocessing":
        """A preprocessing from a mapping; missing fields come from its ``preset``, or else from `base`."""
        changes = dict(description)
        start = _preset(changes.pop("preset")) if "preset" in changes else base or cls()
        known = [field.name for field in fields(cls)]
        for key in changes:
            if key not in known:
                raise PreprocessingError(f"unknown key {quote(key)} in the preprocessing.{near_matches(key, known)}")
        return replace(start, **changes)

    def to_dict(self) -> dict[str, Any]:
        """The fields, ready for JSON."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}

    def __call__(self, image: Image.Image) -> NDArray[np.float32]:
        """An RGB image as a (3, height, width) array."""
        return preprocessed(image, **vars(self))

    @property
    def shorter_side(self) -> int | None:
        """What an image's shorter side is scaled to; None if it depends on the longer side."""
        return None if self.resize == "longest" else self.edge or max(self.size)

    def region(self, width: int, height: int) -> tuple[float, float, float, float]:
        """Left, top, right and bottom of the part that the model sees, in the image's pixels; padding lies outside.

        >>> Preprocessing(size=10, edge=20).region(40, 20)
        (15.0, 5.0, 25.0, 15.0)
        """
        reach = 4 * min(width, height) if self.resize == "shortest" else max(width, height)
        middle = min(width, reach), min(height, reach)
        edges = []
        for whole, cut, resized, wanted in zip(
            (width, height), middle, self._resized(*middle), self.size[::-1], strict=True
        ):
            start, step, before = offset(resized, wanted), cut / resized, offset(whole, cut)
            edges.append((before + start * step, before + (start + wanted) * step))
        (left, right), (top, bottom) = edges
        return left, top, right, bottom

    def _resized(self, width: int, height: int) -> tuple[int, int]:
        return resized_size(
            width, height, size=self.size, resize=self.resize, edge=self.edge, crop_square=self.crop_square
        )


PreprocessingLike: TypeAlias = Preprocessing | Mapping[str, Any] | str | os.PathLike[str]

PRESETS = {
    "clip": Preprocessing(mean=(0.48145466, 0.4578275, 0.40821073), std=(0.26862954, 0.26130258, 0.27577711)),
    "siglip": Preprocessing(resize="squash", mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5)),
    "imagenet": Preprocessing(
        edge=256, interpolation="bilinear", mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)
    ),
    **{
        f"efficientnet-{variant}": Preprocessing(
            size=(size, size), edge=edge, crop_square=False, rescale=1.0, mean=(127.0,) * 3, std=(128.0,) * 3
        )
        for variant, size, edge in (("lite0", 224, 255), ("lite2", 260, 296))
    },
}


def as_preprocessing(description: PreprocessingLike | None, base: Preprocessing | None = None) -> Preprocessing:
    """A preprocessing from any description of it; `base` supplies what is missing.

    Parameters
    ----------
    description : a `Preprocessing`, the name of one of `PRESETS`, a JSON file, or a mapping of the fields that differ
        from `base` (or from the mapping's own ``"preset"``)
    """
    if isinstance(description, Preprocessing):
        return description
    if description is None:
        return base or Preprocessing()
    if isinstance(description, Mapping):
        return Preprocessing.from_dict(description, base)
    if Path(description).suffix == ".json":
        return Preprocessing.from_dict(read_json_object(description), base)
    return _preset(os.fspath(description))


def read_json_object(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The JSON object in a file."""
    try:
        content = json.loads(regular(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise PreprocessingError(f"{os.fspath(path)}: cannot be read as JSON: {error}") from error
    if not isinstance(content, dict):
        raise PreprocessingError(f"{os.fspath(path)}: expected a JSON object, got {type(content).__name__}")
    return content


def _preset(name: object) -> Preprocessing:
    if not isinstance(name, str) or name not in PRESETS:
        raise PreprocessingError(
            f"no preset {quote(name)}; there are {quoted(PRESETS)}, or give a .json file.{near_matches(name, PRESETS)}"
        )
    return PRESETS[name]
