"""Speed of everything besides the pursuit (fit, predict, probabilities, explain, encode, tensors), ours and others.

Each area has one task and several ways to do it, ours first. A goal is the largest ratio of our time to another's.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
from speed_task import make_task, random_tree

Run = Callable[[], object]
SHARED = Path(os.environ.get("HCEP_SHARED", Path(__file__).parents[2] / "shared"))


@dataclass(frozen=True)
class Area:
    """Ways to do one thing on `n_images` images: functions that prepare a run, by name, and reasons to skip some."""

    name: str
    n_images: int
    ours: str
    ways: dict[str, Callable[[], Run]]
    goals: dict[str, float] = field(default_factory=dict)
    skip: Callable[[], str | None] = lambda: None


@cache
def problem(n_classes: int, per_class: int, n_dims: int = 512) -> tuple[Any, np.ndarray, np.ndarray]:
    """Make a random tree over classes, and noisy images of them."""
    rng = np.random.default_rng(0)
    tree = random_tree(n_classes, rng)
    means = rng.standard_normal((n_classes, n_dims)).astype(np.float32)
    index = np.repeat(np.arange(n_classes), per_class)
    X = means[index] + 2.0 * rng.standard_normal((len(index), n_dims), dtype=np.float32)
    return tree, X, np.array(tree.leaves)[index]


@cache
def model(n_classes: int) -> Any:
    from hcep import HCEPClassifier

    tree, X, y = problem(n_classes, 10)
    return HCEPClassifier(tree, power=1.0, shrinkage=0.3, anchor=0.3, refine=False).fit(X, y)


@cache
def logistic(n_classes: int, n_dims: int = 512) -> Any:
    """Make a logistic regression with random weights; its speed does not depend on them."""
    from sklearn.linear_model import LogisticRegression

    fitted = LogisticRegression()
    fitted.coef_ = np.random.default_rng(0).standard_normal((n_classes, n_dims)).astype(np.float32)
    fitted.intercept_ = np.zeros(n_classes, np.float32)
    fitted.classes_ = np.array([f"leaf{i}" for i in range(n_classes)])
    fitted.n_features_in_ = n_dims
    return fitted


# -- real embeddings -----------------------------------------------------------------------------------

TINY, DAG = "data/tinyimagenet200_efficientnet_lite2.npz", "data/imagenet1k_wordnet_dag.json"


def no_tiny() -> str | None:
    return None if all((SHARED / name).exists() for name in (TINY, DAG)) else "needs Tiny-ImageNet in HCEP_SHARED"


@cache
def tiny(n_classes: int) -> tuple[Any, np.ndarray]:
    """Fit ours with the settings that "auto" chooses on Tiny-ImageNet to some classes, and make 15,000 images."""
    from hcep import HCEPClassifier, Hierarchy

    data = np.load(SHARED / TINY, allow_pickle=False)
    X, y = data["embeddings"].astype(np.float32), data["wnids"][data["labels"]]
    nodes = json.loads((SHARED / DAG).read_text(encoding="utf-8"))["nodes"]
    tree = Hierarchy.from_edges([(parent, child) for child, node in nodes.items() for parent in node["hypernyms"]])
    some = (data["split"] == "train") & np.isin(y, np.unique(y)[:: 200 // n_classes])
    fitted = HCEPClassifier(tree, power=0.5, shrinkage=0.6, anchor=0.3, refine=False).fit(X[some], y[some])
    return fitted, X


def call_tiny(ours: bool, method: str, n_classes: int, n_images: int) -> Run:
    """Run one call, or as many as it takes for a thousand images."""
    fitted, X = tiny(n_classes)
    ask = getattr(fitted if ours else logistic(n_classes, X.shape[1]), method)
    some = X[:n_images]
    return lambda: [ask(some) for _ in range(max(1, 1000 // n_images))]


def fit_ours(n_classes: int, per_class: int) -> Run:
    from hcep import HCEPClassifier

    tree, X, y = problem(n_classes, per_class)
    return lambda: HCEPClassifier(tree).fit(X, y)


def fit_lda(n_classes: int, per_class: int) -> Run:
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    _, X, y = problem(n_classes, per_class)
    return lambda: LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.3).fit(X, y)


def fit_logistic(n_classes: int, per_class: int) -> Run:
    from sklearn.linear_model import LogisticRegression

    _, X, y = problem(n_classes, per_class)
    return lambda: LogisticRegression(max_iter=1000).fit(X, y)


def images(n_classes: int, n_images: int) -> np.ndarray:
    X = problem(n_classes, 10)[1]
    return np.ascontiguousarray(np.tile(X, (-(-n_images // len(X)), 1))[:n_images])


def call(make: Callable[[int], Any], method: str, n_classes: int, n_images: int) -> Run:
    X = images(n_classes, n_images)
    return partial(getattr(make(n_classes), method), X)


def explain_ours(n_classes: int, n_images: int) -> Run:
    from hcep import explain_images

    X, fitted = images(n_classes, n_images), model(n_classes)
    return lambda: explain_images(X, fitted)


# -- encode --------------------------------------------------------------------------------------------


def no_photos() -> str | None:
    try:
        from hcep.embeddings import load_encoder

        load_encoder("efficientnet-lite0")
    except Exception as error:
        return str(error).splitlines()[0]
    return None if (SHARED / "data/imagenette_images/train").is_dir() else "needs imagenette_images in HCEP_SHARED"


@cache
def encoder() -> Any:
    from hcep.embeddings import load_encoder

    return load_encoder("efficientnet-lite0")


def photos(n_images: int) -> list[Any]:
    """Repeat the shared photos, so that the start and the end of a run count for little."""
    from dataclasses import replace

    from hcep.datasets import read_images

    found = list(read_images(SHARED / "data/imagenette_images"))
    return [replace(found[i % len(found)], id=f"{i}.jpg") for i in range(n_images)]


def encode_ours(n_images: int) -> Run:
    from hcep.embeddings import encode_to_store

    items = photos(n_images)
    return lambda: encode_to_store(items, encoder(), mkdtemp(prefix="hcep-bench-"), batch_size=32)


def bare_network(n_images: int) -> Run:
    """Run only the network, on pixels in memory."""
    from hcep.embeddings.images import open_image

    pixels = np.stack([encoder().preprocess(open_image(item.path)) for item in photos(256)])
    return lambda: [encoder().encode_images(pixels[i % 256 : i % 256 + 32]) for i in range(0, n_images, 32)]


# -- tensors -------------------------------------------------------------------------------------------


def no_torch() -> str | None:
    from importlib.util import find_spec

    return None if find_spec("torch") else 'needs torch: pip install "hcep[torch]"'


def on_tensors(n_images: int, **options: Any) -> Run:
    import torch

    from hcep import hb_omp

    task = make_task(n_images)
    X = torch.from_numpy(task.X)
    return lambda: hb_omp(X, task.dictionary, **options)


def compiled(n_images: int, **options: Any) -> Run:
    from hcep import hb_omp

    task = make_task(n_images)
    return lambda: hb_omp(task.X, task.dictionary, **options)


def naive_beam(n_images: int, width: int) -> Run:
    """Algorithm 2 written directly in torch: residual vectors, and least squares of every candidate, in batches."""
    import torch

    task = make_task(n_images)
    tree = task.dictionary.hierarchy.path_tree
    index = {
        name: torch.from_numpy(getattr(tree, name).astype(np.int64)) for name in ("first_child", "n_children", "edge")
    }
    atoms = torch.from_numpy(task.dictionary.atoms.astype(np.float32))
    along = torch.from_numpy(tree.ancestors().astype(np.int64))
    widest, X = int(tree.n_children.max()), torch.from_numpy(task.X)

    def solve(x: Any, nodes: Any) -> Any:
        """Return the residuals of images on paths, (n, k, n_dims)."""
        path = along[nodes]
        D = torch.where((path >= 0)[..., None], atoms[index["edge"][path.clamp_min(0)]], 0.0)
        gram = D @ D.transpose(-1, -2) + 1e-6 * torch.eye(D.shape[-2])
        a = torch.linalg.solve(gram, (D @ x[:, None, :, None]))
        return x[:, None] - (D * a).sum(dim=-2)

    def search(x: Any) -> Any:
        nodes = torch.zeros((len(x), 1), dtype=torch.int64)
        residual = x[:, None]
        for _ in range(tree.depth):
            offset = torch.arange(widest)
            inside = offset < index["n_children"][nodes][..., None]
            children = (index["first_child"][nodes][..., None] + offset).clamp_max(tree.n_nodes - 1)
            d = atoms[index["edge"][children]]
            cosine = (d @ residual[..., None])[..., 0].abs() / d.norm(dim=-1).clamp_min(1e-12)
            best = torch.where(inside, cosine, -1.0).topk(min(width, widest), dim=-1)
            tried = torch.where(best.values >= 0, children.gather(-1, best.indices), nodes[..., None])
            tried = tried.flatten(1)
            left = solve(x, tried)
            # A finished hypothesis appears once per missing child; keep it once.
            twice = (tried[:, :, None] == tried[:, None, :]).tril(-1).any(-1)
            kept = (
                torch.where(twice, torch.inf, left.norm(dim=-1)).topk(min(width, tried.shape[1]), largest=False).indices
            )
            nodes, residual = tried.gather(1, kept), left.gather(1, kept[..., None].expand(-1, -1, x.shape[1]))
        return nodes[:, 0]

    return lambda: [search(part) for part in torch.split(X, 4)]


# -- huge trees ----------------------------------------------------------------------------------------


@cache
def random_dictionary(n_leaves: int) -> tuple[Any, np.ndarray]:
    from hcep import ConceptDictionary

    rng = np.random.default_rng(0)
    tree = random_tree(n_leaves, rng)
    means = dict(zip(tree.leaves, rng.standard_normal((n_leaves, 512)), strict=True))
    dictionary = ConceptDictionary.from_leaf_embeddings(tree, means)
    picked = dictionary.leaf_embeddings[rng.integers(n_leaves, size=1024)]
    return dictionary, (picked + 0.7 * rng.standard_normal(picked.shape)).astype(np.float32)


def in_tree(n_leaves: int, width: int | None) -> Run:
    from hcep import hb_omp

    dictionary, X = random_dictionary(n_leaves)
    return lambda: hb_omp(X, dictionary, beam_width=width)


def bare_product(n_leaves: int) -> Run:
    dictionary, X = random_dictionary(n_leaves)
    directions = dictionary.path_problem().directions32
    return lambda: [X[i : i + 256] @ directions.T for i in range(0, len(X), 256)]


#: Leaves of a random tree of 82,000 concepts, and of 2,000.
HUGE, SMALL = 52_200, 1_270
LR, LDA, BARE, NAIVE = "logistic regression", "LDA", "bare network", "naive torch beam"


def predicting(title: str, method: str, n_classes: int, goal: float) -> Area:
    ours, peer = (partial(call, make, method, n_classes, 20_000) for make in (model, logistic))
    return Area(f"{title}, {n_classes} classes", 20_000, "hcep", {"hcep": ours, LR: peer}, {LR: goal})


def predicting_tiny(title: str, method: str, n_classes: int, n_images: int, goal: float | None) -> Area:
    ours, peer = (partial(call_tiny, own, method, n_classes, n_images) for own in (True, False))
    name = f"{title}, {n_classes} of Tiny-ImageNet" + (f", {n_images} at a time" if n_images < 1000 else "")
    goals = {} if goal is None else {LR: goal}
    return Area(name, max(n_images, 1000), "hcep", {"hcep": ours, LR: peer}, goals, no_tiny)


AREAS = (
    Area(
        "fit, 200 classes",
        4000,
        "hcep",
        {"hcep": partial(fit_ours, 200, 20), LDA: partial(fit_lda, 200, 20), LR: partial(fit_logistic, 200, 20)},
    ),
    Area(
        "fit, 1000 classes",
        10_000,
        "hcep",
        {"hcep": partial(fit_ours, 1000, 10), LDA: partial(fit_lda, 1000, 10)},
    ),
    *(predicting("predict", "predict", n, 1.5) for n in (10, 200, 1000)),
    *(predicting("probabilities", "predict_proba", n, 2.5) for n in (10, 200, 1000)),
    *(predicting_tiny("predict", "predict", n, 15_000, 1.5) for n in (10, 200)),
    *(predicting_tiny("probabilities", "predict_proba", n, 15_000, 2.5) for n in (10, 200)),
    *(predicting_tiny("predict", "predict", 200, n, None) for n in (1, 10, 100)),
    Area(
        "beam 32 in a huge tree",
        1024,
        "82,000 concepts",
        {
            "82,000 concepts": partial(in_tree, HUGE, 32),
            "2,000 concepts": partial(in_tree, SMALL, 32),
            "bare product": partial(bare_product, HUGE),
        },
        {"2,000 concepts": 4.0},
    ),
    Area(
        "exact search of a huge tree",
        1024,
        "82,000 concepts",
        {"82,000 concepts": partial(in_tree, HUGE, None), "bare product": partial(bare_product, HUGE)},
    ),
    Area(
        "explain, 200 classes",
        2000,
        "explain",
        {"explain": partial(explain_ours, 200, 2000), "hcep": partial(call, model, "predict_proba", 200, 2000)},
    ),
    Area(
        "encode, EfficientNet-Lite0",
        1024,
        "encode",
        {"encode": partial(encode_ours, 1024), BARE: partial(bare_network, 1024)},
        {BARE: 1 / 0.9},
        no_photos,
    ),
    Area(
        "exact search on tensors",
        4096,
        "tensors",
        {"tensors": partial(on_tensors, 4096, beam_width=None), "compiled": partial(compiled, 4096, beam_width=None)},
        skip=no_torch,
    ),
    Area(
        "beam 8 on tensors",
        16,
        "tensors",
        {"tensors": partial(on_tensors, 16, beam_width=8), NAIVE: partial(naive_beam, 16, 8)},
        {NAIVE: 0.1},
        no_torch,
    ),
)
