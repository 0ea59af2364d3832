"""One shard of an embedding store: a Parquet file of vectors and what is known of their images."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from hcep.embeddings.store.manifest import Manifest, ShardRecord, StoreError, shard_name, write_atomically

#: Images a row group: what a reader holds at a time.
ROW_GROUP = 4096
#: Bytes that text and encodings may take for each image, beside its vector; more is refused unread.
MAX_TEXT_BYTES = 1 << 16

VECTOR = "vector"
#: Columns other than the vector, in the file's order.
IMAGE_COLUMNS = {
    "row": pa.int64(),
    "id": pa.string(),
    "path": pa.string(),
    "label": pa.string(),
    "split": pa.string(),
    "content_hash": pa.string(),
}
_ALWAYS = ("row", "id", "path")
_FINGERPRINT = b"hcep.encoder_fingerprint"


def shard_schema(manifest: Manifest) -> pa.Schema:
    """Schema of every shard of a store: the encoder's fingerprint goes with the vectors."""
    element = pa.field("element", pa.from_numpy_dtype(np.dtype(manifest.dtype)), nullable=False)
    fields = [pa.field(name, kind, nullable=name not in _ALWAYS) for name, kind in IMAGE_COLUMNS.items()]
    vector = pa.field(VECTOR, pa.list_(element, manifest.n_dims), nullable=False)
    return pa.schema([*fields, vector], metadata={_FINGERPRINT: manifest.fingerprint.encode()})


def shard_table(manifest: Manifest, columns: dict[str, Sequence[Any]], vectors: NDArray[Any]) -> pa.Table:
    """Rows of a shard from columns and vectors (n_images, n_dims)."""
    schema = shard_schema(manifest)
    flat = pa.array(np.ascontiguousarray(vectors, dtype=manifest.dtype).reshape(-1))
    arrays = [pa.array(columns[name], kind) for name, kind in IMAGE_COLUMNS.items()]
    arrays.append(pa.FixedSizeListArray.from_arrays(flat, type=schema.field(VECTOR).type))
    return pa.Table.from_arrays(arrays, schema=schema)


def write_shard(folder: Path, number: int, table: pa.Table) -> ShardRecord:
    """Write a shard atomically; the same rows give the same bytes."""
    sink = pa.BufferOutputStream()
    text = dict.fromkeys(IMAGE_COLUMNS, "zstd")
    pq.write_table(
        table,
        sink,
        row_group_size=ROW_GROUP,
        compression=text | {f"{VECTOR}.list.element": "none"},
        use_dictionary=False,
        write_statistics=False,
        write_page_checksum=True,
    )
    content = memoryview(sink.getvalue())
    write_atomically(folder / shard_name(number), content)
    return ShardRecord(shard_name(number), table.num_rows, len(content), hashlib.sha256(content).hexdigest())


@contextmanager
def open_shard(folder: Path, shard: ShardRecord, manifest: Manifest) -> Iterator[pq.ParquetFile]:
    """Open a shard whose size, schema, counts and encoder are what the manifest says.

    Raises StoreError: the file is missing, truncated, not Parquet, or another file than the manifest describes; names
    it.
    """
    path = folder / shard.file
    check_size(path, shard)
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            _refuse_other_content(path, file, shard, manifest)
            yield file
    except (OSError, pa.ArrowException) as error:
        raise damaged(path, str(error).partition("\n")[0][:200]) from None


def check_size(path: Path, shard: ShardRecord) -> None:
    """Raise when a shard's file is missing or of another size than the manifest says."""
    try:
        size = path.stat().st_size
    except OSError as error:
        raise damaged(path, error.strerror or str(error)) from None
    if size != shard.n_bytes:
        raise damaged(path, f"{size:,} bytes instead of {shard.n_bytes:,}")


def damaged(path: Path, what: str) -> StoreError:
    """The error about a shard that is not as it was written."""
    return StoreError(
        f"shard {str(path)!r} is damaged: {what}; `hcep store repair` (repair() in Python) drops it, then encode again"
    )


def _refuse_other_content(path: Path, file: pq.ParquetFile, shard: ShardRecord, manifest: Manifest) -> None:
    expected, found = shard_schema(manifest), file.schema_arrow
    if not found.equals(expected):
        raise damaged(path, f"its columns are {_columns(found)}, not {_columns(expected)}")
    if (found.metadata or {}).get(_FINGERPRINT) != expected.metadata[_FINGERPRINT]:
        raise damaged(path, "its vectors come from another encoder than the manifest says")
    if file.metadata.num_rows != shard.n_images:
        raise damaged(path, f"{file.metadata.num_rows:,} rows instead of {shard.n_images:,}")
    for i in range(file.num_row_groups):
        _refuse_oversized(path, file.metadata.row_group(i), manifest)


def _refuse_oversized(path: Path, group: Any, manifest: Manifest) -> None:
    # Dictionaries are never written: a few bytes of one could unpack to any amount of text.
    if any(group.column(i).has_dictionary_page for i in range(group.num_columns)):
        raise damaged(path, "a column has a dictionary, which HCEP does not write")
    most = (group.num_rows + 1) * (manifest.bytes_per_vector + MAX_TEXT_BYTES)
    if group.num_rows > ROW_GROUP or group.total_byte_size > most:
        raise damaged(path, f"a row group of {group.num_rows:,} rows has {group.total_byte_size:,} bytes, too many")


def _columns(schema: pa.Schema) -> str:
    shown = ", ".join(f"{field.name}: {field.type}" for field in list(schema)[:10])
    return f"({shown})"[:400]


def read_columns(file: pq.ParquetFile, columns: Sequence[str]) -> pa.Table:
    """Columns of a shard other than the vectors."""
    return file.read(columns=list(columns))


def read_vectors(file: pq.ParquetFile, manifest: Manifest) -> Iterator[NDArray[Any]]:
    """Vectors of a shard, one row group (n, n_dims) at a time, without a copy of what Arrow decoded."""
    for i in range(file.num_row_groups):
        column = file.read_row_group(i, columns=[VECTOR]).column(VECTOR)
        for chunk in column.chunks:
            yield chunk.flatten().to_numpy(zero_copy_only=True).reshape(-1, manifest.n_dims)


def checksum(path: Path) -> str:
    """SHA-256 of a file, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
