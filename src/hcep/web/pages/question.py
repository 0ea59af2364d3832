"""Questions about an answer: why not something else, what if, corrections; and the search, step by step."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

from hcep.explain.answer import Contrast, percent
from hcep.explain.beam_steps import WIDTH, Levels, Tried, beam_levels
from hcep.explain.corrections import Correction
from hcep.hierarchy import Hierarchy
from hcep.hierarchy.names import with_article
from hcep.pursuit.limits import Request
from hcep.web.pages.frame import bar, button, clickable, notice, on_value, redrawn, tabs, text, working
from hcep.web.pages.session import PhotoSession

#: Concepts that a name search shows, corrections that are listed, and dropped paths that are named.
N_MATCHES, N_LISTED, N_DROPPED = 8, 30, 6
ALL_PATHS = "This model compares all paths. To let you watch a search, this one goes down the tree level by level"
OWN_BEAM = "The search goes down the tree level by level"


def questions(session: PhotoSession, show_map: Callable[..., None]) -> None:
    """The card with all questions; each is drawn again when the answer changes."""
    with text("section", classes="card stack", aria_labelledby="questions"):
        text("h2", "Question the answer", id="questions")
        panels = tabs(("Why not …?", "What if …?", "This is wrong", "How it searched"))
    parts: list[Callable[[PhotoSession], None]] = [partial(_why_not, show_map), _what_if, _wrong, _search_steps]
    session.on_answer += [redrawn(panel, partial(draw, session)) for panel, draw in zip(panels, parts, strict=True)]


def _chip(session: PhotoSession, concept: str, pick: Callable[[str], Any], words: str = "", **attributes: Any) -> None:
    with clickable("", partial(pick, concept), "chip", **attributes):
        text("span", words or session.name(concept), "wrap")
        text("span", percent(session.probability(concept)), "number")


@lru_cache(maxsize=4)
def _names(h: Hierarchy) -> tuple[dict[str, str], Counter[str]]:
    """All names of every concept but the root, in lower case, and how many concepts have each name."""
    names = {c: "\n".join([h.name(c), *(name for _, name in h.merged(c))]).casefold() for c in h.ids if c != h.root}
    return names, Counter(map(h.name, h.ids))


def _name_search(session: PhotoSession, label: str, pick: Callable[[str], Any], suggested: Sequence[str]) -> None:
    """A field to find classes and concepts by name; the matches are buttons below it, and Enter picks the first."""
    h, matches, (names, n_named) = session.hierarchy, list(suggested), _names(session.hierarchy)
    key = "find-" + label.split()[0].lower()
    text("label", label, "name", for_=key)
    field = text("input", classes="field", id=key, type="search", autocomplete="off", placeholder="Type a name")
    message, line = text("p", "", "soft small", role="status"), text("div", classes="line")

    def show() -> None:
        for concept in matches:
            parent = f" ({h.name(h.parents(concept)[0])})" if n_named[h.name(concept)] > 1 else ""
            _chip(session, concept, pick, h.name(concept) + parent)

    def matching(typed: str) -> list[str]:
        words = typed.casefold()
        concepts = [c for c, known in names.items() if words in known] if words else list(suggested)
        concepts.sort(key=lambda c: (not names[c].startswith(words), -session.probability(c), names[c]))
        return concepts[:N_MATCHES]

    def update(typed: str) -> None:
        matches[:] = matching(typed)
        redraw()
        message.text = "" if matches else "No class or concept has this name."

    redraw = redrawn(line, show)
    on_value(field, "input", update, 0.15)
    on_value(field, "keydown.enter", lambda typed: next(map(pick, matching(typed)), None))


def _why_not(show_map: Callable[..., None], session: PhotoSession) -> None:
    async def ask(concept: str) -> None:
        with working("Comparing …"):
            contrast, evidence = await session.contrast(concept)
        redrawn(result, partial(_contrast, contrast))
        words = f"Red areas support {contrast.chosen.name}, blue areas support {contrast.rival.name}."
        show_map(session, evidence, words)

    _name_search(session, f"Why is it {with_article(session.answer.name)} and not …", ask, session.rivals)
    result = text("div", classes="stack", aria_live="polite")


def _contrast(contrast: Contrast) -> None:
    """Where the paths part, the evidence on both sides, and what would change the answer."""
    n, (first, _, _, *others) = len(contrast.shared), contrast.lines()
    sides = ((contrast.chosen, contrast.probability), (contrast.rival, contrast.rival_probability))
    most = max((abs(one.value) for side, _ in sides for one in side.concepts[n:]), default=0.0) or 1.0
    text("p", first, "strong wrap")
    with text("div", classes="sides"):
        for side, share in sides:
            with text("div"):
                with text("div", classes="line apart"):
                    text("h3", f"For {side.name}", "wrap")
                    text("span", f"probability {percent(share)}", "number soft small")
                with text("ul", classes="evidence"):
                    for one in side.concepts[n:]:
                        with text("li"):
                            text("span", one.name, "wrap")
                            bar(abs(one.value) / most, "minus" if one.value < 0 else "")
                            text("span", side.shown(one.value), "number small")
    for line in others:
        plain = line.replace("the embedding", "what the model sees")
        text("p", plain[:1].upper() + plain[1:] + ".", "soft small wrap")


def _what_if(session: PhotoSession) -> None:
    text("p", "Change one concept, and the answer follows at once.", "soft")
    text("h3", "Leave out a concept")
    with text("div", classes="line"):
        for concept in session.path:
            without = lambda c: session.ask(session.force, (*session.forbid, c))  # noqa: E731
            _chip(session, concept, without, aria_label=f"Without {session.name(concept)}")
    insist = lambda c: session.ask((*session.force, c), session.forbid)  # noqa: E731
    _name_search(session, "Require another concept", insist, session.rivals)
    if session.force or session.forbid:
        button("Reset", session.ask, icon="undo")


def _wrong(session: PhotoSession) -> None:
    """Make a correction, and see those made so far."""
    h, facts = session.hierarchy, {"who": "", "why": ""}  # the browser fills in who it is

    async def save(concept: str) -> None:  # the root says that none of the classes is right
        is_label = h.is_leaf(concept) or concept not in (h.root, *h.own_leaves)
        what = {"label": h.class_of(concept)} if is_label else {"force": concept}
        await session.engine.correct(session.photo.id, **what, file=session.photo.name, **facts)
        notice("The correction is saved, thank you")
        await session.ask()

    async def undo(photo: str) -> None:
        await session.engine.undo_correction(photo, who=facts["who"])
        notice("The correction is undone")
        await session.ask()

    text("p", "Choose the right answer. It is saved at once, and you can undo it.", "soft")
    with text("div", classes="fields"):
        for key, label in (("who", "Your name"), ("why", "Reason (optional)")):
            with text("div"):
                text("label", label, "name", for_=key)
                field = text("input", classes="field", id=key, maxlength=200, data_remember=key)
                on_value(field, "input", partial(facts.__setitem__, key))
    _name_search(session, "Right answer", save, session.rivals)
    button("None of the known classes", partial(save, h.root), icon="block")
    corrections = list(session.engine.corrections.in_force.items())[::-1]
    if corrections:
        text("h3", f"Corrections so far: {len(corrections):,}")
    with text("ul", classes="kept"):
        for photo, correction in corrections[:N_LISTED]:
            _correction(session, photo, correction, undo)


def _correction(session: PhotoSession, photo: str, correction: Correction, undo: Callable[[str], Any]) -> None:
    name, root, file = session.name, session.hierarchy.root, correction.file or photo[:8]
    parts = [name(correction.label)] if correction.label is not None else []
    parts += ["none of the known classes" if c == root else name(c) for c in correction.force]
    parts += [f"not {name(c)}" for c in correction.forbid]
    with text("li", classes="here" if photo == session.photo.id else ""):
        with text("div"):
            text("span", f"{file}: {', '.join(parts)}", "wrap")
            when = correction.when[:16].replace("T", " ")
            facts = filter(None, (correction.who or "somebody", when, correction.why))
            text("span", ", ".join(facts), "soft small wrap")
        button("Undo", partial(undo, photo), "quiet", aria_label=f"Undo {file}: {', '.join(parts)}")


def _search_steps(session: PhotoSession) -> None:
    """The search, level by level."""
    model, x, request = (
        session.engine.model,
        session.photo.embedding,
        Request(session.answer.force, session.answer.forbid),
    )
    width = model.options.beam_width
    text("p", f"{OWN_BEAM if width else ALL_PATHS} and keeps the {width or WIDTH} best paths.", "soft")
    box = text("div", classes="stack")

    async def go(i: int) -> None:
        with working("Searching step by step …"):
            levels = await session.engine.run(beam_levels, model, x, request)
        redrawn(box, partial(draw, levels, i))

    def draw(levels: Levels, i: int) -> None:
        kept, dropped = levels[i]
        with text("div", classes="line apart"):
            button("Back", partial(go, i - 1), icon="arrow_back", disabled=i == 0)
            text("h3", f"Level {i + 1} of {len(levels)}", role="status")
            button("Next", partial(go, i + 1), "primary", icon="arrow_forward", disabled=i + 1 == len(levels))
        _paths("Kept", kept, kept[0].share)
        _paths("Dropped", dropped[:N_DROPPED], kept[0].share)
        if len(dropped) > N_DROPPED:
            text("p", f"and {len(dropped) - N_DROPPED:,} more", "soft small")
        if i + 1 == len(levels):
            end, own = kept[0].name, session.answer.name
            other = "" if end == session.name(session.end) else f" The model's own search ends at {own}."
            text("p", f"The best path ends at {end}.{other}", "strong")

    with box:
        button("Start", partial(go, 0), "primary", icon="play_arrow")


def _paths(title: str, paths: list[Tried], best: float) -> None:
    text("h3", title if paths else "")
    with text("ul", classes="evidence tried"):
        for path in paths:
            with text("li", classes="lit" if path.on_answer else ""):
                with text("div"):
                    text("span", path.name, "wrap")
                    text("span", f"under {path.above}{'; ' * bool(path.why)}{path.why}", "soft small wrap")
                behind = 100 * (best - path.share)
                text("span", "best" if behind <= 0 else f"{behind:.1f} % behind", "number small")
