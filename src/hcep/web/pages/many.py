"""What the pages with many photos share: collections, answered once each, a gallery, and a drop zone."""

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any, TypeVar
from urllib.parse import unquote
from weakref import WeakSet

import numpy as np

from hcep._checks import require
from hcep.embeddings import EmbeddingStore
from hcep.embeddings.images import ImageProblem, small_jpeg
from hcep.errors import HCEPError, counted
from hcep.explain.answer import UNLIKE
from hcep.models.loading import SavedModel
from hcep.web.batching import ServerBusyError
from hcep.web.collection import Collection, DroppedPhotos, Photos, Rows, StorePhotos, cached_answers
from hcep.web.engine import Engine, Photo, PhotoNotFoundError
from hcep.web.pages.frame import bar, button, clickable, guarded, nicegui, on_value, text, ui, working
from hcep.web.project import OnProgress

responses = require("starlette.responses", "web", "the explorer")

T = TypeVar("T")
#: What a page does with each photo that is dropped on it.
Take = Callable[[Photo, str], Awaitable[None]] | None
#: Photos that may be dropped on a page, and on all open pages.
DROPPED, DROPPED_IN_ALL = 2000, 8000
#: Collections that are remembered.
OPEN = 4
#: Longer side of a thumbnail and of a large photo; tiles that one request may ask for.
SIDES, AT_ONCE = {"small": 320, "large": 1000}, 400


@dataclass
class Job:
    """Answering all photos of a collection: how far it is, and its task."""

    total: int
    done: int = 0
    task: asyncio.Task[Collection] = field(init=False)

    def advance(self, n: int) -> None:
        self.done += n


class Collections:
    """The collections whose photos may be read, and the models' answers for them."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.photos: OrderedDict[str, Photos] = OrderedDict()
        self.zones: dict[str, tuple[Take, bool]] = {}  # of the pages that are open
        self.dropped: WeakSet[Dropped] = WeakSet()
        self._jobs: OrderedDict[tuple[str, str], Job] = OrderedDict()
        self._small = lru_cache(maxsize=4096)(partial(self._jpeg, "small"))
        self._opened: tuple[EmbeddingStore | None, str] = None, ""
        _ = self.store  # photos of a page that was open before a restart can be read again
        nicegui.app.add_route("/collection/{key}/{size}/{row:int}.jpg", self.jpeg, methods=["GET"])
        nicegui.app.add_route("/collection/drop/{zone}", self.drop, methods=["POST"])

    @property
    def store(self) -> str:
        """The key of the engine's store, which opens first; empty if there is none. A fit replaces the store."""
        if self.engine.store is not None and self.engine.store is not self._opened[0]:
            photos = StorePhotos(self.engine.store)
            if self.engine.project is not None:
                photos.title = self.engine.project.folder.resolve().name
            self._opened = self.engine.store, photos.key
            self.add(photos)
        return self._opened[1]

    def add(self, photos: Photos) -> str:
        """Remember a collection by its key; the oldest dropped collections are forgotten."""
        self.photos[photos.key] = photos
        while len(self.photos) > OPEN:
            self.photos.pop(next(key for key in self.photos if key != self.store))
        return photos.key

    def job(self, photos: Photos, saved: SavedModel) -> Job:
        """The job that answers a collection with a model; it is started once."""
        key = photos.key, saved.document.checksum
        job = self._jobs.get(key)
        if job is None or (job.task.done() and job.task.exception() is not None):
            job = self._jobs[key] = Job(len(photos.names))
            corrections = self.engine.corrections if saved is self.engine.saved else None
            job.task = asyncio.create_task(self.engine.run(cached_answers, saved, photos, job.advance, corrections))
            while len(self._jobs) > OPEN:
                self._jobs.popitem(last=False)
        return job

    def _jpeg(self, size: str, key: str, row: int) -> bytes:
        return small_jpeg(self.photos[key].picture(row), SIDES[size], 82)

    async def jpeg(self, request: Any) -> Any:
        size, key, row = (request.path_params[name] for name in ("size", "key", "row"))
        if key not in self.photos or row >= len(self.photos[key].names) or size not in SIDES:
            return refused(404, "there is no such photo")
        try:
            data = await self.engine.run(self._small if size == "small" else partial(self._jpeg, size), key, row)
        except HCEPError as error:
            return refused(503 if isinstance(error, ServerBusyError) else 404, str(error))
        return responses.Response(data, 200, {"Cache-Control": "private, max-age=3600"}, "image/jpeg")

    async def photo(self, photos: Photos, row: int) -> Photo:
        """A photo of a collection, ready to be explained."""
        if photos.key == self.store:
            return await self.engine.add_stored_photo(row)
        with suppress(PhotoNotFoundError):
            return self.engine.photo(photos.ids[row])
        return await self.engine.add_photo(self._jpeg("large", photos.key, row), photos.names[row])

    async def drop(self, request: Any) -> Any:
        """Answer a request that sends a photo to a drop zone."""
        zone, most = self.zones.get(request.path_params["zone"]), self.engine.limits.megabytes
        if zone is None:
            return refused(404, "the page has expired; open it again")
        if int(request.headers.get("content-length") or 0) > most * 1e6:
            return refused(413, f"too large: more than {most:g} MB")
        name = unquote(request.headers.get("x-name", ""))[:300]
        try:
            take, keep = zone
            data = await request.body()
            photo = await self.engine.add_photo(data, name)
            await self.engine.keep_photo(photo, data, name, always=keep)
            if take is not None:
                await take(photo, name)
        except HCEPError as error:
            reason = error.reason if isinstance(error, ImageProblem) else str(error)
            return refused(503 if isinstance(error, ServerBusyError) else 422, reason)
        return responses.Response(status_code=204)


@lru_cache(maxsize=8)
def collections_of(engine: Engine) -> Collections:
    """The collections of an engine, the same for all pages."""
    return Collections(engine)


def refused(status: int, reason: str) -> Any:
    return responses.JSONResponse({"error": reason}, status, {"Cache-Control": "no-store", "Retry-After": "2"})


class Gallery(ui.element, component="static/gallery.js"):  # type: ignore[misc, call-arg]
    """Any number of photos; only those in view are in the page and are requested.

    `tile` gives the words below a photo, `on_open` is called with the row that is clicked.
    """

    def __init__(self, photos: Photos, tile: Callable[[int], dict[str, Any]], on_open: Callable[[int], Any]) -> None:
        super().__init__()
        self.rows: Rows = np.empty(0, dtype=np.int64)
        self.tile, self.on_open, self.n = tile, on_open, len(photos.names)
        self.props.update({"count": 0, "version": 0, "base": f"/collection/{photos.key}/small/", "label": "Photos"})
        self.on("ask", guarded(self.fill))
        self.on("open", guarded(self.opened))

    def show(self, rows: Rows) -> None:
        self.rows = rows
        self.props.update({"count": len(rows), "version": self.props["version"] + 1})

    def fill(self, event: Any) -> None:
        version, start, stop = map(int, event.args)
        if version == self.props["version"] and 0 <= start < stop:
            rows = self.rows[start : min(stop, start + AT_ONCE)].tolist()
            self.run_method("fill", version, start, [self.tile(row) for row in rows])

    def opened(self, event: Any) -> Any:
        return self.on_open(int(event.args)) if 0 <= int(event.args) < self.n else None


class DropZone(ui.element, component="static/drop.js"):  # type: ignore[misc, call-arg]
    """A drop zone for photos and folders: `take` is called with every photo and its name, including its folders.

    `on_done` is called after the last photo; the event has the problems with photos, in words. `keep` saves the photos
    in the project. A zone without `words` is invisible: scripts of the page send photos to it.
    """

    def __init__(
        self, collections: Collections, take: Take, words: str, on_done: Any = lambda: None, *, keep: bool = False
    ) -> None:
        super().__init__()
        zone = secrets.token_urlsafe(12)
        collections.zones[zone] = take, keep
        ui.context.client.on_delete(lambda: collections.zones.pop(zone, None))
        self.props.update({"url": f"/collection/drop/{zone}", "words": words})
        self.on("done", guarded(on_done))


def kept_in(engine: Engine) -> str:
    """Where the project keeps dropped photos, in words; empty if it does not."""
    project = engine.project
    return f"They are kept in {project.photos.resolve()}." if project is not None and project.keep else ""


class Dropped:
    """The photos that a visitor has dropped, reduced so that hundreds of them fit into memory."""

    def __init__(self, collections: Collections) -> None:
        self.collections, self.photos = collections, list[tuple[str, Photo]]()
        collections.dropped.add(self)

    async def take(self, photo: Photo, name: str) -> None:
        if len(self.photos) >= DROPPED:
            raise HCEPError(f"more than {DROPPED:,} photos; encode them into a store")
        if sum(len(one.photos) for one in self.collections.dropped) >= DROPPED_IN_ALL:
            raise ServerBusyError
        jpeg = await self.collections.engine.run(small_jpeg, photo.image, 480, 85)
        self.photos.append((name, replace(photo, jpeg=jpeg, features=None, pixels=None)))

    def open(self) -> None:
        """Show the photos as a collection, and begin a new one."""
        photos, self.photos = sorted(self.photos, key=lambda pair: pair[0]), []
        if photos:
            key = self.collections.add(DroppedPhotos(photos))
            ui.navigate.to(f"/collection?photos={key}")


async def answered(collections: Collections, photos: Photos, saved: SavedModel) -> Collection | None:
    """The answers for a collection, with a progress bar until they are ready; None if the visitor has left."""
    job, client = collections.job(photos, saved), ui.context.client
    with text("div", classes="stack looking") as shown:
        words = text("p", f"Answering for {job.total:,} photos.", role="status")
        progress = text("progress", max=max(job.total, 1), value=job.done, aria_label="Photos done")
    if not job.task.done():
        await client.connected()
    while not job.task.done():
        await asyncio.wait([job.task], timeout=0.3)
        words.set_text(f"Photos done: {job.done:,} of {job.total:,}.")
        progress.props["value"] = job.done
        if client.is_deleted:  # a socket that is closed may come back
            return None
    shown.delete()
    # The corrections are those of now: an earlier version of the model may answer again after an undo.
    corrections = collections.engine.corrections if saved is collections.engine.saved else None
    return replace(job.task.result(), corrections=corrections)


def select(label: str, options: Mapping[str, str], value: str, on_change: Callable[[str], Any]) -> None:
    """A native selection list; `options` are words by key."""
    with text("select", classes="field", aria_label=label) as element:
        for key, words in options.items():
            text("option", words, value=key).props["selected"] = key == value
    on_value(element, "change", on_change)


async def with_progress(box: Any, label: str, words: str, work: Callable[[OnProgress], Coroutine[Any, Any, T]]) -> T:
    """Do work that tells how far it is; a progress bar and words show it in a container meanwhile."""
    now = [(0.0, words)]
    task = asyncio.create_task(work(lambda *one: now.__setitem__(0, one)))
    box.clear()
    with box:
        bar, line = text("progress", max=1, value=0, aria_label=label), text("p", "", "small wrap")
    while not task.done():
        share, words = now[0]
        bar.props["value"] = max(share, bar.props["value"])
        line.set_text(f"{words} …")
        await asyncio.wait([task], timeout=0.3)
    box.clear()
    return task.result()


def learn_card(engine: Engine, on_change: Callable[[], Any]) -> None:
    """A button that teaches the model all new corrections, the effect in words, and a button to undo it."""
    n = engine.n_to_learn
    if not n:
        return
    box = text("div", classes="stack learn")

    async def learn() -> None:
        try:
            learned = await with_progress(box, "Learning", "Learning", engine.learn)
        except HCEPError:
            draw()
            raise
        with box:
            text("p", f"The model {learned.what}.", "strong", role="status")
            for line in learned.lines():
                text("p", line, "small wrap")
            with text("div", classes="line"):
                button("Show the new answers", on_change, "primary")
                button("Undo", undo, icon="undo")

    async def undo() -> None:
        with working("Going back …"):
            await engine.undo_change()
        on_change()

    def draw() -> None:
        with box:
            button(f"Learn from {counted(n, 'correction')}", learn, "primary", icon="school")

    draw()


def bar_row(name: str, n: int, share: float, on_click: Any, about: str = "") -> None:
    """A concept in a list, with its number of photos and its share."""
    with clickable("", on_click, "bar-row"):
        text("span", name, "name wrap")
        bar(share)
        text("span", f"{n:,}", "number")
        if about:
            text("span", about, "small soft wrap about")


def answer_details(collection: Collection, row: int) -> None:
    """A model's answer for a photo, whether it is right or doubtful, and its path."""
    headline = collection.headline(row)
    text("h2", headline[:1].upper() + headline[1:], "wrap")
    if (correction := collection.correction(row)) is not None:
        text("p", f"{correction.words(collection.model.hierarchy)}: {correction.summary()}.", "chip lit wrap")
    elif collection.label[row]:
        text("p", *collection.label_words(row), role="note")
    if collection.unlike[row] and correction is None:
        text("p", UNLIKE, "chip flag")
    with text("ol", classes="path", aria_label="Path"):
        for name in collection.path(row):
            text("li", name, "wrap")
