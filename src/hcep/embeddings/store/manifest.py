"""The files of a store: a JSON manifest, which is checked when read and replaced in one step, and Parquet shards."""

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Meta, Struct
from numpy.typing import NDArray

from hcep import _files
from hcep._checks import Count, PositiveCount, convert_record, parse_json
from hcep._files import write_bytes
from hcep.embeddings.protocol import EncoderRecord
from hcep.embeddings.vectors import MANIFEST, MAX_DIMS, StoreError
from hcep.errors import quote

FORMAT, VERSION = "hcep-embedding-store", 1
#: A larger manifest is refused unread; a million skipped images take about 0.3 GB.
MAX_MANIFEST_BYTES = 1 << 30
#: Images per row group, the unit that a reader holds in memory.
ROW_GROUP = 4096
#: Most bytes per image for text and encodings, beside the vector; more is refused unread.
MAX_TEXT_BYTES = 1 << 16
VECTOR = "vector"
#: Columns beside the vector, in the file's order.
IMAGE_COLUMNS = {"row": pa.int64()} | dict.fromkeys(("id", "path", "label", "split", "content_hash"), pa.string())

#: The column of each attribute of a store.
COLUMNS = {"ids": "id", "paths": "path", "labels": "label", "splits": "split", "content_hashes": "content_hash"}

StoredDtype = Literal["float16", "float32"]

_ALWAYS = ("row", "id", "path")
_FINGERPRINT = b"hcep.encoder_fingerprint"
# No other name is accepted, so that a manifest cannot point outside its folder. \Z, because $ would accept a newline.
_SHARD_NAME = r"^shard-([0-9]{6,12})\.parquet\Z"
# Half-written files, and the flat copies of vectors that release 0.1 could make.
_LEFTOVER = re.compile(
    r"\.(manifest\.json|shard-\d{6,12}\.parquet)\.(tmp|[0-9a-f]{8}\.part)"
    r"|\.?(vectors|sealed)-[0-9a-f]{16}\.npy(\.tmp|\.[0-9a-f]{8}\.part)?",
    re.ASCII,
)
_Sha256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z", description="64 hexadecimal digits")]
_ShardName = Annotated[str, Meta(pattern=_SHARD_NAME, description="a name such as shard-000000.parquet")]


class ShardRecord(Struct, frozen=True):
    """One file of vectors, as the manifest lists it."""

    file: _ShardName
    n_images: PositiveCount
    n_bytes: PositiveCount
    sha256: _Sha256

    @property
    def number(self) -> int:
        return shard_number(self.file)


class SkippedImage(Struct, frozen=True):
    """An image without a vector, and the reason; `content_hash` is None if the file could not be read."""

    id: str
    path: str
    reason: str
    content_hash: _Sha256 | None = None


class Manifest(Struct, frozen=True):
    """Everything that is known of a store without opening a shard."""

    encoder: EncoderRecord
    n_dims: Annotated[int, Meta(ge=1, le=MAX_DIMS, description=f"a whole number from 1 to {MAX_DIMS}")]
    dtype: StoredDtype
    next_row: Count
    shards: tuple[ShardRecord, ...]
    skipped: tuple[SkippedImage, ...]

    def __post_init__(self) -> None:
        if self.encoder.fingerprint is None or self.encoder.preprocessing is None:
            raise ValueError("encoder.fingerprint must be a string, and encoder.preprocessing must be a JSON object")
        # Vectors are stored uncompressed, so a count that does not fit its file is a lie that would cost memory.
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
        """The encoder's fingerprint; another encoder with the same one is the same."""
        return self.encoder.fingerprint or ""

    @property
    def next_number(self) -> int:
        """A number above every shard's, so that no file in use is overwritten."""
        return max((shard.number for shard in self.shards), default=-1) + 1

    def refuse_other(self, encoder: EncoderRecord, n_dims: int, dtype: str, folder: object) -> None:
        """Refuse vectors of another encoder, length or precision than those in `folder`."""
        if encoder.fingerprint != self.fingerprint:
            raise StoreError(
                f"the vectors in {str(folder)!r} come from encoder {quote(self.encoder.name)} (fingerprint "
                f"{self.fingerprint[:12]}), not from {quote(encoder.name)} "
                f"({(encoder.fingerprint or 'unknown')[:12]}); a store holds vectors of one encoder: use the same "
                "encoder, or another store"
            )
        if (self.n_dims, self.dtype) != (n_dims, dtype):
            raise StoreError(
                f"{str(folder)!r} holds {self.dtype} vectors of {self.n_dims:,} dimensions, not {dtype} of {n_dims:,}; "
                "use the same dtype, or another folder"
            )

    def having(self, **changes: Any) -> "Manifest":
        """This manifest with other `shards`, `skipped` or `next_row`."""
        return msgspec.structs.replace(self, **{k: v if k == "next_row" else tuple(v) for k, v in changes.items()})

    def remove_leftovers(self, folder: Path) -> None:
        """Remove our files that nothing needs: those a crash left half written, and shards that were replaced."""
        needed = {shard.file for shard in self.shards}
        for name in {path.name for path in folder.iterdir()} - needed:
            if shard_number(name) >= 0 or _LEFTOVER.fullmatch(name):
                (folder / name).unlink(missing_ok=True)


def shard_number(name: str) -> int:
    """The number in a shard's file name; -1 for any other name."""
    match = re.match(_SHARD_NAME, name)
    return int(match[1]) if match else -1


def locked(folder: Path) -> AbstractContextManager[None]:
    """Be the only writer of a store."""
    return _files.locked(folder, "another run is writing to", StoreError)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Replace the manifest of a store; readers see the old or the new one, never half of it."""
    write_bytes(folder / MANIFEST, manifest_bytes(manifest), StoreError)


def manifest_bytes(manifest: Manifest) -> bytes:
    head = {"format": FORMAT, "version": VERSION, "n_images": manifest.n_images, "n_skipped": len(manifest.skipped)}
    try:
        encoder = {"encoder": msgspec.structs.asdict(manifest.encoder)}
        return json.dumps(head | msgspec.to_builtins(manifest) | encoder, indent=1, allow_nan=False).encode() + b"\n"
    except (TypeError, ValueError) as error:
        raise StoreError(f"the encoder's preprocessing must consist of values that JSON can hold: {error}") from None


def read_manifest(folder: Path) -> Manifest:
    """Read and check the manifest of a store; StoreError names the file and the wrong field."""
    path = folder / MANIFEST
    try:
        size = path.stat().st_size
        if size > MAX_MANIFEST_BYTES:
            raise StoreError(f"{str(path)!r} is {size:,} bytes: too large for a manifest")
        return parse_manifest(path.read_bytes(), path)
    except FileNotFoundError:
        raise StoreError(f"no embedding store at {str(folder)!r}: {MANIFEST} is missing") from None
    except OSError as error:
        raise StoreError(f"cannot read {str(path)!r}: {error.strerror or error}") from None


def parse_manifest(content: bytes, path: object) -> Manifest:
    """The manifest in `content`; `path` is its name in messages."""
    try:
        data = parse_json(content)
    except ValueError as error:
        raise StoreError(
            f"{str(path)!r} is damaged: invalid JSON ({error}); restore it, or encode again with --fresh (resume=False)"
        ) from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise StoreError(f'{str(path)!r} is not an embedding store: expected a JSON object with "format": "{FORMAT}"')
    if data.get("version") != VERSION:
        raise StoreError(
            f"{str(path)!r} is of version {quote(data.get('version'))}; this release reads version {VERSION}: upgrade "
            "hcep"
        )
    manifest = convert_record(data, Manifest, f"{str(path)!r} is damaged", StoreError)
    if data.get("n_images") != manifest.n_images:
        raise StoreError(
            f"{str(path)!r} is damaged: n_images is {quote(data.get('n_images'))}, its shards hold "
            f"{manifest.n_images:,}"
        )
    return manifest


def write_shard(folder: Path, number: int, table: pa.Table) -> ShardRecord:
    """Write a shard atomically; the same rows give the same bytes."""
    sink = pa.BufferOutputStream()
    compression = dict.fromkeys(IMAGE_COLUMNS, "zstd") | {f"{VECTOR}.list.element": "none"}
    options = {"use_dictionary": False, "write_statistics": False, "write_page_checksum": True}
    pq.write_table(table, sink, row_group_size=ROW_GROUP, compression=compression, **options)
    content, name = memoryview(sink.getvalue()), f"shard-{number:06d}.parquet"
    write_bytes(folder / name, content, StoreError)
    return ShardRecord(name, table.num_rows, len(content), hashlib.sha256(content).hexdigest())


def shard_schema(manifest: Manifest) -> pa.Schema:
    """The schema of every shard; the encoder's fingerprint is stored with the vectors."""
    element = pa.field("element", pa.from_numpy_dtype(np.dtype(manifest.dtype)), nullable=False)
    fields = [pa.field(name, kind, nullable=name not in _ALWAYS) for name, kind in IMAGE_COLUMNS.items()]
    vector = pa.field(VECTOR, pa.list_(element, manifest.n_dims), nullable=False)
    return pa.schema([*fields, vector], metadata={_FINGERPRINT: manifest.fingerprint.encode(errors="backslashreplace")})


def shard_table(manifest: Manifest, columns: dict[str, Sequence[Any]], vectors: NDArray[Any]) -> pa.Table:
    """The rows of a shard, from columns and vectors (n_images, n_dims)."""
    schema = shard_schema(manifest)
    flat = pa.array(np.ascontiguousarray(vectors, dtype=manifest.dtype).reshape(-1))
    arrays = [pa.array(columns[name], kind) for name, kind in IMAGE_COLUMNS.items()]
    arrays.append(pa.FixedSizeListArray.from_arrays(flat, type=schema.field(VECTOR).type))
    return pa.Table.from_arrays(arrays, schema=schema)


@contextmanager
def open_shard(folder: Path, shard: ShardRecord, manifest: Manifest) -> Iterator[pq.ParquetFile]:
    """Open a shard, if its size, schema, counts and encoder are those in the manifest."""
    path = folder / shard.file
    check_size(path, shard)
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            _refuse_other_content(path, file, shard, manifest)
            yield file
    except (OSError, pa.ArrowException) as error:
        raise _damaged(path, str(error).partition("\n")[0][:200]) from None


def check_size(path: Path, shard: ShardRecord) -> None:
    """Refuse a shard whose file is missing, or of another size than in the manifest."""
    try:
        size = path.stat().st_size
    except OSError as error:
        raise _damaged(path, error.strerror or str(error)) from None
    if size != shard.n_bytes:
        raise _damaged(path, f"{size:,} bytes instead of {shard.n_bytes:,}")


def _damaged(path: Path, what: str) -> StoreError:
    return StoreError(
        f"shard {str(path)!r} is damaged: {what}; `hcep info STORE --repair` (repair() in Python) removes it, then "
        "encode again"
    )


def _refuse_other_content(path: Path, file: pq.ParquetFile, shard: ShardRecord, manifest: Manifest) -> None:
    expected, actual = shard_schema(manifest), file.schema_arrow
    if not actual.equals(expected):
        shown = [", ".join(f"{field.name}: {field.type}" for field in list(s)[:10])[:400] for s in (actual, expected)]
        raise _damaged(path, f"its columns are ({shown[0]}), not ({shown[1]})")
    if (actual.metadata or {}).get(_FINGERPRINT) != expected.metadata[_FINGERPRINT]:
        raise _damaged(path, "its vectors do not come from the encoder that the manifest names")
    if file.metadata.num_rows != shard.n_images:
        raise _damaged(path, f"{file.metadata.num_rows:,} rows instead of {shard.n_images:,}")
    for group in map(file.metadata.row_group, range(file.num_row_groups)):
        # We never write dictionaries; a few bytes of one could unpack to any amount of text.
        if any(group.column(i).has_dictionary_page for i in range(group.num_columns)):
            raise _damaged(path, "a column has a dictionary, which HCEP does not write")
        n, size = group.num_rows, group.total_byte_size
        if n > ROW_GROUP or size > (n + 1) * (manifest.bytes_per_vector + MAX_TEXT_BYTES):
            raise _damaged(path, f"a row group of {n:,} rows has {size:,} bytes, too many")


def read_vectors(file: pq.ParquetFile) -> Iterator[NDArray[Any]]:
    """Vectors of a shard, one row group (n, n_dims) at a time, without copying what Arrow decoded."""
    for i in range(file.num_row_groups):
        for chunk in file.read_row_group(i, columns=[VECTOR]).column(VECTOR).chunks:
            yield chunk.flatten().to_numpy(zero_copy_only=True).reshape(len(chunk), -1)
