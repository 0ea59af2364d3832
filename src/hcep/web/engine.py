"""What every page and every request asks: a model, the photos that were given, what people said of them."""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from hcep.errors import HCEPError
from hcep.explain.corrections import Correction, Corrections, class_meant, request_of
from hcep.explain.photos import Batch, Explainer
from hcep.models import SavedModel, builtin_model, change_model, model_log, read_model, undo_change
from hcep.models.model_encoder import load_model_encoder, refuse_other_encoder
from hcep.pursuit.limits import Concepts, PathLimits, Request
from hcep.web.batching import Batcher, Busy
from hcep.web.decoding import Decoders

if TYPE_CHECKING:
    from PIL.Image import Image

    from hcep.classify import HCEPClassifier
    from hcep.classify.path_model import PathModel
    from hcep.embeddings import EmbeddingStore, Encoder
    from hcep.explain import ExplainedImage, WhyNot
    from hcep.hierarchy import Hierarchy
    from hcep.models import ChangeRecord

T = TypeVar("T")
CORRECTIONS = "corrections.jsonl"


class PhotoNotFound(HCEPError):  # noqa: N818 - what the page says
    """A photo that was never given, or so long ago that it is forgotten."""


class ReadOnly(HCEPError):  # noqa: N818
    """A change of the built-in model."""


@dataclass(frozen=True, eq=False)
class Photo:
    """A photo that was given.

    Attributes
    ----------
    id : SHA-256 of its file, in hexadecimal: what corrections know it by
    name : what its file was called, without folders
    jpeg : a copy of at most 1280 pixels a side, to show
    embedding : (n_dims,), of the photo as it was given
    features : (n_dims, height, width), where the encoder has maps
    pixels : the encoder's input, where it has none
    """

    id: str
    name: str
    jpeg: bytes = field(repr=False)
    embedding: NDArray[np.float32] = field(repr=False)
    features: NDArray[np.float32] | None = field(default=None, repr=False)
    pixels: NDArray[np.float32] | None = field(default=None, repr=False)

    @cached_property
    def size(self) -> tuple[int, int]:
        """Width and height of the copy."""
        return self.image.size

    @property
    def image(self) -> Image:
        """The copy, RGB; decoded anew each time."""
        from PIL import Image

        return Image.open(BytesIO(self.jpeg), formats=["JPEG"]).convert("RGB")


class Limits(NamedTuple):
    """What the server takes on.

    Attributes
    ----------
    megabytes, megapixels : of one photo
    photos : that are remembered, the last used ones
    per_request, request_megabytes : photos that one request may bring
    seconds : to decode one
    queue : requests that may wait for each part of the work
    batch : photos that are encoded together
    """

    megabytes: float = 20.0
    megapixels: float = 50.0
    photos: int = 256
    per_request: int = 32
    request_megabytes: float = 100.0
    seconds: float = 10.0
    queue: int = 64
    batch: int = 8


class _Asked(NamedTuple):
    """One photo to explain."""

    photo: Photo
    request: Request
    why_not: tuple[str, ...]
    where: bool
    options: tuple[int, float | None, int | Literal["auto"] | None]


class Engine:
    """A model that answers many at once, and that is changed by one at a time.

    Parameters
    ----------
    model : SavedModel or path; the built-in one by default, which cannot be changed
    store : EmbeddingStore or path; a collection to look through
    corrections : path of the file of what people said; by default in the model's folder, for the built-in model in the
        user's data folder
    encoder : Encoder or name, instead of the one that the model names
    limits : Limits
    other : SavedModel or path; a model to compare with
    """

    def __init__(
        self,
        model: SavedModel | str | Path | None = None,
        store: EmbeddingStore | str | Path | None = None,
        *,
        corrections: str | Path | None = None,
        encoder: Encoder | str | None = None,
        limits: Limits | None = None,
        other: SavedModel | str | Path | None = None,
    ) -> None:
        from platformdirs import user_data_path

        self.limits, self.read_only = limits or Limits(), model is None
        self.saved = model if isinstance(model, SavedModel) else builtin_model() if model is None else read_model(model)
        self.other = other if other is None or isinstance(other, SavedModel) else read_model(other)
        own = user_data_path("hcep", appauthor=False) if model is None else self.saved.folder
        self.corrections_file = Path(corrections or own / CORRECTIONS)
        self.encoder = load_model_encoder(self.saved.summary.encoder, self.saved.folder, encoder)
        self.store = self._opened(store)
        self._open(self.saved)
        self._photos: OrderedDict[str, Photo] = OrderedDict()
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(2)
        self._n_running = 0
        self._decode = Decoders(self.encoder.preprocessing, int(self.limits.megapixels * 1e6), self.limits.seconds)
        self._n_decoding = 0
        self._encode = Batcher(self._encoded, self.limits.batch, self.limits.queue)
        self._explain = Batcher(self._explained, self.limits.batch, self.limits.queue)

    def _opened(self, store: EmbeddingStore | str | Path | None) -> EmbeddingStore | None:
        from hcep.embeddings import EmbeddingStore

        if store is None:
            return None
        found = store if isinstance(store, EmbeddingStore) else EmbeddingStore(store)
        refuse_other_encoder(self.saved.summary.encoder, found.encoder, found.folder)
        return found

    def _open(self, saved: SavedModel) -> None:
        """Answer with this version of the model from now on."""
        corrections = Corrections(self.corrections_file, saved.hierarchy, missing=True, lenient=True)
        _ = saved.path_model
        self.saved, self.corrections, self._explainers = saved, corrections, {}

    @property
    def model(self) -> PathModel:
        """What predicts, in its newest version."""
        return self.saved.path_model

    @property
    def hierarchy(self) -> Hierarchy:
        return self.saved.path_model.hierarchy

    async def close(self) -> None:
        """End threads and processes."""
        await self._decode.close()
        self._encode.close()
        self._explain.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    # -- photos -------------------------------------------------------------------------------------

    async def add_photo(self, data: bytes, name: str = "") -> Photo:
        """Decode and encode a photo, and remember it.

        Raises
        ------
        ImageProblem
            No picture that can be used, in a few words.
        Busy
            Too many wait.
        """
        from hcep.embeddings.images import ImageProblem

        if not data:
            raise ImageProblem("empty file")
        if len(data) > self.limits.megabytes * 1e6:
            raise ImageProblem(f"too large: more than {self.limits.megabytes:g} MB")
        key = sha256(data).hexdigest()
        if (known := self._photos.get(key)) is not None:
            self._photos.move_to_end(key)
            return known
        if self._n_decoding >= self.limits.queue:
            raise Busy
        self._n_decoding += 1
        try:
            found = await self._decode(data)
        finally:
            self._n_decoding -= 1
        pixels = found.array()
        if pixels is None:  # a preprocessing that only the encoder knows
            pixels = await self.run(lambda: self.encoder.preprocess(Photo(key, "", found.jpeg, np.empty(0)).image))
        embedding, features = await self._encode(pixels)
        photo = Photo(key, _plain(name), found.jpeg, embedding, features, None if features is not None else pixels)
        self._photos[key] = photo
        while len(self._photos) > self.limits.photos:
            self._photos.popitem(last=False)
        return photo

    def photo(self, key: str) -> Photo:
        """A photo by its id.

        Raises
        ------
        PhotoNotFound
            When it is not, or no longer, remembered.
        """
        if key not in self._photos:
            raise PhotoNotFound(f"no photo {key[:12]!r} is remembered; give it again")
        self._photos.move_to_end(key)
        return self._photos[key]

    async def add_stored_photo(self, row: int) -> Photo:
        """A photo of the store, by its row.

        Raises
        ------
        PhotoNotFound
            No store, no such row, or a file that is gone; ImageProblem as `add_photo`.
        """
        if self.store is None or not 0 <= row < len(self.store):
            raise PhotoNotFound(f"no photo {row} in the store")
        path = Path(str(self.store.paths[row]))
        try:
            data = await self.run(_read, path, int(self.limits.megabytes * 1e6) + 1)
        except OSError as error:
            raise PhotoNotFound(f"{path.name}: {error.strerror}") from None
        return await self.add_photo(data, path.name)

    def _encoded(self, arrays: list[NDArray[np.float32]]) -> list[tuple[Any, Any]]:
        """Embeddings, and feature maps where there are any, from one run of the network where the maps are exact."""
        pixels, encoder = np.stack(arrays), self.encoder
        if not getattr(encoder, "has_maps", False):
            return [(x, None) for x in encoder.encode_images(pixels)]
        features = encoder.feature_map(pixels)  # type: ignore[attr-defined]
        exact = getattr(encoder, "maps_are_exact", False)
        X = features.mean(axis=(2, 3)) if exact else encoder.encode_images(pixels)
        return [(x, one.copy()) for x, one in zip(X, features, strict=True)]

    # -- questions ----------------------------------------------------------------------------------

    async def explain(
        self,
        photo: Photo,
        *,
        force: Concepts = (),
        forbid: Concepts = (),
        why_not: Concepts = (),
        where: bool = False,
        n_best: int = 3,
        coverage: float | None = None,
        n_paths: int | Literal["auto"] | None = None,
        corrected: bool = True,
    ) -> ExplainedImage:
        """Explain a photo, together with those of others who ask at the same time.

        Parameters
        ----------
        photo : Photo
        force, forbid, why_not, where, n_best, coverage, n_paths : as of `hcep.explain_images`
        corrected : honour what people said of the photo

        Raises
        ------
        HCEPError
            An unknown concept, a request that no path can meet, coverage of a model that is not calibrated.
        Busy
            Too many wait.
        """
        request = Request.of(force, forbid)
        if corrected:
            request = self.corrections.requests([photo.id], request)[0]
        asked = Request.of(why_not).force
        return await self._explain(_Asked(photo, request, asked, where, (n_best, coverage, n_paths)))

    async def contrast(self, photo: Photo, concept: str, *, force: Concepts = (), forbid: Concepts = ()) -> WhyNot:
        """Why a photo was not taken for another class or concept, with the map of the difference."""
        one = await self.explain(photo, force=force, forbid=forbid, why_not=concept, where=True)
        return one.contrasts[0] if one.contrasts else await self.run(one.contrast, concept)

    def _explained(self, asked: list[_Asked]) -> list[ExplainedImage]:
        """Answers in order; those that ask for the same things are searched together."""
        groups: dict[Any, list[int]] = {}
        for i, one in enumerate(asked):
            groups.setdefault((one.why_not, one.where, one.options), []).append(i)
        found: dict[int, ExplainedImage] = {}
        for (why_not, where, options), rows in groups.items():
            found |= zip(rows, self._searched([asked[i] for i in rows], why_not, where, options), strict=True)
        return [found[i] for i in range(len(asked))]

    def _searched(
        self, asked: Sequence[_Asked], why_not: tuple[str, ...], where: bool, options: Any
    ) -> Iterator[ExplainedImage]:
        explainer = self._explainer(*options)
        for name in why_not:
            explainer.evidence.meant(name)
        photos, requests = [one.photo for one in asked], [one.request for one in asked]
        arrays: tuple[Any, ...] = ()
        if where:
            pixels, features = (
                None if getattr(photos[0], name) is None else np.stack([getattr(photo, name) for photo in photos])
                for name in ("pixels", "features")
            )
            arrays = [photo.size for photo in photos], pixels, features, self.encoder
        X = np.stack([photo.embedding for photo in photos])
        batch = Batch([photo.name for photo in photos], X, [None] * len(photos), *arrays)
        limits = PathLimits.of_images(explainer.model.hierarchy, requests)
        return explainer.explained(batch, why_not, limits, requests)

    def _explainer(self, *options: Any) -> Explainer:
        if options not in self._explainers:
            n_best, coverage, n_paths = options
            made = Explainer(self.model, n_best, self.saved.atom_names, coverage, n_paths)
            made.hedged(None)  # says what is missing
            if len(self._explainers) > 32:  # of coverages that a slider passed by
                self._explainers.clear()
            self._explainers[options] = made
        return self._explainers[options]

    async def run(self, function: Callable[..., T], *args: Any, **kw: Any) -> T:
        """Call anything of the library in a thread, so that others are answered meanwhile.

        Raises
        ------
        Busy
            Too many calls wait.
        """
        if self._n_running >= self.limits.queue:
            raise Busy
        self._n_running += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, lambda: function(*args, **kw))
        finally:
            self._n_running -= 1

    # -- what people say ----------------------------------------------------------------------------

    async def correct(
        self,
        photo: str,
        *,
        label: str | None = None,
        force: Concepts = (),
        forbid: Concepts = (),
        file: str = "",
        who: str = "",
        why: str = "",
    ) -> Correction:
        """Keep what somebody says of a photo; on return it is on disk.

        Parameters
        ----------
        photo : id
        label : the true class, by label, name or synonym
        force, forbid : concepts that are right, and wrong
        file, who, why : told with it
        """
        if not (label or Request.of(force).force or Request.of(force, forbid).forbid):
            raise HCEPError("say what is right or wrong: a class, or concepts to force or forbid")
        return await self.run(self._correct, photo, label, force, forbid, {"file": file, "who": who, "why": why})

    def _correct(
        self, photo: str, label: str | None, force: Concepts, forbid: Concepts, told: dict[str, str]
    ) -> Correction:
        with self._lock:
            request_of(self.hierarchy, force, forbid, label)  # says what is wrong before it is kept
            asked = request_of(self.hierarchy, force, forbid)._asdict()
            own = None if label is None else class_meant(self.hierarchy, label)
            self.corrections.add(photo, **asked, label=own, **told)
            return self.corrections.standing[photo]

    async def undo_correction(self, photo: str, *, who: str = "") -> None:
        """Take the last correction of a photo back."""

        def undo() -> None:
            with self._lock:
                if photo not in self.corrections:
                    raise PhotoNotFound(f"there is no correction of {photo[:12]!r}")
                self.corrections.add(photo, undo=True, who=who)

        await self.run(undo)

    # -- changes of the model -----------------------------------------------------------------------

    async def change(self, what: str, function: Callable[[HCEPClassifier], Any], *, keep_metrics: bool = False) -> None:
        """Change the model in a new version; on return it is on disk, and answers come from it.

        Parameters
        ----------
        what : the change in words, for the log
        function : changes the classifier in place; when it raises, nothing is changed
        keep_metrics : whether metrics that were measured before still hold
        """
        await self.run(self._change, lambda: change_model(self.saved.folder, what, function, keep_metrics=keep_metrics))

    async def add_class(self, name: str, parent: str | None, photos: Sequence[Photo]) -> None:
        """Add a class from photos."""
        X, where = np.stack([photo.embedding for photo in photos]), parent or "the root"
        what = f"added class {name!r} under {where!r} from {len(X):,} images"
        await self.change(what, lambda fitted: fitted.add_class(name, parent, X))

    async def undo_change(self) -> ChangeRecord:
        """Go back to the version before the last change; what is undone."""
        return await self.run(self._change, lambda: undo_change(self.saved.folder))

    def versions(self) -> list[ChangeRecord]:
        """The changes of the model since it was fitted, the first one first."""
        return model_log(self.saved.folder)

    def _change(self, change: Callable[[], T]) -> T:
        if self.read_only:
            raise ReadOnly(
                "the built-in model cannot be changed; make a folder of it with "
                "`hcep open efficientnet-lite2 -o MODEL` and start `hcep serve MODEL`"
            )
        with self._lock:
            done = change()
            self._open(read_model(self.saved.folder))
            return done

    def counts(self) -> dict[str, int]:
        """What is waiting, and what was done, for those who watch the server."""
        return {
            "photos_remembered": len(self._photos),
            "decoding": self._n_decoding,
            "waiting_to_encode": len(self._encode),
            "waiting_to_explain": len(self._explain),
            "running": self._n_running,
            "photos_encoded_total": self._encode.n_items,
            "encoder_calls_total": self._encode.n_calls,
            "photos_explained_total": self._explain.n_items,
            "explain_calls_total": self._explain.n_calls,
        }


def _plain(name: str) -> str:
    """The name of a file without folders and controls, for people to read; nothing is ever opened by it."""
    last = name.replace("\\", "/").rpartition("/")[2]
    return "".join(c for c in last if c.isprintable())[:120]


def _read(path: Path, most: int) -> bytes:
    with path.open("rb") as file:
        return file.read(most)
