"""Encode images into a store on many machines: first a plan, then one shard per task, and the manifest last.

Shards are written to a folder inside the store, each with a record of its images. A run that was killed finds them
there and continues. When all shards are there, they move into the store, and the manifest lists them.
"""

import hashlib
import json
import multiprocessing
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, Self

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from hcep.datasets import ImageDataset, read_images
from hcep.datasets.image_dataset import SPLIT_NAMES, canonical_split
from hcep.embeddings import Encoder, load_encoder
from hcep.embeddings.encoders import DEFAULT
from hcep.embeddings.images import IMAGE_SUFFIXES, ImageItem, open_image, storable
from hcep.embeddings.protocol import EncoderRecord
from hcep.embeddings.store import manifest as disk
from hcep.embeddings.store.encoding import EncodeReport, encode_to_store
from hcep.embeddings.store.manifest import Manifest, ShardRecord, SkippedImage, StoredDtype
from hcep.embeddings.store.writer import StoreWriter
from hcep.embeddings.vectors import MANIFEST, StoreError
from hcep.errors import quote
from hcep.ray.cluster import Cluster
from hcep.ray.places import Place, is_url

#: Folder of the shards until all of them are written.
STAGING = ".ray"
PLAN = "plan.parquet"
#: A shard that was started more often contains an image that kills the process which opens it.
ATTEMPTS = 3


class _PlannedImage(NamedTuple):
    """An image of a plan, with its path as text, because a path object would swallow a slash of a URL."""

    path: str
    label: str | None
    id: str
    split: str | None


def encode(
    images: ImageDataset | str | os.PathLike[str],
    encoder: Callable[[], Encoder] | str | None,
    store: str | os.PathLike[str],
    *,
    batch_size: int = 64,
    shard_size: int = 1024,
    dtype: StoredDtype = "float16",
    strict: bool = False,
    resume: bool = True,
    **cluster: Any,
) -> EncodeReport:
    """Encode images into a store on a Ray cluster; run the command again to resume, or to add new images.

    Parameters
    ----------
    images : a dataset, what `hcep.datasets.read_images` reads, or the URL of a folder of images (class/x.jpg,
        split/class/x.jpg). All machines must reach the images under the same names.
    encoder : a name, or a function that returns an encoder: each actor loads its own. The built-in one by default.
    store : folder or URL that all machines can reach
    batch_size, shard_size, dtype, strict, resume : see `hcep.embeddings.encode_to_store`
    **cluster : parameters of `hcep.ray.cluster.Cluster`: address, n_workers, n_gpus, progress

    Notes
    -----
    Whatever dies on the way, the store has the same bytes as one that a single process makes, except that row numbers
    have gaps where images were skipped. Images whose id is in the store are not checked again. After a crash at most
    the shards that were in progress are encoded again.
    """
    started = time.perf_counter()
    place, machines = Place.of(store), Cluster(**cluster)
    make = encoder if callable(encoder) else partial(load_encoder, encoder or DEFAULT)
    model = make()
    record = EncoderRecord(model.name, model.fingerprint, dict(model.preprocessing))
    items = _listed(images)
    with _opened(place, record, model.n_dims, dtype, resume) as (manifest, known):
        fresh = [image for image in items if image.id not in known]
        plan = Plan.made(place, manifest, fresh, batch_size, shard_size)
        left = plan.left()
        actor = partial(EncodeShard, make, plan, record, dtype=dtype, batch_size=batch_size, strict=strict)
        deque(machines.run([{"number": n} for n in left], actor, "encoding", sum(map(plan.size, left))), maxlen=0)
        skipped = plan.publish(manifest)
    n_reused = len(items) - len(fresh)
    return EncodeReport(len(fresh) - len(skipped), n_reused, 0, 0, skipped, time.perf_counter() - started)


def _listed(images: ImageDataset | str | os.PathLike[str]) -> list[_PlannedImage]:
    if not isinstance(images, ImageDataset) and Place.of(images).local is None:
        return list_images(Place.of(images))
    dataset = images if isinstance(images, ImageDataset) else read_images(images)
    if any(dataset.boxes):
        raise StoreError("boxes in photos are not supported with --ray")
    return [_PlannedImage(str(item.path), item.label, item.id, item.split) for item in dataset]


def list_images(place: Place) -> list[_PlannedImage]:
    """The images at a URL; folders are classes, or splits if all of them have the names of splits."""
    names = sorted(name for name in place.sizes() if name.lower().endswith(IMAGE_SUFFIXES))
    if not names:
        raise StoreError(f"there are no images at {place.address!r}")
    in_splits = all(name.count("/") > 1 and name.partition("/")[0].lower() in SPLIT_NAMES for name in names)
    images = []
    for name in names:
        *above, _ = name.split("/")
        split = canonical_split(above.pop(0)) if in_splits else None
        images.append(_PlannedImage(f"{place.address}/{name}", above[0] if above else None, name, split))
    return images


@contextmanager
def _opened(
    place: Place, record: EncoderRecord, n_dims: int, dtype: StoredDtype, resume: bool
) -> Iterator[tuple[Manifest, set[str]]]:
    """The manifest of the store, perhaps a new one, and the ids in it; a local store is locked meanwhile."""
    if place.local is not None:
        with StoreWriter.open(place.local, record, n_dims, dtype, resume=resume) as writer:
            yield writer.manifest, writer.images.keys() | writer.skipped.keys()
        return
    content = place.read(MANIFEST) if resume else None
    manifest = Manifest(record, n_dims, dtype, next_row=0, shards=(), skipped=())
    if content is not None:
        manifest = disk.parse_manifest(content, f"{place.address}/{MANIFEST}")
        manifest.refuse_other(record, n_dims, dtype, place.address)
    known = {image.id for image in manifest.skipped}
    for shard in manifest.shards:
        with place.opened(shard.file) as file:
            known |= set(pq.read_table(file, columns=["id"]).column("id").to_pylist())
    yield manifest, known


@dataclass(frozen=True)
class Plan:
    """Which images go into which shard, with which row numbers, and where the shards are until all are written."""

    store: Place
    digest: str
    first_row: int
    first_number: int
    n_images: int
    per_shard: int
    base: str

    @classmethod
    def made(
        cls, store: Place, manifest: Manifest, images: Sequence[_PlannedImage], batch_size: int, shard_size: int
    ) -> Self:
        """The plan for these images, written where the actors find it; the same images and store give the same plan."""
        table = pa.table(
            {name: pa.array([getattr(i, name) for i in images], pa.string()) for name in _PlannedImage._fields}
        )
        per_shard = batch_size * -(-shard_size // batch_size)  # whole batches, as in one process
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, row_group_size=per_shard)
        content = sink.getvalue().to_pybytes()
        facts = [manifest.fingerprint, manifest.dtype, batch_size, manifest.next_row]
        facts += [shard.sha256 for shard in manifest.shards]
        digest = hashlib.sha256(content + json.dumps(facts).encode()).hexdigest()[:16]
        plan = cls(store, digest, manifest.next_row, manifest.next_number, len(images), per_shard, os.getcwd())
        for other in {name.split("/")[0] for name in (store / STAGING).sizes()} - {digest}:
            (store / STAGING / other).remove()  # for images or a store that have changed
        if images:
            plan.staging.write(PLAN, content)
        return plan

    @property
    def staging(self) -> Place:
        return self.store / STAGING / self.digest

    def size(self, number: int) -> int:
        """The number of images in a shard."""
        return min(self.per_shard, self.n_images - number * self.per_shard)

    def images(self, number: int) -> list[_PlannedImage]:
        """The images in a shard."""
        with self.staging.opened(PLAN) as file:
            return [_PlannedImage(**row) for row in pq.ParquetFile(file).read_row_group(number).to_pylist()]

    def left(self) -> list[int]:
        """The numbers of the shards that are not written yet."""
        written = self.staging.sizes() if self.n_images else {}
        return [n for n in range(-(-self.n_images // self.per_shard)) if f"{n}.json" not in written]

    def publish(self, manifest: Manifest) -> tuple[SkippedImage, ...]:
        """Move the shards into the store, then list them in its manifest; return the images that were skipped."""
        shards, skipped = list(manifest.shards), list(manifest.skipped)
        for n in range(-(-self.n_images // self.per_shard)):
            record = json.loads(self.staging.read(f"{n}.json") or b"")
            skipped += msgspec.convert(record["skipped"], list[SkippedImage])
            for shard in msgspec.convert(record["shards"], list[ShardRecord]):
                self.staging.publish(shard.file, self.store)
                shards.append(shard)
        whole = manifest.having(shards=shards, skipped=skipped, next_row=manifest.next_row + self.n_images)
        self.store.write(MANIFEST, disk.manifest_bytes(whole))
        (self.store / STAGING).remove()
        return tuple(skipped[len(manifest.skipped) :])


class EncodeShard:
    """The function of an actor, which has one encoder and encodes shard after shard."""

    def __init__(self, make: Callable[[], Encoder], plan: Plan, record: EncoderRecord, **options: Any) -> None:
        self.encoder, self.plan, self.options = make(), plan, options
        if self.encoder.fingerprint != record.fingerprint:
            raise StoreError(
                f"the encoder {quote(record.name)} on machine {quote(os.uname().nodename)} differs from the driver's "
                "(another fingerprint); give all machines the same files"
            )

    def __call__(self, task: Mapping[str, Any]) -> dict[str, Any]:
        number, staging = int(task["number"]), self.plan.staging
        if staging.read(f"{number}.json") is None:  # otherwise an actor did it, and died before it could report
            attempt = 1 + int(staging.read(f"{number}.attempts") or b"0")
            staging.write(f"{number}.attempts", str(attempt).encode())
            with TemporaryDirectory(prefix="hcep-") as scratch:
                record = self.encode(number, Path(scratch), careful=attempt > ATTEMPTS)
            staging.write(f"{number}.json", json.dumps(record).encode())
        return {"number": number, "n_images": self.plan.size(number)}

    def encode(self, number: int, scratch: Path, careful: bool) -> dict[str, Any]:
        """Encode the images of a shard into a temporary store, and keep its only file, with the rows of the plan."""
        images = self.plan.images(number)
        items = [ImageItem(self.at_hand(one, scratch, k), *one[1:]) for k, one in enumerate(images)]
        deadly = {item.id for item in items if careful and kills(self.encoder, item.path)}
        safe, own = [item for item in items if item.id not in deadly], scratch / "store"
        encode_to_store(safe, self.encoder, own, shard_size=len(images), n_workers=1, **self.options)
        manifest, place, shards = disk.read_manifest(own), {one.id: k for k, one in enumerate(images)}, []
        paths = [storable(one.path) for one in images]
        for shard in manifest.shards:
            table = pq.read_table(own / shard.file)
            order = [place[key] for key in table.column("id").to_pylist()]
            first = self.plan.first_row + number * self.plan.per_shard
            for name, values in {"row": [first + k for k in order], "path": [paths[k] for k in order]}.items():
                at = table.schema.get_field_index(name)
                table = table.set_column(at, table.schema.field(at), pa.array(values, table.schema.field(at).type))
            shards.append(disk.write_shard(scratch, self.plan.first_number + number, table))
            self.plan.staging.write(shards[-1].file, (scratch / shards[-1].file).read_bytes())
        skipped = [*manifest.skipped, *(SkippedImage(key, "", "the worker that opened it crashed") for key in deadly)]
        named = [msgspec.structs.replace(one, path=paths[place[one.id]]) for one in skipped]
        return {"shards": msgspec.to_builtins(shards), "skipped": msgspec.to_builtins(named)}

    def at_hand(self, image: _PlannedImage, scratch: Path, number: int) -> Path:
        """The image as a file on this machine; a missing image stays missing."""
        if not is_url(image.path):
            return Path(self.plan.base, image.path)
        folder, _, name = image.path.rpartition("/")
        copy, content = scratch / f"{number}{Path(name).suffix}", Place.of(folder).read(name)
        if content is not None:
            copy.write_bytes(content)
        return copy


def kills(encoder: Encoder, path: Path) -> bool:
    """Whether a process that opens and prepares the image dies, or has not finished after a minute."""

    def trial() -> None:
        with suppress(Exception):  # an ordinary bad image is skipped with its reason later
            encoder.preprocess(open_image(path))
        os._exit(0)

    process = multiprocessing.get_context("fork").Process(target=trial)
    process.start()
    process.join(60)
    process.kill()
    process.join()
    return process.exitcode != 0
