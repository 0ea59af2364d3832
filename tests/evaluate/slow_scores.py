"""The support and prefix metrics once more, from the list of edges and with fractions: slow, and plain to see."""

from __future__ import annotations

from fractions import Fraction


def rooted_paths(edges, root, end):
    """Every rooted path to a synset, the root left out."""
    if end == root:
        return [[]]
    return [[*path, end] for parent, child in edges if child == end for path in rooted_paths(edges, root, parent)]


def scores_against(support, path):
    """Precision, recall and F1 of a set against one path, and how many of its first synsets are all there."""
    right = [synset for synset in path if synset in support]
    precision = Fraction(len(right), len(support)) if support else Fraction(0)
    recall = Fraction(len(right), len(path))
    f1 = 2 * precision * recall / (precision + recall) if right else Fraction(0)
    n_prefix = 0
    while n_prefix < len(path) and path[n_prefix] in support:
        n_prefix += 1
    return {"precision": precision, "recall": recall, "f1": f1, "prefix": n_prefix, "length": len(path)}


def acceptable_scores(edges, root, support, label):
    """The scores against each closest path: the best F1, of these the best recall, of these the longest prefix."""
    support = set(support) - {root}
    scores = [scores_against(support, path) for path in rooted_paths(edges, root, label)]
    for key in ("f1", "recall", "prefix"):
        best = max(one[key] for one in scores)
        scores = [one for one in scores if one[key] == best]
    return scores


def prefix_row(score, depth):
    """1 for each level that is followed, 0 for the others of the path, None below its end."""
    levels = range(1, depth + 1)
    return [None if level > score["length"] else float(level <= score["prefix"]) for level in levels]


def is_one_path(edges, root, support):
    """Whether the synsets, in some order, are a path from a child of the root."""
    left, at = set(support), root
    while left:
        below = [child for parent, child in edges if parent == at and child in left]
        # In a DAG a synset and its child may both hang from here; the path must take the upper one first.
        upper = [child for child in below if not any((other, child) in edges for other in left)]
        if not upper:
            return False
        at = upper[0]
        left.remove(at)
    return bool(support)
