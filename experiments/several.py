"""Several objects in one picture: averages of embeddings and mosaics of two photos."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments import where
from experiments.baselines.penalised import lasso
from experiments.claims import (
    Verdict,
    ahead,
    by_data,
    by_metric,
    mean_of,
    table_by_data,
    threshold,
    verdicts_by_data,
)
from experiments.experiment import described
from experiments.figures import Figure, bars, canvas
from experiments.measuring import Cell
from experiments.records import OF_IMAGES, PER_IMAGE, Row, packed
from experiments.tables import markdown, number
from experiments.tasks import BUNDLED
from hcep.classify import HCEPClassifier, make_method
from hcep.pursuit import omp, path_objectives

Array = NDArray[Any]
OURS, AUTO, SINGLES, PROBE = "ours, two paths", "ours, auto", "two best single paths", "linear probe, two likeliest"
FLAT, LASSO = "flat OMP", "non-negative lasso"
LABELS = (OURS, AUTO, SINGLES, PROBE, FLAT, LASSO)
MOSAICS = "ImageNette, mosaics of two photos"
#: Averages of embeddings, and the data sets they are made from.
AVERAGES = {"Tiny-ImageNet-200, averages": "tiny-imagenet", "CIFAR-10 by CLIP, averages": "cifar10"}


@dataclass(frozen=True)
class Config:
    """Pictures per seed: averages of two embeddings, and mosaics of two photos."""

    seeds: tuple[int, ...] = (0, 1, 2)
    n_averages: int = 500
    n_mosaics: int = 150
    data: tuple[str, ...] = (MOSAICS, *AVERAGES)


def cells(config: Config, task: None) -> Iterator[Cell]:
    for data in config.data:
        for seed in config.seeds:
            for label in LABELS:
                yield {"data": data, "label": label, "seed": seed}


def measure(config: Config, task: None, cell: Cell) -> Iterator[Row]:
    """Measure the share of pictures whose two classes, and no others, are found."""
    data, seed = cell["data"], cell["seed"]
    X, pairs = _mosaics(config.n_mosaics, seed) if data == MOSAICS else _averages(config.n_averages, seed, data)
    name = "imagenette" if data == MOSAICS else AVERAGES[data]
    classes = _classes(name, X, cell["label"])
    right = np.array([set(own) == pair for own, pair in zip(classes, pairs, strict=True)], dtype=float)
    row = {**cell, "both": float(right.mean()), "n": len(right), OF_IMAGES: _kept(right)}
    if cell["label"] == AUTO:
        row["several"] = float(np.mean([len(own) > 1 for own in classes]))
        alone = _photos() if data == MOSAICS else BUNDLED[name]().X_val[:1000]
        row["one_of_one"] = float(np.mean(_model(name).pursue(alone, n_paths="auto").n_paths == 1))
    yield row


def _kept(values: Array) -> dict[str, Array]:
    """Pack the scores of the pictures, for paired intervals."""
    return packed({name: values if name == "correct" else np.full(len(values), np.nan) for name in PER_IMAGE})


@cache
def _model(name: str, probe: bool = False) -> Any:
    """Fit ours or the linear probe to a data set."""
    task = BUNDLED[name]()
    if probe:
        return make_method("linear-probe", task.hierarchy).fit(task.X, task.y)
    return HCEPClassifier(task.hierarchy).fit(task.X, task.y).fit_objects(task.X, task.y)


def _classes(name: str, X: Array, label: str) -> list[tuple[str, ...]]:
    """Return the classes that a method finds in each picture."""
    model = _model(name)
    if label in (OURS, AUTO):
        return [tuple(map(str, some)) for some in model.pursue(X, n_paths=2 if label == OURS else "auto").leaves]
    if label == PROBE:
        probe = _model(name, probe=True)
        return _two_best(probe.classes_, probe.predict_proba(X))
    tree = model.hierarchy_.path_tree
    ends = np.array(model.hierarchy_.ids)[tree.synset[tree.leaf_nodes]]
    if label == SINGLES:
        return _two_best(ends, -path_objectives(X, model.dictionary_, anchor=model.anchor_))
    dictionary, n_atoms = model.dictionary_, 2 * model.hierarchy_.depth
    codes = (omp(X, dictionary, n_atoms) if label == FLAT else lasso(X, dictionary, n_atoms, positive=True)).codes
    shares = codes.toarray() * np.linalg.norm(dictionary.atoms, axis=1)
    # A class is scored by the atom that ends in it, and ties are decided by the atoms that lead to it.
    nodes = tree.ancestors()[tree.leaf_nodes]
    along = np.where(nodes >= 0, np.maximum(shares, 0.0)[:, tree.edge[nodes]], 0.0).sum(axis=2)
    return _two_best(ends, shares[:, tree.edge[tree.leaf_nodes]] + 1e-3 * along)


def _two_best(classes: Array, scores: Array) -> list[tuple[str, ...]]:
    """Return the two different classes with the highest scores."""
    ranked = np.argsort(-scores, axis=1, kind="stable")
    return [tuple(dict.fromkeys(str(classes[k]) for k in row))[:2] for row in ranked]


def _averages(n: int, seed: int, data: str) -> tuple[Array, list[set[str]]]:
    """Return means of two validation embeddings of different classes, and the classes."""
    task = BUNDLED[AVERAGES[data]]()
    rng, chosen = np.random.default_rng(seed), list[tuple[int, int]]()
    while len(chosen) < n:
        a, b = rng.integers(len(task.y_val), size=2)
        if task.y_val[a] != task.y_val[b]:
            chosen.append((a, b))
    first, second = np.array(chosen).T
    pairs = [{str(task.y_val[a]), str(task.y_val[b])} for a, b in chosen]
    return (task.X_val[first] + task.X_val[second]) / 2, pairs


@cache
def _mosaics(n: int, seed: int) -> tuple[Array, list[set[str]]]:
    """Encode pictures of two validation photos of different classes side by side, each cropped to its half."""
    from PIL import Image, ImageOps

    rng, files, encoder = np.random.default_rng(seed), where.photos(), where._encoder()
    height, width = encoder.preprocessing["size"]
    vectors, pairs = [], []
    for _ in range(n):
        classes, chosen = where.drawn_photos(files, 2, rng)
        picture = Image.new("RGB", (width, height))
        for k, photo in enumerate(chosen):
            picture.paste(ImageOps.fit(photo, (width // 2, height), Image.Resampling.BICUBIC), (k * (width // 2), 0))
        vectors.append(encoder.encode_images(encoder.preprocess(picture)[None])[0])
        pairs.append(set(classes))
    return np.array(vectors), pairs


@cache
def _photos() -> Array:
    """Encode the validation photos themselves."""
    encoder, files = where._encoder(), where.photos()
    pixels = [encoder.preprocess(where.open_photo(file)) for some in files.values() for file in some]
    return np.concatenate([encoder.encode_images(np.stack(pixels[i : i + 16])) for i in range(0, len(pixels), 16)])


def draw(rows: list[Row]) -> Figure:
    groups = by_data(rows)
    figure = canvas(7, 1.7 * len(groups) + 0.5)
    panels = figure.subplots(len(groups), squeeze=False)[:, 0]
    for (data, group), axes in zip(groups.items(), panels, strict=True):
        bars(axes, group, "both")
        axes.set_title(data)
    return figure


@verdicts_by_data
def verdicts(data: str, rows: list[Row]) -> Iterator[Verdict]:
    """Compare ours with the other ways to find two classes, and check pictures of one object."""
    for other in (SINGLES, PROBE, FLAT, LASSO):
        yield from ahead(rows, data, OURS, [other], "both")
    alone = mean_of(rows, AUTO, "one_of_one")
    if alone is not None:
        claim = f"{data}: at least 95 % of the pictures with one object get one path"
        yield threshold(claim, alone - 0.95, number(alone))


@table_by_data
def table(data: str, rows: list[Row]) -> str:
    """Return tables of the classes found by each method, and of the decisions of "auto"."""
    means = [mean_of(rows, AUTO, metric) for metric in ("several", "both", "one_of_one")]
    auto = [(data, *("" if mean is None else number(mean) for mean in means))]
    heads = ("auto", "says several", "both right", "one object: one path")
    both = by_metric(rows, ("both",))
    return f"{data}, both classes found and no other:\n\n{both}\n{markdown(heads, auto)}\n"


SMOKE = Config(seeds=(0,), n_averages=30, n_mosaics=2, data=(MOSAICS, *list(AVERAGES)[-1:]))
EXPERIMENT = described("several", cells, measure, draw, verdicts, table, Config(), SMOKE)
