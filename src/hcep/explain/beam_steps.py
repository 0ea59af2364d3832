"""A search, level by level: which paths a beam keeps, which it drops, and why."""

from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

from numpy.typing import NDArray

from hcep.classify.path_model import PathModel
from hcep.dictionary.path_problem import CLOSED
from hcep.explain.evidence import Evidence
from hcep.pursuit import search
from hcep.pursuit.limits import PathLimits, Request

#: Paths that the beam keeps if the model's own search keeps all.
WIDTH = 8


class Tried(NamedTuple):
    """A path that the search tried: its last concept, the one above, the share it explains, and why it was dropped."""

    name: str
    above: str
    share: float
    on_answer: bool
    why: str


Levels = list[tuple[list[Tried], list[Tried]]]


def beam_levels(model: PathModel, x: NDArray[Any], request: Request) -> Levels:
    """The paths that a beam keeps and drops for one raw embedding, level by level, the best first."""
    h, tree, limits = model.hierarchy, model.hierarchy.path_tree, PathLimits.of(model.hierarchy, *request)
    options = replace(model.options, beam_width=model.options.beam_width or WIDTH)
    trace = search(x[None], model.dictionary, options, trace=True, limits=limits).trace
    assert trace is not None
    beams = [row[row >= 0].tolist() for row in trace.nodes[0] if (row >= 0).any()]
    problem, z = model.dictionary.path_problem(model.options.anchor), Evidence(model).metric(x)
    products = problem.values(problem.products(z[None]))
    scores, products = problem.scores(products)[:, 0], products[:, 0]
    answer = tree.ancestors()[beams[-1][0]].tolist()

    def tried(node: int, why: str) -> Tried:
        if limits is not None and limits.state[0, node] == CLOSED:
            why = "excluded by the request"
        elif why and model.options.signed and products[node] <= 0:
            why = "the photo points away from it"
        name, above = (h.name(h.ids[int(tree.synset[v])]) for v in (node, tree.parent[node]))
        return Tried(name, above, float(scores[node] / (z @ z)), node in answer, why)

    def candidates(node: int) -> range:
        first = int(tree.first_child[node])
        return range(first, first + int(tree.n_children[node])) or range(node, node + 1)

    levels: Levels = []
    for before, after in pairwise(beams):
        dropped = {c for node in before for c in candidates(node)}.difference(after)
        ordered = sorted(dropped, key=lambda node: -scores[node])
        why = f"explains less than the {'path that was' if len(after) == 1 else f'{len(after)} paths that were'} kept"
        levels.append(([tried(node, "") for node in after], [tried(node, why) for node in ordered]))
    return levels
