"""Sums of rooted paths, compiled: a beam of partial sums, each extended by every class, the best solved jointly."""

from typing import NamedTuple

import numpy as np

from hcep.pursuit.compiled import ZERO, kernel, offer, piece, sort_best_first
from hcep.pursuit.tables import Array


class Products(NamedTuple):
    """A block of images: squared norms, products with atoms and then leaves, objective of every complete path."""

    squares: Array
    products: Array
    singles: Array


class Leaves(NamedTuple):
    """What a dictionary's complete paths consist of, and the products of its atoms and then leaves.

    Paths are in the order of their leaves: those of leaf c are ``first[c]`` up to ``first[c + 1]``; `edges` (n_paths,
    depth) are the atoms along each, -1 beyond its end.
    """

    edges: Array
    leaf: Array
    first: Array
    gram: Array


class SumRules(NamedTuple):
    """Options of one search: see `hcep.pursuit.several`."""

    anchor: float
    spread: float
    smallest: float
    width: int
    n_tried: int
    intercept: float
    slope: float


class Sums(NamedTuple):
    """The answers: paths and shares (n, k), objectives with 1, 2, ... paths (n, k), atoms and coefficients (n, m)."""

    paths: Array
    shares: Array
    objectives: Array
    atoms: Array
    coefficients: Array
    residuals: Array


class Room(NamedTuple):
    """Room for one joint problem: where each atom stands in the union, atoms and leaves, the system, its solution."""

    place: Array
    union: Array
    matrix: Array
    right: Array
    mean: Array
    solution: Array
    shares: Array


@piece
def joint(i: int, paths: Array, k: int, images: Products, leaves: Leaves, rules: SumRules, room: Room) -> float:
    """Objective of a sum of k paths; `room` receives the union of their atoms, shares and changes of coefficients.

    The unknowns are the coefficients' distances from what the shares say, and the shares' from 1/k, which sum to 0: so
    leaves count less their mean.
    """
    gram, place, union, matrix, right, mean = leaves.gram, room.place, room.union, room.matrix, room.right, room.mean
    m = ZERO
    for j in range(k):
        for e in leaves.edges[paths[j]]:
            if e >= 0 and place[e] < 0:
                place[e], union[m] = m, e
                m += 1
    for a in range(m):
        place[union[a]] = -1
    size = m + k
    for j in range(k):
        union[m + j] = len(place) + leaves.leaf[paths[j]]
    along, within = 0.0, 0.0
    for a in range(size):
        mean[a] = 0.0
        for j in range(k):
            mean[a] += gram[union[a], union[m + j]] / k
        right[a] = images.products[i, union[a]] - mean[a]
        if a >= m:
            along += images.products[i, union[a]] / k
            within += mean[a] / k
    square = images.squares[i] + within - 2.0 * along
    for a in range(size):
        for b in range(a + 1):
            matrix[a, b] = gram[union[a], union[b]]
            if a >= m:
                matrix[a, b] -= mean[b]
            if b >= m:
                matrix[a, b] -= mean[a] - within
        if a >= m:
            right[a] -= along - within
        matrix[a, a] += rules.anchor if a < m else rules.anchor / rules.spread
    for a in range(size):
        for b in range(a + 1):
            total = matrix[a, b]
            for c in range(b):
                total -= matrix[a, c] * matrix[b, c]
            matrix[a, b] = np.sqrt(total) if a == b else total / matrix[b, b]
        total = right[a]
        for c in range(a):
            total -= matrix[a, c] * right[c]
        right[a] = total / matrix[a, a]
        square -= right[a] * right[a]
    for a in range(size - 1, -1, -1):
        total = right[a]
        for c in range(a + 1, size):
            total -= matrix[c, a] * room.solution[c]
        room.solution[a] = total / matrix[a, a]
    middle = 0.0
    for j in range(k):
        middle += room.solution[m + j] / k
    for j in range(k):
        room.shares[j] = 1.0 / k + room.solution[m + j] - middle
    return float(square)


@piece
def finish(
    i: int, k: int, objective: float, images: Products, leaves: Leaves, rules: SumRules, room: Room, sums: Sums
) -> None:
    """Solve the chosen sum once more; its coefficients, and what it leaves unexplained."""
    joint(i, sums.paths[i], k, images, leaves, rules, room)
    m, left = ZERO, objective
    for j in range(k):
        sums.shares[i, j] = room.shares[j]
        left -= rules.anchor / rules.spread * (room.shares[j] - 1.0 / k) ** 2
        for e in leaves.edges[sums.paths[i, j]]:
            if e < 0:
                continue
            if room.place[e] < 0:
                room.place[e], sums.atoms[i, m] = m, e
                sums.coefficients[i, m] = room.solution[m]
                left -= rules.anchor * room.solution[m] ** 2
                m += 1
            sums.coefficients[i, room.place[e]] += room.shares[j]
    for a in range(m):
        room.place[sums.atoms[i, a]] = -1
    sums.residuals[i] = np.sqrt(max(left, 0.0))


@kernel
def search_sums(images: Products, leaves: Leaves, rules: SumRules, sums: Sums) -> None:
    """The best sums of 1, 2, ... paths of each image, until the rule stops or there is room for no more."""
    n_leaves, depth, most = len(leaves.first) - 1, leaves.edges.shape[1], sums.paths.shape[1]
    size = most * depth + most
    room = Room(
        np.full(len(leaves.gram) - n_leaves, -1, np.int64), np.zeros(size, np.int64), np.zeros((size, size)),
        np.zeros(size), np.zeros(size), np.zeros(size), np.zeros(most),
    )  # fmt: skip
    width, n_tried = rules.width, rules.n_tried
    beam, shares, objectives = np.zeros((width, most), np.int64), np.zeros((width, most)), np.zeros(width)
    new_beam, new_shares = np.zeros((n_tried, most), np.int64), np.zeros((n_tried, most))
    scores, found, order = np.zeros(n_tried), np.zeros(n_tried, np.int64), np.zeros(n_tried, np.int64)
    trial = np.zeros(most, np.int64)
    for i in range(len(images.squares)):
        n_kept = start(i, n_leaves, images, leaves, width, beam, shares, objectives, scores, found)
        sums.paths[i, 0], sums.objectives[i, 0], k, value = beam[0, 0], objectives[0], 1, objectives[0]
        while k < most and value > 0.0:
            size = shortlist(i, k, n_kept, images, leaves, beam, shares, n_tried, scores, found)
            n_new = ZERO
            for f in range(size):
                state, c = found[f] // n_leaves, found[f] % n_leaves
                best = np.inf
                for j in range(k):
                    trial[j] = beam[state, j]
                for path in range(leaves.first[c], leaves.first[c + 1]):
                    trial[k] = path
                    objective = joint(i, trial, k + 1, images, leaves, rules, room)
                    there = True
                    for j in range(k + 1):
                        there = there and room.shares[j] >= rules.smallest
                    if there and objective < best and not is_known(trial, k + 1, new_beam, n_new):
                        best = objective
                        for j in range(k + 1):
                            new_beam[n_new, j], new_shares[n_new, j] = trial[j], room.shares[j]
                if best < np.inf:
                    scores[n_new], order[n_new] = -best, n_new
                    n_new += 1
            if n_new == 0:
                break
            sort_best_first(scores, order, n_new)
            best = -scores[0]
            # A third path must gain something at all: the first alone decides how much a second must.
            needed = rules.intercept + rules.slope * objectives[0] / max(images.squares[i], 1e-300)
            if not 1.0 - best / value > (needed if k == 1 or rules.intercept == -np.inf else max(needed, 0.0)):
                break
            n_kept = min(n_new, width)
            for s in range(n_kept):
                for j in range(k + 1):
                    beam[s, j], shares[s, j] = new_beam[order[s], j], new_shares[order[s], j]
            for j in range(k + 1):
                sums.paths[i, j] = beam[0, j]
            sums.objectives[i, k], value = best, best
            k += 1
        finish(i, k, value, images, leaves, rules, room, sums)


@piece
def start(
    i: int, n_leaves: int, images: Products, leaves: Leaves, width: int,
    beam: Array, shares: Array, objectives: Array, scores: Array, found: Array,
) -> int:  # fmt: skip
    """The best path of each leaf, of the best leaves; how many there are."""
    size = ZERO
    for c in range(n_leaves):
        best = leaves.first[c]
        for path in range(best + 1, leaves.first[c + 1]):
            if images.singles[i, path] < images.singles[i, best]:
                best = path
        size = offer(scores, found, size, width, -images.singles[i, best], best)
    sort_best_first(scores, found, size)
    for s in range(size):
        beam[s, 0], shares[s, 0], objectives[s] = found[s], 1.0, -scores[s]
    return size


@piece
def shortlist(
    i: int, k: int, n_kept: int, images: Products, leaves: Leaves, beam: Array, shares: Array,
    n_tried: int, scores: Array, found: Array,
) -> int:  # fmt: skip
    """Extensions of the beam worth a joint solution: the least ``||x - (1 - s) b - s a(c)||`` over shares s.

    b is the sum of a state's leaves by its shares: products of leaves say it all, for every class at once.
    """
    leaf, n_leaves, size = leaves.leaf, len(leaves.first) - 1, ZERO
    n_atoms = len(leaves.gram) - n_leaves
    between, products = leaves.gram[n_atoms:, n_atoms:], images.products[i, n_atoms:]
    for s in range(n_kept):
        x_b, b_b = 0.0, 0.0
        for j in range(k):
            x_b += shares[s, j] * products[leaf[beam[s, j]]]
            for h in range(k):
                b_b += shares[s, j] * shares[s, h] * between[leaf[beam[s, j]], leaf[beam[s, h]]]
        for c in range(n_leaves):
            b_c, taken = 0.0, False
            for j in range(k):
                b_c += shares[s, j] * between[leaf[beam[s, j]], c]
                taken = taken or leaf[beam[s, j]] == c
            distance = between[c, c] - 2.0 * b_c + b_b
            if taken or not distance > 0.0:
                continue
            along = products[c] - x_b - b_c + b_b
            share = min(max(along / distance, 0.1), 0.9)
            score = share * (2.0 * along - share * distance) - (images.squares[i] - 2.0 * x_b + b_b)
            size = offer(scores, found, size, n_tried, score, s * n_leaves + c)
    sort_best_first(scores, found, size)
    return size


@piece
def is_known(paths: Array, k: int, known: Array, n_known: int) -> bool:
    """Whether a set of paths is among those already solved."""
    for n in range(n_known):
        same = 0
        for j in range(k):
            for h in range(k):
                same += 1 if known[n, j] == paths[h] else 0
        if same == k:
            return True
    return False
