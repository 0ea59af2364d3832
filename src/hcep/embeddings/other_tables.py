"""Embeddings that other tools wrote, as tables: bioclip embed, clip-retrieval, LanceDB and WebDataset."""

import io
import re
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from hcep._files import json_bytes
from hcep.embeddings.vectors import StoreError
from hcep.errors import MissingExtraError, quote, quoted

#: Endings of the parts of a WebDataset sample that hold its label; a vector ends in .npy.
LABEL_PARTS = ("cls", "txt")
#: Most bytes of a part of a sample.
MAX_SAMPLE = 1 << 26


def read_bioclip(source: Path) -> pa.Table:
    """The vectors of ``bioclip embed``, by the paths of the photos."""
    vectors = msgspec.json.decode(json_bytes(source), type=dict[str, Any])["embeddings"]
    return pa.table({"path": list(vectors), "embedding": pa.array(list(vectors.values()), pa.list_(pa.float32()))})


def read_clip_retrieval(source: Path) -> pa.Table:
    """The image vectors of clip-retrieval, and what its metadata know of each image."""
    files = _numbered(source / "img_emb", "npy")
    X = np.concatenate([np.load(file, mmap_mode="r", allow_pickle=False) for file in files])
    table = pa.table({"embedding": pa.FixedSizeListArray.from_arrays(pa.array(X.reshape(-1)), X.shape[1])})
    parts = [pq.read_table(file) for file in _numbered(source / "metadata", "parquet")]
    if not parts:
        return table
    known = pa.concat_tables(parts, promote_options="default")
    if len(known) != len(table):
        raise StoreError(f"{str(source)!r} has {len(table):,} vectors in img_emb, but {len(known):,} rows in metadata")
    known = known.rename_columns(["path" if name == "image_path" else name for name in known.column_names])
    return known.append_column("embedding", table.column("embedding"))


def _numbered(folder: Path, suffix: str) -> list[Path]:
    """The files of a folder in the order of their numbers: 10 comes after 9."""
    return sorted(folder.glob(f"*.{suffix}"), key=lambda file: [int(n) for n in re.findall(r"\d+", file.stem)])


def read_lance(source: Path) -> pa.Table:
    """A table of LanceDB, or the only one of a database folder."""
    tables = [source] if source.suffix == ".lance" else sorted(source.glob("*.lance"))
    if len(tables) > 1:
        raise StoreError(
            f"{str(source)!r} has several tables, {quoted([one.name for one in tables])}; give one of them"
        )
    try:
        import lance
    except ImportError:
        raise MissingExtraError(f"{str(source)!r} is a table of LanceDB; to read it: pip install pylance") from None
    return lance.dataset(str(tables[0])).to_table()


def read_webdataset(source: Path) -> pa.Table:
    """The samples of a WebDataset shard that have a vector: a .npy file, and perhaps a label in a .cls or .txt file."""
    vectors, labels = dict[str, NDArray[Any]](), dict[str, str]()
    with tarfile.open(source) as archive:
        for member in archive:
            if member.size > MAX_SAMPLE:
                raise StoreError(
                    f"{str(source)!r}: {quote(member.name)} has {member.size:,} bytes, too many for a vector"
                )
            key, _, part = Path(member.name).name.partition(".")
            key = str(Path(member.name).with_name(key))
            content = archive.extractfile(member) if part.endswith("npy") or part in LABEL_PARTS else None
            if content is not None and part in LABEL_PARTS:
                labels[key] = content.read().decode().strip()
            elif content is not None:
                if key in vectors:
                    raise StoreError(f"{str(source)!r}: sample {quote(key)} has several vectors; keep one of them")
                vectors[key] = np.load(io.BytesIO(content.read()), allow_pickle=False).reshape(-1)
    if not vectors:
        raise StoreError(f"{str(source)!r} has no vectors: no sample has a .npy file")
    columns: dict[str, Any] = {"id": list(vectors), "embedding": _lists(vectors.values())}
    return pa.table(columns | ({"label": [labels.get(key) for key in vectors]} if labels else {}))


def _lists(vectors: Iterable[NDArray[Any]]) -> pa.Array:
    return pa.array([vector.astype(np.float32) for vector in vectors], pa.list_(pa.float32()))
