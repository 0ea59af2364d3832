"""Questions about an answer: why nothing else, what if, this is wrong; and the search, step by step."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

from hcep.explain.answer import Contrast, percent
from hcep.explain.beam_steps import WIDTH, Levels, Tried, beam_levels
from hcep.explain.corrections import Correction
from hcep.hierarchy import Hierarchy
from hcep.pursuit.limits import Request
from hcep.web.pages.frame import bar, button, clickable, notice, on_value, redrawn, tabs, text, working
from hcep.web.pages.looking import Looking, a

#: Concepts that a search shows, corrections that are listed, and dropped paths that are named.
N_FOUND, N_LISTED, N_DROPPED = 8, 30, 6
ALL = (
    "This model compares every path. With a narrow beam one can watch a search: it goes down the tree, level by level,"
)
OWN = "The search goes down the tree, level by level,"


def questions(looking: Looking, show_map: Callable[..., None]) -> None:
    """The card with all of them; each is drawn again when the answer changes."""
    with text("section", classes="card stack", aria_labelledby="questions"):
        text("h2", "Question it", id="questions")
        panels = tabs(("Why not …?", "What if …?", "This is wrong", "How it searched"))
    parts: list[Callable[[Looking], None]] = [partial(_why_not, show_map), _what_if, _wrong, _search_steps]
    looking.on_answer += [redrawn(panel, partial(draw, looking)) for panel, draw in zip(panels, parts, strict=True)]


def _chip(looking: Looking, concept: str, pick: Callable[[str], Any], words: str = "", **attributes: Any) -> None:
    with clickable("", partial(pick, concept), "chip", **attributes):
        text("span", words or looking.name(concept), "wrap")
        text("span", percent(looking.likely(concept)), "number")


@lru_cache(maxsize=4)
def _names(h: Hierarchy) -> tuple[dict[str, str], Counter[str]]:
    """All names of every concept but the root, in small letters, and how many concepts have a name."""
    names = {c: "\n".join([h.name(c), *(name for _, name in h.merged(c))]).casefold() for c in h.ids if c != h.root}
    return names, Counter(map(h.name, h.ids))


def _search(looking: Looking, label: str, pick: Callable[[str], Any], suggested: Sequence[str]) -> None:
    """A field to look classes and concepts up by name; those that fit are buttons below it, Enter picks the first."""
    h, found, (names, often) = looking.hierarchy, list(suggested), _names(looking.hierarchy)
    key = "find-" + label.split()[0].lower()
    text("label", label, "name", for_=key)
    field = text("input", classes="field", id=key, type="search", autocomplete="off", placeholder="Type a name")
    count, line = text("p", "", "soft small", role="status"), text("div", classes="line")

    def show() -> None:
        for concept in found:
            apart = f" ({h.name(h.parents(concept)[0])})" if often[h.name(concept)] > 1 else ""
            _chip(looking, concept, pick, h.name(concept) + apart)

    def fitting(given: str) -> list[str]:
        words = given.casefold()
        fits = [c for c, known in names.items() if words in known] if words else list(suggested)
        fits.sort(key=lambda c: (not names[c].startswith(words), -looking.likely(c), names[c]))
        return fits[:N_FOUND]

    def typed(words: str) -> None:
        found[:] = fitting(words)
        redraw()
        count.text = "" if found else "No class or concept has such a name."

    redraw = redrawn(line, show)
    on_value(field, "input", typed, 0.15)
    on_value(field, "keydown.enter", lambda words: next(map(pick, fitting(words)), None))


def _why_not(show_map: Callable[..., None], looking: Looking) -> None:
    async def ask(concept: str) -> None:
        with working("Comparing …"):
            why, evidence = await looking.contrast(concept)
        redrawn(result, partial(_contrast, why))
        show_map(looking, evidence, f"Red speaks for {why.chosen.name}, blue for {why.rival.name}.")

    _search(looking, f"Why is it {a(looking.found.name, 'a')}, and not …", ask, looking.rivals)
    result = text("div", classes="stack", aria_live="polite")


def _contrast(why: Contrast) -> None:
    """Where the paths part, the evidence on both sides, and what would turn the answer."""
    n, (first, _, _, *others) = len(why.shared), why.lines()
    most = max((abs(one.value) for side in (why.chosen, why.rival) for one in side.concepts[n:]), default=0.0) or 1.0
    text("p", first, "strong wrap")
    with text("div", classes="sides"):
        for side, share in ((why.chosen, why.probability), (why.rival, why.rival_probability)):
            with text("div"):
                with text("div", classes="line apart"):
                    text("h3", f"For {side.name}", "wrap")
                    text("span", f"{percent(share)} likely", "number soft small")
                with text("ul", classes="evidence"):
                    for one in side.concepts[n:]:
                        with text("li"):
                            text("span", one.name, "wrap")
                            bar(abs(one.value) / most, "minus" if one.value < 0 else "")
                            text("span", side.shown(one.value), "number small")
    for words in others:
        plain = words.replace("the embedding", "what the model sees")
        text("p", plain[:1].upper() + plain[1:] + ".", "soft small wrap")


def _what_if(looking: Looking) -> None:
    text("p", "Change one thing, and the answer follows at once.", "soft")
    text("h3", "Without one of these")
    with text("div", classes="line"):
        for concept in looking.path:
            without = lambda c: looking.ask(looking.force, (*looking.forbid, c))  # noqa: E731
            _chip(looking, concept, without, aria_label=f"Without {looking.name(concept)}")
    insist = lambda c: looking.ask((*looking.force, c), looking.forbid)  # noqa: E731
    _search(looking, "Insisting on another", insist, looking.rivals)
    if looking.force or looking.forbid:
        button("Reset", looking.ask, icon="undo")


def _wrong(looking: Looking) -> None:
    """Corrections: one to give, and those that were given."""
    h, said = looking.hierarchy, {"who": "", "why": ""}  # the browser fills in who it is

    async def keep(concept: str) -> None:  # the root says that nothing is right
        what = {"label": h.class_of(concept)} if h.is_leaf(concept) else {"force": concept}
        await looking.engine.correct(looking.photo.id, **what, file=looking.photo.name, **said)
        notice("Kept, thank you")
        await looking.ask()

    async def undo(photo: str) -> None:
        await looking.engine.undo_correction(photo, who=said["who"])
        notice("Taken back")
        await looking.ask()

    text("p", "Say what is right: it is kept at once, and can be taken back.", "soft")
    with text("div", classes="fields"):
        for key, label in (("who", "Your name"), ("why", "Why, if you like")):
            with text("div"):
                text("label", label, "name", for_=key)
                field = text("input", classes="field", id=key, maxlength=200, data_remember=key)
                on_value(field, "input", partial(said.__setitem__, key))
    _search(looking, "Right would be …", keep, looking.rivals)
    button("None of these", partial(keep, h.root), icon="block")
    standing = list(looking.engine.corrections.in_force.items())[::-1]
    if standing:
        text("h3", f"{len(standing):,} kept so far")
    with text("ul", classes="kept"):
        for photo, one in standing[:N_LISTED]:
            _listed(looking, photo, one, undo)


def _listed(looking: Looking, photo: str, said: Correction, undo: Callable[[str], Any]) -> None:
    name, root, file = looking.name, looking.hierarchy.root, said.file or photo[:8]
    named = [name(said.label)] if said.label is not None else []
    named += ["none of these" if c == root else name(c) for c in said.force]
    named += [f"not {name(c)}" for c in said.forbid]
    with text("li", classes="here" if photo == looking.photo.id else ""):
        with text("div"):
            text("span", f"{file}: {', '.join(named)}", "wrap")
            when = said.when[:16].replace("T", " ")
            text("span", ", ".join(filter(None, (said.who or "somebody", when, said.why))), "soft small wrap")
        button("Undo", partial(undo, photo), "quiet", aria_label=f"Undo {file}: {', '.join(named)}")


def _search_steps(looking: Looking) -> None:
    """The search, level by level, to step through."""
    model, x, request = (
        looking.engine.model,
        looking.photo.embedding,
        Request(looking.found.force, looking.found.forbid),
    )
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
