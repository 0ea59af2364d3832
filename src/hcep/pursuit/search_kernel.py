"""The compiled searches: the exact one, a running sum down the tree of rooted paths, and the beam of Algorithm 2.

The score of a path is the sum of ``p_u**2 - anchor`` along it, and higher is better (see `PathProblem`). The offset,
which is the anchor's part of p, is in double precision, because ``p**2 - anchor`` cancels for a large anchor.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hcep.dictionary.path_problem import CLOSED, OPEN
from hcep.pursuit.compiled import ZERO, Array, copy, dot, keep_best, kernel, offer, piece, sort_best_first
from hcep.pursuit.tables import LANES, Beams, Images, Rules, Tables


@piece
def value_of(p: Array, v: int, tables: Tables) -> float:
    """Return ``p_v`` of one image from its products."""
    value: float = tables.offset[v]
    for k in range(tables.pointer[v], tables.pointer[v + 1]):
        value += tables.weight[k] * p[tables.column[k]]
    return value


@piece
def is_barred(i: int, v: int, value: float, limit: Array, tables: Tables, signed: bool) -> bool:
    """Return whether image i may not enter node v, because it is closed or because the signed rule excludes it."""
    state = tables.state[limit[i], v] if len(limit) else OPEN
    return bool(state == CLOSED or (signed and state == OPEN and not value > 0.0))


# -- exact ---------------------------------------------------------------------------------------------


@kernel
def score_labels(p: Array, tables: Tables, anchor: float, label: Array, out: Array, best: Array) -> None:
    """Score all paths of each image: write the best score of each label to `out`, and the best path's label to `best`.

    Parameters
    ----------
    p : (n, n_columns)
        The products of at least LANES images.
    label : (n_nodes,)
        The label of each path that counts, such as its class; -1 for all other nodes.
    out : (n_labels, n)
        It may have no rows if only the best label is needed.
    best : (n,)
        Ties go to the label of the lowest node.
    """
    parent, pointer, column = tables.parent, tables.pointer, tables.column
    weight, offset = tables.weight, tables.offset
    value, score, top = np.zeros(LANES), np.zeros((len(parent), LANES)), np.zeros(LANES)
    for start in range(0, len(p), LANES):
        first = min(start, len(p) - LANES)
        out[:, first : first + LANES] = -np.inf
        top[:] = -np.inf
        for v in range(1, len(parent)):
            above, constant, label_of_v = parent[v], offset[v], label[v]
            for i in range(LANES):
                value[i] = constant
            for k in range(pointer[v], pointer[v + 1]):
                c, factor = column[k], weight[k]
                for i in range(LANES):
                    value[i] += factor * p[first + i, c]
            for i in range(LANES):
                score[v, i] = score[above, i] + value[i] * value[i] - anchor
            if label_of_v >= 0 and len(out):
                for i in range(LANES):
                    out[label_of_v, first + i] = max(out[label_of_v, first + i], score[v, i])
            if label_of_v >= 0:
                for i in range(LANES):
                    if score[v, i] > top[i]:
                        top[i], best[first + i] = score[v, i], label_of_v


@piece
def score_paths(i: int, images: Images, tables: Tables, rules: Rules, score: Array) -> None:
    """Score the path to every node for image i; -inf at and below a node that it may not enter."""
    p, parent = images.p[i], tables.parent
    for v in range(1, len(score)):
        value = value_of(p, v, tables)
        barred = is_barred(i, v, value, images.limit, tables, rules.signed)
        score[v] = -np.inf if barred else score[parent[v]] + value * value - rules.anchor


@piece
def is_complete(v: int, tables: Tables, score: Array) -> bool:
    """Return whether the path to v ends there: at a leaf, at the step limit, or because it may enter no child."""
    first, best_below = tables.first_child[v], -np.inf
    for child in range(first, min(first + tables.n_children[v], len(score))):  # nodes beyond the limit have no score
        best_below = max(best_below, score[child])
    return bool(best_below == -np.inf)


@kernel
def search_all(images: Images, tables: Tables, rules: Rules, final_nodes: Array) -> None:
    """Write the k best complete paths of each image to `final_nodes` (n, k), best first."""
    score = np.zeros(rules.n_within)
    limit = final_nodes.shape[1]
    scores, nodes = np.zeros(limit), np.zeros(limit, np.int64)
    for i in range(len(images.p)):
        score_paths(i, images, tables, rules, score)
        size, worst = ZERO, -np.inf
        for v in range(len(score)):
            # Nodes come in index order and an equal score replaces nothing, so ties go to the lowest node.
            if score[v] > worst and is_complete(v, tables, score):
                size = offer(scores, nodes, size, limit, score[v], v)
                worst = scores[0] if size == limit else -np.inf
        sort_best_first(scores, nodes, size)
        copy(nodes, final_nodes[i], size)


# -- a beam --------------------------------------------------------------------------------------------


@kernel
def extend_beams(images: Images, tables: Tables, rules: Rules, n_steps: int, beams: Beams) -> None:
    """Extend the beams of all images by up to `n_steps` steps, as long as a hypothesis can be extended."""
    work, values = workspace(rules), np.zeros(len(tables.parent))
    for i in range(len(images.p)):
        for _ in range(n_steps):
            if not beams.goes_on[i]:
                break
            look_up(images.p[i], beams.nodes[i], beams.sizes[i], tables, values)
            extend(i, beams, values, ZERO, images, tables, rules, work)


@kernel
def extend_beams_lazily(images: Images, tables: Tables, rules: Rules, beams: Beams) -> None:
    """Extend the beams of all images by one step, with products only for children of live hypotheses."""
    starts, work = np.zeros(len(images.x), np.int64), workspace(rules)
    values = multiply(images, beams.nodes, beams.sizes, tables, starts)
    for i in range(len(images.x)):
        extend(i, beams, values, starts[i], images, tables, rules, work)


@kernel
def best_first(beams: Beams, images: Array, out: Array, step: int) -> None:
    """Write the k best hypotheses of some images to ``out[:, step]`` (n, k), best first; entries beyond a beam stay."""
    for i in images:
        scores, nodes = beams.scores[i], beams.nodes[i]
        size = keep_best(scores, nodes, beams.sizes[i], out.shape[2])
        sort_best_first(scores, nodes, size)
        copy(nodes, out[i, step], size)


class Workspace(NamedTuple):
    """Buffers for one step of a beam: the children of one hypothesis and their keys, and all extensions."""

    keys: Array
    eligible: Array
    scores: Array
    nodes: Array


@piece
def workspace(rules: Rules) -> Workspace:
    widest, n_tried = rules.widest, rules.n_tried
    return Workspace(np.zeros(widest), np.zeros(widest, np.int64), np.zeros(n_tried), np.zeros(n_tried, np.int64))


@piece
def extend(
    i: int, beams: Beams, values: Array, at: int, images: Images, tables: Tables, rules: Rules, work: Workspace
) -> None:
    """Apply Algorithm 3 to the whole beam of image i in place; it goes on if any hypothesis was extended.

    `values`, from position `at` on, holds ``p_v`` of the children of each hypothesis. A child whose key is ``-inf`` is
    not tried.
    """
    # Fields are read once, because numba counts references at every access.
    share, first_child, n_children = tables.share, tables.first_child, tables.n_children
    limit, own_keys = images.limit, images.keys
    scores, nodes, (keys, eligible, new_scores, new_nodes) = beams.scores[i], beams.nodes[i], work
    n_tried, goes_on = ZERO, False
    for h in range(beams.sizes[i]):
        first, n_eligible = first_child[nodes[h]], ZERO
        for v in range(first, first + n_children[nodes[h]]):
            value = values[at + v - first]
            key = own_keys[i, v] if len(own_keys) else abs(value) * share[v]
            if key > -np.inf and not is_barred(i, v, value, limit, tables, rules.signed):
                keys[n_eligible], eligible[n_eligible] = key, v
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
    beams.sizes[i], beams.goes_on[i] = size, goes_on


@piece
def look_up(p: Array, nodes: Array, size: int, tables: Tables, values: Array) -> None:
    """Fill `values` with ``p_v`` of the children of each hypothesis of one image, one after the other."""
    n_values = ZERO
    for h in range(size):
        first = tables.first_child[nodes[h]]
        for v in range(first, first + tables.n_children[nodes[h]]):
            values[n_values] = value_of(p, v, tables)
            n_values += 1


@piece
def multiply(images: Images, nodes: Array, sizes: Array, tables: Tables, starts: Array) -> Array:
    """Compute ``p_v`` of the children of all hypotheses; those of image i begin at ``starts[i]``.

    The children of one parent are processed together, so that their directions are read once for all images.
    """
    first_child, n_children = tables.first_child, tables.n_children
    low, high, n_values, n_pairs = len(n_children), ZERO, ZERO, ZERO
    for i in range(len(images.x)):
        for h in range(sizes[i]):
            low, high = min(low, nodes[i, h]), max(high, nodes[i, h])
            n_pairs += 1
    # A counting sort of the pairs (image, position of its first product) by parent.
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
    """Return ``p_v`` of image i, computed from the direction."""
    value: float = tables.offset[v]
    for k in range(tables.pointer[v], tables.pointer[v + 1]):
        value += tables.weight[k] * dot(images.x[i], images.directions[tables.column[k]])
    return value
