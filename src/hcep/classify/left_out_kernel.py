"""The anchored objective of training images on their own and their rivals' paths without the image itself, compiled.

Without an image its class's mean, every atom above it and the metric are others, so the path problem is solved on Gram
matrices, by the same Cholesky steps as everywhere (`hcep.pursuit.compiled`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hcep.pursuit.compiled import Array, factor_row, forward_step, kernel, piece, solve_transposed

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
    #: x_x, x_r, r_r, g: (n_images,); with r = x - m, m the mean of the image's class, and the metric's change g
    x_x: Array
    x_r: Array
    r_r: Array
    g: Array


class Moves(NamedTuple):
    """What one image's absence does: ``shift[synset]`` residuals r move each synset's embedding.

    ``column[atom]`` is where an atom's products are.
    """

    shift: Array
    column: Array


class PathState(NamedTuple):
    """Numbers of one path, level by level: what two paths share is not computed again."""

    nodes: Array
    along: Array
    moved: Array
    factor: Array
    forward: Array
    objective: Array


@piece
def path_state(depth: int) -> PathState:
    line = np.zeros((4, depth + 1))
    return PathState(np.full(depth, -1, np.int64), line[0], line[1], np.zeros((depth, depth)), line[2], line[3])


@kernel
def path_gram(atoms: Array, paths: Paths, out: Array) -> None:
    """Fill ``out`` (n_nodes, depth): products of each node's atom with those of its ancestors and its own."""
    for node in range(1, len(paths.edge)):
        above = node
        while above > 0:
            out[node, paths.level[above] - 1] = np.dot(atoms[paths.edge[node]], atoms[paths.edge[above]])
            above = paths.parent[above]


@piece
def begin(i: int, products: Products, s: PathState) -> None:
    """Forget the last image's paths."""
    s.nodes[0] = -1
    s.objective[0] = products.x_x[i] + products.g[i] * products.x_r[i] * products.x_r[i]


@piece
def minimum(
    i: int, mean: int, path: int, anchor: float, moves: Moves, products: Products, paths: Paths, s: PathState
) -> float:
    """``min_a ||x - D^T a||**2 + anchor ||a - 1||**2`` on a path whose atoms lost image i.

    An infinite anchor leaves ``||x - a(leaf)||**2``. Levels that the last path of this image shared are taken from it.
    """
    shared = True
    for m in range(paths.lengths[path]):
        node = paths.nodes[path, m]
        shared = shared and s.nodes[m] == node
        if shared:
            continue
        s.nodes[m] = node
        if m + 1 < len(s.nodes):
            s.nodes[m + 1] = -1
        right = gram_row(i, mean, m, node, moves, products, paths, s)
        if anchor == np.inf:
            step = s.factor[m, m] - 2.0 * right
            for q in range(m):
                step += 2.0 * s.factor[m, q]
            s.objective[m + 1] = s.objective[m] + step
            continue
        factor_row(s.factor, m, anchor)
        s.forward[m] = forward_step(s.factor, s.forward, m, right + anchor)
        s.objective[m + 1] = s.objective[m] + anchor - s.forward[m] * s.forward[m]
    return float(s.objective[paths.lengths[path]])


@piece
def gram_row(
    i: int, mean: int, m: int, node: int, moves: Moves, products: Products, paths: Paths, s: PathState
) -> float:
    """Fill row m of a path's left-out Gram matrix, that of `node`; return the product of its atom and the image."""
    shift, r_r, x_r, g = moves.shift, products.r_r[i], products.x_r[i], products.g[i]
    place = moves.column[paths.edge[node]]
    u = shift[paths.synset[node]] - (shift[paths.synset[paths.parent[node]]] if m > 0 else 0.0)
    x_d = products.x_atoms[i, place]
    d_r = x_d - products.mean_atoms[mean, place]
    s.moved[m], s.along[m] = u, d_r - u * r_r
    for q in range(m + 1):
        total = products.gram[node, q] + u * s.moved[q] * r_r - s.moved[q] * d_r
        s.factor[m, q] = total + g * s.along[m] * s.along[q] - u * (s.along[q] + s.moved[q] * r_r)
    product: float = x_d - u * x_r + g * s.along[m] * x_r
    return product


@kernel
def held_out_objectives(
    images: Array, mean: Array, rivals: Array, products: Products, paths: Paths, anchor: float, out: Array
) -> None:
    """Fill some rows of ``out`` (n_images, n_rivals): the objective on the best path of each rival without the image.

    Row ``mean[i]`` of ``products.mean_atoms`` is for the mean with it, from which it is taken out of the metric.
    """
    s = path_state(paths.nodes.shape[1])
    moves = Moves(np.zeros(paths.synset.max() + 1), np.arange(paths.edge.max() + 1))
    for i in images:
        begin(i, products, s)
        for slot in range(rivals.shape[1]):
            k = rivals[i, slot]
            out[i, slot] = np.inf
            for path in range(paths.first[k], paths.first[k] + paths.number[k]):
                value = minimum(i, mean[i], path, anchor, moves, products, paths, s)
                out[i, slot] = min(out[i, slot], value)


# -- the gradient of the left-out loss -----------------------------------------------------------------


class Batch(NamedTuple):
    """Training images sorted by class, those of class c being ``start[c] ... start[c + 1] - 1``."""

    start: Array
    images: Array
    norms: Array  # (6, n_images): x.x, x.r, r.r, g, the share of r that the mean moves by without it, and its weight
    rivals: Array  # (n_images, n_rivals); classes that each is told from, -1 beyond the last
    means: Array


class Loss(NamedTuple):
    """The loss to differentiate: atoms and their Gram matrix along paths, anchor and temperature."""

    atoms: Array
    gram: Array
    anchor: float
    temperature: float


class Gradient(NamedTuple):
    """What is filled: objectives of all slots, and what the gradient by the atoms is made of.

    `by_atom` (n_atoms, n_dims) of no rows asks for objectives alone; `by_gram` is (n_nodes, depth).
    """

    objectives: Array
    by_atom: Array
    by_gram: Array


class Slots(NamedTuple):
    """One image's own class and rivals: objectives, best paths, their coefficients, and pulls at the class mean."""

    values: Array
    best: Array
    coefficients: Array
    pull: Array


@kernel
def left_out_gradient(classes: Array, batch: Batch, loss: Loss, paths: Paths, out: Gradient) -> float:
    """Weighted sum of ``-log softmax(-objective / temperature)`` of the own class over the images of some classes.

    Objectives have the own class first and are infinite beyond the rivals. By the envelope theorem the gradient of one
    objective by atom v is ``-2 a_v`` times the path's residual in the left-out metric, and that residual is a
    combination of the image, its class mean and the path's atoms.
    """
    depth, n_slots = paths.nodes.shape[1], 1 + batch.rivals.shape[1]
    s, trial = path_state(depth), np.zeros(depth)
    slots = Slots(np.zeros(n_slots), np.zeros(n_slots, np.int64), np.zeros((n_slots, depth)), np.zeros(n_slots))
    used = np.zeros(len(loss.atoms), np.int64)
    moves = Moves(np.zeros(paths.synset.max() + 1), np.full(len(loss.atoms), -1))
    total = 0.0
    for c in classes:
        low, high = batch.start[c], batch.start[c + 1]
        if low == high:
            continue
        n_used = mark_used(c, batch, paths, moves.column, used)
        some, mine, own_mean = loss.atoms[used[:n_used]], batch.images[low:high], batch.means[c : c + 1]
        norms = batch.norms[:, low:high]
        on_atoms = np.dot(mine, some.T), np.dot(own_mean, some.T)
        products = Products(on_atoms[0], on_atoms[1], loss.gram, norms[0], norms[1], norms[2], norms[3])
        from_images, from_mean = np.zeros((high - low, n_used), np.float32), np.zeros((1, n_used), np.float32)
        for i in range(high - low):
            set_shift(c, norms[4, i], paths, moves.shift)
            fill_slots(i, c, batch.rivals[low + i], loss.anchor, moves, products, paths, s, slots, trial)
            out.objectives[low + i] = slots.values
            lowest = slots.values.min()
            odds = np.exp((lowest - slots.values) / loss.temperature)
            total += norms[5, i] * ((slots.values[0] - lowest) / loss.temperature + np.log(odds.sum()))
            if len(out.by_atom):
                odds /= odds.sum()
                add_pulls(
                    odds, norms[5, i] / loss.temperature, slots, moves, paths, from_images[i], from_mean[0], out.by_gram
                )
        if len(out.by_atom):
            grown = np.dot(from_images.T, mine) + np.dot(from_mean.T, own_mean)
            for j in range(n_used):
                out.by_atom[used[j]] += grown[j]
        moves.column[used[:n_used]] = -1
        set_shift(c, 0.0, paths, moves.shift)
    return total


@piece
def mark_used(c: int, batch: Batch, paths: Paths, column: Array, used: Array) -> int:
    """Number the atoms on all paths of a class's images and their rivals; how many there are."""
    n_used = 0
    for i in range(batch.start[c], batch.start[c + 1]):
        for slot in range(1 + batch.rivals.shape[1]):
            k = c if slot == 0 else batch.rivals[i, slot - 1]
            if k < 0:
                break
            for path in range(paths.first[k], paths.first[k] + paths.number[k]):
                for m in range(paths.lengths[path]):
                    atom = paths.edge[paths.nodes[path, m]]
                    if column[atom] < 0:
                        column[atom], used[n_used] = n_used, atom
                        n_used += 1
    return n_used


@piece
def set_shift(c: int, moved_by: float, paths: Paths, shift: Array) -> None:
    """By how much the synsets above a class move without one of its images."""
    for entry in range(paths.above[c], paths.above[c + 1]):
        shift[paths.above_synset[entry]] = paths.above_share[entry] * moved_by


@piece
def fill_slots(
    i: int,
    c: int,
    rivals: Array,
    anchor: float,
    moves: Moves,
    products: Products,
    paths: Paths,
    s: PathState,
    slots: Slots,
    trial: Array,
) -> None:
    """The best path of image i for its own class c and for each rival, without the image."""
    slots.values[:] = np.inf
    begin(i, products, s)
    for slot in range(len(slots.values)):
        k = c if slot == 0 else rivals[slot - 1]
        if k < 0:
            break
        for path in range(paths.first[k], paths.first[k] + paths.number[k]):
            value = minimum(i, 0, path, anchor, moves, products, paths, s)
            if value < slots.values[slot]:
                slots.values[slot], slots.best[slot] = value, path
                length = paths.lengths[path]
                solve_transposed(s.factor, length, s.forward, trial)
                moved, along = 0.0, products.x_r[i]
                for m in range(length):
                    slots.coefficients[slot, m] = trial[m]
                    moved += trial[m] * s.moved[m]
                    along -= trial[m] * s.along[m]
                slots.pull[slot] = moved + products.g[i] * along


@piece
def add_pulls(
    odds: Array,
    factor: float,
    slots: Slots,
    moves: Moves,
    paths: Paths,
    from_image: Array,
    from_mean: Array,
    by_gram: Array,
) -> None:
    """Add one image's part of the gradient: weights of the image, of its class mean and of pairs of atoms."""
    for slot in range(len(odds)):
        weight = (1.0 if slot == 0 else 0.0) - odds[slot]
        if abs(weight) < NEGLIGIBLE:
            continue
        path, pull = slots.best[slot], slots.pull[slot]
        for m in range(paths.lengths[path]):
            node, weighted = paths.nodes[path, m], factor * weight * slots.coefficients[slot, m]
            place = moves.column[paths.edge[node]]
            from_image[place] += weighted * (1.0 + pull)
            from_mean[place] -= weighted * pull
            for q in range(m + 1):
                by_gram[node, q] += weighted * slots.coefficients[slot, q]


@kernel
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
