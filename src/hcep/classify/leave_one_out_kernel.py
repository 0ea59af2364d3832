"""The left-out objective of every image on its own and its rivals' paths, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[Any]

#: A pivot below this share of its diagonal is rounding.
DEPENDENT = 1e-12


@njit(cache=True, nogil=True)
def ridge_objective(length: int, square: float, right: Array, gram: Array, anchor: float, factor: Array) -> float:
    """``min_b ||e - D^T b||**2 + anchor ||b||**2`` from ``||e||**2``, ``D e`` and ``D D^T``, by Cholesky."""
    objective = square
    for i in range(length):
        for j in range(i + 1):
            total = gram[i, j] + (anchor if i == j else 0.0)
            for k in range(j):
                total -= factor[i, k] * factor[j, k]
            if i != j:
                factor[i, j] = total / factor[j, j] if factor[j, j] > 0.0 else 0.0
            else:
                # An atom dependent on those above it leaves rounding here; it explains nothing more.
                factor[i, i] = np.sqrt(total) if total > DEPENDENT * (gram[i, i] + anchor) else 0.0
        # The last row of the factor carries the forward substitution of `right`.
        total = right[i]
        for k in range(i):
            total -= factor[i, k] * factor[length, k]
        factor[length, i] = total / factor[i, i] if factor[i, i] > 0.0 else 0.0
        objective -= factor[length, i] * factor[length, i]
    return objective


@njit(cache=True, nogil=True)
def left_out_objectives(
    own: Array,
    rivals: Array,
    counts: Array,
    gamma: float,
    squares: Array,
    x_means: Array,
    means_means: Array,
    x_atoms: Array,
    means_atoms: Array,
    atoms_atoms: Array,
    share: Array,
    synset: Array,
    parent: Array,
    edge: Array,
    level: Array,
    leaf_nodes: Array,
    first_path: Array,
    n_paths: Array,
    anchors: Array,
    depth: int,
    out: Array,
) -> None:
    """Fill ``out`` (n_images, 1 + n_rivals, n_anchors); inner products of images, class means and atoms are given.

    ``share[s, c]`` is the weight of class c in the embedding of synset s; the paths of class k are
    ``leaf_nodes[first_path[k] : first_path[k] + n_paths[k]]``.
    """
    along = np.zeros(depth)
    moved = np.zeros(depth)
    right = np.zeros(depth)
    edges = np.zeros(depth, np.int64)
    gram = np.zeros((depth, depth))
    factor = np.zeros((depth + 1, depth))
    for i in range(len(own)):
        c = own[i]
        n_c = counts[c]
        r_r = squares[i] - 2.0 * x_means[i, c] + means_means[c, c]
        loss = gamma * n_c / (n_c - 1.0)
        g = loss / max(1.0 - loss * r_r, 1e-12)
        for slot in range(1 + rivals.shape[1]):
            k = c if slot == 0 else rivals[i, slot - 1]
            if slot == 0:
                grown = n_c / (n_c - 1.0)
                e_e = r_r * grown * grown
                r_e = r_r * grown
            else:
                e_e = squares[i] - 2.0 * x_means[i, k] + means_means[k, k]
                r_e = squares[i] - x_means[i, k] - x_means[i, c] + means_means[c, k]
            for a in range(len(anchors)):
                out[i, slot, a] = np.inf
            for path in range(n_paths[k]):
                node = leaf_nodes[first_path[k] + path]
                length = level[node]
                for m in range(length - 1, -1, -1):
                    e = edge[node]
                    above = parent[node]
                    u = share[synset[node], c] - (share[synset[above], c] if above > 0 else 0.0)
                    u /= n_c - 1.0
                    edges[m] = e
                    moved[m] = u
                    d_r = x_atoms[i, e] - means_atoms[c, e]
                    d_e = d_r * (n_c / (n_c - 1.0)) if slot == 0 else x_atoms[i, e] - means_atoms[k, e]
                    along[m] = d_r - u * r_r
                    right[m] = d_e - u * r_e + g * along[m] * r_e
                    node = above
                for m in range(length):
                    d_m = along[m] + moved[m] * r_r
                    for q in range(m + 1):
                        d_q = along[q] + moved[q] * r_r
                        gram[m, q] = (
                            atoms_atoms[edges[m], edges[q]]
                            - moved[m] * d_q
                            - moved[q] * d_m
                            + moved[m] * moved[q] * r_r
                            + g * along[m] * along[q]
                        )
                for a in range(len(anchors)):
                    value = ridge_objective(length, e_e + g * r_e * r_e, right, gram, anchors[a], factor)
                    out[i, slot, a] = min(out[i, slot, a], value)
