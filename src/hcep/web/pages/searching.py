"""The search, level by level, to step through."""

from functools import partial

from hcep.explain.beam_steps import WIDTH, Levels, Tried, beam_levels
from hcep.web.pages.frame import button, redrawn, text, working
from hcep.web.pages.looking import Looking

#: Dropped paths that are named.
N_DROPPED = 6
ALL = (
    "This model compares every path. With a narrow beam one can watch a search: it goes down the tree, level by level,"
)
OWN = "The search goes down the tree, level by level,"


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

    with box:
        button("Start", partial(go, 0), "primary", icon="play_arrow")


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
