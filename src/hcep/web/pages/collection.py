"""The collection page: photos by concept, with filters, mistakes, a map, and what is shown as a file."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hcep.explain.explained import percent
from hcep.web import charts
from hcep.web.collection import IN_REPORT, Collection, Dropped, DroppedPhotos, Rows, View
from hcep.web.pages.frame import bar, button, frame, guarded, notice, tabs, text, ui, working
from hcep.web.pages.many import DROPPED, Collections, DropZone, Gallery, looked_at, select

if TYPE_CHECKING:
    from hcep.web.engine import Engine, Photo

SHOW = {"all": "All", "unsure": "Unsure", "mistakes": "Mistakes", "unlike": "Unlike training"}
SORT = {"given": "Given order", "unsure": "Least sure first", "worst": "Worst mistakes first"}
LASSO = "Draw around points to see their photos and paths."
HOOK = """(function hook(tries) {
  const chart = getHtmlElement(%d);
  if (chart?._fullLayout) ["sunburst", "icicle"].forEach((kind) => chart.on(`plotly_${kind}click`, (event) => {
    emitEvent("concept-%d", event.points[0].id);
    return false;
  }));
  else if (tries) setTimeout(() => hook(tries - 1), 50);
})(400)"""


def register(engine: Engine) -> None:
    """Make the page and the addresses of its photos."""
    collections = Collections.of(engine)

    @ui.page("/collection", title="Collection")  # type: ignore[untyped-decorator]
    async def page(photos: str = "") -> None:
        with frame("Collection", "collection.css"):
            key = photos or collections.store
            if key not in collections.photos:
                _empty(collections)
                return
            collection = await looked_at(collections, collections.photos[key])
            if collection is not None:
                _Page(engine, collections, collection)


def _empty(collections: Collections) -> None:
    """What to do where there is no collection yet."""
    taken: list[Dropped] = []

    async def take(photo: Photo, name: str) -> None:
        taken.append(Dropped(name, photo))

    def done() -> None:
        if taken:
            ui.navigate.to(f"/collection?photos={collections.add(DroppedPhotos(taken))}")

    text("h1", "Look through a collection")
    text(
        "p", "Drop a folder of photos. They are sorted by concept, from the most general down, the doubtful ones first "
        "if you like; where folders are named after classes, mistakes are shown too.", "lead",
    )  # fmt: skip
    DropZone(collections, take, done, f"Up to {DROPPED:,} photos; they stay on this machine.", folders=True)
    with text("div", classes="card stack"):
        text("h2", "Larger collections")
        text("p", "Encode the photos once, then open their store; a hundred thousand photos are no trouble.")
        text("pre", "hcep encode photos/ -o store/\nhcep serve --store store/", "command")


class _Page:
    """One reader's view of a collection."""

    def __init__(self, engine: Engine, collections: Collections, collection: Collection) -> None:
        self.engine, self.collections, self.collection = engine, collections, collection
        self.view, self.kind, self.level = View(), "sunburst", 2
        self.rows: Rows = np.arange(len(collection))
        n = len(collection)
        known = int((collection.truth >= 0).sum())
        with text("div", classes="line title"):
            text("h1", f"{n:,} photo{'' if n == 1 else 's'} in {collection.photos.title}", "wrap")
            if collection.photos.key != collections.store:
                button("Other photos", lambda: ui.navigate.to("/collection?photos=new"), "quiet")
        if known:
            right = int(collection.masks["right"].sum())
            text("p", f"{right:,} of {known:,} right by their labels ({100 * right / known:.1f} %).", "lead")
        with text("div", classes="collection"):
            with text("section", classes="card stack panel", aria_label="Choose photos"):
                concepts, mistakes, places = tabs(("Concepts", "Mistakes", "Map"))
            with text("section", classes="stack shown", aria_label="Photos"):
                self.toolbar = text("div", classes="stack toolbar")
                self.gallery = Gallery(collection.photos, collection.tile, self.open)
        with concepts:
            self.make_concepts()
        with mistakes:
            self.make_mistakes()
        with places:
            self.make_map()
        self.change()

    # -- what is shown ------------------------------------------------------------------------------

    def change(self, **what: Any) -> None:
        """Change the view, and show it."""
        self.view = replace(self.view, **what)
        self.rows = self.collection.rows(self.view)
        self.gallery.show(self.rows)
        self.draw_toolbar()
        self.draw_concepts()
        self.draw_map()

    def draw_toolbar(self) -> None:
        collection, view = self.collection, self.view
        self.toolbar.clear()
        with self.toolbar:
            with text("div", classes="line", role="group", aria_label="Show"):
                for name, words in SHOW.items():
                    n = int(collection.masks[name].sum())
                    if n or name in ("all", "unsure"):
                        on = str(view.show == name).lower()
                        made = text("button", f"{words} {n:,}", "chip", type="button", aria_pressed=on)
                        made.on("click", guarded(lambda name=name: self.change(show=name)), args=[])
            with text("nav", classes="line trail", aria_label="Concept"):
                self.crumb("All concepts", {"node": 0}, current=not view.node)
                for node in collection.trail(view.node):
                    text("span", "›", "soft", aria_hidden="true")
                    self.crumb(collection.node_name(node), {"node": node}, current=node == view.node)
                if view.common is not None:
                    h = collection.model.hierarchy
                    self.taken_away(f"mistakes within {h.name(h.ids[view.common])}", common=None)
                if view.group is not None:
                    self.taken_away(f"{len(view.group):,} chosen on the map", group=None)
            with text("div", classes="line"):
                n = len(self.rows)
                text("span", f"{n:,} photo{'' if n == 1 else 's'} shown", "soft number grow", role="status")
                kinds = SORT if collection.masks["mistakes"].any() else {k: w for k, w in SORT.items() if k != "worst"}
                select("Order", kinds, view.sort, lambda value: self.change(sort=value if value in SORT else "given"))
                button("CSV", self.save_table, icon="download", aria_label="Download what is shown as CSV")
                button("Report", self.save_report, icon="description", aria_label="Download what is shown as a report")

    def crumb(self, words: str, what: dict[str, Any], *, current: bool) -> None:
        made = button(words, lambda: self.change(**what), "quiet crumb wrap")
        if current:
            made.props["aria-current"] = "true"

    def taken_away(self, words: str, **what: Any) -> None:
        """A part of the view that can be dropped."""
        made = text("button", f"{words} ✕", "chip lit wrap", type="button", aria_label=f"Remove: {words}")
        made.on("click", guarded(lambda: self.change(**what)), args=[])

    # -- choosing -----------------------------------------------------------------------------------

    def make_concepts(self) -> None:
        with text("div", classes="line even"):
            text("p", "Click a concept; the middle goes back up.", "small soft grow")
            button("Icicle", self.other_kind, "quiet", icon="swap_horiz")
        self.chart = ui.plotly({"data": [], "layout": charts.LAYOUT, "config": charts.CONFIG}).classes("chart")
        self.chart.props["aria-hidden"] = "true"  # the list below says the same
        self.children = text("ul", classes="bars", aria_label="Concepts below")
        ui.on(f"concept-{self.chart.id}", guarded(self.clicked))
        ui.run_javascript(HOOK % (self.chart.id, self.chart.id))

    def other_kind(self) -> None:
        self.kind = "icicle" if self.kind == "sunburst" else "sunburst"
        self.draw_concepts()

    def clicked(self, event: Any) -> None:
        """A sector of the chart: its middle goes up."""
        node, tree = int(event.args or 0), self.collection.model.hierarchy.path_tree
        if 0 <= node < tree.n_nodes:
            self.change(node=max(int(tree.parent[node]), 0) if node == self.view.node else node)

    def draw_concepts(self) -> None:
        counts = self.collection.counts(self.collection.rows(replace(self.view, node=0)))
        self.chart.update_figure(charts.concepts(self.collection, counts, self.view.node, self.kind))
        below = self.collection.children(self.view.node, counts)
        self.children.clear()
        with self.children:
            for node in below[:40]:
                self.bar(node, int(counts[node]), counts[node] / max(counts[self.view.node], 1))

    def bar(self, node: int, n: int, share: float, depth: int = 0) -> None:
        """A concept of the list, with its share."""
        with (
            text("li").style(f"--depth:{depth}"),
            text("button", classes="row", type="button").on("click", guarded(lambda: self.change(node=node)), args=[]),
        ):
            text("span", self.collection.node_name(node), "name wrap")
            bar(share)
            text("span", f"{n:,}", "number")

    def make_mistakes(self) -> None:
        found, h = self.collection.confusions(), self.collection.model.hierarchy
        if not found:
            known = (self.collection.truth >= 0).any()
            text("p", "No mistakes." if known else "Whether answers are right is not known: the photos have no labels.")
            return
        text("p", "Where truth and answer part: the lower the concept, the smaller the mistake.", "small soft")
        most = found[0][1]
        with text("ul", classes="bars", aria_label="Mistakes by the concept above truth and answer"):
            for concept, n, truth, answer, times in found[:60]:
                with text("li"), text("button", classes="row", type="button") as made:
                    made.on("click", guarded(lambda at=concept: self.show_mistakes(at)), args=[])
                    text("span", h.name(h.ids[concept]), "name wrap")
                    bar(n / most, "bad")
                    text("span", f"{n:,}", "number")
                    text("span", f"most often {truth} taken for {answer}, {times:,}×", "small soft wrap about")

    def show_mistakes(self, concept: int) -> None:
        self.change(common=concept, show="mistakes", sort="worst", node=0, group=None)

    # -- the map ------------------------------------------------------------------------------------

    def make_map(self) -> None:
        depth = self.collection.model.hierarchy.path_tree.depth
        self.level = min(self.level, depth)
        with text("label", "Colour by level", "name"):
            made = text("input", type="range", min=1, max=depth, value=self.level, aria_label="Level of the concepts")
        made.on("change", guarded(self.set_level), js_handler="(event) => emit(event.target.value)")
        self.plot = ui.plotly({"data": [], "layout": charts.LAYOUT, "config": charts.CONFIG}).classes("chart")
        self.plot.props["aria-hidden"] = "true"
        chosen = "(event) => emit(event?.points?.map((point) => point.customdata) ?? [])"
        self.plot.on("plotly_selected", guarded(self.lasso), js_handler=chosen)
        self.legend = text("ul", classes="line legend", aria_label="Colours")
        self.group = text("div", classes="stack")

    def set_level(self, event: Any) -> None:
        self.level = min(max(int(event.args), 1), self.collection.model.hierarchy.path_tree.depth)
        self.draw_map()

    def lasso(self, event: Any) -> None:
        rows = sorted({int(row) for row in event.args if 0 <= int(row) < len(self.collection)})
        self.change(group=tuple(rows) or None, node=0, common=None)

    def draw_map(self) -> None:
        collection, group = self.collection, self.view.group
        shown, colours = charts.groups(collection, self.level)
        self.plot.update_figure(charts.map_of(collection, colours, None if group is None else np.array(group)))
        self.legend.clear()
        self.group.clear()
        with self.legend:
            for name, n, colour in shown:
                with text("li", classes="line small"):
                    text("span", classes="dot", aria_hidden="true").style(f"background:{colour}")
                    text("span", f"{name} {n:,}", "wrap")
        with self.group:
            if group is None:
                n, all_ = len(collection.on_map), len(collection)
                part = "" if n == all_ else f" The map shows {n:,} of {all_:,} photos, evenly chosen."
                text("p", LASSO + part, "small soft")
                return
            text("h3", f"Paths of {len(group):,} photos")
            counts, level = collection.counts(np.array(group)), collection.model.hierarchy.path_tree.level
            with text("ul", classes="bars", aria_label="Paths of the group"):
                for node in collection.outline(counts):
                    self.bar(node, int(counts[node]), counts[node] / len(group), int(level[node]) - 1)

    # -- one photo, and files -----------------------------------------------------------------------

    def open(self, row: int) -> None:
        """One photo at a size to look at, with its path."""
        collection, photos = self.collection, self.collection.photos
        truth = int(collection.truth[row])
        with ui.dialog(value=True) as dialog, text("div", classes="card photo-card"):
            text("img", src=self.collections.address(photos, row, large=True), alt=photos.names[row], classes="large")
            with text("div", classes="stack"):
                sure = percent(float(collection.probability[row]))
                text("h2", f"{collection.class_names[collection.predicted[row]]}, {sure}", "wrap")
                if truth >= 0:
                    is_right = truth == collection.predicted[row]
                    words = "as its label says" if is_right else f"Its label says {collection.class_names[truth]}."
                    text("p", words, "good" if is_right else "bad")
                if doubt := collection.doubt(row):
                    text("p", doubt, "chip flag")
                with text("ol", classes="path", aria_label="Path"):
                    for name in collection.path(row):
                        text("li", name, "wrap")
                text("p", photos.names[row], "small soft wrap")
                with text("div", classes="line"):
                    button("Explain it", lambda: self.explain(row), "primary", icon="account_tree")
                    button("Close", dialog.close)

    async def explain(self, row: int) -> None:
        with working("Reading the photo"):
            photo = await self.collections.photo(self.collection.photos, row)
        ui.navigate.to(f"/?photo={photo.id}")

    async def save_table(self) -> None:
        with working("Writing the table"):
            table = await self.engine.run(self.collection.table, self.rows)
        ui.download.content(table.encode("utf-8-sig"), "photos.csv", "text/csv")

    async def save_report(self) -> None:
        n = len(self.rows)
        if not n:
            notice("There is no photo to report on", problem=True)
            return
        with working(f"Explaining {min(n, IN_REPORT):,} photos"):
            title = f"{min(n, IN_REPORT):,} photos of {self.collection.photos.title}"
            page = await self.engine.run(self.collection.report, self.rows, title)
        ui.download.content(page.encode(), "photos.html", "text/html")
        if n > IN_REPORT:
            notice(f"The report shows the first {IN_REPORT:,} of {n:,} photos")
