"""The compiled search for sums of rooted paths: a beam of partial sums that are extended and solved jointly."""

from typing import NamedTuple

import numpy as np

from hcep.pursuit.compiled import (
    ZERO,
    Array,
    copy,
    factor_row,
    forward_step,
    kernel,
    offer,
    piece,
    solve_transposed,
    sort_best_first,
)


class SumProducts(NamedTuple):
    """A block of images: squared norms, products with atoms and leaves, and the objective of every complete path."""

    squares: Array
    products: Array
    singles: Array


class LeafPaths(NamedTuple):
    """The complete paths of a dictionary, and the Gram matrix of its atoms followed by its leaves.

    Paths are in the order of their leaves: those of leaf c are ``first[c]`` to ``first[c + 1] - 1``. `edges` (n_paths,
    depth) holds the atoms along each path, with -1 beyond its end.
    """

    edges: Array
    leaf: Array
    first: Array
    gram: Array


class SumRules(NamedTuple):
    """The options of one search; see `hcep.pursuit.several`."""

    anchor: float
    spread: float
    smallest: float
    width: int
    n_tried: int
    intercept: float
    slope: float


class Sums(NamedTuple):
    """The results: paths, shares and objectives with 1, 2, ... paths (n, k); atoms and coefficients (n, m)."""

    paths: Array
    shares: Array
    objectives: Array
    atoms: Array
    coefficients: Array
    residuals: Array


class JointSpace(NamedTuple):
    """Buffers for one joint problem: the place of each atom in the union, the union, the system and its solution."""

    place: Array
    union: Array
    factor: Array
    right: Array
    mean: Array
    solution: Array
    shares: Array


class SumBeam(NamedTuple):
    """Partial sums: their paths and shares (width, most), and their objectives. Their number is stored separately."""

    paths: Array
    shares: Array
    objectives: Array


class Candidates(NamedTuple):
    """Extensions of partial sums, as codes for a partial sum and a class, and their scores; higher is better."""

    scores: Array
    codes: Array


@piece
def joint(
    i: int, paths: Array, k: int, images: SumProducts, leaves: LeafPaths, rules: SumRules, space: JointSpace
) -> float:
    """Solve the joint problem of k paths and return its objective; `space` gets the union of atoms and the solution.

    The unknowns are the differences of the coefficients from t(w) and of the shares from 1/k. The latter sum to 0, so
    the mean of the leaves is subtracted from each leaf.
    """
    m = gather_union(paths, k, leaves, space)
    square = fill_system(i, m, k, images, leaves, space)
    for a in range(m + k):
        factor_row(space.factor, a, rules.anchor if a < m else rules.anchor / rules.spread)
        space.right[a] = forward_step(space.factor, space.right, a, space.right[a])
        square -= space.right[a] * space.right[a]
    solve_transposed(space.factor, m + k, space.right, space.solution)
    middle = 0.0
    for j in range(k):
        middle += space.solution[m + j] / k
    for j in range(k):
        space.shares[j] = 1.0 / k + space.solution[m + j] - middle
    return float(square)


@piece
def gather_union(paths: Array, k: int, leaves: LeafPaths, space: JointSpace) -> int:
    """Collect the distinct atoms of all paths, followed by their leaves, and return the number of atoms."""
    place, union, m = space.place, space.union, ZERO
    for j in range(k):
        for e in leaves.edges[paths[j]]:
            if e >= 0 and place[e] < 0:
                place[e], union[m] = m, e
                m += 1
    for a in range(m):
        place[union[a]] = -1
    for j in range(k):
        union[m + j] = len(place) + leaves.leaf[paths[j]]
    return m


@piece
def fill_system(i: int, m: int, k: int, images: SumProducts, leaves: LeafPaths, space: JointSpace) -> float:
    """Fill in the Gram matrix and the right side; return the squared distance of the image from the leaves' mean."""
    gram, union, right, mean = leaves.gram, space.union, space.right, space.mean
    along, within = 0.0, 0.0
    for a in range(m + k):
        mean[a] = 0.0
        for j in range(k):
            mean[a] += gram[union[a], union[m + j]] / k
        right[a] = images.products[i, union[a]] - mean[a]
        if a >= m:
            along += images.products[i, union[a]] / k
            within += mean[a] / k
    for a in range(m + k):
        for b in range(a + 1):
            space.factor[a, b] = gram[union[a], union[b]]
            if a >= m:
                space.factor[a, b] -= mean[b]
            if b >= m:
                space.factor[a, b] -= mean[a] - within
        if a >= m:
            right[a] -= along - within
    square: float = images.squares[i] + within - 2.0 * along
    return square


@piece
def finish(
    i: int,
    k: int,
    objective: float,
    images: SumProducts,
    leaves: LeafPaths,
    rules: SumRules,
    space: JointSpace,
    sums: Sums,
) -> None:
    """Solve the chosen sum again, and write its coefficients and its residual norm."""
    joint(i, sums.paths[i], k, images, leaves, rules, space)
    m, left = ZERO, objective
    for j in range(k):
        sums.shares[i, j] = space.shares[j]
        left -= rules.anchor / rules.spread * (space.shares[j] - 1.0 / k) ** 2
        for e in leaves.edges[sums.paths[i, j]]:
            if e < 0:
                continue
            if space.place[e] < 0:
                space.place[e], sums.atoms[i, m] = m, e
                sums.coefficients[i, m] = space.solution[m]
                left -= rules.anchor * space.solution[m] ** 2
                m += 1
            sums.coefficients[i, space.place[e]] += space.shares[j]
    for a in range(m):
        space.place[sums.atoms[i, a]] = -1
    sums.residuals[i] = np.sqrt(max(left, 0.0))


@kernel
def search_sums(images: SumProducts, leaves: LeafPaths, rules: SumRules, sums: Sums) -> None:
    """Find the best sums of 1, 2, ... paths of each image, until the rule stops or the limit is reached."""
    n_leaves, depth, most = len(leaves.first) - 1, leaves.edges.shape[1], sums.paths.shape[1]
    size = most * depth + most
    space = JointSpace(
        np.full(len(leaves.gram) - n_leaves, -1, np.int64), np.zeros(size, np.int64), np.zeros((size, size)),
        np.zeros(size), np.zeros(size), np.zeros(size), np.zeros(most),
    )  # fmt: skip
    beam, new = sum_beam(rules.width, most), sum_beam(rules.n_tried, most)
    candidates = Candidates(np.zeros(rules.n_tried), np.zeros(rules.n_tried, np.int64))
    order = np.zeros(rules.n_tried, np.int64)
    for i in range(len(images.squares)):
        n_kept = start(i, images, leaves, rules, beam, candidates)
        sums.paths[i, 0], sums.objectives[i, 0], k, value = beam.paths[0, 0], beam.objectives[0], 1, beam.objectives[0]
        # The rule decides how much the second path must gain; any later path must also gain more than nothing.
        needed = rules.intercept + rules.slope * value / max(images.squares[i], 1e-300)
        while k < most and value > 0.0:
            size = shortlist(i, k, n_kept, images, leaves, rules, beam, candidates)
            n_new = solve_candidates(i, k, size, images, leaves, rules, beam, candidates, space, new)
            if n_new == 0:
                break
            for n in range(n_new):
                candidates.scores[n], order[n] = -new.objectives[n], n
            sort_best_first(candidates.scores, order, n_new)
            best = -candidates.scores[0]
            if not 1.0 - best / value > (needed if k == 1 or rules.intercept == -np.inf else max(needed, 0.0)):
                break
            n_kept = min(n_new, rules.width)
            for s in range(n_kept):
                for j in range(k + 1):
                    beam.paths[s, j], beam.shares[s, j] = new.paths[order[s], j], new.shares[order[s], j]
            for j in range(k + 1):
                sums.paths[i, j] = beam.paths[0, j]
            sums.objectives[i, k], value = best, best
            k += 1
        finish(i, k, value, images, leaves, rules, space, sums)


@piece
def sum_beam(width: int, most: int) -> SumBeam:
    return SumBeam(np.zeros((width, most), np.int64), np.zeros((width, most)), np.zeros(width))


@piece
def start(
    i: int, images: SumProducts, leaves: LeafPaths, rules: SumRules, beam: SumBeam, candidates: Candidates
) -> int:
    """Start the beam with the best path of each of the best leaves, and return its size."""
    size, (scores, paths) = ZERO, candidates
    for c in range(len(leaves.first) - 1):
        best = leaves.first[c]
        for path in range(best + 1, leaves.first[c + 1]):
            if images.singles[i, path] < images.singles[i, best]:
                best = path
        size = offer(scores, paths, size, rules.width, -images.singles[i, best], best)
    sort_best_first(scores, paths, size)
    for s in range(size):
        beam.paths[s, 0], beam.shares[s, 0], beam.objectives[s] = paths[s], 1.0, -scores[s]
    return size


@piece
def shortlist(
    i: int, k: int, n_kept: int, images: SumProducts, leaves: LeafPaths, rules: SumRules, beam: SumBeam,
    candidates: Candidates,
) -> int:  # fmt: skip
    """Choose the extensions of the beam to solve: those with the smallest ``||x - (1 - s) b - s a(c)||`` over s.

    b is the sum of a partial sum's leaves weighted by their shares, so products between leaves are enough.
    """
    leaf, n_leaves, size = leaves.leaf, len(leaves.first) - 1, ZERO
    n_atoms = len(leaves.gram) - n_leaves
    between, products = leaves.gram[n_atoms:, n_atoms:], images.products[i, n_atoms:]
    for s in range(n_kept):
        paths, shares = beam.paths[s], beam.shares[s]
        x_b, b_b = 0.0, 0.0
        for j in range(k):
            x_b += shares[j] * products[leaf[paths[j]]]
            for h in range(k):
                b_b += shares[j] * shares[h] * between[leaf[paths[j]], leaf[paths[h]]]
        for c in range(n_leaves):
            b_c, taken = 0.0, False
            for j in range(k):
                b_c += shares[j] * between[leaf[paths[j]], c]
                taken = taken or leaf[paths[j]] == c
            distance = between[c, c] - 2.0 * b_c + b_b
            if taken or not distance > 0.0:
                continue
            along = products[c] - x_b - b_c + b_b
            share = min(max(along / distance, 0.1), 0.9)
            score = share * (2.0 * along - share * distance) - (images.squares[i] - 2.0 * x_b + b_b)
            size = offer(candidates.scores, candidates.codes, size, rules.n_tried, score, s * n_leaves + c)
    sort_best_first(candidates.scores, candidates.codes, size)
    return size


@piece
def solve_candidates(
    i: int, k: int, size: int, images: SumProducts, leaves: LeafPaths, rules: SumRules, beam: SumBeam,
    candidates: Candidates, space: JointSpace, new: SumBeam,
) -> int:  # fmt: skip
    """Solve each candidate with the best path of its class; write those with valid shares to `new`; return how many."""
    n_leaves, n_new, trial = len(leaves.first) - 1, ZERO, np.zeros(k + 1, np.int64)
    for f in range(size):
        state, c = candidates.codes[f] // n_leaves, candidates.codes[f] % n_leaves
        best = np.inf
        copy(beam.paths[state], trial, k)
        for path in range(leaves.first[c], leaves.first[c + 1]):
            trial[k] = path
            objective = joint(i, trial, k + 1, images, leaves, rules, space)
            large_enough = True
            for j in range(k + 1):
                large_enough = large_enough and space.shares[j] >= rules.smallest
            if large_enough and objective < best and not is_known(trial, k + 1, new.paths, n_new):
                best = objective
                copy(trial, new.paths[n_new], k + 1)
                copy(space.shares, new.shares[n_new], k + 1)
        if best < np.inf:
            new.objectives[n_new] = best
            n_new += 1
    return n_new


@piece
def is_known(paths: Array, k: int, known: Array, n_known: int) -> bool:
    """Return whether a set of paths has already been solved."""
    for n in range(n_known):
        same = 0
        for j in range(k):
            for h in range(k):
                same += 1 if known[n, j] == paths[h] else 0
        if same == k:
            return True
    return False
