"""The embedding store: a folder of Parquet shards and a manifest, opened lazily, read in pieces."""

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

from hcep._files import replacing
from hcep.embeddings.arrays import EmbeddingArrays, is_sealed, map_npy, write_npy_in_pieces
from hcep.embeddings.protocol import EncoderRecord
from hcep.embeddings.store import manifest as disk
from hcep.embeddings.store.manifest import ShardRecord, SkippedImage, StoreError
from hcep.embeddings.store.writer import locked
from hcep.errors import near_matches, quoted


class EmbeddingStore:
    """Vectors of images with their ids, paths and labels, from one encoder.

    Opening reads the manifest only; vectors are read in pieces, when asked for. `encode_to_store` writes stores.

    Attributes
    ----------
    n_dims, dtype : of the vectors, as they are stored
    encoder : name, fingerprint and preprocessing of the encoder
    skipped : images that could not be encoded, with the reason
    shards : the files of the vectors, in order

    Rows stand in the order in which images were encoded. A run that adds images writes new files and leaves
    the old ones; a reader that was opened before it sees the store as it was.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._open(Path(folder))

    def _open(self, folder: Path, manifest: disk.Manifest | None = None, rows: NDArray[np.intp] | None = None) -> None:
        vars(self).clear()
        self.folder, self._rows = folder, rows
        self._manifest = manifest or disk.read_manifest(folder)
        self.n_dims, self.dtype = self._manifest.n_dims, np.dtype(self._manifest.dtype)
        self.encoder: EncoderRecord = self._manifest.encoder
        self.skipped: tuple[SkippedImage, ...] = self._manifest.skipped
        self.shards: tuple[ShardRecord, ...] = self._manifest.shards

    def __len__(self) -> int:
        return self._manifest.n_images if self._rows is None else len(self._rows)

    @property
    def shape(self) -> tuple[int, int]:
        """(n_images, n_dims), as of the array `to_numpy` gives."""
        return len(self), self.n_dims

    def __repr__(self) -> str:
        part = "" if self._rows is None else f" of {self._manifest.n_images:,}"
        skipped = f", {len(self.skipped):,} skipped" if self.skipped else ""
        return (
            f"EmbeddingStore({str(self.folder)!r}: {len(self):,}{part} images, {self.n_dims:,} dimensions, "
            f"{self.dtype}, encoder {self.encoder.name!r}{skipped})"
        )

    def _read(self, read: Callable[[pq.ParquetFile], Iterable[Any]]) -> Iterator[tuple[Any, NDArray[np.intp] | None]]:
        """Pieces that `read` makes of shards, and their selected rows, None for all; shards without any stay closed."""
        start = 0
        for shard in self.shards:
            stop = start + shard.n_images
            if self._rows is None or len(_between(self._rows, start, stop)):
                with disk.open_shard(self.folder, shard, self._manifest) as file:
                    for part in read(file):
                        yield part, None if self._rows is None else _between(self._rows, start, start + len(part))
                        start += len(part)
            start = stop

    def column_blocks(self, *names: str) -> Iterator[tuple[Any, ...]]:
        """Rows, as a slice, and values of columns (Arrow arrays), a shard of images at a time."""
        start = 0
        for table, rows in self._read(lambda file: [file.read(columns=list(names))]):
            part = table if rows is None else table.take(pa.array(rows))
            yield slice(start, start + len(part)), *(part.column(name) for name in names)
            start += len(part)

    def _column(self, name: str) -> NDArray[Any]:
        parts = [part for _, column in self.column_blocks(name) for part in column.chunks]
        column = pa.chunked_array(parts, pa.string()).dictionary_encode().combine_chunks()
        # Each text once, however many images have it.
        texts: NDArray[Any] = np.array([*column.dictionary.to_pylist(), None], dtype=object)
        texts = texts if column.null_count else texts[:-1].astype(np.str_)
        return np.asarray(texts[column.indices.fill_null(len(texts) - 1).to_numpy()])

    #: (n_images,) str, unique.
    ids = cached_property[NDArray[Any]](lambda self: self._column("id"))
    #: (n_images,) str, as given when the images were encoded.
    paths = cached_property[NDArray[Any]](lambda self: self._column("path"))
    #: (n_images,) str; an object array with None where images have no label, or are in no split.
    labels = cached_property[NDArray[Any]](lambda self: self._column("label"))
    splits = cached_property[NDArray[Any]](lambda self: self._column("split"))
    #: (n_images,) SHA-256 of the image files; None where vectors were imported.
    content_hashes = cached_property[NDArray[Any]](lambda self: self._column("content_hash"))

    def select(
        self,
        *,
        labels: Iterable[str] | str | None = None,
        splits: Iterable[str] | str | None = None,
        rows: ArrayLike | None = None,
    ) -> "EmbeddingStore":
        """The images that meet every condition, as a store that reads the same files.

        labels, splits : str or iterable of str; keep these
        rows : (n_images,) bool, or indices; keep these; the order stays the store's
        """
        keep = np.ones(len(self), dtype=bool) if rows is None else self._at(np.asarray(rows))
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
        chosen, part = np.flatnonzero(keep), EmbeddingStore.__new__(EmbeddingStore)
        part._open(self.folder, self._manifest, chosen if self._rows is None else self._rows[chosen])
        return part

    def _at(self, rows: NDArray[Any]) -> NDArray[np.bool_]:
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

    def batches(self, size: int = 8192, dtype: DTypeLike = np.float32) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        """Stream batches of X (size, n_dims) and labels (size,) in row order; memory does not grow with the store."""
        if size < 1:
            raise StoreError(f"size must be at least 1, got {size}")
        return self._batches(size, np.dtype(dtype))

    def _batches(self, size: int, dtype: np.dtype[Any]) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        start = filled = 0
        batch = np.empty((min(size, len(self)), self.n_dims), dtype)
        for vectors in self._vectors():
            while len(vectors):
                taken = vectors[: len(batch) - filled]
                batch[filled : filled + len(taken)] = taken
                filled, vectors = filled + len(taken), vectors[len(taken) :]
                if filled == len(batch):
                    yield batch, self.labels[start : start + filled]
                    start, filled = start + filled, 0
                    batch = np.empty((min(size, len(self) - start), self.n_dims), dtype)

    def to_numpy(self, dtype: DTypeLike | None = None) -> NDArray[Any]:
        """All vectors, (n_images, n_dims), in memory once, by default as they are stored; decoded shard by shard."""
        self._refuse_other_sizes()
        X = np.empty(self.shape, self.dtype if dtype is None else dtype)
        start = 0
        for vectors in self._vectors():
            X[start : start + len(vectors)] = vectors
            start += len(vectors)
        return X

    def to_arrays(self) -> EmbeddingArrays:
        """Vectors and columns in memory, ready for `write_arrays`."""
        return EmbeddingArrays(self.to_numpy(), self.labels, self.ids, self.paths, self.splits)

    def memory_map(self, path: str | os.PathLike[str] | None = None) -> NDArray[Any]:
        """All vectors as a read-only memory-mapped array; pages are read when touched.

        Parquet cannot be mapped, so the first call writes a flat ``.npy`` copy; later calls find it and check it.

        path : where the copy goes. By default into the store's folder, under a name that changes with the content; a
            selection has no such place and needs a path, which is written anew.
        """
        if path is None and self._rows is not None:
            raise StoreError("a selection has no place for its copy: give memory_map a path, or map the whole store")
        target = self.folder / self._manifest.flat_copy if path is None else Path(path)
        if path is not None or not target.exists():
            self._refuse_other_sizes()
            with replacing(target, StoreError) as partial:
                write_npy_in_pieces(partial, self.shape, self.dtype, self._vectors(), sealed=True)
        X = map_npy(target)
        damage = "" if is_sealed(target, X) else "its checksum is not that of its vectors"
        if X.shape != self.shape or X.dtype != self.dtype:
            damage = f"{X.dtype} of shape {X.shape}"
        if damage:
            raise StoreError(f"{str(target)!r} is damaged: {damage}; delete it, it will be made again")
        return X

    def _refuse_other_sizes(self) -> None:
        # Before memory or disk is set aside for what the manifest claims.
        for shard in self.shards:
            disk.check_size(self.folder / shard.file, shard)

    def damaged_shards(self) -> dict[str, str]:
        """Read every shard in full; those that are not as they were written, with what is wrong."""
        found = {}
        for shard in self.shards:
            try:
                with disk.open_shard(self.folder, shard, self._manifest), (self.folder / shard.file).open("rb") as file:
                    if hashlib.file_digest(file, "sha256").hexdigest() != shard.sha256:
                        found[shard.file] = "its checksum is not the manifest's"
            except (StoreError, OSError) as error:
                found[shard.file] = str(error).partition(" is damaged: ")[2].partition("; `hcep")[0] or str(error)
        return found

    def verify(self) -> None:
        """Check every shard's checksum, size, columns and counts, and the flat copy's where there is one."""
        found = self.damaged_shards()
        if not found and self._rows is None and (self.folder / self._manifest.flat_copy).exists():
            self.memory_map()
        if found:
            listed = "; ".join(f"{name}: {what}" for name, what in found.items())
            raise StoreError(
                f"{len(found):,} of {len(self.shards):,} shards of {str(self.folder)!r} are damaged ({listed}); "
                "`hcep info STORE --repair` (or repair()) drops them, then encode again"
            )

    def repair(self) -> list[str]:
        """Take damaged shards out of the manifest and return their names; the next run encodes their images again."""
        if self._rows is not None:
            raise StoreError("a selection cannot be repaired: open the whole store")
        with locked(self.folder):
            self._open(self.folder)
            bad = self.damaged_shards()
            (self.folder / self._manifest.flat_copy).unlink(missing_ok=True)
            left = [shard for shard in self.shards if shard.file not in bad]
            disk.write_manifest(self.folder, self._manifest.having(shards=left))
            self._open(self.folder)
        return list(bad)


def _between(rows: NDArray[np.intp], start: int, stop: int) -> NDArray[np.intp]:
    """Rows from `start` to `stop` of a sorted selection, counted from `start`."""
    first, last = np.searchsorted(rows, [start, stop])
    return rows[first:last] - start
