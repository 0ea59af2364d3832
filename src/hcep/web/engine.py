"""The engine behind every page and request: a model, the uploaded photos, and people's corrections."""

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from platformdirs import user_data_path

from hcep._progress import listening, progress
from hcep.classify import HCEPClassifier
from hcep.classify.path_model import PathModel
from hcep.classify.right_level import SURE
from hcep.embeddings import EmbeddingStore, Encoder, load_encoder
from hcep.embeddings.images import ImageProblem
from hcep.errors import HCEPError
from hcep.evaluate.learning import Learned, learn, new_corrections
from hcep.explain.answer import Answer
from hcep.explain.corrections import Correction, Corrections
from hcep.explain.explainer import EncodedImage, Explainer
from hcep.explain.photos import encode_files, encode_pixels
from hcep.hierarchy import Hierarchy
from hcep.models import read_model
from hcep.models.loading import SavedModel
from hcep.models.model_encoder import load_model_encoder, refuse_other_encoder, text_of_class
from hcep.models.opening import builtin_model
from hcep.models.saving import change_model, undo_change
from hcep.models.schema import Change
from hcep.pursuit.limits import Concepts, Request
from hcep.web.batching import Batcher, ServerBusyError
from hcep.web.decoding import Decoders
from hcep.web.project import OnProgress, Project, stages

T = TypeVar("T")
CORRECTIONS = "corrections.jsonl"
#: Explainers that are kept: a slider asks for many levels in passing.
KEPT_EXPLAINERS = 32


class PhotoNotFoundError(HCEPError):
    """A photo that was never uploaded, or so long ago that the server has forgotten it."""


class ReadOnlyModelError(HCEPError):
    """A change to the built-in model."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Photo(EncodedImage):
    """An uploaded photo: `id` is the SHA-256 of its file, `jpeg` a copy of at most 1280 pixels a side to show."""

    id: str
    jpeg: bytes

    @property
    def image(self) -> Image.Image:
        """The copy in RGB, decoded each time."""
        return Image.open(BytesIO(self.jpeg), formats=["JPEG"]).convert("RGB")


class Limits(NamedTuple):
    """What the server accepts."""

    megabytes: float = 20.0  # per photo
    megapixels: float = 50.0  # per photo
    photos: int = 256  # that are remembered
    per_request: int = 32  # photos
    request_megabytes: float = 100.0
    seconds: float = 10.0  # to decode a photo
    queue: int = 64  # requests that may wait for each kind of work
    batch: int = 8  # photos that are encoded together


class _Question(NamedTuple):
    photo: Photo
    request: Request
    why_not: tuple[str, ...]
    where: bool
    options: tuple[int, float, int | Literal["auto"] | None]  # n_best, sure, n_paths


class Engine:
    """A model that answers many requests at once and is changed by one request at a time.

    Parameters
    ----------
    model : SavedModel or path; the default is the built-in model, which cannot be changed
    store : EmbeddingStore or path; a collection to explore
    corrections : path of the corrections file; by default in the model's folder, or in the user's data folder for the
        built-in model
    encoder, preprocessing : Encoder or name, and what `load_encoder` takes with it (default: the model's); a project
        without a model is fitted with this encoder
    limits : Limits
    project : Project; its model and corrections are used, and a model can be fitted to its photos
    """

    #: The encoder that the first model of a project will have, if it is not the built-in one.
    _of_project: Encoder | None = None

    def __init__(
        self,
        model: SavedModel | str | Path | None = None,
        store: EmbeddingStore | str | Path | None = None,
        *,
        corrections: str | Path | None = None,
        encoder: Encoder | str | None = None,
        preprocessing: Any = None,
        limits: Limits | None = None,
        project: Project | None = None,
    ) -> None:
        self.project = project
        if project is not None:
            corrections = corrections or project.corrections
            if project.has_model:
                model, store = project.model, store or project.store
        self.limits, self.read_only = limits or Limits(), model is None
        self.saved = model if isinstance(model, SavedModel) else builtin_model() if model is None else read_model(model)
        folder = user_data_path("hcep", appauthor=False) if model is None else self.saved.folder
        self.corrections_file = Path(corrections or folder / CORRECTIONS)
        chosen: tuple[Any, Any] = (encoder, preprocessing)
        if project is not None and not project.has_model and encoder is not None:
            if isinstance(encoder, str):
                encoder = load_encoder(encoder, preprocessing=preprocessing)
            self._of_project = encoder
            chosen = None, None  # the built-in model answers until the first fit
        self.encoder = load_model_encoder(self.saved.encoder, self.saved.folder, *chosen)
        self.store = store if store is None or isinstance(store, EmbeddingStore) else EmbeddingStore(store)
        if self.store is not None:
            refuse_other_encoder(self.saved.encoder, self.store.encoder, self.store.folder)
        self._open(self.saved)
        self._photos: OrderedDict[str, Photo] = OrderedDict()
        self._kept: dict[str, str] = {}  # where the project keeps photos that were dropped, by their ids
        self._lock, self._pool = threading.Lock(), ThreadPoolExecutor(4)
        self._n_running = self._n_decoding = 0
        self._decode = self._decoders()
        size, limit = self.limits.batch, self.limits.queue
        self._encode: Batcher[NDArray[np.float32], tuple[Any, Any]] = Batcher(self._encode_batch, size, limit)
        self._explain: Batcher[_Question, Answer] = Batcher(self._answer_batch, size, limit)

    def _decoders(self) -> Decoders:
        return Decoders(self.encoder.preprocessing, int(self.limits.megapixels * 1e6), self.limits.seconds)

    def _open(self, saved: SavedModel) -> None:
        """Answer with this version of the model from now on."""
        self._corrections = Corrections(self.corrections_file, saved.hierarchy, missing=True, lenient=True)
        _ = saved.path_model  # read it now, not when somebody waits for an answer
        self.saved, self._version = saved, (saved, dict[Any, Explainer]())

    @property
    def corrections(self) -> Corrections:
        """The corrections as they are on disk now, including those of other processes."""
        if self.corrections_file.exists():
            self._corrections.refresh()
        return self._corrections

    @property
    def model(self) -> PathModel:
        """The classifier, in its newest version."""
        return self.saved.path_model

    @property
    def hierarchy(self) -> Hierarchy:
        return self.saved.path_model.hierarchy

    async def warm_up(self) -> None:
        """Explain a grey picture and forget it, so that the first photo does not wait for loading and compiling."""
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
        """Decode, encode and remember a photo; raises ImageProblem with a short reason, or ServerBusyError."""
        if not data:
            raise ImageProblem("empty file")
        if len(data) > self.limits.megabytes * 1e6:
            raise ImageProblem(f"too large: more than {self.limits.megabytes:g} MB")
        key, name = sha256(data).hexdigest(), _file_name(name)
        if key in self._photos:
            return replace(self.photo(key), name=name)  # other visitors may call it something else
        if self._n_decoding >= self.limits.queue:
            raise ServerBusyError
        self._n_decoding += 1
        try:
            decoded = await self._decode(data)
        finally:
            self._n_decoding -= 1
        image = Image.open(BytesIO(decoded.jpeg), formats=["JPEG"])
        pixels = decoded.array()
        if pixels is None:  # only the encoder knows this preprocessing
            pixels = await self.run(lambda: self.encoder.preprocess(image.convert("RGB")))
        embedding, features = await self._encode(pixels)
        arrays = {"embedding": embedding, "features": features, "pixels": pixels if features is None else None}
        photo = Photo(id=key, name=name, jpeg=decoded.jpeg, size=image.size, **arrays)
        self._photos[key] = photo
        while len(self._photos) > self.limits.photos:
            self._photos.popitem(last=False)
        return photo

    def photo(self, key: str) -> Photo:
        """A photo by its id; raises PhotoNotFoundError if the server does not remember it."""
        if key not in self._photos:
            raise PhotoNotFoundError(f"the server no longer has the photo {key[:12]!r}; upload it again")
        self._photos.move_to_end(key)
        return self._photos[key]

    async def add_stored_photo(self, row: int) -> Photo:
        """A photo of the store, by its row; raises PhotoNotFoundError, or as `add_photo`."""
        if self.store is None or not 0 <= row < len(self.store):
            raise PhotoNotFoundError(f"there is no photo {row} in the store")
        path = Path(str(self.store.paths[row]))
        try:
            with path.open("rb") as file:
                data = await self.run(file.read, int(self.limits.megabytes * 1e6) + 1)
        except OSError as error:
            raise PhotoNotFoundError(f"{path.name}: {error.strerror}") from None
        return await self.add_photo(data, path.name)

    def _encode_batch(self, arrays: list[NDArray[np.float32]]) -> list[tuple[Any, Any]]:
        """The embedding of each image, and its feature map if the encoder has them."""
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
        sure: float = SURE,
        n_paths: int | Literal["auto"] | None = None,
        corrected: bool = True,
    ) -> Answer:
        """Explain a photo, together with photos of others who ask at the same time.

        Raises as `hcep.explain_images`, which also describes the options, or ServerBusyError. `corrected` applies the
        photo's correction.
        """
        request = Request.of(force, forbid)
        if corrected:
            request = self.corrections.requests([photo.id], request)[0]
        question = _Question(photo, request, Request.of(why_not).force, where, (n_best, sure, n_paths))
        answer = await self._explain(question)
        return answer.corrected(self.corrections.applied(photo.id) if corrected else None)

    def _answer_batch(self, questions: list[_Question]) -> list[Answer]:
        """Answers in order; questions that differ in the photo and its limits alone are searched together."""
        answers: dict[int, Answer] = {}
        for kind in {question[2:] for question in questions}:
            why_not, where, options = kind
            rows = [i for i, question in enumerate(questions) if question[2:] == kind]
            explainer = self._explainer(*options)
            for concept in why_not:
                explainer.evidence.find(concept)  # an unknown concept is an error
            together = explainer.answers(
                [questions[i].photo for i in rows],
                requests=[questions[i].request for i in rows],
                why_not=why_not,
                encoder=self.encoder if where else None,
            )
            answers |= zip(rows, together, strict=True)
        return [answers[i] for i in range(len(questions))]

    def _explainer(self, n_best: int, *options: Any) -> Explainer:
        """An explainer with these options and the newest version of the model."""
        saved, explainers = self._version
        if (n_best, *options) not in explainers:
            if len(explainers) > KEPT_EXPLAINERS:
                explainers.clear()
            explainers[n_best, *options] = Explainer(saved.path_model, n_best, saved.atom_names, *options)
        return explainers[n_best, *options]

    async def run(self, function: Callable[..., T], *args: Any, **options: Any) -> T:
        """Call a function in a thread, so that others are answered meanwhile; raises ServerBusyError."""
        if self._n_running >= self.limits.queue:
            raise ServerBusyError
        self._n_running += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, lambda: function(*args, **options))
        finally:
            self._n_running -= 1

    async def correct(
        self,
        photo: str,
        *,
        label: str | None = None,
        none: bool = False,
        force: Concepts = (),
        forbid: Concepts = (),
        **facts: Any,
    ) -> Correction:
        """Save a correction of a photo, by its id; on return it is on disk.

        Parameters
        ----------
        label, none, force, forbid : the right class or a concept above it, that none is right, concepts that are right,
            and concepts that are wrong; by label, name or synonym
        **facts : under, file, who and why, as for `Corrections.add`
        """
        if not (label or none or any(Request.of(force, forbid))):
            raise HCEPError("the correction is empty: give a class, none, or concepts to force or forbid")

        what: dict[str, Any] = {"label": label, "none": none, "force": force, "forbid": forbid}
        await self.correct_all([(photo, facts.pop("file", ""))], **what, **facts)
        return self._corrections.in_force[photo]

    async def correct_all(self, photos: Sequence[tuple[str, str]], **what: Any) -> list[Correction]:
        """Save the same correction of photos, by their ids, with the names of their files; all at once."""
        pairs = [(key, self._kept.get(key, file)) for key, file in photos]

        def save() -> list[Correction]:
            with self._lock:
                return self._corrections.add_all(pairs, **what)

        return await self.run(save)

    async def undo_correction(self, photo: str, *, who: str = "") -> None:
        if photo not in self.corrections:
            raise PhotoNotFoundError(f"there is no correction of {photo[:12]!r}")
        await self.correct_all([(photo, "")], undo=True, who=who)

    async def change(self, what: str, function: Callable[[HCEPClassifier], Any]) -> None:
        """Save a changed model as a new version (see `change_model`); on return answers come from it."""
        await self.run(self._change, lambda: change_model(self.saved.folder, what, function))

    async def add_class(self, name: str, parent: str | None, photos: Sequence[Photo]) -> None:
        X, where = np.stack([photo.embedding for photo in photos]), parent or "the root"
        what = f"added class {name!r} under {where!r} from {len(X):,} images"
        text = await self.run(text_of_class, self.saved, name, parent, None, self.encoder)
        await self.change(what, lambda fitted: fitted.add_class(name, parent, X, text))

    @property
    def n_to_learn(self) -> int:
        """Corrections that the model has not learned from yet; 0 for the built-in model, which cannot learn."""
        return 0 if self.read_only else new_corrections(self.saved, self.corrections)

    async def learn(self, on_progress: OnProgress = lambda share, words: None) -> Learned:
        """Learn from all corrections whose photos are at hand, as a new version (see `hcep.evaluate.learning`)."""

        def encode(files: Sequence[Path]) -> NDArray[Any]:
            parts, n = [], self.limits.batch
            with progress("encoding", len(files), shown=False) as advance:
                for start in range(0, len(files), n):
                    parts.append(encode_files(files[start : start + n], self.saved, self.encoder))
                    advance(len(parts[-1]))
            return np.concatenate(parts)

        def learned() -> Learned:
            with listening(stages(on_progress)):
                return learn(folder, corrections, sources, vectors, encode=encode, text_of=text_of)

        vectors = {key: photo.embedding for key, photo in list(self._photos.items())}
        sources = [] if self.store is None else [self.store]
        corrections, folder = self.corrections, self.saved.folder
        text_of = partial(text_of_class, self.saved, encoder=self.encoder)
        return await self.run(self._change, learned)

    async def fit_project(self, on_note: Callable[[str], object], on_progress: OnProgress) -> None:
        """Fit a model to the project's photos (see `Project.fit`), and answer with it from now on."""
        project, encoder = self.project, self._of_project or self.encoder
        assert project is not None

        def fit() -> None:
            with self._lock:
                project.fit(on_note, encoder, on_progress)
                self.encoder = encoder
                self._open(read_model(project.model))
                self.read_only, self.store = False, project.store

        await self.run(fit)
        if self._of_project is not None:
            self._of_project, decode = None, self._decode
            self._photos.clear()  # they have embeddings of the built-in encoder
            self._decode = self._decoders()
            await decode.close()

    async def keep_photo(self, photo: Photo, data: bytes, name: str, always: bool = False) -> None:
        """Save a dropped photo in the project, if its owner wants that or `always`; corrections then say where."""
        if self.project is not None and (always or self.project.keep):
            self._kept[photo.id] = str(await self.run(self.project.keep_photo, data, name))

    async def undo_change(self) -> Change:
        """Go back to the version before the last change, and return that change."""
        return await self.run(self._change, lambda: undo_change(self.saved.folder))

    def _change(self, change: Callable[[], T]) -> T:
        if self.read_only:
            raise ReadOnlyModelError(
                "the built-in model cannot be changed; save a copy with `hcep open efficientnet-lite2 -o MODEL` and "
                "start `hcep serve MODEL`"
            )
        with self._lock:
            result = change()
            self._open(read_model(self.saved.folder))
            return result

    def counts(self) -> dict[str, int]:
        """What is waiting and what was done, for monitoring."""
        counts = {"photos_remembered": len(self._photos), "decoding": self._n_decoding, "running": self._n_running}
        for name, batcher in (("encode", self._encode), ("explain", self._explain)):
            counts |= {f"waiting_to_{name}": len(batcher), f"{name}_photos_total": batcher.n_items}
            counts[f"{name}_runs_total"] = batcher.n_calls
        return counts


def _file_name(name: str) -> str:
    """The name of a file without folders and control characters, for people to read; nothing is opened by it."""
    return "".join(filter(str.isprintable, name.replace("\\", "/").rpartition("/")[2]))[:120]
