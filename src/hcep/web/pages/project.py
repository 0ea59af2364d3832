"""The page of a project: choose photos, paste a tree, fit a model, look."""

from collections.abc import Callable
from functools import partial
from typing import Any

from hcep.errors import HCEPError, counted
from hcep.web.engine import Engine
from hcep.web.pages import many
from hcep.web.pages.frame import PAGES, button, frame, guarded, notice, redrawn, sentence, text, ui

LEAD = "Make a model of your own photos in three steps. Everything is kept in one folder:"
TREE = "Paste a table from a spreadsheet, one column per level, the classes in the last. You can edit it here."
PASTE = "family\tgenus\tspecies\nFelidae\tFelis\tcat\nCanidae\tCanis\tdog"


def register(engine: Engine) -> None:
    if engine.project is None:
        PAGES.pop("Project", None)
        return
    others = dict(PAGES)
    PAGES.clear()
    PAGES.update({"Project": "/project", **others})
    collections = many.collections_of(engine)

    @ui.page("/project", title="Project")  # type: ignore[untyped-decorator]
    def page() -> None:
        with frame("Project", "photo.css", "collection.css"):
            ProjectPage(engine, collections)


class ProjectPage:
    redraw_photos: Callable[[], None]

    def __init__(self, engine: Engine, collections: many.Collections) -> None:
        assert engine.project is not None
        self.engine, self.project, self.collections = engine, engine.project, collections
        tree = self.project.tree
        self.table = "" if tree is None else tree.read_text(encoding="utf-8")
        text("h1", "Your project")
        text("p", f"{LEAD} {self.project.folder.resolve()}", "lead wrap")
        with text("section", classes="card stack", aria_label="Photos"):
            text("h2", "1. Photos")
            words = "Drop photos here, or a folder with one subfolder per class. They are copied into the project."
            zone = many.DropZone(collections, None, words, lambda: self.redraw_photos(), keep=True)
            zone.props["folders"] = True
            self.redraw_photos = redrawn(text("div", classes="stack"), self.draw_photos)
        with text("section", classes="card stack", aria_label="Tree"):
            text("h2", "2. Tree")
            text("p", TREE, "small soft")
            area = text("textarea", self.table, "field", rows=6, placeholder=PASTE, aria_label="Table of the tree")
            area.on("change", guarded(self.typed), js_handler="(e) => emit(e.target.value)")
            with text("div", classes="line"):
                button("Use this tree", self.set_tree)
                self.tree = text("p", f"In use: {tree.name}" if tree is not None else "", "small", role="status")
        with text("section", classes="card stack", aria_label="Model"):
            text("h2", "3. Model")
            with text("div", classes="line"):
                button("Fit the model", self.fit, "primary", icon="school")
                self.look = text("a", "Look at the photos", "button", href="/collection")
                self.look.set_visibility(self.project.has_model)
            self.notes = text("div", classes="stack", role="status")

    def draw_photos(self) -> None:
        n, n_folders = self.project.n_photos()
        words = f"{counted(n, 'photo')} in {counted(n_folders, 'class')}." if n else "There are no photos yet."
        text("p", words, "small", role="status")
        if self.project.photos.resolve().parent != self.project.folder.resolve():
            text("p", f"The photos are in {self.project.photos.resolve()}.", "small soft wrap")
        with text("label", classes="line choice"):
            box = text("input", type="checkbox", aria_label="Keep dropped photos")
            box.props["checked"] = self.project.keep
            text("span", "Also keep photos that are dropped on other pages. Off by default.", "small")
        box.on("change", guarded(self.set_keep), js_handler="(e) => emit(e.target.checked)")

    def set_keep(self, event: Any) -> None:
        self.project.set_keep(bool(event.args))

    def typed(self, event: Any) -> None:
        self.table = str(event.args)  # as it is: the first cell of a table may be empty

    async def set_tree(self) -> None:
        hierarchy = await self.engine.run(self.project.set_tree, self.table)
        n, missing = len(hierarchy.leaves), self.project.missing_classes(hierarchy)
        words = f"In use: {counted(n, 'class')} below {counted(len(hierarchy) - n - 1, 'concept')}."
        if missing:
            words += f" Not in the tree: {', '.join(missing[:8])}{' and others' * (len(missing) > 8)}."
        self.tree.set_text(words)

    async def fit(self) -> None:
        """Fit in a thread; the page shows how far it is."""
        notes = list[str]()
        fit = partial(self.engine.fit_project, notes.append)
        try:
            await many.with_progress(self.notes, "Fitting", "Looking at the photos", fit)
        except HCEPError as problem:
            with self.notes:
                text("p", sentence(str(problem)), "bad wrap")
            return
        with self.notes:
            self.look.set_visibility(True)
            text("p", f"The model has {counted(len(self.engine.model.classes), 'class')}.", "strong")
            for note in notes:
                text("p", note, "small soft wrap")
            notice("The model is ready")
