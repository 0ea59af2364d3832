"""Measure what the path loss does to geometry and accuracy of a linear adapter on Tiny-ImageNet's embeddings.

    python benchmarks/path_loss.py          (needs torch and the data of HCEP_SHARED; a few minutes)

The adapter starts as the identity and is trained on 45 of the 50 training images per class; the other 5 pick the
epoch. Beside it stands the nearest plain alternative: the same adapter with the cross-entropy of classes alone. Both
are then classified as raw embeddings are, on the validation images, and compared image by image.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import numpy as np
import torch

import hcep
from hcep import HCEPClassifier
from hcep.pursuit.path_loss import class_positions, path_loss

SHARED = Path(os.environ.get("HCEP_SHARED", Path(__file__).parents[2] / "shared"))
GEOMETRY = ("orthogonality_mean_abs_cosine", "sibling_cones_fraction_intersecting", "sibling_cones_mean_overlap")
PLAIN = {"pull": 0.0, "orthogonality": 0.0, "cones": 0.0}


def read() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, hcep.Hierarchy]:
    """Return images and classes for training and validation, with unit mean square norm, and the tree."""
    data = np.load(SHARED / "data/tinyimagenet200_efficientnet_lite2.npz", allow_pickle=False)
    nodes = json.loads((SHARED / "data/imagenet1k_wordnet_dag.json").read_text("utf-8"))["nodes"]
    edges = [(parent, child) for child, node in nodes.items() for parent in node["hypernyms"]]
    tree = hcep.Hierarchy.from_edges(edges).as_tree().restrict(data["wnids"]).collapse()
    X = data["embeddings"].astype(np.float32)
    X /= np.sqrt(np.mean(np.sum(X**2, axis=1)))
    y, train = data["wnids"][data["labels"]], data["split"] == "train"
    return X[train], y[train], X[~train], y[~train], tree


def train_adapter(X: np.ndarray, y: np.ndarray, tree: hcep.Hierarchy, epochs: int, **weights: float) -> np.ndarray:
    """Return the adapter's matrix after the epoch with the lowest loss on held-out images."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    position = class_positions(y, tree)
    order = rng.permutation(len(y))
    rank = np.empty(len(y), int)
    for c in range(len(tree.leaves)):
        own = order[position[order] == c]
        rank[own] = np.arange(len(own))
    held = rank < 5
    images, labels = torch.from_numpy(X), torch.from_numpy(position)
    means = torch.from_numpy(np.stack([X[(position == c) & ~held].mean(axis=0) for c in range(len(tree.leaves))]))
    adapter = torch.nn.Linear(X.shape[1], X.shape[1], bias=False)
    torch.nn.init.eye_(adapter.weight)
    optimiser = torch.optim.Adam(adapter.parameters(), lr=3e-4)
    rows, best = np.flatnonzero(~held), (np.inf, adapter.weight.detach().numpy().copy())
    for epoch in range(epochs):
        for batch in torch.from_numpy(rng.permutation(rows)).split(512):
            optimiser.zero_grad()
            path_loss(adapter(images[batch]), labels[batch], adapter(means), tree, **weights).backward()
            optimiser.step()
        with torch.no_grad():
            loss = float(path_loss(adapter(images[held]), labels[held], adapter(means), tree, **weights))
        print(f"  epoch {epoch + 1}: held-out loss {loss:.4f}", flush=True)
        if loss < best[0]:
            best = (loss, adapter.weight.detach().numpy().copy())
    return best[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=8)
    options = parser.parse_args()
    X, y, X_val, y_val, tree = read()
    matrices = {"raw": None}
    for name, weights in {"cross-entropy alone": PLAIN, "path loss": {}}.items():
        print(name)
        matrices[name] = train_adapter(X, y, tree, options.epochs, **weights)
    metrics = {
        "Euclidean": {"shrinkage": None, "anchor": 0.3, "power": 1.0, "refine": False},
        "default": {"power": 1.0},
    }
    right: dict[tuple[str, str], np.ndarray] = {}
    for name, matrix in matrices.items():
        adapted = [part if matrix is None else part @ matrix.T for part in (X, X_val)]
        for metric, parameters in metrics.items():
            model = HCEPClassifier(tree, **parameters).fit(adapted[0], y)
            right[name, metric] = model.predict(adapted[1]) == y_val
            if metric == "Euclidean":
                geometry = model.dictionary_.geometry.summary()
                print(f"{name:20} " + ", ".join(f"{key} {geometry[key]:.3f}" for key in GEOMETRY))
    for (name, metric), correct in right.items():
        versus = []
        for other in ("raw", "cross-entropy alone"):
            difference = correct.astype(float) - right[other, metric]
            error = 1.96 * difference.std() / np.sqrt(len(difference))
            versus.append(f"{difference.mean():+.4f} ± {error:.4f} against {other}")
        print(f"{name:20} {metric:10} accuracy {correct.mean():.4f}; " + "; ".join(versus))


if __name__ == "__main__":
    main()
