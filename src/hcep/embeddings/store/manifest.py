"""The manifest of an embedding store: JSON, checked on the way in, replaced atomically on the way out."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NoReturn, get_args

import numpy as np

from hcep.errors import HCEPError

FORMAT = "hcep-embedding-store"
VERSION = 1
MANIFEST = "manifest.json"

#: A manifest larger than this is refused unread; a million skipped images take about 0.3 GB.
MAX_MANIFEST_BYTES = 1 << 30
MAX_DIMS = 1 << 20

StoredDtype = Literal["float16", "float32"]

# The only shape a shard's name may have, so that no manifest leads out of its folder. \Z: $ would let a newline pass.
_SHARD_NAME = re.compile(r"shard-(\d{6,12})\.parquet\Z", re.ASCII)
_FLAT_COPY = re.compile(r"\.?vectors-[0-9a-f]{16}\.npy(\.tmp)?\Z")
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")


class StoreError(HCEPError):
    """An embedding store or a file of embeddings is damaged, foreign, or does not fit what was asked of it."""


@dataclass(frozen=True)
class ShardRecord:
    """What the manifest knows of a shard."""

    file: str
    n_images: int
    n_bytes: int
    sha256: str

    @property
    def number(self) -> int:
        """The number in the file's name."""
        return shard_number(self.file)


@dataclass(frozen=True)
class SkippedImage:
    """An image without a vector, and why; `content_hash` is None where the file could not be read."""

    id: str
    path: str
    reason: str
    content_hash: str | None = None


@dataclass(frozen=True)
class EncoderRecord:
    """The encoder of a store: the fingerprint decides whether another one is the same."""

    name: str
    fingerprint: str
    preprocessing: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Manifest:
    """Everything a store knows without opening a shard."""

    encoder: EncoderRecord
    n_dims: int
    dtype: StoredDtype
    next_row: int = 0
    shards: tuple[ShardRecord, ...] = ()
    skipped: tuple[SkippedImage, ...] = ()

    @property
    def n_images(self) -> int:
        return sum(shard.n_images for shard in self.shards)

    @property
    def bytes_per_vector(self) -> int:
        return self.n_dims * np.dtype(self.dtype).itemsize

    def refuse_other_encoder(self, encoder: EncoderRecord, folder: Path) -> None:
        """Raise when `encoder` is not the one the vectors come from."""
        if encoder.fingerprint != self.encoder.fingerprint:
            raise StoreError(
                f"the vectors in {str(folder)!r} come from encoder {self.encoder.name!r} (fingerprint "
                f"{self.encoder.fingerprint[:12]}), not from {encoder.name!r} ({encoder.fingerprint[:12]}); "
                "vectors of different encoders do not mix: use the same encoder, or another store"
            )

    def with_shards(self, shards: list[ShardRecord]) -> Manifest:
        return replace(self, shards=tuple(shards))


def shard_name(number: int) -> str:
    """File name of a shard."""
    return f"shard-{number:06d}.parquet"


def shard_number(name: str) -> int:
    """Number in a shard's file name; -1 for any other name."""
    match = _SHARD_NAME.fullmatch(name)
    return int(match[1]) if match else -1


def flat_copy_name(manifest: Manifest) -> str:
    """File name of a flat copy of the vectors, another one whenever the shards are others."""
    content = "".join(shard.sha256 for shard in manifest.shards)
    return f"vectors-{hashlib.sha256(content.encode()).hexdigest()[:16]}.npy"


def is_old_flat_copy(name: str, manifest: Manifest) -> bool:
    """Whether a file is a flat copy of vectors that the shards no longer hold."""
    return bool(_FLAT_COPY.fullmatch(name)) and name != flat_copy_name(manifest)


# -- writing -------------------------------------------------------------------------------------------


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Replace the manifest of a store; readers see the old or the new one, never half of it."""
    head = {"format": FORMAT, "version": VERSION, "n_images": manifest.n_images, "n_skipped": len(manifest.skipped)}
    try:
        text = json.dumps(head | asdict(manifest), indent=1, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise StoreError(f"the encoder's preprocessing must be JSON-able: {error}") from None
    write_atomically(folder / MANIFEST, text.encode() + b"\n")


def write_atomically(path: Path, content: bytes | memoryview) -> None:
    """Write a file so that a crash leaves the old content or the new, on disk when this returns."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise StoreError(f"cannot write {str(path)!r}: {error.strerror or error}") from error


def sync_folder(folder: Path) -> None:
    """Bring a folder's entries to disk, where the platform lets a folder be opened."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# -- reading -------------------------------------------------------------------------------------------


def read_manifest(folder: Path) -> Manifest:
    """Read and check the manifest of a store.

    Raises
    ------
    StoreError
        No manifest, not one of this format and version, or a field that cannot be; names the file and the field.
    """
    path = folder / MANIFEST
    data = _json(path)
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise StoreError(f'{str(path)!r} is not an embedding store: expected a JSON object with "format": "{FORMAT}"')
    if data.get("version") != VERSION:
        raise StoreError(
            f"{str(path)!r} is of version {data.get('version')!r}; this release reads version {VERSION}: upgrade hcep"
        )
    manifest = _Fields(data, path).manifest()
    _refuse_impossible(manifest, data, path)
    return manifest


def _json(path: Path) -> Any:
    try:
        if path.stat().st_size > MAX_MANIFEST_BYTES:
            raise StoreError(f"{str(path)!r} is {path.stat().st_size:,} bytes: too large for a manifest")
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise StoreError(f"no embedding store at {str(path.parent)!r}: {MANIFEST} is missing") from None
    except OSError as error:
        raise StoreError(f"cannot read {str(path)!r}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        if isinstance(error, StoreError):
            raise
        raise StoreError(f"{str(path)!r} is damaged: invalid JSON ({error}); restore it or encode again") from None


class _Fields:
    """Fields of a JSON object, each of the type it should have or an error that names it."""

    def __init__(self, data: Any, path: Path, where: str = "") -> None:
        self.path, self.where = path, where
        if not isinstance(data, dict):
            self._refuse(where.rstrip(".") or "manifest", "an object", data)
        self.data: dict[str, Any] = data

    def _refuse(self, name: str, expected: str, value: Any) -> NoReturn:
        raise StoreError(f"{str(self.path)!r} is damaged: {name} must be {expected}, got {str(value)[:60]!r}")

    def text(self, name: str) -> str:
        value = self.data.get(name)
        if not isinstance(value, str):
            self._refuse(self.where + name, "a string", value)
        return value

    def count(self, name: str, low: int = 0, high: int = 1 << 60) -> int:
        value = self.data.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            self._refuse(self.where + name, f"a whole number from {low} to {high}", value)
        return value

    def sha256(self, name: str) -> str:
        value = self.text(name)
        if not _SHA256.fullmatch(value):
            self._refuse(self.where + name, "64 hexadecimal digits", value)
        return value

    def many(self, name: str) -> list[_Fields]:
        value = self.data.get(name)
        if not isinstance(value, list):
            self._refuse(self.where + name, "a list", value)
        return [_Fields(entry, self.path, f"{self.where}{name}[{i}].") for i, entry in enumerate(value)]

    def manifest(self) -> Manifest:
        encoder = _Fields(self.data.get("encoder"), self.path, "encoder.")
        preprocessing = _Fields(encoder.data.get("preprocessing"), self.path, "encoder.preprocessing.")
        dtype = self.text("dtype")
        if dtype not in get_args(StoredDtype):
            self._refuse("dtype", "float16 or float32", dtype)
        return Manifest(
            encoder=EncoderRecord(encoder.text("name"), encoder.text("fingerprint"), preprocessing.data),
            n_dims=self.count("n_dims", 1, MAX_DIMS),
            dtype="float16" if dtype == "float16" else "float32",
            next_row=self.count("next_row"),
            shards=tuple(fields.shard() for fields in self.many("shards")),
            skipped=tuple(fields.skipped() for fields in self.many("skipped")),
        )

    def shard(self) -> ShardRecord:
        file = self.text("file")
        if shard_number(file) < 0:
            self._refuse(self.where + "file", "a name such as shard-000000.parquet", file)
        return ShardRecord(file, self.count("n_images", 1), self.count("n_bytes", 1), self.sha256("sha256"))

    def skipped(self) -> SkippedImage:
        digest = None if self.data.get("content_hash") is None else self.sha256("content_hash")
        return SkippedImage(self.text("id"), self.text("path"), self.text("reason"), digest)


def _refuse_impossible(manifest: Manifest, data: dict[str, Any], path: Path) -> None:
    # Vectors are stored uncompressed: no count can be larger than its file, so none makes us allocate more than that.
    for shard in manifest.shards:
        if shard.n_images * manifest.bytes_per_vector > shard.n_bytes:
            raise StoreError(
                f"{str(path)!r} is damaged: {shard.file} cannot hold {shard.n_images:,} vectors, it has "
                f"{shard.n_bytes:,} bytes"
            )
    if len({shard.file for shard in manifest.shards}) < len(manifest.shards):
        raise StoreError(f"{str(path)!r} is damaged: a shard is listed twice")
    if data.get("n_images") != manifest.n_images:
        raise StoreError(
            f"{str(path)!r} is damaged: n_images is {data.get('n_images')!r}, its shards hold {manifest.n_images:,}"
        )
