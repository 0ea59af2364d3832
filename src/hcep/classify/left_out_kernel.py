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
    """Complete rooted paths, grouped by class, and the tree that they are in."""

    nodes: Array  # (n_paths, depth) int64; nodes of the path tree from the root down; -1 beyond the end
    lengths: Array  # (n_paths,) int64
    #: first, number: (n_classes,) int64; the paths of class k are ``first[k] ... first[k] + number[k] - 1``.
    first: Array
    number: Array
    #: edge, synset, parent, level: (n_nodes,) int64; as in `PathTree`
    edge: Array
    synset: Array
    parent: Array
    level: Array
    #: above, above_synset, above_share: Synsets above class k, itself included, and its weight in their embeddings, the
    #: root left out: entries ``above[k] ... above[k + 1] - 1`` of the other two.
    above: Array
    above_synset: Array
    above_share: Array


class Products(NamedTuple):
    """Inner products of images x, class means m and atoms d: all that left-out objectives are made of."""

    #: x_atoms, mean_atoms: (n_images, n_columns), (n_means, n_columns)
    x_atoms: Array
    mean_atoms: Array
    gram: Array  # (n_nodes, depth) float64; of each node's atom with that of its ancestor at every level, itself last
    #: x_x, x_r, r_r: (n_images,); with r = x - m, m the mean of the image's class
    x_x: Array
    x_r: Array
    r_r: Array


class Scratch(NamedTuple):
    """Numbers of one path, level by level: what two paths share is not reckoned again."""

    nodes: Array
    along: Array
    moved: Array
    gram: Array
    factor: Array
    forward: Array
    objective: Array


@njit(cache=True, nogil=True)
def _scratch(depth: int) -> Scratch:
    square, line = (depth, depth), np.zeros((4, depth + 1))
    nodes = np.full(depth, -1, np.int64)
    return Scratch(nodes, line[0], line[1], np.zeros(square), np.zeros(square), line[2], line[3])


@njit(cache=True, nogil=True)
def path_gram(atoms: Array, paths: Paths, out: Array) -> None:
    """Fill ``out`` (n_nodes, depth): products of each node's atom with those of its ancestors and its own."""
    for node in range(1, len(paths.edge)):
        above = node
        while above > 0:
            out[node, paths.level[above] - 1] = np.dot(atoms[paths.edge[node]], atoms[paths.edge[above]])
            above = paths.parent[above]


@njit(cache=True, nogil=True)
def _minimum(
    i: int,
    mean: int,
    path: int,
    g: float,
    anchor: float,
    shift: Array,
    column: Array,
    products: Products,
    paths: Paths,
    s: Scratch,
) -> float:
    """``min_a ||x - D^T a||**2 + anchor ||a - 1||**2`` on a path whose atoms lost image i, by Cholesky.

    ``shift[synset]`` is by how many residuals r each synset's embedding moves, ``column[atom]`` where its products are.
    An infinite anchor leaves ``||x - a(leaf)||**2``. Levels that the last path of this image shared are taken from it.
    """
    r_r, x_r = products.r_r[i], products.x_r[i]
    shared = True
    for m in range(paths.lengths[path]):
        node = paths.nodes[path, m]
        shared = shared and s.nodes[m] == node
        if shared:
            continue
        s.nodes[m] = node
        if m + 1 < len(s.nodes):
            s.nodes[m + 1] = -1
        place, below = column[paths.edge[node]], shift[paths.synset[node]]
        u = below - (shift[paths.synset[paths.parent[node]]] if m > 0 else 0.0)
        d_r = products.x_atoms[i, place] - products.mean_atoms[mean, place]
        s.moved[m], s.along[m] = u, d_r - u * r_r
        right = products.x_atoms[i, place] - u * x_r + g * s.along[m] * x_r
        if anchor == np.inf:
            step = -2.0 * right
            for q in range(m + 1):
                value = products.gram[node, q] + u * s.moved[q] * r_r - s.moved[q] * d_r
                value += g * s.along[m] * s.along[q] - u * (s.along[q] + s.moved[q] * r_r)
                step += value if q == m else 2.0 * value
            s.objective[m + 1] = s.objective[m] + step
            continue
        for q in range(m + 1):
            total = products.gram[node, q] + u * s.moved[q] * r_r - s.moved[q] * d_r
            total += g * s.along[m] * s.along[q] - u * (s.along[q] + s.moved[q] * r_r)
            diagonal = total + anchor
            if q == m:
                total = diagonal
            for k in range(q):
                total -= s.factor[m, k] * s.factor[q, k]
            if q != m:
                s.factor[m, q] = total / s.factor[q, q] if s.factor[q, q] > 0.0 else 0.0
            else:
                # An atom dependent on those above it leaves rounding here; it explains nothing more.
                s.factor[m, m] = np.sqrt(total) if total > DEPENDENT * diagonal else 0.0
        total = right + anchor
        for k in range(m):
            total -= s.factor[m, k] * s.forward[k]
        s.forward[m] = total / s.factor[m, m] if s.factor[m, m] > 0.0 else 0.0
        s.objective[m + 1] = s.objective[m] + anchor - s.forward[m] * s.forward[m]
    return float(s.objective[paths.lengths[path]])


@njit(cache=True, nogil=True)
def _begin(i: int, g: float, products: Products, s: Scratch) -> None:
    """Forget the last image's paths."""
    s.nodes[0] = -1
    s.objective[0] = products.x_x[i] + g * products.x_r[i] * products.x_r[i]


@njit(cache=True, nogil=True)
def _coefficients(length: int, s: Scratch, out: Array) -> None:
    """Coefficients of the path just solved, by back substitution."""
    for m in range(length - 1, -1, -1):
        total = s.forward[m]
        for q in range(m + 1, length):
            total -= s.factor[q, m] * out[q]
        out[m] = total / s.factor[m, m] if s.factor[m, m] > 0.0 else 0.0


@njit(cache=True, nogil=True)
def held_out_objectives(
    images: Array, mean: Array, rivals: Array, g: Array, products: Products, paths: Paths, anchor: float, out: Array
) -> None:
    """Fill some rows of ``out`` (n_images, n_rivals): the objective on the best path of each rival without the image.

    Row ``mean[i]`` of ``products.mean_atoms`` is for the mean with it, from which it is taken out of the metric.
    """
    s = _scratch(paths.nodes.shape[1])
    nothing = np.zeros(paths.synset.max() + 1)
    every = np.arange(paths.edge.max() + 1)
    for i in images:
        _begin(i, g[i], products, s)
        for slot in range(rivals.shape[1]):
            k = rivals[i, slot]
            out[i, slot] = np.inf
            for path in range(paths.first[k], paths.first[k] + paths.number[k]):
                value = _minimum(i, mean[i], path, g[i], anchor, nothing, every, products, paths, s)
                out[i, slot] = min(out[i, slot], value)


@njit(cache=True, nogil=True)
def left_out_gradient(
    classes: Array,
    start: Array,
    images: Array,
    norms: Array,
    rivals: Array,
    means: Array,
    atoms: Array,
    gram: Array,
    paths: Paths,
    anchor: float,
    temperature: float,
    objectives: Array,
    by_atom: Array,
    by_gram: Array,
) -> float:
    """Weighted sum of ``-log softmax(-objective / temperature)`` of the own class over the images of some classes.

    Images are sorted by class, those of class c being ``start[c] ... start[c + 1] - 1``; ``norms`` holds x.x, x.r, r.r,
    g, the share of r that the mean moves by and the weight of each; ``rivals`` ends at -1. Fills `objectives`, the own
    class first, infinite beyond the rivals, and adds to `by_atom` (n_atoms, n_dims) and `by_gram` (n_nodes, depth) what
    the gradient by the atoms is made of: by the envelope theorem that of one objective by atom v is ``-2 a_v`` times
    the path's residual in the left-out metric, and that residual is a combination of the image, its class mean and the
    path's atoms. A `by_atom` of no rows asks for objectives alone.
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
                if k < 0:
                    break
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
        for i in range(high - low):
            g = part[3, i]
            for entry in range(paths.above[c], paths.above[c + 1]):
                shift[paths.above_synset[entry]] = paths.above_share[entry] * part[4, i]
            values[:] = np.inf
            _begin(i, g, products, s)
            for slot in range(n_slots):
                k = c if slot == 0 else rivals[low + i, slot - 1]
                if k < 0:
                    break
                for path in range(paths.first[k], paths.first[k] + paths.number[k]):
                    length = paths.lengths[path]
                    value = _minimum(i, 0, path, g, anchor, shift, column, products, paths, s)
                    if value < values[slot]:
                        values[slot], best[slot] = value, path
                        if not len(by_atom):
                            continue
                        _coefficients(length, s, trial)
                        moved, along = 0.0, part[1, i]
                        for m in range(length):
                            a[slot, m] = trial[m]
                            moved += trial[m] * s.moved[m]
                            along -= trial[m] * s.along[m]
                        pull[slot] = moved + g * along
            objectives[low + i] = values
            lowest = values.min()
            scores = np.exp((lowest - values) / temperature)
            total = scores.sum()
            loss += part[5, i] * ((values[0] - lowest) / temperature + np.log(total))
            for slot in range(n_slots if len(by_atom) else 0):
                weight = (1.0 if slot == 0 else 0.0) - scores[slot] / total
                if abs(weight) < NEGLIGIBLE:
                    continue
                path = best[slot]
                for m in range(paths.lengths[path]):
                    node, weighted = paths.nodes[path, m], part[5, i] * weight * a[slot, m] / temperature
                    place = column[paths.edge[node]]
                    from_images[i, place] += weighted * (1.0 + pull[slot])
                    from_mean[0, place] -= weighted * pull[slot]
                    for q in range(m + 1):
                        by_gram[node, q] += weighted * a[slot, q]
        if len(by_atom):
            grown = np.dot(from_images.T, mine) + np.dot(from_mean.T, own_mean)
            for j in range(n_used):
                by_atom[used[j]] += grown[j]
        column[used[:n_used]] = -1
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
