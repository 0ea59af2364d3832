"""The collection page: photos by concept, with filters, mistakes, a map, and downloads."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from hcep.errors import HCEPError, counted
from hcep.web import charts
from hcep.web.collection import IN_REPORT, QUEUES, Collection, View
from hcep.web.engine import Engine
from hcep.web.pages import many
from hcep.web.pages.frame import button, clickable, frame, guarded, notice, on_value, redrawn, tabs, text, ui, working
from hcep.web.pages.work import Work

SHOW = {"all": "All", "unsure": "Unsure", "mistakes": "Mistakes", "unlike": "Unlike training", "corrected": "Corrected"}
ABOUT = {
    "unsure": "Photos that the model is least sure of.",
    "different": "Photos that are least like those the model was fitted on.",
    "informative": "Doubtful photos that resemble many others.",
    "mislabelled": "Photos that look more like another class than like the other photos with their label.",
}
SORT = {"given": "Original order", "unsure": "Least sure first", "worst": "Worst mistakes first"}
LEAD = (
    "Drop a folder of photos to sort them by concept. If the folders are named after classes, you also see the "
    "mistakes."
)
#: Reports when a chart is visible and what is clicked in it: NiceGUI does not pass on these events of Plotly.
HOOK = """(function hook(tries) {
  const chart = getHtmlElement(%d), tell = (name, detail) => chart.dispatchEvent(new CustomEvent(name, { detail }));
  if (!chart?._fullLayout) return tries && setTimeout(() => hook(tries - 1), 50);
  new IntersectionObserver((seen) => tell("seen", seen[0].isIntersecting)).observe(chart);
  chart.on("plotly_sunburstclick", (event) => { tell("concept", event.points[0].id); return false; });
})(400)"""
#: Redrawing the map ends the lasso with no points.
LASSO = "(event) => event?.points?.length && emit(event.points.map((point) => point.customdata))"


def register(engine: Engine) -> None:
    collections = many.collections_of(engine)

    @ui.page("/collection", title="Collection", response_timeout=60)  # type: ignore[untyped-decorator]
    async def page(photos: str = "") -> None:
        with frame("Collection", "photo.css", "collection.css"):
            chosen = collections.photos.get(photos or collections.store)
            if chosen is None or not chosen.names:
                _empty(collections)
            elif (collection := await many.answered(collections, chosen, engine.saved)) is not None:
                CollectionPage(collections, collection, await engine.run(collection.score, engine.saved))


def _empty(collections: many.Collections) -> None:
    dropped = many.Dropped(collections)
    text("h1", "Explore a collection")
    text("p", LEAD, "lead")
    words = f"Up to {many.DROPPED:,} photos. {many.kept_in(collections.engine) or 'They stay on this machine.'}"
    many.DropZone(collections, dropped.take, words, dropped.open).props["folders"] = True
    if (project := collections.engine.project) is not None:
        if not project.has_model:
            text("p", "The photos of your project appear here once its model is fitted.", "soft")
            text("a", "Go to the project", "button primary", href="/project")
        return
    with text("div", classes="card stack"):
        text("h2", "Larger collections")
        text("p", "Encode the photos once, then open their store. A hundred thousand photos are fine.")
        text("pre", "hcep encode photos/ -o store/\nhcep serve --store store/", "command")


class CollectionPage:
    def __init__(self, collections: many.Collections, collection: Collection, score: str) -> None:
        self.collections, self.collection, self.tree = collections, collection, collection.model.hierarchy.path_tree
        self.view, self.level, n = View(), min(2, self.tree.depth), len(collection)
        with text("div", classes="line title"):
            text("h1", f"{n:,} photo{'' if n == 1 else 's'} in {collection.photos.title}", "wrap")
            text("a", "Other photos", "button quiet", href="/collection?photos=other")
        self.score = text("p", score, "lead")
        with text("section", classes="card stack", aria_label="Work"):
            self.redraw_work = redrawn(text("div", classes="stack"), self.draw_work)
        with text("div", classes="collection"):
            with text("section", classes="card stack panel", aria_label="Choose photos"):
                concepts, mistakes, places = tabs(("Concepts", "Mistakes", "Map"))
            with text("section", classes="stack", aria_label="Photos shown"):
                self.toolbar = text("div", classes="stack toolbar")
                self.gallery = many.Gallery(collection.photos, collection.tile, self.open)
        with concepts:
            self.make_concepts()
        with mistakes:
            self.make_mistakes(bool(score))
        with places:
            self.make_map()
        self.change()

    def draw_work(self) -> None:
        """The queues, how far the work is, and what can be learned from it."""
        n, n_done = len(self.collection), int(self.collection.masks["corrected"].sum())
        with text("div", classes="line apart"):
            text("h2", "What to look at next")
            text("p", f"{n_done:,} of {counted(n, 'photo')} decided.", "small soft")
        with text("div", classes="line"):
            for kind, words in QUEUES.items():
                groups = self.collection.queue(kind)
                if groups:
                    count = counted(sum(map(len, groups)), "photo")
                    name = f"{words}: {count} in {counted(len(groups), 'group')}. {ABOUT[kind]}"
                    with button(words, partial(self.work, groups), icon="play_arrow", aria_label=name, title=name):
                        text("span", f"{sum(map(len, groups)):,}", "number soft")
        many.learn_card(self.collections.engine, ui.navigate.reload)

    def work(self, groups: Sequence[Sequence[int]], at: int = 0) -> None:
        Work(self.collections, self.collection, groups, self.worked, at)

    async def worked(self) -> None:
        """Show the collection again as it is after some decisions."""
        engine = self.collections.engine
        self.score.set_text(await engine.run(self.collection.score, engine.saved))
        self.redraw_work()
        self.change()

    def change(self, **what: Any) -> None:
        self.view = replace(self.view, **what)
        self.rows = self.collection.rows(self.view)
        self.gallery.show(self.rows)
        self.draw_toolbar()
        self.draw_concepts()
        self.draw_map()

    def draw_toolbar(self) -> None:
        collection, view, h = self.collection, self.view, self.collection.model.hierarchy
        numbers = {name: int(mask.sum()) for name, mask in collection.masks.items() if name in SHOW}
        self.toolbar.clear()
        with self.toolbar:
            with text("div", classes="line", role="group", aria_label="Show"):
                for name, n in numbers.items():
                    if n or name == view.show:
                        on = str(name == view.show).lower()
                        clickable(f"{SHOW[name]} {n:,}", partial(self.change, show=name), "chip wrap", aria_pressed=on)
            with text("nav", classes="line trail", aria_label="Concept"):
                for node in (0, *collection.trail(view.node)):
                    words = f"› {collection.node_name(node)}" if node else "All concepts"
                    crumb = button(words, partial(self.change, node=node), "quiet crumb wrap")
                    crumb.props["aria-current"] = str(node == view.node).lower()
                if view.common is not None:
                    self.removable(f"mistakes within {h.name(h.ids[view.common])}", common=None)
                if view.group is not None:
                    self.removable(f"{len(view.group):,} selected on the map", group=None)
            with text("div", classes="line"):
                text("span", f"{len(self.rows):,} shown", "soft number grow", role="status")
                orders = {key: words for key, words in SORT.items() if key != "worst" or numbers["mistakes"]}
                many.select("Order", orders, view.sort, lambda value: self.change(sort=value))
                button("CSV", self.save_table, icon="download", aria_label="Download the photos shown as CSV")
                button("Report", self.save_report, icon="description", aria_label="Download a report of the photos")

    def removable(self, words: str, **what: Any) -> None:
        clickable(f"{words} ✕", partial(self.change, **what), "chip lit wrap", aria_label=f"Remove: {words}")

    def make_concepts(self) -> None:
        text("p", "Click a concept to see its photos; click the middle to go up.", "small soft")
        self.chart = _Chart()
        self.chart.plot.on("concept", guarded(self.clicked), js_handler="(event) => emit(event.detail)")
        self.children = text("ul", classes="bars", aria_label="Concepts below")

    def clicked(self, event: Any) -> None:
        """A click on the chart; the middle leads to the concept above."""
        node = min(max(int(event.args), 0), self.tree.n_nodes - 1)
        self.change(node=max(int(self.tree.parent[self.view.node]), 0) if node == self.middle else node)

    def draw_concepts(self) -> None:
        node, counts = self.view.node, self.collection.counts(self.collection.rows(replace(self.view, node=0)))
        self.middle = self.collection.fork(node, counts, charts.NEARLY_ALL)
        self.chart.show(partial(charts.concepts, self.collection, counts, self.middle))
        self.children.clear()
        with self.children:
            for child in self.collection.children(self.collection.fork(node, counts), counts)[:40]:
                with text("li"):
                    self.concept(child, int(counts[child]), counts[child] / max(counts[node], 1))

    def concept(self, node: int, n: int, share: float) -> None:
        many.bar_row(self.collection.node_name(node), n, share, partial(self.change, node=node))

    def make_mistakes(self, known: bool) -> None:
        if not self.collection.masks["mistakes"].any():
            text("p", "No mistakes." if known else "The photos have no labels, so mistakes are not known.")
            return
        text(
            "p",
            "The lowest concept that the label and the answer share. The more specific it is, the smaller the mistake.",
            "small soft",
        )
        confusions, h = self.collection.confusions(), self.collection.model.hierarchy
        with text("ul", classes="bars", aria_label="By the concept above both"):
            for concept, n, truth, answer, n_most in confusions[:60]:
                shown = {"show": "mistakes", "sort": "worst", "node": 0, "group": None, "common": h.index(concept)}
                about = f"most often {truth} mistaken for {answer}, {n_most:,}×"
                with text("li"):
                    many.bar_row(h.name(concept), n, n / confusions[0][1], partial(self.change, **shown), about)

    def make_map(self) -> None:
        with text("label", "Colour by level", "name"):
            slider = text("input", type="range", min=1, max=self.tree.depth, value=self.level, aria_label="Level")
        on_value(slider, "change", self.set_level)
        self.map = _Chart()
        self.map.plot.on("plotly_selected", guarded(self.lasso), js_handler=LASSO)
        self.legend = text("ul", classes="line legend", aria_label="Colours")
        self.group = text("div", classes="stack")

    def set_level(self, value: str) -> None:
        self.level = min(max(int(value), 1), self.tree.depth)
        self.draw_map()

    def lasso(self, event: Any) -> None:
        rows = {int(row) for row in event.args if 0 <= int(row) < len(self.collection)}
        self.change(group=tuple(sorted(rows)) or None, node=0, common=None)

    def draw_map(self) -> None:
        collection, group = self.collection, self.view.group
        shown, colours = charts.groups(collection, self.level)
        self.map.show(partial(charts.map_of, collection, colours, group))
        self.legend.clear()
        self.group.clear()
        with self.legend:
            for name, n, colour in shown:
                with text("li", classes="line small"):
                    text("span", classes="dot", aria_hidden="true").style(f"background:{colour}")
                    text("span", f"{name} {n:,}", "wrap")
        with self.group:
            if group is None:
                n, total = len(collection.on_map), len(collection)
                part = "" if n == total else f" The map shows an even selection of {n:,} of {total:,} photos."
                text("p", f"Draw around points to see their photos and paths.{part}", "small soft")
                return
            text("h3", f"Paths of {len(group):,} photos")
            counts = collection.counts(np.array(group))
            with text("ul", classes="bars", aria_label="Paths of the group"):
                for node in collection.outline(counts):
                    with text("li").style(f"--depth:{self.tree.level[node] - 1}"):
                        self.concept(node, int(counts[node]), counts[node] / len(group))

    def open(self, row: int) -> None:
        """Show a photo, with the others that are shown before and after it."""
        self.work([[each] for each in self.rows.tolist()], int(np.flatnonzero(self.rows == row)[0]))

    async def save_table(self) -> None:
        with working("Writing the table …"):
            table = await self.collections.engine.run(self.collection.table, self.rows)
        ui.download.content(table.encode("utf-8-sig"), "photos.csv", "text/csv")

    async def save_report(self) -> None:
        n = min(len(self.rows), IN_REPORT)
        if not n:
            raise HCEPError("no photo is shown, so there is nothing to report")
        with working(f"Explaining {n:,} photos …"):
            title = f"{n:,} photos of {self.collection.photos.title}"
            page = await self.collections.engine.run(self.collection.report, self.rows, title)
        ui.download.content(page.encode(), "photos.html", "text/html")
        if n < len(self.rows):
            notice(f"The report shows the first {n:,} of {len(self.rows):,} photos")


class _Chart:
    """A chart that is drawn once it is visible; the page also has its content in words."""

    def __init__(self) -> None:
        self.plot = ui.plotly({"data": [], "layout": charts.LAYOUT, "config": charts.CONFIG}).classes("chart")
        self.plot.props["aria-hidden"] = "true"
        self.visible = False
        self.waiting: Callable[[], dict[str, Any]] | None = None
        self.plot.on("seen", guarded(self.set_visible), js_handler="(event) => emit(event.detail)")
        ui.run_javascript(HOOK % self.plot.id)

    def set_visible(self, event: Any) -> None:
        self.visible = bool(event.args)
        self.show(self.waiting)

    def show(self, figure: Callable[[], dict[str, Any]] | None) -> None:
        """Draw the figure that the function makes, now or once the chart is visible."""
        self.waiting = None if self.visible else figure
        if self.visible and figure is not None:
            self.plot.update_figure(figure())
