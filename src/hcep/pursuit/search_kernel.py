"""The searches, compiled: exact, a running sum down the tree of rooted paths, and the paper's Algorithm 2, a beam.

Scores are energies to be maximised: the sum of ``p_u**2 - anchor`` along a path (see `PathProblem`). The offset is the
anchor's part of p and in double precision, as ``p**2 - anchor`` cancels for a large anchor.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hcep.dictionary.path_problem import CLOSED, ON_THE_WAY, OPEN
from hcep.pursuit.compiled import (
    ONE,
    ZERO,
    Array,
    Beam,
    copy,
    dot,
    keep_best,
    kernel,
    offer,
    piece,
    sort_best_first,
    squared_norm,
    subtract,
)
from hcep.pursuit.tables import LANES, Images, Rules, Tables


@piece
def value_of(p: Array, v: int, tables: Tables) -> float:
    """``p_v`` of one image, from its products."""
    value: float = tables.offset[v]
    for k in range(tables.pointer[v], tables.pointer[v + 1]):
        value += tables.weight[k] * p[tables.column[k]]
    return value


@piece
def is_barred(i: int, v: int, value: float, limit: Array, tables: Tables, signed: bool) -> bool:
    """Whether image i may not go on to node v: it is closed, or open and against the signed rule."""
    state = tables.state[limit[i], v] if len(limit) else OPEN
    return bool(state == CLOSED or (signed and state == OPEN and not value > 0.0))


# -- exact ---------------------------------------------------------------------------------------------


@kernel
def score_labels(p: Array, tables: Tables, anchor: float, label: Array, out: Array, best: Array) -> None:
    """Scores where every path is open: the best of each label's paths, and the label of the best path of all.

    Parameters
    ----------
    p : (n, n_columns) of at least LANES images
    label : (n_nodes,); the label of a node whose path counts, such as its class; -1 of all others
    out : (n_labels, n), or no rows where the best is enough
    best : (n,); among equals the label of the lowest node
    """
    parent, pointer, column = tables.parent, tables.pointer, tables.column
    weight, offset = tables.weight, tables.offset
    value, score, top = np.zeros(LANES), np.zeros((len(parent), LANES)), np.zeros(LANES)
    for start in range(0, len(p), LANES):
        first = min(start, len(p) - LANES)
        out[:, first : first + LANES] = -np.inf
        top[:] = -np.inf
        for v in range(1, len(parent)):
            above, constant, own = parent[v], offset[v], label[v]
            for i in range(LANES):
                value[i] = constant
            for k in range(pointer[v], pointer[v + 1]):
                c, factor = column[k], weight[k]
                for i in range(LANES):
                    value[i] += factor * p[first + i, c]
            for i in range(LANES):
                score[v, i] = score[above, i] + value[i] * value[i] - anchor
            if own >= 0 and len(out):
                for i in range(LANES):
                    out[own, first + i] = max(out[own, first + i], score[v, i])
            if own >= 0:
                for i in range(LANES):
                    if score[v, i] > top[i]:
                        top[i], best[first + i] = score[v, i], own


@piece
def score_paths(i: int, images: Images, tables: Tables, rules: Rules, score: Array) -> None:
    """Score of the path to every node for image i; -inf at and below a node that is barred."""
    p, parent = images.p[i], tables.parent
    for v in range(1, len(score)):
        value = value_of(p, v, tables)
        barred = is_barred(i, v, value, images.limit, tables, rules.signed)
        score[v] = -np.inf if barred else score[parent[v]] + value * value - rules.anchor


@piece
def is_complete(v: int, tables: Tables, score: Array) -> bool:
    """Whether the path to v ends there: at a leaf, at the step limit, or with all children barred."""
    first, best_below = tables.first_child[v], -np.inf
    for child in range(first, min(first + tables.n_children[v], len(score))):  # beyond the limit there is no score
        best_below = max(best_below, score[child])
    return bool(best_below == -np.inf)


@kernel
def search_all(images: Images, tables: Tables, rules: Rules, final_nodes: Array) -> None:
    """Best complete paths of each image: ``final_nodes`` (n, k) receives the k best, best first."""
    score = np.zeros(rules.n_within)
    limit = final_nodes.shape[1]
    scores, nodes = np.zeros(limit), np.zeros(limit, np.int64)
    for i in range(len(images.p)):
        score_paths(i, images, tables, rules, score)
        size, worst = ZERO, -np.inf
        for v in range(len(score)):
            # In index order an equal score never displaces: the tie goes to the lowest node.
            if score[v] > worst and is_complete(v, tables, score):
                size = offer(scores, nodes, size, limit, score[v], v)
                worst = scores[0] if size == limit else -np.inf
        sort_best_first(scores, nodes, size)
        copy(nodes, final_nodes[i], size)


@kernel
def score_nodes(images: Images, tables: Tables, rules: Rules, nodes: Array, out: Array) -> None:
    """Score of the paths to some nodes, (n, n_nodes); -inf where the way is barred."""
    score = np.zeros(len(tables.parent))
    for i in range(len(images.p)):
        score_paths(i, images, tables, rules, score)
        for k in range(len(nodes)):
            out[i, k] = score[nodes[k]]


# -- a beam --------------------------------------------------------------------------------------------


@kernel
def search_beam(images: Images, tables: Tables, rules: Rules, final_nodes: Array, trace_nodes: Array) -> None:
    """Extend every hypothesis by its best children, keep the best hypotheses, repeat.

    ``final_nodes`` (n, k) receives the k best hypotheses of the last beam, best first; ``trace_nodes`` (n, t, b) the
    beam before every step and after the last, where t is not 0. What is beyond stays as it was.
    """
    beam, work = new_beam(rules.n_tried), workspace(rules)
    path, values = path_space(images, tables), np.zeros(len(tables.parent))
    for i in range(len(images.p)):
        beam.scores[0], beam.nodes[0], size = 0.0, 0, ONE
        for step in range(rules.max_steps + 1):
            if trace_nodes.shape[1]:
                sort_best_first(beam.scores, beam.nodes, size)
                copy(beam.nodes, trace_nodes[i, step], size)
            if step == rules.max_steps:
                break
            if rules.tol > 0.0 and near_enough(i, beam, size, images, tables, rules, path):
                break
            look_up(images.p[i], beam.nodes, size, tables, values)
            size, goes_on = extend(i, beam, size, values, ZERO, images.limit, tables, rules, work)
            if not goes_on:
                break
        finish_beam(beam, size, final_nodes[i])


@kernel
def search_beam_lazily(images: Images, tables: Tables, rules: Rules, final_nodes: Array) -> None:
    """As `search_beam`, for all images step by step, with products of the children of live hypotheses alone."""
    n_images = len(images.x)
    scores, nodes = np.zeros((n_images, rules.width)), np.zeros((n_images, rules.width), np.int64)
    sizes, starts = np.ones(n_images, np.int64), np.zeros(n_images, np.int64)
    work = workspace(rules)
    for _ in range(rules.max_steps):
        values, any_goes_on = multiply(images, nodes, sizes, tables, starts), False
        for i in range(n_images):
            beam = Beam(scores[i], nodes[i])
            sizes[i], goes_on = extend(i, beam, sizes[i], values, starts[i], images.limit, tables, rules, work)
            any_goes_on |= goes_on
        if not any_goes_on:
            break
    for i in range(n_images):
        finish_beam(Beam(scores[i], nodes[i]), sizes[i], final_nodes[i])


class Workspace(NamedTuple):
    """Room for one step of a beam: the children of one hypothesis by their keys, and all extensions."""

    keys: Array
    eligible: Array
    scores: Array
    nodes: Array


@piece
def new_beam(size: int) -> Beam:
    return Beam(np.zeros(size), np.zeros(size, np.int64))


@piece
def workspace(rules: Rules) -> Workspace:
    children, tried = new_beam(rules.widest), new_beam(rules.n_tried)
    return Workspace(children.scores, children.nodes, tried.scores, tried.nodes)


@piece
def finish_beam(beam: Beam, size: int, final_nodes: Array) -> None:
    """The best hypotheses of the last beam, best first."""
    size = keep_best(beam.scores, beam.nodes, size, len(final_nodes))
    sort_best_first(beam.scores, beam.nodes, size)
    copy(beam.nodes, final_nodes, size)


@piece
def extend(
    i: int, beam: Beam, size: int, values: Array, at: int, limit: Array, tables: Tables, rules: Rules, work: Workspace
) -> tuple[int, bool]:
    """Algorithm 3 for the whole beam, in place; how many hypotheses it has then, and whether any of them is new.

    `values`, from `at` on, are the products with the children of each hypothesis.
    """
    # Fields are taken out once: numba counts references at every access.
    share, first_child, n_children = tables.share, tables.first_child, tables.n_children
    (scores, nodes), (keys, eligible, new_scores, new_nodes) = beam, work
    n_tried, goes_on = ZERO, False
    for h in range(size):
        first, n_eligible = first_child[nodes[h]], ZERO
        for v in range(first, first + n_children[nodes[h]]):
            value = values[at + v - first]
            if not is_barred(i, v, value, limit, tables, rules.signed):
                keys[n_eligible], eligible[n_eligible] = abs(value) * share[v], v
                n_eligible += 1
        if n_eligible == 0:
            new_scores[n_tried], new_nodes[n_tried] = scores[h], nodes[h]
            n_tried += 1
        goes_on |= n_eligible > 0
        for e in range(keep_best(keys, eligible, n_eligible, rules.width)):
            value = values[at + eligible[e] - first]
            new_scores[n_tried], new_nodes[n_tried] = scores[h] + value * value - rules.anchor, eligible[e]
            n_tried += 1
        at += n_children[nodes[h]]
    size = keep_best(new_scores, new_nodes, n_tried, rules.width)
    copy(new_scores, scores, size)
    copy(new_nodes, nodes, size)
    return size, goes_on


@piece
def look_up(p: Array, nodes: Array, size: int, tables: Tables, values: Array) -> None:
    """Products of one image with the children of its hypotheses, one after the other."""
    n_values = ZERO
    for h in range(size):
        first = tables.first_child[nodes[h]]
        for v in range(first, first + tables.n_children[nodes[h]]):
            values[n_values] = value_of(p, v, tables)
            n_values += 1


@piece
def multiply(images: Images, nodes: Array, sizes: Array, tables: Tables, starts: Array) -> Array:
    """Products of each image with the children of its hypotheses, image after image from `starts` on.

    Those of one parent are taken together, so that its children's directions are read once for all images.
    """
    first_child, n_children = tables.first_child, tables.n_children
    low, high, n_values, n_pairs = len(n_children), ZERO, ZERO, ZERO
    for i in range(len(images.x)):
        for h in range(sizes[i]):
            low, high = min(low, nodes[i, h]), max(high, nodes[i, h])
            n_pairs += 1
    # A counting sort of (image, place of its first product) by parent.
    ends = np.zeros(high - low + 2, np.int64)
    for i in range(len(images.x)):
        starts[i] = n_values
        for h in range(sizes[i]):
            ends[nodes[i, h] - low + 1] += 1
            n_values += n_children[nodes[i, h]]
    for k in range(1, len(ends)):
        ends[k] += ends[k - 1]
    owner, place = np.zeros(n_pairs, np.int64), np.zeros(n_pairs, np.int64)
    for i in range(len(images.x)):
        at = starts[i]
        for h in range(sizes[i]):
            k = ends[nodes[i, h] - low]
            ends[nodes[i, h] - low] += 1
            owner[k], place[k] = i, at
            at += n_children[nodes[i, h]]
    values, k = np.zeros(n_values), ZERO
    for parent in range(low, high + 1):
        while k < ends[parent - low]:
            for m in range(n_children[parent]):
                values[place[k] + m] = value_at(owner[k], first_child[parent] + m, images, tables)
            k += 1
    return values


@piece
def value_at(i: int, v: int, images: Images, tables: Tables) -> float:
    """``p_v`` of image i from the direction itself."""
    value: float = tables.offset[v]
    for k in range(tables.pointer[v], tables.pointer[v + 1]):
        value += tables.weight[k] * dot(images.x[i], images.directions[tables.column[k]])
    return value


# -- a tolerance ---------------------------------------------------------------------------------------


class PathSpace(NamedTuple):
    """Room for one path: its nodes, products p and coefficients a, and the residual vector."""

    nodes: Array
    along: Array
    coefficients: Array
    left: Array


@piece
def path_space(images: Images, tables: Tables) -> PathSpace:
    depth = tables.triangle.shape[1]
    return PathSpace(np.zeros(depth, np.int64), np.zeros(depth), np.zeros(depth), np.zeros(images.x.shape[1]))


@piece
def near_enough(i: int, beam: Beam, size: int, images: Images, tables: Tables, rules: Rules, path: PathSpace) -> bool:
    """Whether a hypothesis of the beam that may end has ``||x - D^T a|| < tol``."""
    square, tolerance = images.squares[i], rules.tol * rules.tol
    for h in range(size):
        if len(images.limit) and tables.state[images.limit[i], beam.nodes[h]] == ON_THE_WAY:
            continue  # it has to go on
        if rules.anchor == 0.0 and square - beam.scores[h] > max(4.0 * tolerance, images.cancelled * square):
            continue  # far from the tolerance, beyond what rounding could hide
        if squared_residual(i, beam.nodes[h], images, tables, rules, path) < tolerance:
            return True
    return False


@piece
def solve_path(i: int, node: int, images: Images, tables: Tables, path: PathSpace) -> int:
    """Fill `path` for that of image i to `node`, as `PathProblem.coefficients` does; return its length."""
    length: int = tables.level[node]
    for k in range(length - 1, -1, -1):
        path.nodes[k] = node
        path.along[k] = value_of(images.p[i], node, tables)
        node = tables.parent[node]
    for k in range(length - 1, -1, -1):
        diagonal = tables.triangle[path.nodes[k], k]
        total = path.along[k]
        for m in range(k + 1, length):
            total -= tables.triangle[path.nodes[m], k] * path.coefficients[m]
        path.coefficients[k] = total / diagonal if diagonal != 0.0 else 0.0
    return length


@piece
def squared_residual(i: int, node: int, images: Images, tables: Tables, rules: Rules, path: PathSpace) -> float:
    """``||x - D^T a||**2`` of the path of image i to `node`: from its products, or measured where these cancel."""
    length = solve_path(i, node, images, tables, path)
    augmented = images.squares[i] + rules.anchor * length
    estimate = augmented
    for k in range(length):
        off = path.coefficients[k] - 1.0
        estimate -= path.along[k] * path.along[k] + rules.anchor * off * off
    if estimate > images.cancelled * augmented:
        return float(estimate)
    copy(images.x[i], path.left, len(path.left))
    for k in range(length):
        subtract(path.left, path.coefficients[k], tables.atoms[tables.edge[path.nodes[k]]])
    return squared_norm(path.left)
