"""A photo: how it comes in, the answer in words, the path lit in the tree, and what is known of each concept."""

from collections.abc import Awaitable, Iterable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hcep.errors import HCEPError
from hcep.explain.answer import Step, percent
from hcep.explain.report import map_place, overlay_uri
from hcep.explain.where import EvidenceMap
from hcep.web.engine import Engine, Photo
from hcep.web.pages import frame as shared
from hcep.web.pages.frame import button, frame, guarded, notice, on_value, redrawn, text, ui, working
from hcep.web.pages.looking import Known, Looking, Training, a
from hcep.web.pages.many import responses
from hcep.web.pages.question import questions

#: Of scikit-learn; static/welcome.html says who took them.
EXAMPLES = ("china.jpg", "flower.jpg")
#: The keyboard goes to the answer, and with it the page.
TO_ANSWER = "setTimeout(() => document.querySelector('.answer h1')?.focus(), 60)"
NO_PHOTOS = "Typical photos, and the range of this number, show here with the training photos: hcep serve --store."


def register(engine: Engine) -> None:
    shared.nicegui.app.add_static_files(shared.STATIC, shared.FILES)
    training, spec = Training(engine), find_spec("sklearn.datasets")
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
        async def remembered() -> Photo:
            return engine.photo(photo)

        with frame("Photo", "photo.css", "photo.js"):
            visit = PhotoPage(engine, training)
        if photo:
            await ui.context.client.connected()
            await guarded(visit.look)(remembered(), False)


class PathTree(ui.element, component="static/path.js"):  # type: ignore[misc, call-arg]
    """The path and what is beside it; `choose` gets a concept that is clicked."""

    def __init__(self, looking: Looking, choose: Any) -> None:
        super().__init__()
        self.looking = looking
        self.on("choose", guarded(lambda event: choose(str(event.args))))

    def show(self, chosen: str) -> None:
        """Show how things are now, with one concept chosen."""
        looking, h, path = self.looking, self.looking.hierarchy, self.looking.path
        answer, above, stops = looking.answer().concept, h.root, []
        lit = 1 + path.index(answer) if answer in path else 0
        for i, concept in enumerate(path):
            beside = self._beside(c for c in h.children(above) if c not in path)  # which may skip a level
            stops.append(self._one(concept) | {"beyond": i >= lit, "siblings": beside})
            above = concept
        opened = [] if chosen in (*path, h.root) else [chosen]
        while opened and not {*h.parents(opened[0])} & {*path, h.root}:
            opened.insert(0, h.parents(opened[0])[0])
        below = {concept: self._beside(h.children(concept)) for concept in opened}
        self.props.update({"stops": stops, "chosen": chosen, "below": below})

    def _one(self, concept: str) -> dict[str, Any]:
        share = self.looking.likely(concept)
        return {"id": concept, "name": self.looking.name(concept), "share": round(share, 4), "likely": percent(share)}

    def _beside(self, concepts: Iterable[str]) -> list[dict[str, Any]]:
        return sorted(map(self._one, concepts), key=lambda one: -float(one["share"]))


class PhotoPage:
    """One visitor's look at one photo after another."""

    def __init__(self, engine: Engine, training: Training) -> None:
        self.engine, self.training, most = engine, training, engine.limits.megabytes
        refused = guarded(partial(notice, f"The photo did not arrive; it may have up to {most:g} MB", problem=True))
        uploader = ui.upload(on_upload=guarded(self._uploaded), auto_upload=True, max_file_size=int(1e6 * most))
        uploader.classes("uploader").on_rejected(refused).on("failed", refused, args=[])
        self.body = text("div", classes="stack wide")
        with self.body:
            page = (shared.FILES / "welcome.html").read_text(encoding="utf-8")
            page = page.replace("{megabytes}", f"{most:g}").replace("{store}", "hidden" if engine.store is None else "")
            ui.html(page, sanitize=False)

    async def _uploaded(self, event: Any) -> None:
        await self.look(self.engine.add_photo(await event.file.read(), event.file.name))

    async def look(self, given: Awaitable[Photo], history: bool = True) -> None:
        """Explain a photo that is being read, and show it in the place of what was there."""
        with working("Looking at the photo …"):
            looking = Looking(self.engine, await given)
            await looking.ask()
        if history:
            ui.navigate.history.push(f"/?photo={looking.photo.id}")
        self.body.clear()
        with self.body:
            self._show(looking)

    def _show(self, looking: Looking) -> None:
        with text("section", classes="answer"):
            words = redrawn(text("div", classes="stack", aria_live="polite"), partial(self._answer, looking))
            with text("div", classes="sureness"):
                self._slider(looking)
        with text("div", classes="look"):
            with text("div", classes="stack aside"):
                self._figure(looking)
                self.card = text("section", classes="card stack", aria_label="The chosen concept")
            with text("div", classes="stack"):
                with text("section", classes="card stack", aria_labelledby="path"):
                    with text("div", classes="line apart"):
                        text("h2", "The path to the answer", id="path")
                        text("span", "how likely", "soft small")
                    self.tree = PathTree(looking, partial(self.choose, looking))
                questions(looking, self.show_map)

        def chosen() -> None:
            concept = self.chosen if self.chosen in looking.path else looking.end
            ui.timer(0.01, guarded(partial(self.choose, looking, concept)), once=True)
            ui.run_javascript(TO_ANSWER)

        self.chosen = looking.end
        looking.on_answer += [words, chosen]
        looking.on_words += [words, lambda: self.tree.show(self.chosen)]
        chosen()

    def _answer(self, looking: Looking) -> None:
        changed = [("with", c) for c in looking.force] + [("without", c) for c in looking.forbid]
        if changed:
            with text("div", classes="line"):
                for what, concept in changed:
                    text("span", f"what if: {what} {looking.name(concept)}", "chip lit wrap")
                button("Reset", looking.ask, "quiet", icon="undo")
        headline, sentence, _ = looking.answer()
        text("h1", headline, "wrap", tabindex=-1)
        text("p", sentence, "lead wrap")
        with text("div", classes="line"):
            if changed:
                was = looking.first
                text("span", f"Before: {a(was.name, 'a')}, {percent(was.probability)} sure.", "soft small")
            else:
                text("a", "Another photo", "button", href="/")
                text("span", looking.photo.name, "soft small wrap")

    def _slider(self, looking: Looking) -> None:
        text("label", "How sure must it be, in percent?", "name", for_="sureness")
        slider = text("input", id="sureness", type="range", min=0, max=99, aria_describedby="sure")
        slider.props["^value"] = 0  # where it begins; a property would put it back at every update of the page
        told = text("p", "Best guess. Move it to the right, and the answer moves up the tree.", "soft small", id="sure")

        async def move(value: str) -> None:
            told.text = f"At least {int(value)} % sure." if int(value) else "Best guess."
            await looking.be_sure(int(value) / 100)

        on_value(slider, "input", move, 0.12)

    def _figure(self, looking: Looking) -> None:
        with text("figure", classes="photo"):
            with text("div", classes="frame"):
                text("img", src=f"/photos/{looking.photo.id}.jpg", alt=f"The photo {looking.photo.name}")
                self.map = text("img", classes="map", alt="", src="data:,")
            with text("figcaption"):
                self.legend = text("p", "", "small", role="status")
                text("p", "The model sees what is inside the dashes.", "small soft scale")
                button("Photo only", partial(self.show_map, looking, None, "The photo as it is."), "quiet")

    def show_map(self, looking: Looking, evidence: EvidenceMap | None, words: str) -> None:
        """Lay a map over the photo, or take it away."""
        self.legend.text, maps = words, looking.found.maps
        self.map.classes(remove="shown")
        if evidence is None or maps is None:
            return
        self.map.style(map_place(maps))
        self.map.props["src"] = overlay_uri(evidence)
        self.map.classes("shown")

    async def choose(self, looking: Looking, concept: str) -> None:
        """Show a concept: its map, its meaning, photos of it, its coefficient."""
        self.chosen, name = concept, looking.name(concept)
        self.tree.show(concept)
        with working("Finding out where …"):
            known = await self.training.of(concept)
            if self.chosen == concept:  # not another one meanwhile
                redrawn(self.card, partial(_concept, looking, concept, known))
            evidence = (await looking.maps()).concepts.get(concept)
            words = f"Where {name} is: red speaks for it, blue against it."
            if evidence is None and concept != looking.hierarchy.root:
                _, evidence = await looking.contrast(concept)
                words = f"Red speaks for {looking.found.name}, blue for {name}."
        if self.chosen == concept:
            self.show_map(looking, evidence, words)


def _concept(looking: Looking, concept: str, known: Known | None) -> None:
    step, name = looking.step(concept), looking.name(concept)
    with text("div", classes="line apart"):
        text("h2", name, "wrap")
        text("span", percent(looking.likely(concept)), "number soft")
    text("p", looking.meaning(concept), "soft wrap")
    if step is not None:
        _coefficient(step, known)
    if known is None:
        text("p", NO_PHOTOS, "soft small")
    elif known.photos:
        text("h3", "Typical photos")
        with text("div", classes="strip four"):
            for uri, of in known.photos:
                text("img", src=uri, alt=f"Typical of {name}: {of}", title=of)
    if step is not None:
        without = partial(looking.ask, looking.force, (*looking.forbid, concept))
        button(f"What if it were no {name}?", without, icon="alt_route")
    elif concept != looking.hierarchy.root:
        insist = partial(looking.ask, (*looking.force, concept), looking.forbid)
        button(f"What if it were {a(name, 'a')}?", insist, icon="alt_route")


def _coefficient(step: Step, known: Known | None) -> None:
    """How much of a concept is in the photo, on a scale with the range of training photos."""
    value, told = step.coefficient, "1 is the average training photo of it"
    low, high = known.between if known is not None and known.between else (1.0, 1.0)
    start, end = min(low, value, 1.0) - 0.25, max(high, value, 1.0) + 0.25
    text("h3", f"How much of it is here: {value:.2f}")
    marks = {"low": low, "high": high, "here": value, "one": 1.0}
    places = (f"--{name}:{100 * (v - start) / (end - start):.2f}%" for name, v in marks.items())
    text("div", "", "gauge" if low < high else "gauge open", aria_hidden="true").style(";".join(places))
    if low < high:
        inside = "inside" if low <= value <= high else "outside"
        told += f"; this is {inside} the range of 90 in 100 of them, {low:.2f} to {high:.2f}"
    text("p", f"{told}. By itself it explains {percent(step.share)} of the photo.", "soft small")
