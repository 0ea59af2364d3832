"""The grid pointing game: the share of a map's evidence in the right quarter of a mosaic of four photos."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.claims import Verdict, ahead, labels_of, series
from experiments.experiment import described
from experiments.figures import Figure, bars, canvas
from experiments.measuring import Cell
from experiments.records import Row
from experiments.tables import markdown, number
from experiments.tasks import SHARED, shared_data
from hcep.classify import HCEPClassifier
from hcep.datasets import load_sample
from hcep.embeddings import load_encoder
from hcep.errors import HCEPError
from hcep.explain import PathMaps
from hcep.hierarchy.imagenet import imagenet_classes, imagenet_hierarchy
from hcep.models.opening import linear_head, open_encoder

Array = NDArray[Any]
ENCODER = "efficientnet-lite2"
OURS, OPENED, ANCESTORS = "ours, leaf", "network opened, leaf", "ours, ancestors of one cell"
GRAD_CAM, OCCLUSION, RANDOM = "Grad-CAM", "occlusion", "ours, random network"
LABELS = (OURS, ANCESTORS, OPENED, GRAD_CAM, OCCLUSION, RANDOM)
CHANCE = 0.25


@dataclass(frozen=True)
class Config:
    """Mosaics per seed, and the size of the patch that occlusion covers."""

    seeds: tuple[int, ...] = (0, 1, 2, 3, 4, 5)
    n_mosaics: int = 10
    patch: int = 52


class Mosaic(NamedTuple):
    """Four photos of different classes in one picture."""

    pixels: Array
    classes: tuple[str, ...]


def cells(config: Config, task: None) -> Iterator[Cell]:
    for seed in config.seeds:
        for label in LABELS:
            yield {"label": label, "seed": seed}


def measure(config: Config, task: None, cell: Cell) -> Iterator[Row]:
    """Measure the mean share of positive evidence in the quarter of its class, without positions on the seams."""
    shares = [share for mosaic in mosaics(config, cell["seed"]) for share in _shares(config, cell["label"], mosaic)]
    yield {**cell, "data": "ImageNette mosaics", "in_own_cell": float(np.mean(shares)), "n": len(shares)}


def photos() -> dict[str, list[Path]]:
    """Return the validation photos by class, from the folder HCEP_SHARED."""
    folder = shared_data("imagenette_images/val")
    by_class = {place.name: sorted(place.iterdir()) for place in sorted(folder.glob("n*"))}
    if len(by_class) < 4:
        raise HCEPError(f"no photos: imagenette_images/val is not in the `data` folder of {SHARED} (default ../shared)")
    return by_class


def open_photo(file: Path) -> Any:
    """Open a photo as RGB."""
    from PIL import Image, ImageOps

    with Image.open(file) as image:
        return ImageOps.exif_transpose(image).convert("RGB")


def drawn_photos(files: dict[str, list[Path]], n: int, rng: np.random.Generator) -> tuple[list[str], list[Any]]:
    """Draw n different classes, and a photo of each."""
    classes = [str(c) for c in rng.choice(sorted(files), n, replace=False)]
    return classes, [open_photo(files[name][int(rng.integers(len(files[name])))]) for name in classes]


def mosaics(config: Config, seed: int) -> list[Mosaic]:
    """Make pictures of 2 x 2 photos of four different classes, preprocessed for the encoder."""
    from PIL import Image

    rng, files, encoder = np.random.default_rng(seed), photos(), _encoder()
    side, made = encoder.preprocessing["size"][0] // 2, []
    for _ in range(config.n_mosaics):
        classes, chosen = drawn_photos(files, 4, rng)
        canvas = Image.new("RGB", (2 * side, 2 * side))
        for k, photo in enumerate(chosen):
            edge = min(photo.size)
            left, top = (photo.width - edge) // 2, (photo.height - edge) // 2
            square = photo.crop((left, top, left + edge, top + edge)).resize((side, side), Image.Resampling.BICUBIC)
            canvas.paste(square, (k % 2 * side, k // 2 * side))
        made.append(Mosaic(encoder.preprocess(canvas), tuple(classes)))
    return made


def share_in_cell(shares: Array, cell: int) -> float:
    """Return the share of positive evidence in one quarter; seams, where positions see several photos, are ignored."""
    rows, columns = ((slice(0, n // 2), slice(-(n // 2), None)) for n in shares.shape)
    sums = [np.maximum(shares[rows[k // 2], columns[k % 2]], 0.0).sum() for k in range(4)]
    return float(sums[cell] / sum(sums)) if sum(sums) > 0 else CHANCE


def _shares(config: Config, label: str, mosaic: Mosaic) -> Iterator[float]:
    """Yield the share of each map; of the ancestors, those that only one of the four photos has."""
    if label == RANDOM:
        features = np.asarray(_random_session().run(["map"], {"x": mosaic.pixels[None]})[0][0])
    else:
        features = _encoder().feature_map(mosaic.pixels[None])[0]
    if label == OCCLUSION:
        maps = [[one] for one in _occlusion(config, mosaic)]
    elif label == GRAD_CAM:
        maps = [[np.tensordot(_weights()[name], features, axes=1)] for name in mosaic.classes]
    else:
        paths = [_path_maps(_model(opened=label == OPENED), name, features) for name in mosaic.classes]
        maps = [list(path.values())[-1:] for path in paths]
        if label == ANCESTORS:
            shared = Counter(concept for path in paths for concept in path)
            maps = [[path[concept] for concept in list(path)[:-1] if shared[concept] == 1] for path in paths]
    for k, own in enumerate(maps):
        yield from (share_in_cell(one, k) for one in own)


def _path_maps(model: HCEPClassifier, name: str, features: Array) -> dict[str, Array]:
    """Return the maps of the concepts along a class's path."""
    dictionary, tree = model.dictionary_, model.hierarchy_.path_tree
    leaf = model.hierarchy_.index(model.hierarchy_.leaf_of(name))
    node = next(n for n in tree.leaf_nodes if tree.synset[n] == leaf)
    nodes = [n for n in tree.ancestors()[node] if n > 0]
    maps = PathMaps(dictionary, model.anchor_).maps(node, (), features)
    return {model.hierarchy_.ids[tree.synset[n]]: one.shares for n, one in zip(nodes, maps, strict=True)}


def _occlusion(config: Config, mosaic: Mosaic) -> list[Array]:
    """Return how much each class's logit falls when a patch is grey."""
    size, patch = mosaic.pixels.shape[1], config.patch
    starts = list(range(0, size - patch // 2, patch // 2))
    covered = np.repeat(mosaic.pixels[None], 1 + len(starts) ** 2, axis=0)
    for i, (top, left) in enumerate((a, b) for a in starts for b in starts):
        covered[1 + i, :, top : top + patch, left : left + patch] = 0.0
    vectors = np.concatenate([_encoder().encode_images(covered[i : i + 32]) for i in range(0, len(covered), 32)])
    lost = [vectors[0] @ _weights()[name] - vectors[1:] @ _weights()[name] for name in mosaic.classes]
    return [values.reshape(len(starts), -1) for values in lost]


@cache
def _encoder() -> Any:
    return load_encoder(ENCODER)


@cache
def _random_session() -> Any:
    """Open the same network with the weights of every convolution shuffled; it is built from the encoder's own file."""
    from hcep.embeddings.encoders.efficientnet_lite import onnx_bytes, weights_file
    from hcep.embeddings.encoders.onnx_adapter import open_session
    from hcep.embeddings.torch_file import read_torch_file

    rng, state = np.random.default_rng(0), read_torch_file(weights_file(ENCODER))
    shuffled = {
        name: rng.permutation(array.reshape(-1)).reshape(array.shape) if array.ndim == 4 else array
        for name, array in state.items()
    }
    return open_session("a random network", onnx_bytes(ENCODER, shuffled), None, None)


@cache
def _model(*, opened: bool) -> HCEPClassifier:
    if opened:
        return open_encoder(ENCODER, hierarchy=imagenet_hierarchy())  # all of WordNet, as in the other experiments
    sample = load_sample()
    return HCEPClassifier(sample.hierarchy.as_tree("first")).fit(sample.X_train, sample.y_train)


@cache
def _weights() -> dict[str, Array]:
    """Return the row of the network's own last layer for every class."""
    return dict(zip(imagenet_classes(), linear_head(ENCODER).coef, strict=True))


def draw(rows: list[Row]) -> Figure:
    figure = canvas(7, 3)
    axes = figure.subplots()
    bars(axes, rows, "in_own_cell")
    axes.axvline(CHANCE, color="black", linestyle=":")
    axes.set_xlabel("share of positive evidence in the object's own quarter (dotted: chance)")
    return figure


def verdicts(rows: list[Row]) -> list[Verdict]:
    """Compare ours with the other maps, and check that the control is at chance."""
    checked = [v for c in (GRAD_CAM, OCCLUSION) for v in ahead(rows, "ImageNette mosaics", OURS, [c], "in_own_cell")]
    control = [r for r in rows if r["label"] == RANDOM]
    if control:
        _, means, lows, highs = series(control, "label", "in_own_cell")
        outcome = "better" if lows[0] <= CHANCE <= highs[0] or abs(means[0] - CHANCE) < 0.03 else "worse"
        text = f"{number(means[0])} ({number(lows[0])} to {number(highs[0])}), chance {number(CHANCE)}"
        checked.append(Verdict("A network with shuffled weights is at chance", outcome, text))  # type: ignore[arg-type]
    return checked


def table(rows: list[Row]) -> str:
    lines = []
    for label in labels_of(rows):
        mine = [r for r in rows if r["label"] == label]
        _, means, lows, highs = series(mine, "label", "in_own_cell")
        lines.append(
            (label, number(means[0]), f"{number(lows[0])} to {number(highs[0])}", f"{sum(r['n'] for r in mine):,}")
        )
    return markdown(("map", "share in the own quarter", "95 % interval over draws", "maps"), lines)


SMOKE = Config(seeds=(0, 1), n_mosaics=2, patch=130)
EXPERIMENT = described("where", cells, measure, draw, verdicts, table, Config(), SMOKE)
