"""The search, level by level: which paths the beam keeps, which it drops, and why."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hcep.explain.evidence import Evidence
from hcep.pursuit import search
from hcep.pursuit.limits import PathLimits, Request
from hcep.pursuit.tables import CLOSED
from hcep.web.pages.frame import button, guarded, redrawn, text, ui, working

if TYPE_CHECKING:
    from hcep.classify.path_model import PathModel
    from hcep.web.pages.looking import Looking

#: Paths that the beam keeps where the model's own search keeps all; dropped paths that are named.
WIDTH, N_DROPPED = 4, 6
ALL = (
    "This model compares every path. With a narrow beam one can watch a search: it goes down the tree, level by level,"
)
OWN = "The search goes down the tree, level by level,"


class Tried(NamedTuple):
    """A path that was tried: its last concept, what is above it, what it explains of the photo, why it was dropped."""

    name: str
    above: str
    share: float
    on_answer: bool
    why: str


Levels = list[tuple[list[Tried], list[Tried]]]


def beam_levels(model: PathModel, x: NDArray[Any], request: Request) -> Levels:
    """The paths that a beam keeps and drops of one raw embedding, level by level, the best first."""
    h, tree, limits = model.hierarchy, model.hierarchy.path_tree, PathLimits.of(model.hierarchy, *request)
    options = replace(model.options, beam_width=model.options.beam_width or WIDTH)
    trace = search(x[None], model.dictionary, options, trace=True, limits=limits).trace
    assert trace is not None
    beams = [row[row >= 0].tolist() for row in trace.nodes[0] if (row >= 0).any()]
    evidence, nodes = Evidence(model), np.arange(1, tree.n_nodes)
    directions, offset = evidence._directions(nodes)
    z, products, scores = evidence.metric(x), np.zeros(tree.n_nodes), np.zeros(tree.n_nodes)
    products[1:] = directions @ z + offset
    for node in nodes.tolist():  # parents come before children
        scores[node] = scores[tree.parent[node]] + products[node] ** 2 - model.options.anchor
    answer = tree.ancestors()[beams[-1][0]].tolist()

    def tried(node: int, why: str) -> Tried:
        if limits is not None and limits.state[0, node] == CLOSED:
            why = "ruled out by what was asked"
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
        why, ordered = f"explains less than the {len(after)} kept", sorted(dropped, key=lambda node: -scores[node])
        levels.append(([tried(node, "") for node in after], [tried(node, why) for node in ordered]))
    return levels


def search_steps(looking: Looking) -> None:
    """A stepper through the levels."""
    model, x, request = looking.engine.model, looking.photo.embedding, looking.found.request
    own = model.options.beam_width
    text("p", f"{OWN if own else ALL} and keeps the {own or WIDTH} best paths.", "soft")
    box = text("div", classes="stack")

    async def go(i: int) -> None:
        with working("Searching step by step …"):
            levels = await looking.engine.run(beam_levels, model, x, request)
        redrawn(box, partial(draw, levels, i))

    def draw(levels: Levels, i: int) -> None:
        kept, dropped = levels[i]
        with text("div", classes="line apart"):
            button("Back", partial(go, i - 1), icon="arrow_back", disabled=i == 0)
            text("h3", f"Level {i + 1} of {len(levels)}", role="status")
            button("Next", partial(go, i + 1), "primary", icon="arrow_forward", disabled=i + 1 == len(levels))
        _tried("Kept", kept, kept[0].share)
        _tried("Dropped", dropped[:N_DROPPED], kept[0].share)
        if len(dropped) > N_DROPPED:
            text("p", f"and {len(dropped) - N_DROPPED:,} more", "soft small")
        if i + 1 == len(levels):
            end = kept[0].name
            other = "" if end == looking.name(looking.end) else f" The model's own search ends at {looking.found.name}."
            text("p", f"The best path ends at {end}.{other}", "strong")

    ui.timer(0.05, guarded(partial(go, 0)), once=True)


def _tried(title: str, paths: list[Tried], best: float) -> None:
    text("h3", title if paths else "")
    with text("ul", classes="evidence tried"):
        for one in paths:
            with text("li", classes="lit" if one.on_answer else ""):
                with text("div"):
                    text("span", one.name, "wrap")
                    text("span", f"under {one.above}{'; ' * bool(one.why)}{one.why}", "soft small wrap")
                behind = 100 * (best - one.share)
                text("span", "best" if behind <= 0 else f"{behind:.1f} % behind", "number small")
