"""Measure how much of a huge tree an exact search could prune with an admissible bound of every path's score.

    python benchmarks/bound.py                  82,000 concepts, 512 dimensions; takes minutes

In the coordinates of the directions' principal axes let x = [y; z] and, for the directions of a path (rows), Q = [R S],
where y and R are the leading coordinates. The offsets c of an anchor go with the leading part. Then

    sqrt(score + anchor * length) = ||Q x + c|| = ||(R y + c) + S z|| <= ||R y + c|| + ||S||_2 ||z||

by the triangle inequality and the definition of the spectral norm. The first term takes a product of few coordinates,
``||S||_2`` is known beforehand, ``||z||`` is one number per image. A path whose bound is below the true score of
another is never the best, so pruning it changes no answer. (Without products of the image a subtree has no useful
bound: each of its directions could explain the rest of some image.)

A search that prunes needs the product of leading coordinates with all directions, one pass over all paths, and one
product per concept on each remaining path, which costs several times more than in one product of all directions.
Pruning is faster only if few paths remain at few coordinates.
"""

from __future__ import annotations

import argparse

import numpy as np
from numpy.typing import NDArray
from speed_task import random_tree

from hcep import ConceptDictionary
from hcep.dictionary import PathProblem

Floats = NDArray[np.float64]


def path_norms(p: Floats, basis: PathProblem) -> Floats:
    """Return ``sqrt(score + anchor * length)`` of every complete path from products, (n, n_leaf_paths)."""
    tree, column = basis.tree, np.maximum(basis.column, 0)
    squares = np.where(basis.column >= 0, ((p + basis.offset)[:, column] * basis.sign) ** 2, 0.0)
    for level in range(2, tree.depth + 1):
        nodes = np.flatnonzero(tree.level == level)
        squares[:, nodes] += squares[:, tree.parent[nodes]]
    return np.sqrt(squares[:, tree.leaf_nodes])


def spectral_norms(rest: Floats, basis: PathProblem) -> Floats:
    """Return ``||S||_2`` of every complete path, (n_leaf_paths,)."""
    found = np.zeros(len(basis.tree.leaf_nodes))
    for k, path in enumerate(basis.nodes_of_path[basis.tree.leaf_nodes]):
        columns = basis.column[path[path >= 0]]
        own = rest[columns[columns >= 0]]
        found[k] = np.sqrt(max(np.linalg.eigvalsh(own @ own.T)[-1], 0.0)) if len(own) else 0.0
    return found


def scores_and_bounds(x: Floats, basis: PathProblem, shares: list[float]) -> tuple[Floats, list[Floats]]:
    """Return the score of every complete path, and its bounds by shares of the coordinates."""
    q = basis.directions
    axes = np.linalg.eigh(q.T @ q)[1][:, ::-1]
    penalty = basis.anchor * basis.tree.level[basis.tree.leaf_nodes]
    bounds = []
    for share in shares:
        n_leading = max(1, round(share * len(axes)))
        lead, rest = axes[:, :n_leading], axes[:, n_leading:]
        reach = spectral_norms(q @ rest, basis) * np.linalg.norm(x @ rest, axis=1)[:, None]
        bounds.append((path_norms((x @ lead) @ (q @ lead).T, basis) + reach) ** 2 - penalty)
    return path_norms(x @ q.T, basis) ** 2 - penalty, bounds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--leaves", type=int, default=52_200)
    parser.add_argument("--dims", type=int, default=512)
    parser.add_argument("--images", type=int, default=16)
    options = parser.parse_args()
    rng, shares = np.random.default_rng(0), [1 / 8, 1 / 4, 1 / 2]
    tree = random_tree(options.leaves, rng)
    means = dict(zip(tree.leaves, rng.standard_normal((len(tree.leaves), options.dims)), strict=True))
    dictionary = ConceptDictionary.from_leaf_embeddings(tree, means)
    picked = dictionary.leaf_embeddings[rng.integers(len(tree.leaves), size=options.images)]
    print(f"{dictionary!r}\nremaining paths, and median bound / best score, by share of the coordinates\n")
    for noise in (0.1, 0.3, 0.5, 0.7):
        x = picked + noise * rng.standard_normal(picked.shape)
        scores, bounds = scores_and_bounds(x, dictionary.path_problem(), shares)
        best = scores.max(axis=1, keepdims=True)
        told = float((best[:, 0] / (x**2).sum(axis=1)).mean())
        left = [
            f"1/{round(1 / s)}: {(b >= best).mean():7.2%} {np.median(b / best):5.2f}"
            for s, b in zip(shares, bounds, strict=True)
        ]
        print(f"noise {noise}, best path explains {told:.0%}    " + "    ".join(left))


if __name__ == "__main__":
    main()
