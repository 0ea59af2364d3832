"""The searches, compiled: exact, a running sum down the tree of rooted paths, and the paper's Algorithm 2, a beam."""

from __future__ import annotations

import numpy as np

from hcep.pursuit.along_path import Scratch, dot, product, scratch, squared_residual
from hcep.pursuit.compiled import ONE, ZERO, Beam, copy, keep_best, kernel, offer, piece, sort_best_first
from hcep.pursuit.tables import CLOSED, ON_THE_WAY, OPEN, Array, Images, Rules, Tables


@piece
def score_paths(i: int, images: Images, tables: Tables, rules: Rules, score: Array) -> None:
    """Score of the path to every node for image i; -inf at and below a node that is closed or the signed rule bars."""
    p, column, sign, offset, parent = images.p[i], tables.column, tables.sign, tables.offset, tables.parent
    limit, states = images.limit, tables.state
    for v in range(1, len(score)):
        value = product(p, v, column, sign, offset)
        state = states[limit[i], v] if len(limit) else OPEN
        barred = state == CLOSED or (rules.signed and state == OPEN and not value > 0.0)
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
def leaf_objectives(images: Images, tables: Tables, rules: Rules, leaves: Array, out: Array) -> None:
    """Objective of every complete path, (n, n_leaves); infinite where the way is closed or barred."""
    score = np.zeros(len(tables.parent))
    for i in range(len(images.p)):
        score_paths(i, images, tables, rules, score)
        for k in range(len(leaves)):
            out[i, k] = images.squares[i] - score[leaves[k]]


@kernel
def search_beam(images: Images, tables: Tables, rules: Rules, final_nodes: Array, trace_nodes: Array) -> None:
    """Extend every hypothesis by its best children, keep the best hypotheses, repeat.

    ``final_nodes`` (n, k) receives the k best hypotheses of the last beam, best first; ``trace_nodes`` (n, t, b) the
    beam before every step and after the last, where t is not 0. What is beyond stays as it was.
    """
    beam = Beam(np.zeros(rules.n_tried), np.zeros(rules.n_tried, np.int64))
    tried = Beam(np.zeros(rules.n_tried), np.zeros(rules.n_tried, np.int64))
    children = Beam(np.zeros(rules.widest), np.zeros(rules.widest, np.int64))
    room, values = scratch(images, tables), np.zeros(len(tables.parent))
    for i in range(len(images.p)):
        beam.scores[0], beam.nodes[0], size = 0.0, 0, ONE
        for step in range(rules.max_steps + 1):
            if trace_nodes.shape[1]:
                sort_best_first(beam.scores, beam.nodes, size)
                copy(beam.nodes, trace_nodes[i, step], size)
            if step == rules.max_steps:
                break
            if rules.tol > 0.0 and near_enough(i, beam, size, images, tables, rules, room):
                break
            look_up(images.p[i], beam.nodes, size, tables, values)
            n_tried, goes_on = extend(i, images.limit, beam, size, values, ZERO, tables, rules, children, tried)
            size = keep_best(tried.scores, tried.nodes, n_tried, rules.width)
            copy(tried.scores, beam.scores, size)
            copy(tried.nodes, beam.nodes, size)
            if not goes_on:
                break
        size = keep_best(beam.scores, beam.nodes, size, final_nodes.shape[1])
        sort_best_first(beam.scores, beam.nodes, size)
        copy(beam.nodes, final_nodes[i], size)


@kernel
def search_beam_lazily(images: Images, tables: Tables, rules: Rules, final_nodes: Array) -> None:
    """As `search_beam`, for all images step by step, with products of the children of live hypotheses alone."""
    n_images = len(images.x)
    scores, nodes = np.zeros((n_images, rules.width)), np.zeros((n_images, rules.width), np.int64)
    sizes, starts = np.ones(n_images, np.int64), np.zeros(n_images, np.int64)
    tried = Beam(np.zeros(rules.n_tried), np.zeros(rules.n_tried, np.int64))
    children = Beam(np.zeros(rules.widest), np.zeros(rules.widest, np.int64))
    for _ in range(rules.max_steps):
        values, any_goes_on = multiply(images, nodes, sizes, tables, starts), False
        for i in range(n_images):
            beam = Beam(scores[i], nodes[i])
            n_tried, goes_on = extend(
                i, images.limit, beam, sizes[i], values, starts[i], tables, rules, children, tried
            )
            sizes[i] = keep_best(tried.scores, tried.nodes, n_tried, rules.width)
            copy(tried.scores, scores[i], sizes[i])
            copy(tried.nodes, nodes[i], sizes[i])
            any_goes_on |= goes_on
        if not any_goes_on:
            break
    for i in range(n_images):
        size = keep_best(scores[i], nodes[i], sizes[i], final_nodes.shape[1])
        sort_best_first(scores[i], nodes[i], size)
        copy(nodes[i], final_nodes[i], size)


@piece
def multiply(images: Images, nodes: Array, sizes: Array, tables: Tables, starts: Array) -> Array:
    """Products of each image with the children of its hypotheses, image after image from `starts` on.

    Those of one parent are taken together, so that its children's directions are read once for all images.
    """
    first_child, n_children, column = tables.first_child, tables.n_children, tables.column
    sign, offset, x, directions = tables.sign, tables.offset, images.x, images.directions
    low, high, n_values, n_pairs = len(n_children), ZERO, ZERO, ZERO
    for i in range(len(x)):
        for h in range(sizes[i]):
            low, high = min(low, nodes[i, h]), max(high, nodes[i, h])
            n_pairs += 1
    # A counting sort of (image, place of its first product) by parent.
    ends = np.zeros(high - low + 2, np.int64)
    for i in range(len(x)):
        starts[i] = n_values
        for h in range(sizes[i]):
            ends[nodes[i, h] - low + 1] += 1
            n_values += n_children[nodes[i, h]]
    for k in range(1, len(ends)):
        ends[k] += ends[k - 1]
    owner, place = np.zeros(n_pairs, np.int64), np.zeros(n_pairs, np.int64)
    for i in range(len(x)):
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
                v = first_child[parent] + m
                c = column[v]
                if c >= 0:
                    values[place[k] + m] = (dot(x[owner[k]], directions[c]) + offset[c]) * sign[v]
            k += 1
    return values


@piece
def look_up(p: Array, nodes: Array, size: int, tables: Tables, values: Array) -> None:
    """Products of one image with the children of its hypotheses, one after the other."""
    column, sign, offset = tables.column, tables.sign, tables.offset
    n_values = ZERO
    for h in range(size):
        first = tables.first_child[nodes[h]]
        for v in range(first, first + tables.n_children[nodes[h]]):
            values[n_values] = product(p, v, column, sign, offset)
            n_values += 1


@piece
def extend(
    i: int,
    limit: Array,
    beam: Beam,
    size: int,
    values: Array,
    at: int,
    tables: Tables,
    rules: Rules,
    children: Beam,
    tried: Beam,
) -> tuple[int, bool]:
    """Algorithm 3 for the whole beam: the hypotheses to keep from go to `tried`; how many, and whether any is new.

    `values`, from `at` on, are the products with the children of each hypothesis.
    """
    # Fields are taken out once: numba counts references at every access.
    share, states, first_child, n_children = tables.share, tables.state, tables.first_child, tables.n_children
    (scores, nodes), (keys, eligible), (new_scores, new_nodes) = beam, children, tried
    n_tried, goes_on = ZERO, False
    for h in range(size):
        first, n_eligible = first_child[nodes[h]], ZERO
        for v in range(first, first + n_children[nodes[h]]):
            value = values[at + v - first]
            state = states[limit[i], v] if len(limit) else OPEN
            if state == CLOSED or (rules.signed and state == OPEN and not value > 0.0):
                continue
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
    return n_tried, goes_on


@piece
def near_enough(i: int, beam: Beam, size: int, images: Images, tables: Tables, rules: Rules, room: Scratch) -> bool:
    """Whether a hypothesis of the beam that may end has ``||x - D^T a|| < tol``."""
    square, tolerance = images.squares[i], rules.tol * rules.tol
    for h in range(size):
        if len(images.limit) and tables.state[images.limit[i], beam.nodes[h]] == ON_THE_WAY:
            continue  # it has to go on
        if rules.anchor == 0.0 and square - beam.scores[h] > max(4.0 * tolerance, images.cancelled * square):
            continue  # far from the tolerance, beyond what rounding could hide
        if squared_residual(i, beam.nodes[h], images, tables, rules, room) < tolerance:
            return True
    return False
