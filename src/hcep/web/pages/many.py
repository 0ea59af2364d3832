"""What pages with many photos share: collections, each looked through once, a gallery, and a place to drop photos."""

from __future__ import annotations

import asyncio
import io
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import unquote
from weakref import WeakKeyDictionary

import numpy as np

from hcep._optional import require
from hcep.embeddings.images import ImageProblem
from hcep.errors import HCEPError
from hcep.web.batching import Busy
from hcep.web.collection import Collection, Photos, Rows, StorePhotos, kept
from hcep.web.pages.frame import guarded, nicegui, text, ui

if TYPE_CHECKING:
    from hcep.models import SavedModel
    from hcep.web.engine import Engine, Photo

responses = require("starlette.responses", "web", "the explorer")

#: Collections that are remembered, places to drop photos, and photos of one drop.
OPEN, PLACES, DROPPED = 6, 200, 2000
#: Longer side of a thumbnail and of a photo that is looked at; tiles that one request may ask for.
SMALL, LARGE, AT_ONCE = 320, 1000, 400

Take = Callable[["Photo", str], Awaitable[None]]


@dataclass
class Look:
    """A collection that is being looked through, or was."""

    total: int
    done: int = 0
    task: asyncio.Task[Collection] = field(init=False)

    def advance(self, n: int) -> None:
        self.done += n


class Collections:
    """The photos that may be asked for, by their place in a collection, and what models said of them."""

    _all: ClassVar[WeakKeyDictionary[Engine, Collections]] = WeakKeyDictionary()

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.photos: OrderedDict[str, Photos] = OrderedDict()
        self.places: OrderedDict[str, Take] = OrderedDict()
        self._looks: OrderedDict[tuple[str, str], Look] = OrderedDict()
        self.store = "" if engine.store is None else StorePhotos(engine.store).key
        if engine.store is not None:
            self.add(StorePhotos(engine.store))
        self._small = lru_cache(maxsize=4096)(partial(self._jpeg, side=SMALL))
        nicegui.app.add_route("/collection/{key}/{size}/{row:int}.jpg", self.jpeg, methods=["GET"])
        nicegui.app.add_route("/collection/drop/{place}", self.drop, methods=["POST"])

    @classmethod
    def of(cls, engine: Engine) -> Collections:
        """Those of an engine, the same for all pages."""
        if engine not in cls._all:
            cls._all[engine] = cls(engine)
        return cls._all[engine]

    def add(self, photos: Photos) -> str:
        """Remember photos, by their key; the oldest that were dropped are forgotten."""
        self.photos[photos.key] = photos
        while len(self.photos) > OPEN:
            self.photos.pop(next(key for key in self.photos if key != self.store))
        return photos.key

    def look(self, photos: Photos, saved: SavedModel | None = None) -> Look:
        """Begin to look through photos with a model, the engine's newest by default; once."""
        saved = saved or self.engine.saved
        key = photos.key, saved.summary.checksum
        known = self._looks.get(key)
        if known is None or (known.task.done() and known.task.exception() is not None):
            known = self._looks[key] = Look(len(photos.names))
            work = self.engine.run(kept, saved.path_model, saved.summary.checksum, photos, known.advance)
            known.task = asyncio.create_task(work)
            while len(self._looks) > OPEN:
                self._looks.popitem(last=False)
        return known

    @staticmethod
    def address(photos: Photos, row: int | None = None, *, large: bool = False) -> str:
        """Where a photo is served; without a row, the part before it."""
        return f"/collection/{photos.key}/{'large' if large else 'small'}/" + ("" if row is None else f"{row}.jpg")

    def _jpeg(self, key: str, row: int, side: int) -> bytes:
        data = io.BytesIO()
        picture = self.photos[key].picture(row)
        picture.thumbnail((side, side))
        picture.save(data, "JPEG", quality=82)
        return data.getvalue()

    async def jpeg(self, request: Any) -> Any:
        """Answer a request for a photo."""
        key, row = request.path_params["key"], request.path_params["row"]
        if key not in self.photos or not row < len(self.photos[key].names):
            return _refused(404, "no such photo")
        make = partial(self._jpeg, side=LARGE) if request.path_params["size"] == "large" else self._small
        try:
            data = await self.engine.run(make, key, row)
        except ImageProblem as problem:
            return _refused(404, problem.reason)
        except Busy as busy:
            return _refused(503, str(busy))
        return responses.Response(data, 200, {"Cache-Control": "private, max-age=3600"}, "image/jpeg")

    async def photo(self, photos: Photos, row: int) -> Photo:
        """A photo of a collection, ready to be explained."""
        if photos.key == self.store:
            return await self.engine.add_stored_photo(row)
        return await self.engine.add_photo(self._jpeg(photos.key, row, LARGE), photos.names[row])

    async def drop(self, request: Any) -> Any:
        """Answer a request that brings a photo to one of the places."""
        take = self.places.get(request.path_params["place"])
        if take is None:
            return _refused(404, "the page is gone; open it again")
        if int(request.headers.get("content-length") or 0) > self.engine.limits.megabytes * 1e6:
            return _refused(413, f"too large: more than {self.engine.limits.megabytes:g} MB")
        name = unquote(request.headers.get("x-name", ""))[:300]
        try:
            await take(await self.engine.add_photo(await request.body(), name), name)
        except Busy as busy:
            return _refused(503, str(busy))
        except ImageProblem as problem:
            return _refused(422, problem.reason)
        except HCEPError as error:
            return _refused(422, str(error))
        return responses.Response(status_code=204)


def _refused(status: int, reason: str) -> Any:
    return responses.JSONResponse({"error": reason}, status, {"Cache-Control": "no-store", "Retry-After": "2"})


class Gallery(ui.element, component="static/gallery.js"):  # type: ignore[misc, call-arg]
    """Photos of any number: only those in sight are in the page, and only they are asked for.

    Parameters
    ----------
    photos : Photos
    tile : what is said of a photo: name, sure, note and tone
    on_open : called with the photo that is clicked
    """

    def __init__(
        self,
        photos: Photos,
        tile: Callable[[int], dict[str, Any]],
        on_open: Callable[[int], Any],
        label: str = "Photos",
    ) -> None:
        super().__init__()
        self.rows: Rows = np.empty(0, dtype=np.int64)
        self.tile, self._open, self._n = tile, on_open, len(photos.names)
        self.props.update({"count": 0, "version": 0, "base": Collections.address(photos), "label": "Photos"})
        self.on("ask", guarded(self._fill))
        self.on("open", guarded(self._opened))

    def show(self, rows: Rows) -> None:
        """Show these photos, from the first one."""
        self.rows = rows
        self.props.update({"count": len(rows), "version": self.props["version"] + 1})

    def _fill(self, event: Any) -> None:
        version, start, stop = map(int, event.args)
        if version == self.props["version"] and 0 <= start < stop:
            rows = self.rows[start : min(stop, start + AT_ONCE)].tolist()
            self.run_method("fill", version, start, [self.tile(row) for row in rows])

    def _opened(self, event: Any) -> Any:
        return self._open(int(event.args)) if 0 <= int(event.args) < self._n else None


class DropZone(ui.element, component="static/drop.js"):  # type: ignore[misc, call-arg]
    """A place for photos and folders.

    Parameters
    ----------
    collections : Collections
    take : gets every photo, and its name with the folders above it
    on_done : called when all are there
    words : what it says
    folders : offer to choose a folder
    """

    def __init__(
        self, collections: Collections, take: Take, on_done: Callable[[], Any], words: str, *, folders: bool = False
    ) -> None:
        super().__init__()
        place = secrets.token_urlsafe(12)
        collections.places[place] = take
        while len(collections.places) > PLACES:
            collections.places.popitem(last=False)
        self.props.update({"url": f"/collection/drop/{place}", "words": words, "folders": folders})
        self.on("done", guarded(on_done), args=[])


async def looked_at(collections: Collections, photos: Photos, saved: SavedModel | None = None) -> Collection | None:
    """A collection, with a progress bar as long as it takes; None where the reader has left."""
    look = collections.look(photos, saved)
    with text("div", classes="stack looking") as shown:
        words = text("p", f"Looking at {look.total:,} photos of {photos.title}.", role="status")
        progress = text("progress", max=max(look.total, 1), value=look.done, aria_label="Photos looked at")
    client = ui.context.client
    if not look.task.done():
        await client.connected(timeout=30)
    while not look.task.done():
        await asyncio.wait([look.task], timeout=0.3)
        words.set_text(f"Looking at photos: {look.done:,} of {look.total:,}.")
        progress.props["value"] = look.done
        if not client.has_socket_connection:
            return None
    shown.delete()
    return look.task.result()


def select(label: str, options: Mapping[str, str], value: str, on_change: Callable[[str], Any]) -> Any:
    """A native list to choose from."""
    made = text("select", classes="field", aria_label=label)
    with made:
        for key, words in options.items():
            text("option", words, value=key).props["selected"] = key == value
    emit = "(event) => emit(event.target.value)"
    return made.on("change", guarded(lambda event: on_change(str(event.args))), js_handler=emit)
