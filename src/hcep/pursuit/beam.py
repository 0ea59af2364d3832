"""The beam search, compiled: the paper's Algorithm 2 on products that are already there."""

from __future__ import annotations

import numpy as np

from hcep.pursuit.along_path import Scratch, product, scratch, squared_residual
from hcep.pursuit.compiled import ONE, ZERO, Beam, copy, keep_best, kernel, piece, sort_best_first
from hcep.pursuit.tables import CLOSED, ON_THE_WAY, OPEN, Array, Images, Rules, Tables


@kernel
def search_beam(images: Images, tables: Tables, rules: Rules, final_nodes: Array, trace_nodes: Array) -> None:
    """Extend every hypothesis by its best children, keep the best hypotheses, repeat.

    ``final_nodes`` (n, k) receives the k best hypotheses of the last beam, best first; ``trace_nodes`` (n, t, b) the
    beam before every step and after the last, where t is not 0. What is beyond stays as it was.
    """
    beam = Beam(np.zeros(rules.n_tried), np.zeros(rules.n_tried, np.int64))
    tried = Beam(np.zeros(rules.n_tried), np.zeros(rules.n_tried, np.int64))
    children = Beam(np.zeros(rules.widest), np.zeros(rules.widest, np.int64))
    room = scratch(images, tables)
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
            n_tried, goes_on = extend(i, images, beam, size, tables, rules, children, tried)
            size = keep_best(tried.scores, tried.nodes, n_tried, rules.width)
            copy(tried.scores, beam.scores, size)
            copy(tried.nodes, beam.nodes, size)
            if not goes_on:
                break
        size = keep_best(beam.scores, beam.nodes, size, final_nodes.shape[1])
        sort_best_first(beam.scores, beam.nodes, size)
        copy(beam.nodes, final_nodes[i], size)


@piece
def extend(
    i: int, images: Images, beam: Beam, size: int, tables: Tables, rules: Rules, children: Beam, tried: Beam
) -> tuple[int, bool]:
    """Algorithm 3 for the whole beam: the hypotheses to keep from go to `tried`; how many, and whether any is new."""
    # Fields are taken out once: numba counts references at every access.
    p, column, sign, offset, share = images.p[i], tables.column, tables.sign, tables.offset, tables.share
    limit, states = images.limit, tables.state
    first_child, n_children = tables.first_child, tables.n_children
    (scores, nodes), (keys, eligible), (new_scores, new_nodes) = beam, children, tried
    n_tried, goes_on = ZERO, False
    for h in range(size):
        first, n_eligible = first_child[nodes[h]], ZERO
        for v in range(first, first + n_children[nodes[h]]):
            value = product(p, v, column, sign, offset)
            state = states[limit[i], v] if len(limit) else OPEN
            if state == CLOSED or (rules.signed and state == OPEN and not value > 0.0):
                continue
            keys[n_eligible], eligible[n_eligible] = abs(value) * share[v], v
            n_eligible += 1
        if n_eligible == 0:
            new_scores[n_tried], new_nodes[n_tried] = scores[h], nodes[h]
            n_tried += 1
            continue
        goes_on = True
        for e in range(keep_best(keys, eligible, n_eligible, rules.width)):
            value = product(p, eligible[e], column, sign, offset)
            new_scores[n_tried], new_nodes[n_tried] = scores[h] + value * value - rules.anchor, eligible[e]
            n_tried += 1
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
