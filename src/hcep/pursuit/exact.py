"""The exact search, compiled: a running sum down the tree of rooted paths, and the best place to end."""

from __future__ import annotations

import numpy as np

from hcep.pursuit.along_path import product
from hcep.pursuit.compiled import ZERO, copy, kernel, offer, piece, sort_best_first
from hcep.pursuit.tables import CLOSED, OPEN, Array, Images, Rules, Tables


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
