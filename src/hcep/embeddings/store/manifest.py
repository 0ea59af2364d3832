"""The manifest of an embedding store: JSON, checked on the way in, replaced atomically on the way out."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import numpy as np
from msgspec import Meta, Struct

from hcep import _json
from hcep._files import replacing, sync_folder
from hcep._json import Count, PositiveCount
from hcep.embeddings.protocol import EncoderRecord
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
_FLAT_COPY = re.compile(r"\.?(vectors|sealed)-[0-9a-f]{16}\.npy(\.tmp|\.[0-9a-f]{8}\.part)?\Z")
_HALF = re.compile(r"\.(manifest\.json|shard-\d{6,12}\.parquet)\.(tmp|[0-9a-f]{8}\.part)\Z", re.ASCII)
_Sha256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z", description="64 hexadecimal digits")]


class StoreError(HCEPError):
    """An embedding store or a file of embeddings is damaged, foreign, or does not fit what was asked of it."""


class ShardRecord(Struct, frozen=True):
    """What the manifest knows of a shard."""

    file: Annotated[
        str, Meta(pattern=r"^shard-[0-9]{6,12}\.parquet\Z", description="a name such as shard-000000.parquet")
    ]
    n_images: PositiveCount
    n_bytes: PositiveCount
    sha256: _Sha256

    @property
    def number(self) -> int:
        """The number in the file's name."""
        return shard_number(self.file)


class SkippedImage(Struct, frozen=True):
    """An image without a vector, and why; `content_hash` is None where the file could not be read."""

    id: str
    path: str
    reason: str
    content_hash: _Sha256 | None = None


class Manifest(Struct, frozen=True):
    """Everything a store knows without opening a shard."""

    encoder: EncoderRecord
    n_dims: Annotated[int, Meta(ge=1, le=MAX_DIMS, description=f"a whole number from 1 to {MAX_DIMS}")]
    dtype: StoredDtype
    next_row: Count
    shards: tuple[ShardRecord, ...]
    skipped: tuple[SkippedImage, ...]

    def __post_init__(self) -> None:
        if self.encoder.fingerprint is None or self.encoder.preprocessing is None:
            raise ValueError("encoder.fingerprint must be a string, and encoder.preprocessing must be a JSON object")
        # Vectors are stored uncompressed: no count can be larger than its file, so none makes us allocate more.
        for shard in self.shards:
            if shard.n_images * self.bytes_per_vector > shard.n_bytes:
                raise ValueError(f"{shard.file} cannot hold {shard.n_images:,} vectors, it has {shard.n_bytes:,} bytes")
        if len({shard.file for shard in self.shards}) < len(self.shards):
            raise ValueError("a shard is listed twice")

    @property
    def n_images(self) -> int:
        return sum(shard.n_images for shard in self.shards)

    @property
    def bytes_per_vector(self) -> int:
        return self.n_dims * np.dtype(self.dtype).itemsize

    @property
    def fingerprint(self) -> str:
        """The encoder's, which decides whether another one is the same."""
        return self.encoder.fingerprint or ""

    def refuse_other_encoder(self, encoder: EncoderRecord, folder: Path) -> None:
        """Raise when `encoder` is not the one the vectors come from."""
        if encoder.fingerprint != self.fingerprint:
            raise StoreError(
                f"the vectors in {str(folder)!r} come from encoder {self.encoder.name!r} (fingerprint "
                f"{self.fingerprint[:12]}), not from {encoder.name!r} ({(encoder.fingerprint or 'unknown')[:12]}); "
                "vectors of different encoders do not mix: use the same encoder, or another store"
            )

    def with_shards(self, shards: list[ShardRecord]) -> Manifest:
        return msgspec.structs.replace(self, shards=tuple(shards))


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
    return f"sealed-{hashlib.sha256(content.encode()).hexdigest()[:16]}.npy"


def is_leftover(name: str, manifest: Manifest) -> bool:
    """Whether a file of a store is one of ours that nothing needs: half written, or of shards that are no more."""
    if shard_number(name) >= 0:
        return all(shard.file != name for shard in manifest.shards)
    return bool(_HALF.fullmatch(name)) or (bool(_FLAT_COPY.fullmatch(name)) and name != flat_copy_name(manifest))


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Replace the manifest of a store; readers see the old or the new one, never half of it."""
    head = {"format": FORMAT, "version": VERSION, "n_images": manifest.n_images, "n_skipped": len(manifest.skipped)}
    try:
        encoder = {"encoder": msgspec.structs.asdict(manifest.encoder)}
        text = json.dumps(head | msgspec.to_builtins(manifest) | encoder, indent=1, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise StoreError(f"the encoder's preprocessing must be JSON-able: {error}") from None
    write_atomically(folder / MANIFEST, text.encode() + b"\n")


def write_atomically(path: Path, content: bytes | memoryview) -> None:
    """Write a file so that a crash leaves the old content or the new, on disk when this returns."""
    with replacing(path, StoreError) as partial:
        partial.write_bytes(content)
    sync_folder(path.parent)


def read_manifest(folder: Path) -> Manifest:
    """Read and check the manifest of a store.

    Raises StoreError: no manifest, not one of this format and version, or a field that cannot be; names the file and
    the field.
    """
    path = folder / MANIFEST
    try:
        size = path.stat().st_size
        data = _json.parse(path.read_bytes()) if size <= MAX_MANIFEST_BYTES else None
    except FileNotFoundError:
        raise StoreError(f"no embedding store at {str(folder)!r}: {MANIFEST} is missing") from None
    except OSError as error:
        raise StoreError(f"cannot read {str(path)!r}: {error.strerror or error}") from None
    except ValueError as error:
        raise StoreError(
            f"{str(path)!r} is damaged: invalid JSON ({error}); restore it, or encode again with --fresh (resume=False)"
        ) from None
    if size > MAX_MANIFEST_BYTES:
        raise StoreError(f"{str(path)!r} is {size:,} bytes: too large for a manifest")
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise StoreError(f'{str(path)!r} is not an embedding store: expected a JSON object with "format": "{FORMAT}"')
    if data.get("version") != VERSION:
        raise StoreError(
            f"{str(path)!r} is of version {data.get('version')!r}; this release reads version {VERSION}: upgrade hcep"
        )
    manifest = _json.convert(data, Manifest, f"{str(path)!r} is damaged", StoreError)
    if data.get("n_images") != manifest.n_images:
        raise StoreError(
            f"{str(path)!r} is damaged: n_images is {data.get('n_images')!r}, its shards hold {manifest.n_images:,}"
        )
    return manifest
