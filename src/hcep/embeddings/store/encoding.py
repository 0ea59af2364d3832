"""Image files into an embedding store: decoded in threads while the encoder works, resumable, the same every time."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from hcep._progress import Advance, progress
from hcep.embeddings.images import ImageProblem, content_hash, open_image
from hcep.embeddings.protocol import Encoder, EncoderRecord
from hcep.embeddings.store.items import ImageItem, storable
from hcep.embeddings.store.manifest import SkippedImage, StoredDtype, StoreError
from hcep.embeddings.store.writer import StoreWriter
from hcep.errors import quoted

#: Batches decoded ahead of the encoder: what memory holds beside the shard under way.
BATCHES_AHEAD = 2
#: Files looked at ahead when known images are checked for change.
FILES_AHEAD = 1024

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class EncodeReport:
    """What a run did.

    Attributes
    ----------
    n_encoded, n_reused, n_skipped : int
        Images encoded now, found in the store unchanged, and left out; they add up to the items given.
    n_updated : int
        Reused images whose path, label or split was brought up to date.
    n_removed : int
        Vectors of vanished images that were removed.
    skipped : tuple of SkippedImage
    seconds : float
    """

    n_encoded: int
    n_reused: int
    n_updated: int
    n_removed: int
    skipped: tuple[SkippedImage, ...]
    seconds: float

    @property
    def n_skipped(self) -> int:
        return len(self.skipped)

    @property
    def images_per_second(self) -> float:
        """Images encoded a second, over the whole run."""
        return self.n_encoded / self.seconds if self.seconds > 0 else 0.0


def encode_to_store(
    items: Iterable[ImageItem | tuple[Any, ...]],
    encoder: Encoder,
    folder: str | os.PathLike[str],
    *,
    batch_size: int = 64,
    shard_size: int = 1024,
    dtype: StoredDtype = "float16",
    n_workers: int | None = None,
    strict: bool = False,
    progress: bool = False,
    resume: bool = True,
    remove_vanished: bool = False,
    retry_skipped: bool = False,
) -> EncodeReport:
    """Encode images into a store; what is there already and has not changed is not encoded again.

    Parameters
    ----------
    items : iterable of ImageItem, or of (path, label[, id[, split]])
        In an order that is the same every time.
    encoder : Encoder
    folder : path
        Of the store; made where it does not exist.
    batch_size : int
        Images the encoder takes at a time.
    shard_size : int
        Images a file, rounded up to whole batches; a crash loses at most one file's.
    dtype : {"float16", "float32"}
    n_workers : int, optional
        Threads that read and decode; the cores at hand, at most 8, where none is given.
    strict : bool
        Make the first image that cannot be used an error. What was encoded before it is kept.
    progress : bool
        Show a bar with images/s and the time left, on standard error.
    resume : bool
        False encodes everything anew: what the store held is dropped.
    remove_vanished : bool
        Remove images that are not among the items, or whose file is gone.
    retry_skipped : bool
        Try images again that an earlier run skipped and that have not changed since.

    Returns
    -------
    EncodeReport

    Raises
    ------
    StoreError
        The store holds vectors of another encoder, is damaged or being written to; ids are not unique; a vector does
        not fit `dtype`; with `strict`, the first bad image.

    Notes
    -----
    A batch's composition can change the last bits of a model's output. So batches are consecutive items of what is to
    be encoded, a broken image leaves its neighbours where they are, and only whole batches are committed: a run that
    was killed and resumed with the same batch size has the same batches, and the same vectors to the bit, as one that
    was not.
    """
    started = time.perf_counter()
    wanted = _as_items(items)
    settings = _Settings(encoder, batch_size, shard_size, n_workers, strict, progress)
    record = EncoderRecord(encoder.name, encoder.fingerprint, dict(encoder.preprocessing))
    _refuse_dtype(dtype)
    with (
        StoreWriter.open(Path(folder), record, encoder.n_dims, dtype, resume=resume) as writer,
        ThreadPoolExecutor(settings.n_workers) as pool,
    ):
        plan = _Plan(wanted, writer, retry_skipped)
        plan.look_at_known(pool, settings)
        n_updated = writer.update(plan.reused)
        writer.note_skipped(plan.skipped, cleared=[item.id for item in plan.reused])
        n_removed = writer.remove(plan.vanished()) if remove_vanished else 0
        skipped = _encode(writer, pool, settings, plan.fresh, plan.changed)
    n_encoded = len(plan.fresh) + len(plan.changed) - len(skipped)
    return EncodeReport(
        n_encoded=n_encoded,
        n_reused=len(plan.reused),
        n_updated=n_updated,
        n_removed=n_removed,
        skipped=(*plan.skipped, *skipped),
        seconds=time.perf_counter() - started,
    )


class _Settings:
    """How to encode, checked."""

    def __init__(
        self, encoder: Encoder, batch_size: int, shard_size: int, n_workers: int | None, strict: bool, progress: bool
    ) -> None:
        workers = min(8, _n_cores()) if n_workers is None else n_workers
        for name, value in {"batch_size": batch_size, "shard_size": shard_size, "n_workers": workers}.items():
            if value < 1:
                raise StoreError(f"{name} must be at least 1, got {value}")
        self.encoder = encoder
        self.batch_size = batch_size
        self.batches_a_shard = -(-shard_size // batch_size)
        self.n_workers = workers
        self.strict = strict
        self.progress = progress

    def refuse_skipped(self, skipped: Sequence[SkippedImage]) -> None:
        if self.strict and skipped:
            raise StoreError(f"{skipped[0].path!r} cannot be encoded: {skipped[0].reason} (strict is on)")


def _n_cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every platform
        return os.cpu_count() or 1


def _refuse_dtype(dtype: str) -> None:
    if dtype not in ("float16", "float32"):
        raise StoreError(f'dtype must be "float16" or "float32", got {dtype!r}')


def _as_items(items: Iterable[ImageItem | tuple[Any, ...]]) -> list[ImageItem]:
    wanted = [item if isinstance(item, ImageItem) else ImageItem(*item) for item in items]
    odd = [item.label for item in wanted if not isinstance(item.label, str | None)]
    if odd:
        raise StoreError(f"labels must be strings or None, got {quoted(odd[:1])} ({type(odd[0]).__name__}); use str()")
    seen: set[str] = set()
    twice = [item.id for item in wanted if item.id in seen or seen.add(item.id)]  # type: ignore[func-returns-value]
    if twice:
        raise StoreError(f"{len(twice):,} ids are not unique: {quoted(twice)}; give each image its own")
    return wanted


# -- what is to be done ----------------------------------------------------------------------------------


@dataclass
class _Plan:
    """Which items to encode, which to keep; what an earlier run committed leaves it in whole batches."""

    items: list[ImageItem]
    writer: StoreWriter
    retry_skipped: bool
    fresh: list[ImageItem] = field(default_factory=list)
    changed: list[ImageItem] = field(default_factory=list)
    reused: list[ImageItem] = field(default_factory=list)
    skipped: list[SkippedImage] = field(default_factory=list)

    def look_at_known(self, pool: ThreadPoolExecutor, settings: _Settings) -> None:
        """Sort the items: those the store knows by what their file holds now."""
        stored, skipped = self.writer.images, self.writer.skipped
        known = [item for item in self.items if item.id in stored or item.id in skipped]
        self.fresh = [item for item in self.items if not (item.id in stored or item.id in skipped)]
        hashes = _in_order(pool, _digest, known, FILES_AHEAD)
        with closing(hashes), progress("checking", len(known), settings.progress, "images", stays=True) as advance:
            for item, digest in zip(known, hashes, strict=True):
                self._sort(item, digest, skipped.get(item.id))
                settings.refuse_skipped(self.skipped)
                advance(1)

    def _sort(self, item: ImageItem, digest: str | SkippedImage, before: SkippedImage | None) -> None:
        stored = self.writer.images.get(item.id)
        if isinstance(digest, SkippedImage):
            self.skipped.append(digest)
        elif stored is not None and stored.content_hash == digest:
            self.reused.append(item)
        elif before is not None and before.content_hash == digest and not self.retry_skipped:
            self.skipped.append(before)
        else:
            self.changed.append(item)

    def vanished(self) -> set[str]:
        """Ids in the store that are not among the items, or whose file is gone."""
        known = self.writer.images.keys() | self.writer.skipped.keys()
        gone = {item.id for item in self.items if item.id in known and not item.path.exists()}
        return (known - {item.id for item in self.items}) | gone


def _digest(item: ImageItem) -> str | SkippedImage:
    try:
        return content_hash(item.path)
    except ImageProblem as problem:
        return _skipped(item, problem.reason)


def _skipped(item: ImageItem, reason: str, digest: str | None = None) -> SkippedImage:
    return SkippedImage(item.id, storable(str(item.path)), storable(reason), digest)


# -- decoding and encoding -------------------------------------------------------------------------------


class _Decoded(NamedTuple):
    item: ImageItem
    pixels: NDArray[np.float32]
    digest: str


def _encode(
    writer: StoreWriter, pool: ThreadPoolExecutor, settings: _Settings, *parts: Sequence[ImageItem]
) -> list[SkippedImage]:
    """Encode each part in batches of its own and commit shard by shard; returns what had to be skipped."""
    skipped: list[SkippedImage] = []
    with progress("encoding", sum(map(len, parts)), settings.progress, "images", stays=True) as advance:
        try:
            for items in parts:
                skipped += _encode_part(writer, pool, settings, items, advance)
        except BaseException:
            # Whole batches only, so that the next run has the same ones. The first error is the one to report.
            with suppress(StoreError):
                writer.flush()
            raise
    return skipped


def _encode_part(
    writer: StoreWriter, pool: ThreadPoolExecutor, settings: _Settings, items: Sequence[ImageItem], advance: Advance
) -> list[SkippedImage]:
    skipped: list[SkippedImage] = []
    decode = _decoder(settings.encoder)
    with closing(_in_order(pool, decode, items, BATCHES_AHEAD * settings.batch_size)) as outcomes:
        for n, batch in enumerate(_batched(outcomes, settings.batch_size), start=1):
            skipped += _add_batch(writer, settings, batch)
            if n % settings.batches_a_shard == 0:
                writer.flush()
            advance(len(batch))
    writer.flush()
    return skipped


def _add_batch(writer: StoreWriter, settings: _Settings, batch: list[_Decoded | SkippedImage]) -> list[SkippedImage]:
    skipped = [outcome for outcome in batch if isinstance(outcome, SkippedImage)]
    settings.refuse_skipped(skipped)
    decoded = [outcome for outcome in batch if isinstance(outcome, _Decoded)]
    vectors = _vectors(settings.encoder, decoded)
    finite = np.atleast_1d(np.isfinite(vectors).all(axis=1))
    good = [outcome for outcome, ok in zip(decoded, finite, strict=True) if ok]
    for outcome, ok in zip(decoded, finite, strict=True):
        if not ok:
            skipped.append(_skipped(outcome.item, "the encoder returned NaN or infinite values", outcome.digest))
    settings.refuse_skipped(skipped)
    writer.add([one.item for one in good], vectors[finite], [one.digest for one in good], skipped)
    return skipped


def _vectors(encoder: Encoder, decoded: Sequence[_Decoded]) -> NDArray[np.float32]:
    expected = (len(decoded), encoder.n_dims)
    if not decoded:
        return np.empty(expected, np.float32)
    shapes = {one.pixels.shape for one in decoded}
    if len(shapes) > 1:
        raise StoreError(f"encoder {encoder.name!r} preprocesses images to different shapes: {quoted(sorted(shapes))}")
    vectors = np.asarray(encoder.encode_images(np.stack([one.pixels for one in decoded])))
    if vectors.shape != expected:
        raise StoreError(f"encoder {encoder.name!r} returned vectors of shape {vectors.shape}, expected {expected}")
    return vectors


def _decoder(encoder: Encoder) -> Callable[[ImageItem], _Decoded | SkippedImage]:
    def decode(item: ImageItem) -> _Decoded | SkippedImage:
        digest = None
        try:
            digest = content_hash(item.path)
            image = open_image(item.path)
        except ImageProblem as problem:
            return _skipped(item, problem.reason, digest)
        try:
            return _Decoded(item, encoder.preprocess(image), digest)
        except (ValueError, OSError, ArithmeticError, MemoryError) as error:
            return _skipped(item, f"preprocessing failed: {error}", digest)

    return decode


def _in_order(
    pool: ThreadPoolExecutor, work: Callable[[T], R], items: Iterable[T], n_ahead: int
) -> Generator[R, None, None]:
    """Results of `work` in the items' order, at most `n_ahead` of them begun before they are asked for."""
    waiting: deque[Future[R]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > n_ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


def _batched(results: Iterator[T], size: int) -> Iterator[list[T]]:
    while batch := list(islice(results, size)):
        yield batch
