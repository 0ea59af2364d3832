"""Writing an embedding store: one writer at a time, every commit atomic, vectors never changed once written."""

import logging
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hcep.embeddings.images import ImageItem, storable
from hcep.embeddings.protocol import EncoderRecord
from hcep.embeddings.store import manifest as disk
from hcep.embeddings.store.manifest import Manifest, ShardRecord, SkippedImage, StoredDtype
from hcep.embeddings.vectors import MANIFEST, Embeddings, StoreError
from hcep.errors import quote

logger = logging.getLogger(__name__)


class StoredImage(NamedTuple):
    """What a store holds of an image, beside its vector."""

    shard: str
    path: str
    label: str | None
    split: str | None
    content_hash: str | None


class StoreWriter:
    """Adds images to a store; what `flush` has committed survives any crash.

    Use `StoreWriter.open`, which holds the folder's lock. `manifest` and `images` (by id) are what is committed.
    """

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder, self.manifest = folder, manifest
        self.images = dict(_stored_images(folder, manifest))
        #: Items, vectors, hashes and skipped images, a batch each.
        self._pending: list[tuple[Any, ...]] = []

    @classmethod
    @contextmanager
    def open(
        cls, folder: Path, encoder: EncoderRecord, n_dims: int, dtype: StoredDtype, *, resume: bool = True
    ) -> Iterator["StoreWriter"]:
        """Open a store to write to, or begin one; without `resume`, what it holds is dropped."""
        with disk.locked(folder):
            manifest = _begin(folder, Manifest(encoder, n_dims, dtype, next_row=0, shards=(), skipped=()), resume)
            manifest.remove_leftovers(folder)
            yield cls(folder, manifest)

    @property
    def skipped(self) -> dict[str, SkippedImage]:
        """Images that the manifest lists as skipped, by id."""
        return {image.id: image for image in self.manifest.skipped}

    def add(
        self,
        items: Sequence[ImageItem],
        vectors: NDArray[Any],
        hashes: Sequence[str | None],
        skipped: Sequence[SkippedImage] = (),
    ) -> None:
        """Add a batch of images, with vectors (n, n_dims) and hashes of the files; the next `flush` commits it."""
        if vectors.shape != (len(items), self.manifest.n_dims):
            raise StoreError(
                f"expected vectors of shape ({len(items)}, {self.manifest.n_dims}) for {str(self.folder)!r}, "
                f"got {vectors.shape}"
            )
        with np.errstate(over="ignore"):
            stored = np.asarray(vectors).astype(self.manifest.dtype)
        bad = np.flatnonzero(~np.isfinite(stored).all(axis=1))
        if len(bad) and np.isfinite(vectors[bad[0]]).all():
            raise StoreError(
                f"the vector of {quote(items[bad[0]].id)} reaches {np.abs(vectors[bad[0]]).max():g}, more than "
                f'{self.manifest.dtype} can hold; encode into a new store with dtype="float32"'
            )
        if len(bad):
            raise StoreError(f"the vector of {quote(items[bad[0]].id)} has NaN or infinite values")
        self._pending.append((items, stored, hashes, skipped))

    def flush(self) -> None:
        """Commit what was added, as one new shard; images that it replaces leave their old shards."""
        if not self._pending:
            return
        batches = list(zip(*self._pending, strict=True))
        items, hashes, skipped = (list(chain(*batches[part])) for part in (0, 2, 3))
        # A file that could not be read is not known to have changed: its vector stays.
        broken = {image.id for image in skipped if image.content_hash is not None}
        added, first = {item.id for item in items}, self.manifest.next_row
        shards = self._rewritten((added | broken) & self.images.keys(), {})
        if items:
            rows = range(first, first + len(items))
            known = zip(*((item.id, *_described(item)) for item in items), strict=True)
            columns = dict(zip(disk.IMAGE_COLUMNS, (rows, *known, hashes), strict=True))
            table = disk.shard_table(self.manifest, columns, np.concatenate(batches[1]))
            shards.append(disk.write_shard(self.folder, self._next_number(shards), table))
        noted = {key: image for key, image in self.skipped.items() if key not in added}
        noted |= {image.id: image for image in skipped}
        self._commit(self.manifest.having(next_row=first + len(items), shards=shards, skipped=noted.values()))
        for key in broken:
            self.images.pop(key, None)
        for item, digest in zip(items, hashes, strict=True):
            self.images[item.id] = StoredImage(shards[-1].file, *_described(item), digest)

    def remove(self, ids: Collection[str]) -> int:
        """Remove images, skipped ones too; return how many vectors were removed."""
        self.flush()
        gone = set(ids) & self.images.keys()
        skipped = tuple(image for image in self.manifest.skipped if image.id not in set(ids))
        if gone or len(skipped) < len(self.manifest.skipped):
            self._commit(self.manifest.having(shards=self._rewritten(gone, {}), skipped=skipped))
        for key in gone:
            del self.images[key]
        return len(gone)

    def describe(self, items: Mapping[str, ImageItem]) -> tuple[int, int]:
        """Update stored images, by their present id; return how many images, and how many labels, changed."""
        self.flush()
        old = self.images
        changed = {key: i for key, i in items.items() if (i.id, *_described(i)) != (key, *old[key][1:4])}
        n_relabelled = sum(item.label != old[key].label for key, item in changed.items())
        if changed:
            self._commit(self.manifest.having(shards=self._rewritten(set(), changed)))
            self.images = dict(_stored_images(self.folder, self.manifest))
        return len(changed), n_relabelled

    def note_skipped(self, images: Sequence[SkippedImage], cleared: Collection[str] = ()) -> None:
        """List images as skipped, and remove others from the list."""
        self.flush()
        noted = {key: image for key, image in self.skipped.items() if key not in set(cleared)}
        noted |= {image.id: image for image in images}
        if tuple(noted.values()) != self.manifest.skipped:
            self._commit(self.manifest.having(skipped=noted.values()))

    def _rewritten(self, dropped: set[str], changed: Mapping[str, ImageItem]) -> list[ShardRecord]:
        """The store's shards without the dropped images and with the changed descriptions; vectors are untouched."""
        touched = {self.images[key].shard for key in (*dropped, *changed)}
        shards: list[ShardRecord] = []
        for shard in self.manifest.shards:
            if shard.file not in touched:
                shards.append(shard)
                continue
            with disk.open_shard(self.folder, shard, self.manifest) as file:
                table = file.read()
            table = table.filter(pa.array([key not in dropped for key in table.column("id").to_pylist()]))
            ids = table.column("id").to_pylist()
            for place, name in enumerate(("id", "path", "label", "split")):
                new = table.column(name).to_pylist()
                for row in (row for row, key in enumerate(ids) if key in changed):
                    new[row] = (changed[ids[row]].id, *_described(changed[ids[row]]))[place]
                at = table.schema.get_field_index(name)
                table = table.set_column(at, table.schema.field(at), pa.array(new, table.schema.field(at).type))
            if table.num_rows:
                shards.append(disk.write_shard(self.folder, self._next_number(shards), table))
        return shards

    def _next_number(self, shards: Sequence[ShardRecord]) -> int:
        """A number above every shard that is committed or about to be, so that no file in use is overwritten."""
        return max(self.manifest.next_number, *(shard.number + 1 for shard in shards), 0)

    def _commit(self, manifest: Manifest) -> None:
        disk.write_manifest(self.folder, manifest)
        # In one step: an interrupt between the two would commit the pending images twice.
        self.__dict__.update(manifest=manifest, _pending=[])
        manifest.remove_leftovers(self.folder)


def _described(item: ImageItem) -> tuple[str, str | None, str | None]:
    return storable(str(item.path)), item.label, item.split


def _stored_images(folder: Path, manifest: Manifest) -> Iterator[tuple[str, StoredImage]]:
    names = ("id", "path", "label", "split", "content_hash")
    for shard in manifest.shards:
        with disk.open_shard(folder, shard, manifest) as file:
            columns = file.read(columns=list(names)).to_pydict()
        for key, *known in zip(*(columns[name] for name in names), strict=True):
            yield key, StoredImage(shard.file, *known)


def import_embeddings(
    embeddings: Embeddings, folder: str | os.PathLike[str], *, encoder: str, fingerprint: str | None = None
) -> None:
    """Add vectors that were encoded elsewhere to a store, which is created if needed; float64 becomes float32.

    Parameters
    ----------
    embeddings : vectors in memory
    folder : folder of the store; images that it holds under the same ids are replaced
    encoder : name of the encoder of the vectors
    fingerprint : the encoder's fingerprint; its name stands in if it is unknown
    """
    X = embeddings.X
    stored: StoredDtype = "float16" if X.dtype == np.float16 else "float32"
    record = EncoderRecord(encoder, fingerprint or f"imported:{encoder}", {})
    ids = embeddings.image_ids.tolist()
    columns = [getattr(embeddings, name) for name in ("paths", "labels", "splits")]
    paths, labels, splits = ([None] * len(X) if column is None else _texts(column) for column in columns)
    with StoreWriter.open(Path(folder), record, X.shape[1], stored) as writer:
        for start in range(0, len(X), disk.ROW_GROUP):
            rows = range(start, min(start + disk.ROW_GROUP, len(X)))
            names = [str(ids[i] or paths[i] or i) for i in rows]
            known = zip(names, rows, strict=True)
            items = [ImageItem(Path(paths[i] or name), labels[i], name, splits[i]) for name, i in known]
            writer.add(items, X[rows.start : rows.stop], [None] * len(rows))
            writer.flush()


def _texts(values: NDArray[Any]) -> list[str | None]:
    return [None if value is None else str(value) for value in values.tolist()]


def _begin(folder: Path, empty: Manifest, resume: bool) -> Manifest:
    there = (folder / MANIFEST).exists()
    foreign = sorted(name for name in os.listdir(folder) if disk.shard_number(name) >= 0 and not there)
    if foreign:
        raise StoreError(f"{str(folder)!r} holds {quote(foreign[0])} but no {MANIFEST}: give another folder")
    if there and not resume:
        try:  # a manifest that is whole and not a store's is not overwritten; a damaged one may be
            disk.read_manifest(folder)
        except StoreError as error:
            if " is damaged" not in str(error):
                raise
        logger.info("encoding everything in %s again; its current vectors are deleted", folder)
    if not there or not resume:
        disk.write_manifest(folder, empty)
        return empty
    stored = disk.read_manifest(folder)
    stored.refuse_other(empty.encoder, empty.n_dims, empty.dtype, folder)
    return stored
