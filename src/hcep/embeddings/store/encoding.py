"""Encode image files into a store: threads decode while the encoder works, and a stopped run can be resumed."""

import os
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from hcep._progress import progress as progress_bar
from hcep.embeddings.images import ImageItem, ImageProblem, content_hash, open_image, storable
from hcep.embeddings.protocol import Encoder, EncoderRecord
from hcep.embeddings.store.manifest import SkippedImage, StoredDtype
from hcep.embeddings.store.writer import StoreWriter
from hcep.embeddings.vectors import StoreError
from hcep.errors import quote, quoted

#: Batches that are decoded ahead of the network; memory holds them beside the current shard.
BATCHES_AHEAD = 1
#: Images per batch if the network runs them one by one.
FEW = 4
#: Files that are hashed ahead when known images are checked for changes.
FILES_AHEAD = 1024

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class EncodeReport:
    """The result of a run.

    Attributes
    ----------
    n_encoded, n_reused, n_skipped : items that were encoded, found unchanged in the store, and left out
    n_updated : reused images whose path, label or split was updated
    n_removed : vectors of vanished images that were removed
    n_relabelled : reused images whose label changed, because the file moved to another class or a table says so
    """

    n_encoded: int
    n_reused: int
    n_updated: int
    n_removed: int
    skipped: tuple[SkippedImage, ...]
    seconds: float
    n_relabelled: int = 0

    @property
    def n_skipped(self) -> int:
        return len(self.skipped)

    @property
    def images_per_second(self) -> float:
        """Images encoded per second, over the whole run."""
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
    remove_others: bool = False,
) -> EncodeReport:
    """Encode images into a store; images that it already holds and that have not changed are not encoded again.

    Parameters
    ----------
    items : ImageItem, or tuples (path, label[, id[, split[, box]]]), in the same order every time
    folder : folder of the store; created if needed
    batch_size : images per batch of the encoder
    shard_size : images per file, rounded up to whole batches; a crash loses at most the images of one file
    dtype : {"float16", "float32"}
    n_workers : threads that read and decode; by default one per core, at most 8
    strict : raise an error at the first image that cannot be used; what was encoded before it is kept
    progress : show a progress bar on standard error
    resume : False encodes everything again: what the store held is dropped
    remove_vanished : remove images that are not among the items, if their file is gone, or lies among the items' files
        and in one of their splits. An image whose content is found under another id gets that id and its label.
    remove_others : remove all images that are not among the items, in the same way

    Notes
    -----
    The composition of a batch can change the last bits of a model's output. Therefore batches are consecutive items, a
    broken image leaves its neighbours in place, and only whole batches are committed: a run that was killed and
    resumed with the same batch size gives the same vectors, bit for bit, as one that was not.
    """
    started = time.perf_counter()
    wanted = [item if isinstance(item, ImageItem) else ImageItem(*item) for item in items]
    odd = [item.label for item in wanted if not isinstance(item.label, str | None)]
    if odd:
        raise StoreError(f"labels must be strings or None, got {quoted(odd[:1])} ({type(odd[0]).__name__}); use str()")
    twice = [key for key, n in Counter(item.id for item in wanted).items() if n > 1]
    if twice:
        raise StoreError(f"{len(twice):,} ids are not unique: {quoted(twice)}; give each image its own")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    workers = min(8, cores) if n_workers is None else n_workers
    for name, value in {"batch_size": batch_size, "shard_size": shard_size, "n_workers": workers}.items():
        if value < 1:
            raise StoreError(f"{name} must be at least 1, got {value}")
    if dtype not in get_args(StoredDtype):
        raise StoreError(f'dtype must be "float16" or "float32", got {quote(dtype)}')
    record = EncoderRecord(encoder.name, encoder.fingerprint, dict(encoder.preprocessing))
    with (
        StoreWriter.open(Path(folder), record, encoder.n_dims, dtype, resume=resume) as writer,
        ThreadPoolExecutor(workers) as pool,
        ThreadPoolExecutor(workers if getattr(encoder, "has_one_core", False) else 1) as lanes,
    ):
        run = _Run(encoder, writer, pool, lanes, batch_size, shard_size, strict, progress, remove_others)
        removes = remove_vanished or remove_others
        _, moved = writer.describe(run.moved(wanted)) if removes else (0, 0)
        fresh, changed, reused, skipped = run.plan(wanted)
        n_updated, relabelled = writer.describe({item.id: item for item in reused})
        writer.note_skipped(skipped, cleared=[item.id for item in reused])
        n_removed = writer.remove(run.vanished(wanted)) if removes else 0
        failed = run.encode(fresh, changed)
    return EncodeReport(
        n_encoded=len(fresh) + len(changed) - len(failed),
        n_reused=len(reused),
        n_updated=n_updated,
        n_removed=n_removed,
        skipped=(*skipped, *failed),
        seconds=time.perf_counter() - started,
        n_relabelled=moved + relabelled,
    )


class _Decoded(NamedTuple):
    item: ImageItem
    pixels: NDArray[np.float32]
    digest: str


@dataclass(frozen=True)
class _Run:
    """One run over a store, step by step."""

    encoder: Encoder
    writer: StoreWriter
    pool: ThreadPoolExecutor
    lanes: ThreadPoolExecutor
    batch_size: int
    shard_size: int
    strict: bool
    progress: bool
    remove_others: bool

    def refuse_skipped(self, skipped: Sequence[SkippedImage]) -> None:
        if self.strict and skipped:
            raise StoreError(f"{skipped[0].path!r} cannot be encoded: {skipped[0].reason} (strict is on)")

    def plan(
        self, items: Sequence[ImageItem]
    ) -> tuple[list[ImageItem], list[ImageItem], list[ImageItem], list[SkippedImage]]:
        """Fresh, changed, reused and skipped items, by comparing the files of known images with the store."""
        stored, before = self.writer.images, self.writer.skipped
        known = [item for item in items if item.id in stored or item.id in before]
        fresh = [item for item in items if not (item.id in stored or item.id in before)]
        changed, reused, skipped = list[ImageItem](), list[ImageItem](), list[SkippedImage]()
        hashes = _in_order(self.pool, _digest, known, FILES_AHEAD)
        with closing(hashes), progress_bar("checking", len(known), self.progress, "images", stays=True) as advance:
            for item, digest in zip(known, hashes, strict=True):
                if isinstance(digest, SkippedImage):
                    skipped.append(digest)
                elif item.id in stored and stored[item.id].content_hash == digest:
                    reused.append(item)
                elif item.id in before and before[item.id].content_hash == digest:
                    skipped.append(before[item.id])
                else:
                    changed.append(item)
                self.refuse_skipped(skipped)
                advance(1)
        return fresh, changed, reused, skipped

    def vanished(self, items: Sequence[ImageItem]) -> set[str]:
        """Ids in the store whose file is gone, or that are missing among the items of their folder and split."""
        images, skipped = self.writer.images, self.writer.skipped
        gone = {item.id for item in items if (item.id in images or item.id in skipped) and not item.path.exists()}
        wanted, splits = {item.id for item in items}, {item.split for item in items}
        place = Path(os.path.commonpath([os.path.abspath(item.path.parent) for item in items])) if items else None

        def is_ours(path: str) -> bool:
            return (
                self.remove_others
                or not os.path.exists(path)
                or (place is not None and place in Path(os.path.abspath(path)).parents)
            )

        left = {key for key, image in images.items() if key not in wanted and is_ours(image.path)}
        if not self.remove_others:
            left = {key for key in left if images[key].split in splits or not os.path.exists(images[key].path)}
        return gone | left | {key for key, image in skipped.items() if key not in wanted and is_ours(image.path)}

    def moved(self, items: Sequence[ImageItem]) -> dict[str, ImageItem]:
        """Items whose content the store holds under the id of a vanished file, by that id."""
        images = self.writer.images
        digests = {images[key].content_hash: key for key in sorted(self.vanished(items)) if key in images}
        fresh = [item for item in items if item.id not in images] if digests else []
        moved: dict[str, ImageItem] = {}
        for item, digest in zip(fresh, _in_order(self.pool, _digest, fresh, FILES_AHEAD), strict=True):
            if isinstance(digest, str) and digest in digests:
                moved[digests.pop(digest)] = item
        return moved

    def encode(self, *parts: Sequence[ImageItem]) -> list[SkippedImage]:
        """Encode each part in batches of its own and commit shard by shard; return the skipped images."""
        skipped: list[SkippedImage] = []
        total = sum(map(len, parts))
        batch_size = self.images_per_batch() if total else self.batch_size
        with progress_bar("encoding", total, self.progress, "images", stays=True) as advance:
            try:
                for items in parts:
                    decoded = _in_order(self.pool, self.decode, items, BATCHES_AHEAD * batch_size)
                    # The network works on batches while others are decoded, assembled and written.
                    batches = _in_order(self.lanes, self.vectors, _batched(decoded, batch_size), self.n_lanes)
                    with closing(decoded), closing(batches):
                        for n, batch in enumerate(batches, start=1):
                            self.writer.add(*batch)
                            skipped += batch[-1]
                            if n % -(-self.shard_size // batch_size) == 0:
                                self.writer.flush()
                            advance(len(batch[0]) + len(batch[-1]))
                    self.writer.flush()
            except BaseException:
                # Whole batches only, so that the next run has the same ones. Report the first error.
                with suppress(StoreError):
                    self.writer.flush()
                raise
        return skipped

    def decode(self, item: ImageItem) -> _Decoded | SkippedImage:
        digest = None
        try:
            digest = content_hash(item.path, item.box)
            # Nearly the same vector (cosine at least 0.999) in at most a third of the time for a large JPEG.
            side = getattr(self.encoder, "shorter_side", None)
            image = open_image(item.path, box=item.box, shorter_side=side)
        except ImageProblem as problem:
            return _skipped(item, problem.reason, digest)
        try:
            return _Decoded(item, self.encoder.preprocess(image), digest)
        except (ValueError, OSError, ArithmeticError, MemoryError) as error:
            return _skipped(item, f"preprocessing failed: {error}", digest)

    def images_per_batch(self) -> int:
        """The batch size, or a few images if the network runs them one by one: then the bar moves more often."""
        network = getattr(self.encoder, "network", None)
        return min(self.batch_size, FEW) if network is not None and network.n_at_once() == 1 else self.batch_size

    @property
    def n_lanes(self) -> int:
        """Batches in the network at a time, each on its own core; 1 if the network uses all cores."""
        return self.lanes._max_workers

    def vectors(self, batch: list[_Decoded | SkippedImage]) -> tuple[Any, ...]:
        """The arguments of `StoreWriter.add` for a batch: items, vectors, hashes and skipped images."""
        decoded = [outcome for outcome in batch if isinstance(outcome, _Decoded)]
        skipped = [outcome for outcome in batch if isinstance(outcome, SkippedImage)]
        self.refuse_skipped(skipped)
        name, expected = self.encoder.name, (len(decoded), self.encoder.n_dims)
        shapes = {one.pixels.shape for one in decoded}
        if len(shapes) > 1:
            raise StoreError(f"encoder {quote(name)} preprocesses images to different shapes: {quoted(sorted(shapes))}")
        encode = getattr(self.encoder, "encode_on_one_core" if self.n_lanes > 1 else "encode_images")
        pixels = [one.pixels for one in decoded]
        vectors = np.asarray(encode(np.stack(pixels))) if pixels else np.empty(expected, np.float32)
        if vectors.shape != expected:
            raise StoreError(f"encoder {quote(name)} returned vectors of shape {vectors.shape}, expected {expected}")
        finite = np.isfinite(vectors).all(axis=1)
        for one in (decoded[i] for i in np.flatnonzero(~finite)):
            skipped.append(_skipped(one.item, "the encoder returned NaN or infinite values", one.digest))
        self.refuse_skipped(skipped)
        good = [decoded[i] for i in np.flatnonzero(finite)]
        return [one.item for one in good], vectors[finite], [one.digest for one in good], skipped


def _digest(item: ImageItem) -> str | SkippedImage:
    try:
        return content_hash(item.path, item.box)
    except ImageProblem as problem:
        return _skipped(item, problem.reason)


def _skipped(item: ImageItem, reason: str, digest: str | None = None) -> SkippedImage:
    return SkippedImage(item.id, storable(str(item.path)), storable(reason), digest)


def _in_order(
    pool: ThreadPoolExecutor, work: Callable[[T], R], items: Iterable[T], n_ahead: int
) -> Generator[R, None, None]:
    """Results of `work` in the items' order; at most `n_ahead` are started before they are needed."""
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
