"""Evidence maps drawn on their photo: red for, blue against, transparent where there is none."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from hcep.explain.where import EvidenceMap

FOR, AGAINST = (214, 40, 57), (38, 92, 196)
#: Opacity of the strongest share.
STRONGEST = 0.72
#: The longer side of a heat map, in pixels.
HEAT_SIDE = 160
#: Pictures side by side in a strip.
PER_ROW = 6
Region = tuple[float, float, float, float]


def common_limit(maps: Sequence[EvidenceMap]) -> float:
    """The share at which colours are strongest: one scale for maps that are shown side by side."""
    return max((float(np.abs(one.shares).max()) for one in maps), default=0.0) or 1.0


def _strength(evidence: EvidenceMap, limit: float, size: tuple[int, int]) -> NDArray[np.float32]:
    """The shares as parts of `limit`, from -1 to 1, smooth between positions, for a (width, height) `size`."""
    smooth = Image.fromarray(evidence.shares.astype(np.float32)).resize(size, Image.Resampling.BICUBIC)
    return np.asarray(np.clip(np.asarray(smooth, dtype=np.float32) / np.float32(limit), -1.0, 1.0))


def overlay(evidence: EvidenceMap, limit: float, size: tuple[int, int]) -> Image.Image:
    """A transparent picture of the shares, (width, height) `size`, smooth between positions."""
    strength = _strength(evidence, limit, size)
    pixels: NDArray[np.uint8] = np.empty((*strength.shape, 4), dtype=np.uint8)
    pixels[..., :3] = np.where(strength[..., None] > 0, FOR, AGAINST)
    pixels[..., 3] = (255 * STRONGEST * np.abs(strength)).astype(np.uint8)
    return Image.fromarray(pixels, "RGBA")


def heat_map(evidence: EvidenceMap, limit: float, region: Region, size: tuple[int, int]) -> Image.Image:
    """The evidence for a concept as a small grey picture of the whole photo, (width, height) `size`; white is `limit`.

    Evidence against it, and what the model does not see, are black.
    """
    scale = HEAT_SIDE / max(size)
    left, top, right, bottom = (round(edge * scale) for edge in region)
    strength = _strength(evidence, limit, (max(right - left, 1), max(bottom - top, 1)))
    picture = Image.new("L", (max(1, round(size[0] * scale)), max(1, round(size[1] * scale))))
    picture.paste(Image.fromarray((255 * np.maximum(strength, 0.0)).astype(np.uint8)), (left, top))
    return picture


def drawn_on(photo: Image.Image, evidence: EvidenceMap, region: Region, limit: float) -> Image.Image:
    """The upright photo in grey, with the map on the part that the model sees (see `Preprocessing.region`)."""
    left, top, right, bottom = (round(edge) for edge in region)
    layer = Image.new("RGBA", photo.size)
    layer.paste(overlay(evidence, limit, (max(right - left, 1), max(bottom - top, 1))), (left, top))
    return Image.alpha_composite(photo.convert("L").convert("RGBA"), layer).convert("RGB")


def strip(
    photo: Image.Image, maps: Sequence[EvidenceMap], names: Sequence[str], region: Region, height: int = 260
) -> Image.Image:
    """The photo, then a copy per map with its name above, all on one scale of colours; long rows wrap."""
    limit = common_limit(maps)
    pictures = [photo.convert("RGB"), *(drawn_on(photo, one, region, limit) for one in maps)]
    width = max(1, round(photo.width * height / photo.height))
    caption, gap = 26, 8
    columns = min(len(pictures), PER_ROW)
    rows = -(-len(pictures) // columns)
    out = Image.new("RGB", ((width + gap) * columns - gap, (height + caption) * rows), "white")
    pen, font = ImageDraw.Draw(out), ImageFont.load_default(size=15)
    for i, (picture, name) in enumerate(zip(pictures, ("photo", *names), strict=True)):
        left, top = i % columns * (width + gap), i // columns * (height + caption)
        out.paste(picture.resize((width, height), Image.Resampling.LANCZOS), (left, top + caption))
        pen.text((left + 2, top + 4), _fitting(name, font, width), fill="black", font=font)
    return out


def _fitting(text: str, font: ImageFont.ImageFont | ImageFont.FreeTypeFont, width: int) -> str:
    while len(text) > 1 and font.getlength(text) > width - 4:
        text = text[:-2] + "…"
    return text
