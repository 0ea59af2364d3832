"""What every page and every request asks: a model, the photos that were given, what people said of them."""

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from platformdirs import user_data_path

from hcep.classify import HCEPClassifier
from hcep.classify.path_model import PathModel
from hcep.embeddings import EmbeddingStore, Encoder
from hcep.embeddings.images import ImageProblem
from hcep.errors import HCEPError
from hcep.explain.answer import Answer
from hcep.explain.corrections import Correction, Corrections
from hcep.explain.explainer import EncodedImage, Explainer
from hcep.explain.photos import encode_pixels
from hcep.hierarchy import Hierarchy
from hcep.models import SavedModel, builtin_model, change_model, read_model, undo_change
from hcep.models.model_encoder import load_model_encoder, refuse_other_encoder
from hcep.models.schema import Change
from hcep.pursuit.limits import Concepts, Request
from hcep.web.batching import Batcher, ServerBusyError
from hcep.web.decoding import Decoders

T = TypeVar("T")
CORRECTIONS = "corrections.jsonl"


class PhotoNotFoundError(HCEPError):
    """A photo that was never uploaded, or so long ago that the server has forgotten it."""


class ReadOnlyModelError(HCEPError):
    """A change to the built-in model."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Photo(EncodedImage):
    """An uploaded photo.

    `id` is the SHA-256 of its file, `jpeg` a copy with at most 1280 pixels a side to show.
    """

    id: str
    jpeg: bytes

    @property
    def image(self) -> Image.Image:
        """The copy, RGB; decoded anew each time."""
        return _picture(self.jpeg)


class Limits(NamedTuple):
    """What the server takes on: `megabytes`, `megapixels` and `seconds` to decode are of one photo, `photos` those that
    are remembered, `queue` what may wait for each part of the work, `batch` what is encoded together.
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
    photo: Photo
    request: Request
    alike: tuple[tuple[str, ...], bool, int, float | None, int | Literal["auto"] | None]


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
        self.limits, self.read_only = limits or Limits(), model is None
        self.saved = model if isinstance(model, SavedModel) else builtin_model() if model is None else read_model(model)
        self.other = other if other is None or isinstance(other, SavedModel) else read_model(other)
        own = user_data_path("hcep", appauthor=False) if model is None else self.saved.folder
        self.corrections_file = Path(corrections or own / CORRECTIONS)
        self.encoder = load_model_encoder(self.saved.encoder, self.saved.folder, encoder)
        self.store = store if store is None or isinstance(store, EmbeddingStore) else EmbeddingStore(store)
        if self.store is not None:
            refuse_other_encoder(self.saved.encoder, self.store.encoder, self.store.folder)
        self._open(self.saved)
        self._photos: OrderedDict[str, Photo] = OrderedDict()
        self._lock, self._pool = threading.Lock(), ThreadPoolExecutor(4)
        self._n_running = self._n_decoding = 0
        self._decode = Decoders(self.encoder.preprocessing, int(self.limits.megapixels * 1e6), self.limits.seconds)
        n, most = self.limits.batch, self.limits.queue
        self._encode: Batcher[NDArray[np.float32], tuple[Any, Any]] = Batcher(self._encoded, n, most)
        self._explain: Batcher[_Asked, Answer] = Batcher(self._explained, n, most)

    def _open(self, saved: SavedModel) -> None:
        """Answer with this version of the model from now on."""
        self.corrections = Corrections(self.corrections_file, saved.hierarchy, missing=True, lenient=True)
        _ = saved.path_model  # read now, not while somebody waits
        self.saved, self._version = saved, (saved, dict[Any, Explainer]())

    @property
    def model(self) -> PathModel:
        """What predicts, in its newest version."""
        return self.saved.path_model

    @property
    def hierarchy(self) -> Hierarchy:
        return self.saved.path_model.hierarchy

    async def warm_up(self) -> None:
        """Explain a grey picture and forget it, so that nobody's first photo waits for what is loaded and compiled."""
        Image.new("RGB", (64, 64), "grey").save(grey := BytesIO(), "PNG")
        photo = await self.add_photo(grey.getvalue())
        await self.explain(photo, where=True)
        self._photos.pop(photo.id, None)

    async def close(self) -> None:
        await self._decode.close()
        self._encode.close()
        self._explain.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def add_photo(self, data: bytes, name: str = "") -> Photo:
        """Decode and encode a photo, and remember it; raises ImageProblem in a few words, or ServerBusyError."""
        if not data:
            raise ImageProblem("empty file")
        if len(data) > self.limits.megabytes * 1e6:
            raise ImageProblem(f"too large: more than {self.limits.megabytes:g} MB")
        key, name = sha256(data).hexdigest(), _plain(name)
        if key in self._photos:
            return replace(self.photo(key), name=name)  # others may call it something else
        if self._n_decoding >= self.limits.queue:
            raise ServerBusyError
        self._n_decoding += 1
        try:
            found = await self._decode(data)
        finally:
            self._n_decoding -= 1
        pixels = found.array()
        if pixels is None:  # a preprocessing that only the encoder knows
            pixels = await self.run(lambda: self.encoder.preprocess(_picture(found.jpeg)))
        embedding, features = await self._encode(pixels)
        photo = Photo(
            id=key,
            name=name,
            jpeg=found.jpeg,
            embedding=embedding,
            size=Image.open(BytesIO(found.jpeg)).size,
            features=features,
            pixels=pixels if features is None else None,
        )
        self._photos[key] = photo
        while len(self._photos) > self.limits.photos:
            self._photos.popitem(last=False)
        return photo

    def photo(self, key: str) -> Photo:
        """A photo by its id; raises PhotoNotFoundError when it is not, or no longer, remembered."""
        if key not in self._photos:
            raise PhotoNotFoundError(f"no photo {key[:12]!r} is remembered; give it again")
        self._photos.move_to_end(key)
        return self._photos[key]

    async def add_stored_photo(self, row: int) -> Photo:
        """A photo of the store, by its row; raises PhotoNotFoundError, or as `add_photo`."""
        if self.store is None or not 0 <= row < len(self.store):
            raise PhotoNotFoundError(f"no photo {row} in the store")
        path = Path(str(self.store.paths[row]))
        try:
            with path.open("rb") as file:
                data = await self.run(file.read, int(self.limits.megabytes * 1e6) + 1)
        except OSError as error:
            raise PhotoNotFoundError(f"{path.name}: {error.strerror}") from None
        return await self.add_photo(data, path.name)

    def _encoded(self, arrays: list[NDArray[np.float32]]) -> list[tuple[Any, Any]]:
        """Embeddings, and feature maps where there are any, from one run of the network where the maps are exact."""
        X, features = encode_pixels(self.encoder, np.stack(arrays), maps=True)
        return [(x, None if features is None else features[i].copy()) for i, x in enumerate(X)]

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
    ) -> Answer:
        """Explain a photo, together with those of others who ask at the same time; raises as that, or ServerBusyError.

        Parameters
        ----------
        photo : Photo
        force, forbid, why_not, where, n_best, coverage, n_paths : as of `hcep.explain_images`
        corrected : honour what people said of the photo
        """
        request = Request.of(force, forbid)
        if corrected:
            request = self.corrections.requests([photo.id], request)[0]
        asked = _Asked(photo, request, (Request.of(why_not).force, where, n_best, coverage, n_paths))
        answer = await self._explain(asked)
        return answer.replaced(correction=self.corrections.applied(photo.id) if corrected else None)

    def _explained(self, asked: list[_Asked]) -> list[Answer]:
        """Answers in order; those that ask for the same things are searched together."""
        found: dict[int, Answer] = {}
        for alike in {one.alike for one in asked}:
            rows = [i for i, one in enumerate(asked) if one.alike == alike]
            found |= zip(rows, self._searched([asked[i] for i in rows], *alike), strict=True)
        return [found[i] for i in range(len(asked))]

    def _searched(self, asked: list[_Asked], why_not: tuple[str, ...], where: bool, *options: Any) -> Iterator[Answer]:
        explainer = self._explainer(*options)
        for name in why_not:
            explainer.evidence.find(name)  # an unknown concept is an error
        return explainer.answers(
            [one.photo for one in asked],
            requests=[one.request for one in asked],
            why_not=why_not,
            encoder=self.encoder if where else None,
        )

    def _explainer(self, *options: Any) -> Explainer:
        """For n_best, coverage and n_paths, with the newest version of the model."""
        saved, made = self._version
        if options not in made:
            if len(made) > 32:  # of coverages that a slider passed by
                made.clear()
            made[options] = Explainer(saved.path_model, options[0], saved.atom_names, *options[1:])
        return made[options]

    async def run(self, function: Callable[..., T], *args: Any, **kw: Any) -> T:
        """Call anything of the library in a thread, so that others are answered meanwhile; raises ServerBusyError."""
        if self._n_running >= self.limits.queue:
            raise ServerBusyError
        self._n_running += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, lambda: function(*args, **kw))
        finally:
            self._n_running -= 1

    async def correct(
        self, photo: str, *, label: str | None = None, force: Concepts = (), forbid: Concepts = (), **told: Any
    ) -> Correction:
        """Keep what somebody says of a photo; on return it is on disk.

        Parameters
        ----------
        photo : id
        label, force, forbid : the true class, concepts that are right, and wrong; by label, name or synonym
        **told : file, who, why; as of `Corrections.add`
        """
        if not (label or any(Request.of(force, forbid))):
            raise HCEPError("say what is right or wrong: a class, or concepts to force or forbid")

        def keep() -> Correction:
            with self._lock:
                self.corrections.add(photo, force=force, forbid=forbid, label=label, **told)
                return self.corrections.in_force[photo]

        return await self.run(keep)

    async def undo_correction(self, photo: str, *, who: str = "") -> None:
        def undo() -> None:
            with self._lock:
                if photo not in self.corrections:
                    raise PhotoNotFoundError(f"there is no correction of {photo[:12]!r}")
                self.corrections.add(photo, undo=True, who=who)

        await self.run(undo)

    async def change(self, what: str, function: Callable[[HCEPClassifier], Any]) -> None:
        """Change the model in a new version, by `change_model`; on return it is on disk, and answers come from it."""
        await self.run(self._change, lambda: change_model(self.saved.folder, what, function))

    async def add_class(self, name: str, parent: str | None, photos: Sequence[Photo]) -> None:
        X, where = np.stack([photo.embedding for photo in photos]), parent or "the root"
        what = f"added class {name!r} under {where!r} from {len(X):,} images"
        await self.change(what, lambda fitted: fitted.add_class(name, parent, X))

    async def undo_change(self) -> Change:
        """Go back to the version before the last change; what is undone."""
        return await self.run(self._change, lambda: undo_change(self.saved.folder))

    def versions(self) -> list[Change]:
        """The changes of the model since it was fitted, the first one first."""
        return read_model(self.saved.folder).training.history

    def _change(self, change: Callable[[], T]) -> T:
        if self.read_only:
            told = "the built-in model cannot be changed; make a folder of it with "
            raise ReadOnlyModelError(told + "`hcep open efficientnet-lite2 -o MODEL` and start `hcep serve MODEL`")
        with self._lock:
            done = change()
            self._open(read_model(self.saved.folder))
            return done

    def counts(self) -> dict[str, int]:
        """What is waiting, and what was done, for those who watch the server."""
        found = {"photos_remembered": len(self._photos), "decoding": self._n_decoding, "running": self._n_running}
        for name, batcher in (("encode", self._encode), ("explain", self._explain)):
            found |= {f"waiting_to_{name}": len(batcher), f"{name}_photos_total": batcher.n_items}
            found[f"{name}_runs_total"] = batcher.n_calls
        return found


def _picture(jpeg: bytes) -> Image.Image:
    return Image.open(BytesIO(jpeg), formats=["JPEG"]).convert("RGB")


def _plain(name: str) -> str:
    """The name of a file without folders and controls, for people to read; nothing is ever opened by it."""
    return "".join(filter(str.isprintable, name.replace("\\", "/").rpartition("/")[2]))[:120]
