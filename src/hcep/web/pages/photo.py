"""The photo page: upload a photo, read the answer, follow its path, and look at each concept."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hcep._checks import render_html
from hcep.errors import HCEPError
from hcep.explain.answer import Step, arrows, percent
from hcep.explain.report import map_place, overlay_uri
from hcep.explain.where import EvidenceMap
from hcep.hierarchy.names import with_article
from hcep.web.engine import Engine, Photo
from hcep.web.pages import frame as shared
from hcep.web.pages.frame import button, frame, guarded, notice, on_value, redrawn, text, ui, working
from hcep.web.pages.many import Dropped, DropZone, collections_of, kept_in, responses
from hcep.web.pages.question import questions
from hcep.web.pages.session import PhotoSession, TrainingSummary, training_summary

#: Photos that come with scikit-learn; static/welcome.html says who took them.
EXAMPLES = ("china.jpg", "flower.jpg")
#: Moves the keyboard focus, and with it the page, to the answer, unless the visitor is typing already.
TO_ANSWER = (
    "setTimeout(() => document.activeElement.matches('input, textarea') || "
    "document.querySelector('.answer h1')?.focus(), 60)"
)
NO_PHOTOS = "Typical photos and the usual range need training photos: hcep serve --store STORE."


def register(engine: Engine) -> None:
    shared.nicegui.app.add_static_files(shared.STATIC, shared.FILES)
    spec = find_spec("sklearn.datasets")
    for name in EXAMPLES if spec is not None and spec.origin else ():
        file = Path(str(spec.origin)).parent / "images" / name  # type: ignore[union-attr]
        shared.nicegui.app.add_static_file(local_file=file, url_path=f"/examples/{name}")

    @shared.nicegui.app.get("/photos/{key}.jpg", include_in_schema=False)
    def picture(key: str) -> Any:
        try:
            data = engine.photo(key).jpeg
        except HCEPError:
            return responses.Response(status_code=404)
        return responses.Response(data, 200, {"Cache-Control": "private, max-age=3600"}, "image/jpeg")

    @ui.page("/", title="hcep explorer", dark=None)
    async def page(photo: str = "") -> None:
        with frame("Photo", "photo.css", "photo.js"):
            visit = PhotoPage(engine)
        if photo:
            await ui.context.client.connected()
            await guarded(lambda: visit.show(engine.photo(photo), history=False))()


class PathDiagram(ui.element, component="static/path.js"):  # type: ignore[misc, call-arg]
    """The path and the concepts beside it; `choose` is called with a concept that is clicked."""

    def __init__(self, session: PhotoSession, choose: Any) -> None:
        super().__init__()
        self.session = session
        self.on("choose", guarded(lambda event: choose(str(event.args))))

    def show(self, chosen: str) -> None:
        """Show the current answer, with one concept chosen."""
        session, h, path = self.session, self.session.hierarchy, self.session.path
        answer, above, stops = session.headline().concept, h.root, []
        at_answer = {answer, *h.ancestors(answer)}  # the answer may be above the class on another route
        lit = sum(concept in at_answer for concept in path)
        for i, concept in enumerate(path):
            siblings = self._sorted(c for c in h.children(above) if c not in path)  # a path may skip a level
            step = session.step(concept)
            name = {"name": arrows((*step.ranked(), step.name))} if step is not None else {}
            stops.append(self._concept(concept) | name | {"beyond": i >= lit, "siblings": siblings})
            above = concept
        opened = [] if chosen in (*path, h.root) else [chosen]
        while opened and not {*h.parents(opened[0])} & {*path, h.root}:
            opened.insert(0, h.parents(opened[0])[0])
        below = {concept: self._sorted(h.children(concept)) for concept in opened}
        self.props.update({"stops": stops, "chosen": chosen, "below": below})

    def _concept(self, concept: str) -> dict[str, Any]:
        share = self.session.probability(concept)
        return {"id": concept, "name": self.session.name(concept), "share": round(share, 4), "likely": percent(share)}

    def _sorted(self, concepts: Iterable[str]) -> list[dict[str, Any]]:
        return sorted(map(self._concept, concepts), key=lambda one: -float(one["share"]))


class PhotoPage:
    """One visitor's page, which shows one photo after another."""

    def __init__(self, engine: Engine) -> None:
        self.engine, most = engine, engine.limits.megabytes
        self.dropped = Dropped(collections_of(engine))
        DropZone(self.dropped.collections, self.dropped.take, "", self._show_dropped).classes("uploader")
        self.body = text("div", classes="stack wide")
        welcome = shared.FILES / "welcome.html"
        with self.body:
            has_store = engine.store is not None
            page = render_html(welcome, megabytes=f"{most:g}", has_store=has_store, kept=kept_in(engine))
            ui.html(page, sanitize=False)

    async def _show_dropped(self, event: Any) -> None:
        """Show one photo, or several as a collection."""
        if problems := "; ".join(map(str, event.args))[:300]:
            notice(problems, problem=True)
        if len(self.dropped.photos) == 1:
            _, photo = self.dropped.photos.pop()
            await self.show(replace(self.engine.photo(photo.id), name=photo.name))
        self.dropped.open()

    async def show(self, photo: Photo, history: bool = True) -> None:
        """Explain a photo, and show it instead of the previous content."""
        with working("Reading the photo …"):
            session = PhotoSession(self.engine, photo)
            await session.ask()
        if history:  # awaited: the address is the answer's before the answer is seen, so that "back" leads to this page
            with suppress(TimeoutError):
                await ui.run_javascript(f"history.pushState({{}}, '', '/?photo={session.photo.id}')", timeout=10)
        self.body.clear()
        with self.body:
            PhotoView(session, "Another photo", "/")


class PhotoView:
    """A photo with its answer, its path, its concepts and all questions about it; also a link to somewhere else."""

    def __init__(self, session: PhotoSession, link: str, href: str) -> None:
        self.link = link, href
        with text("section", classes="answer"):
            words = redrawn(text("div", classes="stack", aria_live="polite"), partial(self._answer, session))
            with text("div", classes="sureness"):
                self._slider(session)
        with text("div", classes="look"):
            with text("div", classes="stack aside"):
                self._figure(session)
                self.card = text("section", classes="card stack", aria_label="The chosen concept")
            with text("div", classes="stack"):
                with text("section", classes="card stack", aria_labelledby="path"):
                    with text("div", classes="line apart"):
                        text("h2", "The path to the answer", id="path")
                        text("span", "probability", "soft small")
                    self.tree = PathDiagram(session, partial(self.choose, session))
                    routes = redrawn(text("div", classes="stack"), partial(self._routes, session))
                questions(session, self.show_map)

        def choose_again() -> None:
            concept = self.chosen if self.chosen in session.path else session.end
            ui.timer(0.01, guarded(partial(self.choose, session, concept)), once=True)
            ui.run_javascript(TO_ANSWER)

        self.chosen = session.end
        session.on_answer += [words, routes, choose_again]
        session.on_words += [words, lambda: self.tree.show(self.chosen)]
        choose_again()

    def _answer(self, session: PhotoSession) -> None:
        changes = [("with", c) for c in session.force] + [("without", c) for c in session.forbid]
        if changes:
            with text("div", classes="line"):
                for what, concept in changes:
                    text("span", f"what if: {what} {session.name(concept)}", "chip lit wrap")
                button("Reset", session.ask, "quiet", icon="undo")
        headline, sentence, _ = session.headline()
        text("h1", headline, "wrap", tabindex=-1)
        text("p", sentence, "lead wrap")
        with text("div", classes="line"):
            if changes:
                first = session.first
                text("span", f"Before: {first.headline()}.", "soft small")
            else:
                text("a", self.link[0], "button", href=self.link[1])
                text("span", session.photo.name, "soft small wrap")

    def _routes(self, session: PhotoSession) -> None:
        """Other paths to the same class, if concepts have several parents."""
        for route in session.answer.other_routes():
            text("p", f"Also by {route}.", "soft small wrap")

    def _slider(self, session: PhotoSession) -> None:
        text("label", "How sure should the answer be? (percent)", "name", for_="sureness")
        slider = text("input", id="sureness", type="range", min=50, max=99, aria_describedby="sure")
        start = round(100 * session.sure)
        slider.props["^value"] = start  # the initial value; as a property it would be reset at every update of the page
        message = text("p", f"The most specific answer that is at least {start} % sure.", "soft small", id="sure")

        async def move(value: str) -> None:
            await session.set_sure(int(value) / 100)
            message.text = f"The most specific answer that is at least {round(100 * session.sure)} % sure."

        on_value(slider, "input", move, 0.12)

    def _figure(self, session: PhotoSession) -> None:
        with text("figure", classes="photo"):
            with text("div", classes="frame"):
                text("img", src=f"/photos/{session.photo.id}.jpg", alt=f"The photo {session.photo.name}")
                self.map = text("img", classes="map", alt="", src="data:,")
            with text("figcaption"):
                self.legend = text("p", "", "small", role="status")
                text("p", "The model only sees the part inside the dashed frame.", "small soft scale")
                button("Photo only", partial(self.show_map, session, None, "The photo without a map."), "quiet")

    def show_map(self, session: PhotoSession, evidence: EvidenceMap | None, words: str) -> None:
        """Lay a map over the photo, or remove it."""
        self.legend.text, maps = words, session.answer.maps
        self.map.classes(remove="shown")
        if evidence is None or maps is None:
            return
        self.map.style(map_place(maps))
        self.map.props["src"] = overlay_uri(evidence)
        self.map.classes("shown")

    async def choose(self, session: PhotoSession, concept: str) -> None:
        """Show a concept: its map, its meaning, typical photos, and its coefficient."""
        self.chosen, name = concept, session.name(concept)
        self.tree.show(concept)
        with working("Locating it in the photo …"):
            summary = await training_summary(session.engine, concept)
            if self.chosen == concept:  # the visitor may have chosen another one meanwhile
                redrawn(self.card, partial(_concept_card, session, concept, summary))
            evidence = (await session.maps()).concepts.get(concept)
            words = f"Where the model sees “{name}”: red areas support it, blue areas count against it."
            if evidence is None and concept != session.hierarchy.root:
                _, evidence = await session.contrast(concept)
                words = f"Red areas support {session.answer.name}, blue areas support {name}."
        if self.chosen == concept:
            self.show_map(session, evidence, words)


def _concept_card(session: PhotoSession, concept: str, summary: TrainingSummary | None) -> None:
    step, name = session.step(concept), session.name(concept)
    with text("div", classes="line apart"):
        text("h2", name, "wrap")
        text("span", percent(session.probability(concept)), "number soft")
    text("p", session.meaning(concept), "soft wrap")
    if step is not None:
        _coefficient(step, summary)
    if summary is None:
        text("p", NO_PHOTOS, "soft small")
    elif summary.photos:
        text("h3", "Typical photos")
        with text("div", classes="strip four"):
            for uri, label in summary.photos:
                text("img", src=uri, alt=f"Typical photo of {name}: {label}", title=label)
    if step is not None:
        without = partial(session.ask, session.force, (*session.forbid, concept))
        button(f"What if it were not {with_article(name)}?", without, icon="alt_route")
    elif concept != session.hierarchy.root:
        insist = partial(session.ask, (*session.force, concept), session.forbid)
        button(f"What if it were {with_article(name)}?", insist, icon="alt_route")


def _coefficient(step: Step, summary: TrainingSummary | None) -> None:
    """The strength of a concept in the photo, on a scale with the usual range of training photos."""
    value, sentence = step.coefficient, "1 is an average training photo of this concept"
    low, high = summary.range if summary is not None and summary.range else (1.0, 1.0)
    start, end = min(low, value, 1.0) - 0.25, max(high, value, 1.0) + 0.25
    text("h3", f"Strength in this photo: {value:.2f}")
    marks = {"low": low, "high": high, "here": value, "one": 1.0}
    places = (f"--{name}:{100 * (v - start) / (end - start):.2f}%" for name, v in marks.items())
    text("div", "", "gauge" if low < high else "gauge open", aria_hidden="true").style(";".join(places))
    if low < high:
        inside = "inside" if low <= value <= high else "outside"
        sentence += f"; this photo is {inside} the usual range of {low:.2f} to {high:.2f} (90 % of training photos)"
    text("p", f"{sentence}. The concept itself explains {percent(step.share)} of the photo.", "soft small")
