"""The embedding store: a folder of Parquet files and a manifest, opened lazily and read in pieces."""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import ArrayLike, DTypeLike, NDArray

from hcep.embeddings.protocol import EncoderRecord
from hcep.embeddings.store import manifest as disk
from hcep.embeddings.store.manifest import ShardRecord, SkippedImage
from hcep.embeddings.vectors import StoreError, memory_limit
from hcep.errors import near_matches, quoted


class EmbeddingStore:
    """Vectors of images from one encoder, with their ids, paths, labels and splits.

    Opening reads the manifest only; vectors are read in pieces, on demand. `encode_to_store` writes stores.

    Attributes
    ----------
    n_dims, dtype : of the vectors, as they are stored
    encoder : name, fingerprint and preprocessing of the encoder
    skipped : images that could not be encoded, with the reason
    shards : the files of the vectors, in order

    Rows are in the order in which the images were encoded. A run that adds images writes new files and keeps the old
    ones, so that a store that was opened before sees no change.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._open(Path(folder), disk.read_manifest(Path(folder)))

    def _open(self, folder: Path, manifest: disk.Manifest, rows: NDArray[np.intp] | None = None) -> None:
        vars(self).clear()
        self.folder, self._manifest, self._rows = folder, manifest, rows
        self.n_dims, self.dtype = manifest.n_dims, np.dtype(manifest.dtype)
        self.encoder: EncoderRecord = manifest.encoder
        self.skipped: tuple[SkippedImage, ...] = manifest.skipped
        self.shards: tuple[ShardRecord, ...] = manifest.shards

    @classmethod
    def of_manifest(
        cls, folder: Path, manifest: disk.Manifest, rows: NDArray[np.intp] | None = None
    ) -> "EmbeddingStore":
        """The store of a manifest that is already in memory; only `rows` of it, if given."""
        store = cls.__new__(cls)
        store._open(folder, manifest, rows)
        return store

    def __len__(self) -> int:
        return self._manifest.n_images if self._rows is None else len(self._rows)

    @property
    def shape(self) -> tuple[int, int]:
        """(n_images, n_dims), the shape of `to_numpy`."""
        return len(self), self.n_dims

    def __repr__(self) -> str:
        part = "" if self._rows is None else f" of {self._manifest.n_images:,}"
        skipped = f", {len(self.skipped):,} skipped" if self.skipped else ""
        return (
            f"EmbeddingStore({str(self.folder)!r}: {len(self):,}{part} images, {self.n_dims:,} dimensions, "
            f"{self.dtype}, encoder {self.encoder.name!r}{skipped})"
        )

    def _read(self, read: Callable[[pq.ParquetFile], Iterable[Any]]) -> Iterator[tuple[Any, NDArray[np.intp] | None]]:
        """Pieces of the shards, with their selected rows (None for all); a shard without any stays closed."""
        start = 0
        for shard in self.shards:
            stop = start + shard.n_images
            if self._rows is None or len(_between(self._rows, start, stop)):
                with disk.open_shard(self.folder, shard, self._manifest) as file:
                    for piece in read(file):
                        yield piece, None if self._rows is None else _between(self._rows, start, start + len(piece))
                        start += len(piece)
            start = stop

    def column_blocks(self, *names: str) -> Iterator[tuple[Any, ...]]:
        """Rows, as a slice, and values of columns (Arrow arrays), one shard of images at a time."""
        start = 0
        for table, rows in self._read(lambda file: [file.read(columns=list(names))]):
            part = table if rows is None else table.take(pa.array(rows))
            yield slice(start, start + len(part)), *(part.column(name) for name in names)
            start += len(part)

    def columns(self, *names: str) -> dict[str, NDArray[Any]]:
        """Columns by name, "ids" or "labels" for example, read in one pass over the files and then kept."""
        missing = [name for name in names if name not in vars(self)]
        if missing:
            blocks = [rest for _, *rest in self.column_blocks(*(disk.COLUMNS[name] for name in missing))]
            parts = zip(*blocks, strict=True) if blocks else [()] * len(missing)
            vars(self).update({name: _texts(part) for name, part in zip(missing, parts, strict=True)})
        return {name: vars(self)[name] for name in names}

    #: (n_images,) str, unique.
    ids = cached_property[NDArray[Any]](lambda self: self.columns("ids")["ids"])
    #: (n_images,) str, as they were when the images were encoded.
    paths = cached_property[NDArray[Any]](lambda self: self.columns("paths")["paths"])
    #: (n_images,) str; an object array with None for images that have no label, or are in no split.
    labels = cached_property[NDArray[Any]](lambda self: self.columns("labels")["labels"])
    splits = cached_property[NDArray[Any]](lambda self: self.columns("splits")["splits"])
    #: (n_images,) SHA-256 of the image files; None for imported vectors.
    content_hashes = cached_property[NDArray[Any]](lambda self: self.columns("content_hashes")["content_hashes"])

    def select(
        self,
        *,
        labels: Iterable[str] | str | None = None,
        splits: Iterable[str] | str | None = None,
        rows: ArrayLike | None = None,
    ) -> "EmbeddingStore":
        """The images that meet every condition, as a store that reads the same files.

        Parameters
        ----------
        labels, splits : keep images that have one of these
        rows : (n_images,) bool, or indices; keep these images, in the store's order
        """
        keep = np.ones(len(self), dtype=bool) if rows is None else self._mask(np.asarray(rows))
        for what, wanted in (("label", labels), ("split", splits)):
            if wanted is not None:
                values = self.labels if what == "label" else self.splits
                names = [wanted] if isinstance(wanted, str) else list(wanted)
                known = {str(value) for value in set(values.tolist()) - {None}}
                unknown = [name for name in names if name not in known]
                if unknown:
                    near = near_matches(unknown[0], known)
                    raise StoreError(f"no image in {str(self.folder)!r} has {what} {quoted(unknown)}.{near}")
                keep = keep & np.isin(values, names)
        selected = np.flatnonzero(keep)
        selected = selected if self._rows is None else self._rows[selected]
        return self.of_manifest(self.folder, self._manifest, selected)

    def _mask(self, rows: NDArray[Any]) -> NDArray[np.bool_]:
        if rows.dtype == bool and rows.shape == (len(self),):
            return rows
        is_index = rows.ndim == 1 and (rows.dtype.kind in "iu" or not len(rows))
        if not is_index or (len(rows) and not 0 <= rows.min() <= rows.max() < len(self)):
            raise StoreError(
                f"rows must be {len(self):,} booleans or indices from 0 to {len(self) - 1:,}; "
                f"got {rows.dtype} of shape {rows.shape}" + (f", {rows.min()} to {rows.max()}" if is_index else "")
            )
        keep = np.zeros(len(self), dtype=bool)
        keep[rows.astype(np.intp)] = True
        return keep

    def _vectors(self) -> Iterator[NDArray[Any]]:
        return (vectors if rows is None else vectors[rows] for vectors, rows in self._read(disk.read_vectors))

    def batches(self, size: int = 8192) -> Iterator[tuple[NDArray[np.float32], NDArray[Any]]]:
        """Batches of X (size, n_dims) and labels (size,) in row order; memory does not grow with the store."""
        if size < 1:
            raise StoreError(f"size must be at least 1, got {size}")
        return self._batches(size)

    def _batches(self, size: int) -> Iterator[tuple[NDArray[np.float32], NDArray[Any]]]:
        start = filled = 0
        batch = np.empty((min(size, len(self)), self.n_dims), np.float32)
        for vectors in self._vectors():
            while len(vectors):
                taken = vectors[: len(batch) - filled]
                batch[filled : filled + len(taken)] = taken
                filled, vectors = filled + len(taken), vectors[len(taken) :]
                if filled == len(batch):
                    yield batch, self.labels[start : start + filled]
                    start, filled = start + filled, 0
                    batch = np.empty((min(size, len(self) - start), self.n_dims), np.float32)

    def to_numpy(self, dtype: DTypeLike | None = None) -> NDArray[Any]:
        """All vectors, (n_images, n_dims), by default in the stored precision; memory holds them once."""
        for shard in self.shards:  # before memory is allocated for what the manifest claims
            disk.check_size(self.folder / shard.file, shard)
        kind = np.dtype(self.dtype if dtype is None else dtype)
        n_bytes = kind.itemsize * len(self) * self.n_dims
        if n_bytes > memory_limit():
            raise StoreError(
                f"{str(self.folder)!r}: {len(self):,} vectors take {n_bytes:,} bytes, more than half of this machine's "
                "memory. Commands read a store in blocks, unless --compare, --per-image, --interventions, "
                "--corrections, --figures or a linear head need all vectors: leave it out, or choose a smaller --split"
            )
        X = np.empty(self.shape, kind)
        start = 0
        for vectors in self._vectors():
            X[start : start + len(vectors)] = vectors
            start += len(vectors)
        return X

    def damaged_shards(self) -> dict[str, str]:
        """Read every file in full; names of the files that are not as they were written, with what is wrong."""
        damage = {}
        for shard in self.shards:
            try:
                with disk.open_shard(self.folder, shard, self._manifest), (self.folder / shard.file).open("rb") as file:
                    if hashlib.file_digest(file, "sha256").hexdigest() != shard.sha256:
                        damage[shard.file] = "its checksum differs from the one in the manifest"
            except (StoreError, OSError) as error:
                damage[shard.file] = str(error).partition(" is damaged: ")[2].partition("; `hcep")[0] or str(error)
        return damage

    def verify(self) -> None:
        """Check every file's checksum, size, columns and counts; StoreError lists the damaged ones."""
        damage = self.damaged_shards()
        if damage:
            listed = "; ".join(f"{name}: {what}" for name, what in damage.items())
            raise StoreError(
                f"{len(damage):,} of {len(self.shards):,} shards of {str(self.folder)!r} are damaged ({listed}); "
                "`hcep info STORE --repair` (or repair()) removes them; then encode again"
            )

    def repair(self) -> list[str]:
        """Drop damaged files from the manifest and return their names; the next run encodes their images again."""
        if self._rows is not None:
            raise StoreError("a selection cannot be repaired: open the whole store")
        with disk.locked(self.folder):
            self._open(self.folder, disk.read_manifest(self.folder))
            damage = self.damaged_shards()
            sound = [shard for shard in self.shards if shard.file not in damage]
            disk.write_manifest(self.folder, self._manifest.having(shards=sound))
            self._open(self.folder, disk.read_manifest(self.folder))
        return list(damage)


def _texts(parts: Iterable[Any]) -> NDArray[Any]:
    """Columns of Arrow as one array; each text is made once, however many images have it."""
    chunks = [chunk for part in parts for chunk in part.chunks]
    column = pa.chunked_array(chunks, pa.string()).dictionary_encode().combine_chunks()
    texts: NDArray[Any] = np.array([*column.dictionary.to_pylist(), None], dtype=object)
    texts = texts if column.null_count else texts[:-1].astype(np.str_)
    return np.asarray(texts[column.indices.fill_null(len(texts) - 1).to_numpy()])


def _between(rows: NDArray[np.intp], start: int, stop: int) -> NDArray[np.intp]:
    """Rows from `start` to `stop` of a sorted selection, counted from `start`."""
    first, last = np.searchsorted(rows, [start, stop])
    return rows[first:last] - start
