"""The searches, compiled: one block of images at a time, no state between images.

Every function here works on trusted arrays. Scores are energies to be maximised: the sum of ``p_u**2 - anchor`` along
a path, so that ``||x||**2 - score`` is the objective. ``p_v`` is ``p[i, c] + offset[c]`` for the column c of v, times
its sign; the offset is the anchor's and in double precision, because ``p**2 - anchor`` cancels for a large one. Ties go
to the lowest node. No fastmath: a comparison picks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[Any]

#: Below this share of ||x||**2 (plus the anchor's part) the residual is a difference of nearly equal numbers, and is
#: measured instead.
CANCELLED_64 = 1e-6
CANCELLED_32 = 1e-2


@njit(cache=True, nogil=True)
def better(score_a: float, node_a: int, score_b: float, node_b: int) -> bool:
    """The order of hypotheses: the higher score, then the lower node."""
    return score_a > score_b or (score_a == score_b and node_a < node_b)


@njit(cache=True, nogil=True)
def sink(scores: Array, nodes: Array, k: int, size: int) -> None:
    """Restore a heap whose top is its worst member, after entry k became better."""
    while True:
        worst = k
        for child in (2 * k + 1, 2 * k + 2):
            if child < size and better(scores[worst], nodes[worst], scores[child], nodes[child]):
                worst = child
        if worst == k:
            return
        scores[k], scores[worst] = scores[worst], scores[k]
        nodes[k], nodes[worst] = nodes[worst], nodes[k]
        k = worst


@njit(cache=True, nogil=True)
def offer(scores: Array, nodes: Array, size: int, limit: int, score: float, node: int) -> int:
    """Keep the `limit` best hypotheses seen in a heap with the worst on top; return the new size."""
    if size < limit:
        k = size
        scores[k] = score
        nodes[k] = node
        while k > 0:
            above = (k - 1) // 2
            if better(scores[k], nodes[k], scores[above], nodes[above]):
                break
            scores[k], scores[above] = scores[above], scores[k]
            nodes[k], nodes[above] = nodes[above], nodes[k]
            k = above
        return size + 1
    if better(score, node, scores[0], nodes[0]):
        scores[0] = score
        nodes[0] = node
        sink(scores, nodes, 0, size)
    return size


@njit(cache=True, nogil=True)
def keep_best(scores: Array, nodes: Array, size: int, limit: int) -> int:
    """Move the `limit` best of `size` hypotheses to the front, in no order; return how many there are."""
    if size <= limit:
        return size
    low, high = 0, size - 1
    while low < high:
        # Hoare's selection about the median of three. The order is total, so the kept set is unique.
        middle = (low + high) // 2
        if better(scores[middle], nodes[middle], scores[low], nodes[low]):
            swap(scores, nodes, middle, low)
        if better(scores[high], nodes[high], scores[low], nodes[low]):
            swap(scores, nodes, high, low)
        if better(scores[high], nodes[high], scores[middle], nodes[middle]):
            swap(scores, nodes, high, middle)
        pivot_score, pivot_node = scores[middle], nodes[middle]
        i, j = low, high
        while i <= j:
            while better(scores[i], nodes[i], pivot_score, pivot_node):
                i += 1
            while better(pivot_score, pivot_node, scores[j], nodes[j]):
                j -= 1
            if i <= j:
                swap(scores, nodes, i, j)
                i += 1
                j -= 1
        if limit - 1 <= j:
            high = j
        elif limit - 1 >= i:
            low = i
        else:
            break
    return limit


@njit(cache=True, nogil=True)
def swap(scores: Array, nodes: Array, i: int, j: int) -> None:
    scores[i], scores[j] = scores[j], scores[i]
    nodes[i], nodes[j] = nodes[j], nodes[i]


@njit(cache=True, nogil=True)
def unheap(scores: Array, nodes: Array, size: int) -> None:
    """Sort a heap in place, best first."""
    for last in range(size - 1, 0, -1):
        scores[0], scores[last] = scores[last], scores[0]
        nodes[0], nodes[last] = nodes[last], nodes[0]
        sink(scores, nodes, 0, last)


@njit(cache=True, nogil=True)
def sort_best_first(scores: Array, nodes: Array, size: int) -> None:
    """Order an unordered beam, best first: a heap is built, then taken apart."""
    for k in range(size // 2 - 1, -1, -1):
        sink(scores, nodes, k, size)
    unheap(scores, nodes, size)


@njit(cache=True, nogil=True)
def search_all(
    p: Array,
    offset: Array,
    column: Array,
    parent: Array,
    complete: Array,
    anchor: float,
    final_nodes: Array,
) -> None:
    """Best complete paths of each image: a running sum down the tree and an argmax.

    ``p`` is (n, n_columns); ``complete`` says of the first nodes, those within the step limit, whether a path may end
    there; ``final_nodes`` (n, k) receives the k best nodes, best first.
    """
    n_nodes = len(complete)
    limit = final_nodes.shape[1]
    score = np.zeros(n_nodes)
    heap_scores = np.zeros(limit)
    heap_nodes = np.zeros(limit, np.int64)
    for i in range(len(p)):
        size = 0
        worst = -np.inf
        for v in range(1, n_nodes):
            c = column[v]
            value = score[parent[v]] - anchor
            if c >= 0:
                along = p[i, c] + offset[c]
                value += along * along
            score[v] = value
            # In index order an equal score never displaces: the tie goes to the lowest node.
            if value > worst and complete[v]:
                size = offer(heap_scores, heap_nodes, size, limit, value, v)
                if size == limit:
                    worst = heap_scores[0]
        unheap(heap_scores, heap_nodes, size)
        for h in range(size):
            final_nodes[i, h] = heap_nodes[h]


@njit(cache=True, nogil=True)
def search_all_signed(
    p: Array,
    offset: Array,
    column: Array,
    sign: Array,
    parent: Array,
    level: Array,
    max_steps: int,
    anchor: float,
    final_nodes: Array,
) -> None:
    """As `search_all` where a child needs ``p_v > 0``: a path is complete, too, where no child is eligible."""
    n_nodes = len(column)
    limit = final_nodes.shape[1]
    score = np.zeros(n_nodes)
    goes_on = np.zeros(n_nodes, np.bool_)
    heap_scores = np.zeros(limit)
    heap_nodes = np.zeros(limit, np.int64)
    for i in range(len(p)):
        goes_on[0] = False
        for v in range(1, n_nodes):
            goes_on[v] = False
            c = column[v]
            u = parent[v]
            value = (p[i, c] + offset[c]) * sign[v] if c >= 0 else 0.0
            if value > 0.0 and level[v] <= max_steps:
                score[v] = score[u] + value * value - anchor
                goes_on[u] = goes_on[u] or score[v] > -np.inf
            else:
                score[v] = -np.inf
        size = 0
        for v in range(n_nodes):
            if score[v] > -np.inf and not goes_on[v]:
                size = offer(heap_scores, heap_nodes, size, limit, score[v], v)
        unheap(heap_scores, heap_nodes, size)
        for h in range(size):
            final_nodes[i, h] = heap_nodes[h]


@njit(cache=True, nogil=True)
def projections_along(
    i: int,
    node: int,
    p: Array,
    offset: Array,
    column: Array,
    sign: Array,
    parent: Array,
    level: Array,
    out: Array,
    nodes: Array,
) -> int:
    """Write p_u and u for the nodes u along a path; return the path's length."""
    length: int = level[node]
    for k in range(length - 1, -1, -1):
        nodes[k] = node
        c = column[node]
        out[k] = sign[node] * (p[i, c] + offset[c]) if c >= 0 else 0.0
        node = parent[node]
    return length


@njit(cache=True, nogil=True)
def solve_path(length: int, along: Array, nodes: Array, triangle: Array, coefficients: Array) -> None:
    """Back substitution in the R of the path's QR; a dependent atom (zero diagonal) gets 0."""
    for k in range(length - 1, -1, -1):
        diagonal = triangle[nodes[k], k]
        if diagonal == 0.0:
            coefficients[k] = 0.0
            continue
        total = along[k]
        for m in range(k + 1, length):
            total -= triangle[nodes[m], k] * coefficients[m]
        coefficients[k] = total / diagonal


@njit(cache=True, nogil=True)
def squared_residual(
    x: Array,
    square_norm: float,
    length: int,
    along: Array,
    nodes: Array,
    coefficients: Array,
    edge: Array,
    atoms: Array,
    anchor: float,
    cancelled: float,
    left: Array,
) -> float:
    """``||x - D^T a||**2`` of one path: from the projections, or measured where these cancel."""
    augmented = square_norm + anchor * length
    objective = augmented
    penalty = 0.0
    for k in range(length):
        objective -= along[k] * along[k]
        penalty += anchor * (coefficients[k] - 1.0) * (coefficients[k] - 1.0)
    estimate = objective - penalty
    if estimate > cancelled * augmented:
        return estimate
    for j in range(len(x)):
        left[j] = x[j]
    for k in range(length):
        a = coefficients[k]
        e = edge[nodes[k]]
        for j in range(len(x)):
            left[j] -= a * atoms[e, j]
    total = 0.0
    for j in range(len(x)):
        total += left[j] * left[j]
    return total


@njit(cache=True, nogil=True)
def finish_paths(
    x: Array,
    p: Array,
    offset: Array,
    nodes: Array,
    square_norms: Array,
    column: Array,
    sign: Array,
    parent: Array,
    level: Array,
    edge: Array,
    triangle: Array,
    atoms: Array,
    anchor: float,
    cancelled: float,
    coefficients: Array,
    residuals: Array,
) -> None:
    """Coefficients (n, depth) and residual norms (n,) of one node a row; a node below 0 is left out."""
    depth = triangle.shape[1]
    along = np.zeros(depth)
    path = np.zeros(depth, np.int64)
    solution = np.zeros(depth)
    left = np.zeros(x.shape[1])
    for i in range(len(nodes)):
        if nodes[i] < 0:
            residuals[i] = np.nan
            continue
        length = projections_along(i, nodes[i], p, offset, column, sign, parent, level, along, path)
        solve_path(length, along, path, triangle, solution)
        square = squared_residual(
            x[i], square_norms[i], length, along, path, solution, edge, atoms, anchor, cancelled, left
        )
        residuals[i] = np.sqrt(max(square, 0.0))
        for k in range(length):
            coefficients[i, k] = solution[k]


@njit(cache=True, nogil=True)
def explained_shares(
    x: Array, nodes: Array, parent: Array, level: Array, edge: Array, atoms: Array, coefficients: Array, shares: Array
) -> None:
    """Share of ``||x||**2`` explained by the first k atoms of each path, (n, depth); entries beyond its end stay."""
    path = np.zeros(shares.shape[1], np.int64)
    left = np.zeros(x.shape[1])
    for i in range(len(nodes)):
        node = nodes[i]
        length = level[node]
        for k in range(length - 1, -1, -1):
            path[k] = edge[node]
            node = parent[node]
        square = 0.0
        for j in range(len(left)):
            left[j] = x[i, j]
            square += left[j] * left[j]
        for k in range(length):
            a = coefficients[i, k]
            total = 0.0
            for j in range(len(left)):
                left[j] -= a * atoms[path[k], j]
                total += left[j] * left[j]
            shares[i, k] = 1.0 - total / (square if square > 0.0 else 1.0)


@njit(cache=True, nogil=True)
def some_residual_below(
    i: int,
    tol: float,
    size: int,
    beam: Array,
    scores: Array,
    x: Array,
    p: Array,
    offset: Array,
    square_norm: float,
    column: Array,
    sign: Array,
    parent: Array,
    level: Array,
    edge: Array,
    triangle: Array,
    atoms: Array,
    anchor: float,
    cancelled: float,
    along: Array,
    path: Array,
    solution: Array,
    left: Array,
) -> bool:
    """Whether a hypothesis of the beam has ``||x - D^T a|| < tol``."""
    for h in range(size):
        node = beam[h]
        if anchor == 0.0 and square_norm - scores[h] > max(4.0 * tol * tol, cancelled * square_norm):
            continue  # far from the tolerance, beyond what rounding could hide
        length = projections_along(i, node, p, offset, column, sign, parent, level, along, path)
        solve_path(length, along, path, triangle, solution)
        square = squared_residual(x, square_norm, length, along, path, solution, edge, atoms, anchor, cancelled, left)
        if square < tol * tol:
            return True
    return False


@njit(cache=True, nogil=True)
def search_beam(
    x: Array,
    p: Array,
    offset: Array,
    square_norms: Array,
    column: Array,
    sign: Array,
    share: Array,
    parent: Array,
    level: Array,
    first_child: Array,
    n_children: Array,
    edge: Array,
    triangle: Array,
    atoms: Array,
    beam_width: int,
    widest: int,
    n_tried: int,
    max_steps: int,
    tol: float,
    signed: bool,
    anchor: float,
    cancelled: float,
    final_nodes: Array,
    trace_nodes: Array,
) -> None:
    """Algorithm 2: extend every hypothesis by its best children, keep the best hypotheses, repeat.

    A synset has at most `widest` children, a step at most `n_tried` hypotheses before it keeps the best.
    ``final_nodes`` (n, k) receives the k best hypotheses of the last beam, best first, -1 where there are fewer;
    ``trace_nodes`` (n, t, b) the beam before every step and after the last, where t is not 0.
    """
    width = beam_width
    beam = np.zeros(n_tried, np.int64)
    scores = np.zeros(n_tried)
    new_beam = np.zeros(n_tried, np.int64)
    new_scores = np.zeros(n_tried)
    child_keys = np.zeros(widest)
    child_nodes = np.zeros(widest, np.int64)
    traced = trace_nodes.shape[1] > 0
    depth = triangle.shape[1]
    along = np.zeros(depth)
    path = np.zeros(depth, np.int64)
    solution = np.zeros(depth)
    left = np.zeros(x.shape[1])
    for i in range(len(p)):
        beam[0] = 0
        scores[0] = 0.0
        size = 1
        for step in range(max_steps + 1):
            if traced:
                sort_best_first(scores, beam, size)
                for h in range(size):
                    trace_nodes[i, step, h] = beam[h]
            if step == max_steps:
                break
            if tol > 0.0 and some_residual_below(
                i, tol, size, beam, scores, x[i], p, offset, square_norms[i], column, sign, parent, level, edge,
                triangle, atoms, anchor, cancelled, along, path, solution, left,
            ):  # fmt: skip
                break
            new_size = 0
            extended = False
            for h in range(size):
                first = first_child[beam[h]]
                n_eligible = 0
                for v in range(first, first + n_children[beam[h]]):
                    c = column[v]
                    value = (p[i, c] + offset[c]) * sign[v] if c >= 0 else 0.0
                    if signed and not value > 0.0:
                        continue
                    child_keys[n_eligible] = abs(value) * share[v]
                    child_nodes[n_eligible] = v
                    n_eligible += 1
                if n_eligible == 0:
                    new_scores[new_size] = scores[h]
                    new_beam[new_size] = beam[h]
                    new_size += 1
                    continue
                extended = True
                for e in range(keep_best(child_keys, child_nodes, n_eligible, width)):
                    c = column[child_nodes[e]]
                    value = p[i, c] + offset[c] if c >= 0 else 0.0
                    new_scores[new_size] = scores[h] + value * value - anchor
                    new_beam[new_size] = child_nodes[e]
                    new_size += 1
            beam, new_beam = new_beam, beam
            scores, new_scores = new_scores, scores
            size = keep_best(scores, beam, new_size, width)
            if not extended:
                break
        if final_nodes.shape[1] == 1:
            final_nodes[i, 0] = best_of(scores, beam, size)
        else:
            sort_best_first(scores, beam, size)
            for h in range(min(size, final_nodes.shape[1])):
                final_nodes[i, h] = beam[h]


@njit(cache=True, nogil=True)
def best_of(scores: Array, nodes: Array, size: int) -> int:
    """The node of the best hypothesis."""
    at = 0
    for h in range(1, size):
        if better(scores[h], nodes[h], scores[at], nodes[at]):
            at = h
    return int(nodes[at])


@njit(cache=True, nogil=True)
def leaf_scores(
    p: Array,
    offset: Array,
    column: Array,
    sign: Array,
    parent: Array,
    anchor: float,
    signed: bool,
    leaves: Array,
    out: Array,
) -> None:
    """Score of every complete path, (n, n_leaf_nodes); -inf where the signed rule bars the way."""
    n_nodes = len(column)
    score = np.zeros(n_nodes)
    for i in range(len(p)):
        for v in range(1, n_nodes):
            c = column[v]
            value = (p[i, c] + offset[c]) * sign[v] if c >= 0 else 0.0
            barred = signed and not value > 0.0
            score[v] = -np.inf if barred else score[parent[v]] + value * value - anchor
        for k in range(len(leaves)):
            out[i, k] = score[leaves[k]]


@njit(cache=True, nogil=True)
def subtract_rows(target: Array, rows: Array, factors: Array, n: int) -> None:
    """``target -= factors @ rows``, four rows a pass."""
    m = len(target)
    k = 0
    while k + 4 <= n:
        f0, f1, f2, f3 = factors[k], factors[k + 1], factors[k + 2], factors[k + 3]
        for j in range(m):
            target[j] -= f0 * rows[k, j] + f1 * rows[k + 1, j] + f2 * rows[k + 2, j] + f3 * rows[k + 3, j]
        k += 4
    while k < n:
        f0 = factors[k]
        for j in range(m):
            target[j] -= f0 * rows[k, j]
        k += 1


@njit(cache=True, nogil=True)
def search_flat(
    x: Array,
    correlations: Array,
    square_norms: Array,
    gram: Array,
    atoms: Array,
    n_nonzero: int,
    tol: float,
    cancelled: float,
    tiny: float,
    selected: Array,
    coefficients: Array,
    residuals: Array,
) -> None:
    """Algorithm 1 on unit-norm atoms, with an incremental Cholesky factor of their Gram matrix.

    Correlations with the residual are updated by one orthogonalised Gram row a step. ``selected`` (n, n_nonzero)
    receives atoms in the order of selection, -1 beyond the last; ``correlations`` is overwritten.
    """
    n_atoms = gram.shape[0]
    rows = np.zeros((n_nonzero, n_atoms), gram.dtype)
    factors = np.zeros(n_nonzero, gram.dtype)
    cholesky = np.zeros((n_nonzero, n_nonzero))
    along = np.zeros(n_nonzero)
    solution = np.zeros(n_nonzero)
    left = np.zeros(x.shape[1])
    for i in range(len(x)):
        alpha = correlations[i]
        n = 0
        energy = 0.0
        floor = tiny * np.sqrt(square_norms[i])
        while n < n_nonzero:
            estimate = square_norms[i] - energy
            near = tol > 0.0 and estimate <= max(4.0 * tol * tol, cancelled * square_norms[i])
            if near and flat_residual(x[i], n, selected[i], cholesky, along, atoms, solution, left) < tol * tol:
                break
            at = -1
            highest = floor
            for j in range(n_atoms):
                if abs(alpha[j]) > highest:
                    highest = abs(alpha[j])
                    at = j
            if at < 0:
                break
            diagonal = 1.0
            for k in range(n):
                cholesky[n, k] = rows[k, at]
                factors[k] = rows[k, at]
                diagonal -= np.float64(rows[k, at]) * np.float64(rows[k, at])
            if diagonal <= tiny:
                break
            root = np.sqrt(diagonal)
            cholesky[n, n] = root
            row = rows[n]
            for j in range(n_atoms):
                row[j] = gram[at, j]
            subtract_rows(row, rows, factors, n)
            step = alpha[at] / root
            for j in range(n_atoms):
                row[j] = row[j] / root
                alpha[j] -= step * row[j]
            along[n] = step
            energy += step * step
            selected[i, n] = at
            n += 1
            for k in range(n):
                alpha[selected[i, k]] = 0.0
        estimate = square_norms[i] - energy
        if estimate <= cancelled * square_norms[i]:
            estimate = flat_residual(x[i], n, selected[i], cholesky, along, atoms, solution, left)
        else:
            solve_flat(n, cholesky, along, solution)
        residuals[i] = np.sqrt(max(estimate, 0.0))
        for k in range(n):
            coefficients[i, k] = solution[k]


@njit(cache=True, nogil=True)
def solve_flat(n: int, cholesky: Array, along: Array, solution: Array) -> None:
    """Back substitution with the transposed Cholesky factor."""
    for k in range(n - 1, -1, -1):
        total = along[k]
        for m in range(k + 1, n):
            total -= cholesky[m, k] * solution[m]
        solution[k] = total / cholesky[k, k]


@njit(cache=True, nogil=True)
def flat_residual(
    x: Array, n: int, selected: Array, cholesky: Array, along: Array, atoms: Array, solution: Array, left: Array
) -> float:
    """``||x - D^T z||**2``, measured."""
    solve_flat(n, cholesky, along, solution)
    for j in range(len(x)):
        left[j] = x[j]
    for k in range(n):
        a = solution[k]
        for j in range(len(x)):
            left[j] -= a * atoms[selected[k], j]
    total = 0.0
    for j in range(len(x)):
        total += left[j] * left[j]
    return total
