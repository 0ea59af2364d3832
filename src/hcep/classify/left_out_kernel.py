"""The anchored objective of training images on their own and their rivals' paths without the image itself, compiled."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[Any]

#: A pivot below this share of its diagonal is rounding.
DEPENDENT = 1e-12
#: A rival less likely than this pulls at nothing.
NEGLIGIBLE = 1e-5


class Paths(NamedTuple):
    """Complete rooted paths, grouped by class, and the tree that they are in.

    Attributes
    ----------
    nodes : (n_paths, depth) int64
        Nodes of the path tree from the root down; -1 beyond the end.
    lengths : (n_paths,) int64
    first, number : (n_classes,) int64
        The paths of class k are ``first[k] ... first[k] + number[k] - 1``.
    edge, synset, parent, level : (n_nodes,) int64
        As in `PathTree`.
    above, above_synset, above_share
        Synsets above class k, itself included, and its weight in their embeddings, the root left out: entries
        ``above[k] ... above[k + 1] - 1`` of the other two.
    """

    nodes: Array
    lengths: Array
    first: Array
    number: Array
    edge: Array
    synset: Array
    parent: Array
    level: Array
    above: Array
    above_synset: Array
    above_share: Array


class Products(NamedTuple):
    """Inner products of images x, class means m and atoms d: all that left-out objectives are made of.

    Attributes
    ----------
    x_atoms, mean_atoms : (n_images, n_columns), (n_means, n_columns)
    gram : (n_nodes, depth) float64
        Of each node's atom with that of its ancestor at every level, itself last.
    x_x, x_r, r_r : (n_images,)
        With r = x - m, m the mean of the image's class.
    """

    x_atoms: Array
    mean_atoms: Array
    gram: Array
    x_x: Array
    x_r: Array
    r_r: Array


class Scratch(NamedTuple):
    """Numbers of one path, reused for the next."""

    along: Array
    moved: Array
    right: Array
    gram: Array
    factor: Array
    forward: Array


@njit(cache=True, nogil=True)
def _scratch(depth: int) -> Scratch:
    square = (depth, depth)
    return Scratch(
        np.zeros(depth), np.zeros(depth), np.zeros(depth), np.zeros(square), np.zeros(square), np.zeros(depth)
    )


@njit(cache=True, nogil=True)
def path_gram(atoms: Array, paths: Paths, out: Array) -> None:
    """Fill ``out`` (n_nodes, depth): products of each node's atom with those of its ancestors and its own."""
    for node in range(1, len(paths.edge)):
        above = node
        while above > 0:
            out[node, paths.level[above] - 1] = np.dot(atoms[paths.edge[node]], atoms[paths.edge[above]])
            above = paths.parent[above]


@njit(cache=True, nogil=True)
def _problem(
    i: int, mean: int, path: int, g: float, shift: Array, column: Array, products: Products, paths: Paths, s: Scratch
) -> float:
    """Fill ``D D^T`` and ``D e`` of a path whose atoms lost image i; return ``||e||**2``, ``e = x - a(leaf)``.

    ``shift[synset]`` is by how many residuals r each synset's embedding moves, ``column[atom]`` where its products are.
    """
    r_r, x_r = products.r_r[i], products.x_r[i]
    length = paths.lengths[path]
    r_e, square, above = x_r, products.x_x[i], 0.0
    for m in range(length):
        node = paths.nodes[path, m]
        place, below = column[paths.edge[node]], shift[paths.synset[node]]
        u, above = below - above, below
        s.moved[m] = u
        s.along[m] = products.x_atoms[i, place] - products.mean_atoms[mean, place] - u * r_r
        s.right[m] = products.x_atoms[i, place] - u * x_r
        r_e -= s.along[m]
        square -= 2.0 * s.right[m]
    for m in range(length):
        d_m = s.along[m] + s.moved[m] * r_r
        node = paths.nodes[path, m]
        for q in range(m + 1):
            d_q = s.along[q] + s.moved[q] * r_r
            value = products.gram[node, q] + s.moved[m] * s.moved[q] * r_r - s.moved[m] * d_q - s.moved[q] * d_m
            s.gram[m, q] = value + g * s.along[m] * s.along[q]
            s.right[m] -= value
            square += value
            if q != m:
                s.right[q] -= value
                square += value
    for m in range(length):
        s.right[m] += g * s.along[m] * r_e
    return float(square + g * r_e * r_e)


@njit(cache=True, nogil=True)
def _minimum(length: int, square: float, anchor: float, s: Scratch) -> float:
    """``min_b ||e - D^T b||**2 + anchor ||b||**2`` by Cholesky; leaves the factor and the forward substitution."""
    objective = square
    for m in range(length):
        for q in range(m + 1):
            total = s.gram[m, q] + (anchor if m == q else 0.0)
            for k in range(q):
                total -= s.factor[m, k] * s.factor[q, k]
            if m != q:
                s.factor[m, q] = total / s.factor[q, q] if s.factor[q, q] > 0.0 else 0.0
            else:
                # An atom dependent on those above it leaves rounding here; it explains nothing more.
                s.factor[m, m] = np.sqrt(total) if total > DEPENDENT * (s.gram[m, m] + anchor) else 0.0
        total = s.right[m]
        for k in range(m):
            total -= s.factor[m, k] * s.forward[k]
        s.forward[m] = total / s.factor[m, m] if s.factor[m, m] > 0.0 else 0.0
        objective -= s.forward[m] * s.forward[m]
    return objective


@njit(cache=True, nogil=True)
def _coefficients(length: int, s: Scratch, out: Array) -> None:
    """Coefficients ``1 + b`` of the path just solved, by back substitution."""
    for m in range(length - 1, -1, -1):
        total = s.forward[m]
        for q in range(m + 1, length):
            total -= s.factor[q, m] * (out[q] - 1.0)
        out[m] = 1.0 + (total / s.factor[m, m] if s.factor[m, m] > 0.0 else 0.0)


@njit(cache=True, nogil=True)
def held_out_objectives(
    mean: Array, rivals: Array, g: Array, products: Products, paths: Paths, anchor: float, out: Array
) -> None:
    """Fill ``out`` (n_images, n_rivals): the objective on the best path of each rival, whose mean lacks the image.

    Row ``mean[i]`` of ``products.mean_atoms`` is for the mean with it, from which it is taken out of the metric.
    """
    s = _scratch(paths.nodes.shape[1])
    nothing = np.zeros(paths.synset.max() + 1)
    every = np.arange(paths.edge.max() + 1)
    for i in range(len(out)):
        for slot in range(rivals.shape[1]):
            k = rivals[i, slot]
            out[i, slot] = np.inf
            for path in range(paths.first[k], paths.first[k] + paths.number[k]):
                square = _problem(i, mean[i], path, g[i], nothing, every, products, paths, s)
                out[i, slot] = min(out[i, slot], _minimum(paths.lengths[path], square, anchor, s))


@njit(cache=True, nogil=True)
def left_out_gradient(
    classes: Array,
    start: Array,
    images: Array,
    norms: Array,
    moved_by: Array,
    rivals: Array,
    means: Array,
    atoms: Array,
    gram: Array,
    paths: Paths,
    anchor: float,
    temperature: float,
    by_atom: Array,
    by_gram: Array,
) -> float:
    """Sum of ``-log softmax(-objective / temperature)`` of the own class over the images of some classes.

    Images are sorted by class, those of class c being ``start[c] ... start[c + 1] - 1``; ``norms`` holds x.x, x.r, r.r
    and g of each. Adds to `by_atom` (n_atoms, n_dims) and `by_gram` (n_nodes, depth) what the gradient by the atoms is
    made of: by the envelope theorem that of one objective by atom v is ``-2 a_v`` times the path's residual in the
    left-out metric, and that residual is a combination of the image, its class mean and the path's atoms.
    """
    depth, n_slots = paths.nodes.shape[1], 1 + rivals.shape[1]
    s, trial = _scratch(depth), np.zeros(depth)
    values, pull, best = np.zeros(n_slots), np.zeros(n_slots), np.zeros(n_slots, np.int64)
    a = np.zeros((n_slots, depth))
    column, used = np.full(len(atoms), -1), np.zeros(len(atoms), np.int64)
    shift = np.zeros(paths.synset.max() + 1)
    loss = 0.0
    for c in classes:
        low, high = start[c], start[c + 1]
        if low == high:
            continue
        n_used = 0
        for i in range(low, high):
            for slot in range(n_slots):
                k = c if slot == 0 else rivals[i, slot - 1]
                for path in range(paths.first[k], paths.first[k] + paths.number[k]):
                    for m in range(paths.lengths[path]):
                        atom = paths.edge[paths.nodes[path, m]]
                        if column[atom] < 0:
                            column[atom], used[n_used] = n_used, atom
                            n_used += 1
        some, mine = atoms[used[:n_used]], images[low:high]
        own_mean = means[c : c + 1]
        part = norms[:, low:high]
        products = Products(np.dot(mine, some.T), np.dot(own_mean, some.T), gram, part[0], part[1], part[2])
        from_images = np.zeros((high - low, n_used), np.float32)
        from_mean = np.zeros((1, n_used), np.float32)
        for entry in range(paths.above[c], paths.above[c + 1]):
            shift[paths.above_synset[entry]] = paths.above_share[entry] * moved_by[c]
        for i in range(high - low):
            g = part[3, i]
            for slot in range(n_slots):
                k = c if slot == 0 else rivals[low + i, slot - 1]
                values[slot] = np.inf
                for path in range(paths.first[k], paths.first[k] + paths.number[k]):
                    length = paths.lengths[path]
                    square = _problem(i, 0, path, g, shift, column, products, paths, s)
                    value = _minimum(length, square, anchor, s)
                    if value < values[slot]:
                        values[slot], best[slot] = value, path
                        _coefficients(length, s, trial)
                        moved, along = 0.0, part[1, i]
                        for m in range(length):
                            a[slot, m] = trial[m]
                            moved += trial[m] * s.moved[m]
                            along -= trial[m] * s.along[m]
                        pull[slot] = moved + g * along
            lowest = values.min()
            scores = np.exp((lowest - values) / temperature)
            total = scores.sum()
            loss += (values[0] - lowest) / temperature + np.log(total)
            for slot in range(n_slots):
                weight = (1.0 if slot == 0 else 0.0) - scores[slot] / total
                if abs(weight) < NEGLIGIBLE:
                    continue
                path = best[slot]
                for m in range(paths.lengths[path]):
                    node, weighted = paths.nodes[path, m], weight * a[slot, m] / temperature
                    place = column[paths.edge[node]]
                    from_images[i, place] += weighted * (1.0 + pull[slot])
                    from_mean[0, place] -= weighted * pull[slot]
                    for q in range(m + 1):
                        by_gram[node, q] += weighted * a[slot, q]
        grown = np.dot(from_images.T, mine) + np.dot(from_mean.T, own_mean)
        for j in range(n_used):
            by_atom[used[j]] += grown[j]
            column[used[j]] = -1
        for entry in range(paths.above[c], paths.above[c + 1]):
            shift[paths.above_synset[entry]] = 0.0
    return loss


@njit(cache=True, nogil=True)
def subtract_atoms(atoms: Array, by_gram: Array, paths: Paths, by_atom: Array) -> None:
    """Take the paths' own part off: each node's atom times what its ancestors weigh, and the other way round."""
    for node in range(1, len(paths.edge)):
        above, own = node, paths.edge[node]
        while above > 0:
            weight, other = by_gram[node, paths.level[above] - 1], paths.edge[above]
            if weight != 0.0:
                by_atom[own] -= weight * atoms[other]
                if above != node:
                    by_atom[other] -= weight * atoms[own]
            above = paths.parent[above]
