"""Questions about an answer: why not something else, what if, corrections; and the search, step by step."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from hcep.errors import HCEPError
from hcep.explain.answer import Contrast, percent
from hcep.explain.beam_steps import WIDTH, Levels, Tried, beam_levels
from hcep.explain.corrections import Correction
from hcep.hierarchy.names import with_article
from hcep.pursuit.limits import Request
from hcep.web.pages.frame import bar, button, clickable, notice, redrawn, tabs, text, working
from hcep.web.pages.many import learn_card
from hcep.web.pages.search import correction_of, name_search, places_for_a_class, who_and_why
from hcep.web.pages.session import PhotoSession

#: Corrections that are listed, and dropped paths that are named.
N_LISTED, N_DROPPED = 30, 6
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


def _name_search(session: PhotoSession, label: str, pick: Callable[[str], Any], **options: Any) -> None:
    name_search(session.hierarchy, label, pick, session.rivals, probability=session.probability, **options)


def _why_not(show_map: Callable[..., None], session: PhotoSession) -> None:
    async def ask(concept: str) -> None:
        with working("Comparing …"):
            contrast, evidence = await session.contrast(concept)
        redrawn(result, partial(_contrast, contrast))
        words = f"Red areas support {contrast.chosen.name}, blue areas support {contrast.rival.name}."
        show_map(session, evidence, words)

    _name_search(session, f"Why is it {with_article(session.answer.name)} and not …", ask)
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
        text("p", line[:1].upper() + line[1:] + ".", "soft small wrap")


def _what_if(session: PhotoSession) -> None:
    text("p", "Change one concept, and the answer changes at once.", "soft")
    text("h3", "Leave out a concept")
    with text("div", classes="line"):
        for concept in session.path:
            without = lambda c: session.ask(session.force, (*session.forbid, c))  # noqa: E731
            _chip(session, concept, without, aria_label=f"Without {session.name(concept)}")
    insist = lambda c: session.ask((*session.force, c), session.forbid)  # noqa: E731
    _name_search(session, "Require another concept", insist)
    if session.force or session.forbid:
        button("Reset", session.ask, icon="undo")


def _wrong(session: PhotoSession) -> None:
    """Make a correction, and see those made so far."""
    h, facts = session.hierarchy, dict[str, Any](who="", why="")  # the browser fills in who it is

    async def save(**what: Any) -> None:
        await session.engine.correct(session.photo.id, **what, file=session.photo.name, **facts)
        notice("The correction was saved. Thank you!")
        await session.ask()

    async def undo(correction: Correction) -> None:
        if session.engine.corrections.in_force.get(correction.image) == correction:
            await session.engine.undo_correction(correction.image, who=facts["who"])
            notice("The correction was undone")
        else:
            notice("Somebody has changed this correction since then; nothing was undone", problem=True)
        await session.ask()

    text("p", "Choose the right answer. It is saved at once, and you can undo it.", "soft")
    who_and_why(facts)
    _name_search(
        session,
        "Right answer",
        lambda concept: save(**correction_of(h, concept)),
        add=lambda name, under: save(label=name, under=under),
        new=lambda: session.engine.corrections.new_classes(h),
        places=lambda: places_for_a_class(h, session.path[::-1]),
    )
    with text("div", classes="line"):
        button("None of the known classes", partial(save, none=True), icon="block")
        if session.path:
            button(f"Not {with_article(session.name(session.end))}", partial(save, forbid=session.end), icon="close")
    _history(session)
    corrections = list(session.engine.corrections.in_force.values())[::-1]
    if corrections:
        text("h3", f"Corrections so far: {len(corrections):,}")
        learn_card(session.engine, session.ask)
    with text("ul", classes="kept"):
        for correction in corrections[:N_LISTED]:
            _correction(session, correction, undo)


def _history(session: PhotoSession) -> None:
    """Everything that people said about the photo, the newest first, if that is more than one thing."""
    lines = [line for line in session.engine.corrections.history if line.image == session.photo.id][::-1]
    if len(lines) < 2:
        return
    text("h3", "History of this photo")
    with text("ol", classes="versions", aria_label="History of this photo, the newest first"):
        for line in lines[:N_LISTED]:
            facts = (_words(session, line), line.who or "somebody", line.when[:16].replace("T", " "))
            text("li", ", ".join(facts), "small wrap")


def _words(session: PhotoSession, correction: Correction) -> str:
    """What a correction says."""
    if correction.undo:
        return "undone"
    try:
        return correction.words(session.hierarchy)
    except HCEPError:  # in concepts of another model
        return ", ".join(filter(None, [correction.label, *correction.force]))


def _correction(session: PhotoSession, correction: Correction, undo: Callable[[Correction], Any]) -> None:
    photo = correction.image
    file, words = "/".join(Path(correction.file).parts[-2:]) or photo[:8], _words(session, correction)
    with text("li", classes="here" if photo == session.photo.id else ""):
        with text("div"):
            text("span", f"{file}: {words}", "wrap")
            when = correction.when[:16].replace("T", " ")
            facts = filter(None, (correction.who or "somebody", when, correction.why))
            text("span", ", ".join(facts), "soft small wrap")
        button("Undo", partial(undo, correction), "quiet", aria_label=f"Undo {file}: {words}")


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
