"""The hierarchy page: browse, search and check concepts, move a concept and see the effect, add a class, undo."""

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcep.datasets import load_sample
from hcep.embeddings.encoders import DEFAULT
from hcep.errors import counted
from hcep.explain.answer import arrows
from hcep.hierarchy import Hierarchy
from hcep.models.loading import SavedModel
from hcep.taxonomy import HeldOut, Move, lint, lint_embeddings
from hcep.taxonomy.checks import Finding
from hcep.taxonomy.effects import Effect, what_if
from hcep.web.collection import class_numbers
from hcep.web.engine import Engine
from hcep.web.pages.frame import button, clickable, frame, guarded, notice, on_value, tabs, text, ui, working
from hcep.web.pages.many import Collections, Dropped, DropZone, collections_of

#: Photos that moves are measured on, and concepts that a search or a list shows.
MEASURED, FOUND = 2000, 40
MEASURES = {
    "accuracy": "Right answers",
    "support_f1": "Right concepts on the path",
    "f1_above_chance": "Right concepts, above chance",
}


def register(engine: Engine) -> None:
    collections = collections_of(engine)

    @ui.page("/hierarchy", title="Hierarchy")  # type: ignore[untyped-decorator]
    def page() -> None:
        with frame("Hierarchy", "collection.css"):
            HierarchyPage(engine, collections)


class ConceptTree(ui.element, component="static/concepts.js"):  # type: ignore[misc, call-arg]
    """A tree of concepts to open level by level, and to drag to another parent."""

    def __init__(self, on_choose: Any, on_move: Any) -> None:
        super().__init__()
        self.props.update({"nodes": (), "selected": -1, "label": "Concepts"})
        self.on("choose", guarded(on_choose))
        self.on("move", guarded(on_move))

    def choose(self, hierarchy: Hierarchy, synset: str) -> None:
        """Select a concept, and open the path to it."""
        path = [hierarchy.root, *(hierarchy.paths(synset)[0] if synset != hierarchy.root else ())]
        self.props["selected"] = hierarchy.index(synset)
        self.run_method("reveal", [hierarchy.index(one) for one in path])


@lru_cache(maxsize=2)
def checked_nodes(
    saved: SavedModel, from_photos: tuple[Finding, ...] = ()
) -> tuple[dict[str, list[Finding]], tuple[dict[str, Any], ...]]:
    """The findings of each concept, and the nodes of the tree: made once for all visitors.

    The nodes are a tuple, because NiceGUI would copy a list and its items into objects of its own for every visitor.
    A rank with a single child is part of the child's name.
    """
    h, findings = saved.path_model.hierarchy, dict[str, list[Finding]]()
    for finding in [*lint(h, [h.class_of(leaf) for leaf in h.leaves]), *from_photos]:
        for synset in finding.synsets:
            findings.setdefault(synset, []).append(finding)
    nodes = tuple(
        {
            "name": arrows([*(name for one, name in h.merged(s) if h.rank(one)), h.name(s)]),
            "below": kids.tolist(),
            "photos": photos,
            "findings": len(findings.get(s, ())),
        }
        for s, kids, photos in zip(
            h.ids, np.split(h.child_index, h.child_pointer[1:-1]), photo_counts(h, saved), strict=True
        )
    )
    return findings, nodes


def photo_counts(h: Hierarchy, saved: SavedModel) -> list[str]:
    """Training photos of each concept, in words: those of its classes, and those labelled with the concept itself."""
    by_class = saved.training.images_per_class or {}
    if not by_class:
        return [""] * len(h)
    exact = np.zeros(len(h), dtype=np.int64)
    for leaf in h.leaves:
        exact[[h.index(leaf), *map(h.index, h.ancestors(leaf))]] += by_class.get(h.class_of(leaf), 0)
    coarse = dict.fromkeys(range(len(h)), 0)
    for label, count in (saved.coarse_counts or {}).items():
        if h.merged_into(label) in h:
            coarse[h.index(h.merged_into(label))] += count.n_images
    more = {i: f" + {n:,} coarse" if n else "" for i, n in coarse.items()}
    return [f"{n:,}{more[i]}" if n or more[i] else "no photos" for i, n in enumerate(exact.tolist())]


class HierarchyPage:
    def __init__(self, engine: Engine, collections: Collections) -> None:
        self.engine, self.collections = engine, collections
        self.chosen, self.moving = engine.hierarchy.root, ""
        text("h1", "The hierarchy")
        self.about = text("p", classes="lead")
        with text("div", classes="hierarchy"):
            with text("section", classes="card stack", aria_label="Concepts"):
                words = "Search concepts"
                search = text("input", classes="field", type="search", placeholder=words, aria_label=words)
                on_value(search, "input", self.look_for, 0.2)
                self.results = text("ul", classes="line", aria_label="Matches")
                with text("div", classes="tree-box"):
                    choose = lambda event: self.choose(self.at(event.args))  # noqa: E731
                    self.tree = ConceptTree(choose, lambda event: self.propose(*map(self.at, event.args)))
            with text("div", classes="stack side"):
                self.proposal = text("section", classes="stack", aria_label="Proposed move", role="status")
                with text("section", classes="card stack", aria_label="Details"):
                    self.concept, adding, self.versions = tabs(("Concept", "Add a class", "Versions"))
        with adding:
            self.make_adding()
        self.draw()

    def at(self, number: Any) -> str:
        """A concept by its number in the tree, as the browser sends it."""
        return self.hierarchy.ids[int(number)] if 0 <= int(number) < len(self.hierarchy) else self.hierarchy.root

    def draw(self, from_photos: Sequence[Finding] = ()) -> None:
        h = self.hierarchy = self.engine.hierarchy  # others may change the model meanwhile
        self.findings, self.tree.props["nodes"] = checked_nodes(self.engine.saved, tuple(from_photos))
        n, inner = len(h.leaves), len(h) - len(h.leaves) - 1  # without the root
        self.about.set_text(
            f"{counted(n, 'class')} below {counted(inner, 'concept')}, with the number of training photos of each. "
            "Drag a concept to another parent to see the effect."
        )
        self.draw_versions()
        self.show(self.chosen if self.chosen in h else h.root)

    def look_for(self, typed: str) -> None:
        h, words = self.hierarchy, typed.casefold()
        self.results.clear()
        if not words:
            return
        matches = [s for s in h.ids if words in h.name(s).casefold() or words == s.casefold()]
        with self.results:
            if not matches:
                text("li", "No concept matches this search.", "small soft")
            for synset in sorted(matches, key=lambda s: (len(h.name(s)), h.name(s)))[:FOUND]:
                with text("li"):
                    self.link(synset)

    def link(self, synset: str) -> None:
        clickable(self.hierarchy.name(synset), lambda: self.choose(synset), "chip wrap")

    async def choose(self, synset: str) -> None:
        """Show a concept or, while another is being moved, make it the new parent."""
        if self.moving:
            moved, self.moving = self.moving, ""
            await self.propose(moved, synset)
        else:
            self.show(synset)

    def show(self, synset: str) -> None:
        h, self.chosen = self.hierarchy, synset
        self.tree.choose(h, synset)
        self.below.set_text(
            f"The class will be below “{h.name(synset)}”; choose another concept in the tree to change that."
        )
        self.concept.clear()
        with self.concept:
            text("h2", h.name(synset), "wrap")
            names = ", ".join([synset, *(name for _, name in h.merged(synset))])
            if names != h.name(synset):
                text("p", names, "small soft wrap")
            if images := self.engine.saved.images_of(synset):
                text("p", f"Training images: {images}", "small wrap")
            for title, others in (("Above", h.ancestors(synset)), ("Below", h.children(synset))):
                if others:
                    text("h3", title)
                    with text("div", classes="line"):
                        for other in others[:FOUND]:
                            self.link(other)
            if synset != h.root:
                with text("div", classes="line"):
                    button("Move to …", self.begin, icon="drive_file_move")
            findings = self.findings.get(synset, [])
            if findings or synset == h.root:
                self.draw_findings(findings or list(dict.fromkeys(f for each in self.findings.values() for f in each)))

    def draw_findings(self, findings: list[Finding]) -> None:
        text("h3", "Possible problems")
        for finding in findings:
            with text("div", classes=f"stack found {finding.severity}").style("--gap:.4rem"):
                text("p", finding.message[:1].upper() + finding.message[1:], "small wrap")
                with text("div", classes="line"):
                    for synset in [s for s in finding.synsets if s in self.hierarchy][:8]:
                        self.link(synset)
        if not findings:
            text("p", "None.", "small soft")
        if self.chosen == self.hierarchy.root:
            with text("div", classes="line"):
                button("Check with photos", self.check, icon="fact_check")

    async def check(self) -> None:
        """Also look for concepts whose photos look unlike their place."""
        with working("Comparing the photos of all concepts …"):
            findings = await self.engine.run(photo_findings, self.engine)
        if findings is None:
            notice("This needs labelled photos; start with --store STORE", problem=True)
            return
        self.draw(findings)
        notice(
            f"{len(findings):,} possible problems found with photos" if findings else "No problems found with photos"
        )

    def begin(self) -> None:
        """Make the next chosen concept the new parent."""
        self.moving = self.chosen
        self.proposal.clear()
        with self.proposal, text("div", classes="card stack"):
            text("p", f"Choose the new parent of “{self.hierarchy.name(self.moving)}” in the tree or by search.")
            with text("div", classes="line"):
                button("Cancel", self.cancel)

    def cancel(self) -> None:
        self.moving = ""
        self.proposal.clear()

    async def propose(self, synset: str, parent: str) -> None:
        """Show the effect of a move before it is saved."""
        self.cancel()
        with working("Measuring the effect of the move …"):
            measured = await self.engine.run(measure, self.engine, Move(synset, parent))
        h = self.hierarchy
        self.proposal.clear()  # another move may have been proposed meanwhile
        with self.proposal, text("div", classes="card stack"):
            text("h2", f"Move “{h.name(synset)}” to “{h.name(parent)}”?", "wrap")
            if measured is None:
                text("p", "The effect cannot be measured without labelled photos; start with --store STORE.", "small")
            else:
                self.draw_effect(*measured)
            with text("div", classes="line"):
                button("Save the move", lambda: self.save(synset, parent), "primary")
                button("Cancel", self.cancel)

    def draw_effect(self, photos: str, effect: Effect) -> None:
        changed = int((effect.before.predicted != effect.after.predicted).sum())
        text("p", f"Measured on {photos}: {changed:,} answers would change.", "small soft")
        with text("table", classes="effect"):
            with text("thead"), text("tr"):
                for words in ("In percent", "Before", "After", "Difference"):
                    text("th", words, scope="col")
            with text("tbody"):
                for name, words in MEASURES.items():
                    change, sure = effect.metrics[name], effect.interval(name)
                    with text("tr"):
                        text("th", words, scope="row")
                        text("td", f"{100 * change.before:.1f}")
                        text("td", f"{100 * change.after:.1f}")
                        with text("td", f"{100 * sure.difference:+.1f}"):
                            text("div", f"{100 * sure.low:+.1f} to {100 * sure.high:+.1f}", "small soft")

    async def save(self, synset: str, parent: str) -> None:
        what = f"moved {self.hierarchy.name(synset)!r} under {self.hierarchy.name(parent)!r}"
        await self.changed(what, self.engine.change(what, lambda fitted: fitted.move(synset, parent)))

    async def changed(self, what: str, change: Any) -> None:
        """Wait for a change of the model, then show the new version."""
        with working("Changing the model …"):
            await change
        self.cancel()
        self.draw()
        notice(what)

    def make_adding(self) -> None:
        text("p", "Drop some photos of a class that the model does not know yet, and give its name.", "small soft")
        self.typed, words = "", "Name of the class"
        name = text("input", classes="field", aria_label=words, placeholder=words)
        on_value(name, "input", partial(setattr, self, "typed"))
        self.below = text("p", classes="small wrap")
        self.dropped = Dropped(self.collections)
        DropZone(self.collections, self.dropped.take, "Photos of the class")
        button("Add the class", self.add, "primary")

    async def add(self) -> None:
        photos = [photo for _, photo in self.dropped.photos]
        if not self.typed or not photos:
            notice("Give the class a name" if not self.typed else "Drop some photos of it first", problem=True)
            return
        what = f"added class “{self.typed}” from {len(photos):,} photos"
        await self.changed(what, self.engine.add_class(self.typed, self.chosen, photos))
        self.dropped.photos = []

    def draw_versions(self) -> None:
        changes = self.engine.saved.training.history
        self.versions.clear()
        with self.versions:
            with text("ol", classes="versions", aria_label="Versions, the newest first"):
                for number, change in reversed(list(enumerate(changes, 1))):
                    text("li", f"{number}. {change.what}, {change.when[:16].replace('T', ' ')}", "small wrap")
                text("li", "0. the fitted model", "small")
            if changes:
                done = "The last change was undone"
                button("Undo the last change", lambda: self.changed(done, self.engine.undo_change()), icon="undo")


def photo_findings(engine: Engine) -> list[Finding] | None:
    """What labelled photos say against the hierarchy; None if there are none."""
    photos = _held_out(engine, engine.saved)
    if photos is None:
        return None
    findings = lint_embeddings(engine.hierarchy, *photos[2:], held_out=photos[1])
    return [f for f in findings if f.measured is None or f.measured.helps]  # without a gain, a move is no advice


def measure(engine: Engine, move: Move) -> tuple[str, Effect] | None:
    """Which labelled photos a move is measured on, and its effect on them; None if there are none."""
    photos = _held_out(engine, engine.saved)
    return None if photos is None else (photos[0], what_if(photos[1], [move]))


@lru_cache(maxsize=1)
def _held_out(engine: Engine, saved: SavedModel) -> tuple[str, HeldOut, NDArray[Any], NDArray[Any]] | None:
    """The store's labelled photos, preferably not of the training split; otherwise the sample, for its encoder.

    Returned are what they are in words, the photos held out from the model, their embeddings and their labels.
    """
    model, store, record = engine.model, engine.store, saved.encoder
    if store is not None:
        own = class_numbers(model, store.labels.tolist())
        rows = np.flatnonzero(own >= 0)
        new = rows[~np.isin(store.splits[rows].astype(str), ["train", "None"])]
        rows = new if len(new) else rows
        if len(rows):
            rows = rows[np.linspace(0, len(rows) - 1, min(len(rows), MEASURED)).astype(np.int64)]
            what = f"{len(rows):,} labelled photos of the collection{' outside the training split' * bool(len(new))}"
            X, y = store.select(rows=rows).to_numpy(np.float32), model.classes[own[rows]].astype(str)
            return what, HeldOut.from_model(saved.classifier, X, y), X, y
    sample = load_sample() if record is not None and record.name == DEFAULT else None
    known = np.array([]) if sample is None else np.isin(sample.y_val, model.classes.astype(str))
    if sample is None or not known.any():
        return None
    X, y = sample.X_val[known], sample.y_val[known]
    return f"{known.sum():,} photos of the sample", HeldOut.from_model(saved.classifier, X, y), X, y
