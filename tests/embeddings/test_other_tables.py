"""Embeddings that other tools wrote: read with their paths and labels, or refused with the reason."""

from __future__ import annotations

import io
import json
import sys
import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hcep.embeddings import read_embeddings
from hcep.embeddings.files import is_embeddings
from hcep.embeddings.vectors import StoreError
from hcep.errors import MissingExtraError

X = np.arange(8, dtype=np.float32).reshape(4, 2)
FILES = ["a.jpg", "b.jpg", "c.jpg", "d.jpg"]


def bioclip(folder: Path, **changes: object) -> Path:
    content = {"model": "hf-hub:imageomics/bioclip-2", "embeddings": dict(zip(FILES, X.tolist(), strict=True))}
    (folder / "embeddings.json").write_text(json.dumps(content | changes), encoding="utf-8")
    return folder / "embeddings.json"


def clip_retrieval(folder: Path, n_rows: int = 4) -> Path:
    for name in ("img_emb", "text_emb", "metadata"):
        (folder / name).mkdir()
    for number, rows in ((10, X[2:]), (9, X[:2])):  # as text, 10 comes before 9
        np.save(folder / "img_emb" / f"img_emb_{number}.npy", rows.astype(np.float16))
    table = pa.table({"image_path": FILES[:n_rows], "caption": FILES[:n_rows], "label": list("xyxy")[:n_rows]})
    pq.write_table(table, folder / "metadata" / "metadata_0.parquet")
    return folder


def shard(path: Path, parts: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, content in parts.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def npy(vector: np.ndarray) -> bytes:
    data = io.BytesIO()
    np.save(data, vector)
    return data.getvalue()


def test_bioclip_embed(tmp_path) -> None:
    read = read_embeddings(bioclip(tmp_path))
    assert np.array_equal(read.X, X)
    assert read.image_ids.tolist() == FILES
    (tmp_path / "labels.txt").write_text("x\ny\nx\ny\n", encoding="utf-8")
    assert read_embeddings(bioclip(tmp_path), labels=tmp_path / "labels.txt").y.tolist() == list("xyxy")


def test_clip_retrieval(tmp_path) -> None:
    read = read_embeddings(clip_retrieval(tmp_path))
    assert np.array_equal(read.X, X)
    assert (read.image_ids.tolist(), read.y.tolist()) == (FILES, list("xyxy"))


def test_webdataset(tmp_path) -> None:
    parts = {f"in/{i}.{end}": content for i in range(2) for end, content in (("npy", npy(X[i])), ("cls", b"x\n"))}
    read = read_embeddings(shard(tmp_path / "00000.tar", parts | {"in/0.jpg": b"photo"}))
    assert np.array_equal(read.X, X[:2])
    assert (read.image_ids.tolist(), read.y.tolist()) == (["in/0", "in/1"], ["x", "x"])


def test_lance_needs_its_package_and_reads_the_only_table(tmp_path, monkeypatch) -> None:
    (tmp_path / "photos.lance").mkdir()
    monkeypatch.setitem(sys.modules, "lance", None)
    with pytest.raises(MissingExtraError, match=r"^'.*' is a table of LanceDB; to read it: pip install pylance"):
        read_embeddings(tmp_path)
    (tmp_path / "more.lance").mkdir()
    with pytest.raises(StoreError, match=r"several tables, 'more.lance', 'photos.lance'; give one"):
        read_embeddings(tmp_path)


def test_a_lance_table(tmp_path) -> None:
    lance = pytest.importorskip("lance")
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(X.reshape(-1)), 2)
    lance.write_dataset(pa.table({"vector": vectors, "label": list("xyxy")}), str(tmp_path / "photos.lance"))
    read = read_embeddings(tmp_path / "photos.lance")
    assert np.array_equal(read.X, X)
    assert read.y.tolist() == list("xyxy")


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (
            lambda folder: bioclip(folder, embeddings={"a.jpg": [1.0], "b.jpg": [1.0, 2.0]}),
            "vectors of 1 and 2 numbers",
        ),
        (lambda folder: bioclip(folder, embeddings={"a.jpg": "text"}), "cannot read"),
        (lambda folder: clip_retrieval(folder, 3), "4 vectors in img_emb, but 3 rows in metadata"),
        (lambda folder: shard(folder / "x.tar", {"0.a.npy": npy(X[0]), "0.b.npy": npy(X[1])}), "several vectors"),
        (lambda folder: shard(folder / "x.tar", {"0.npy": b"not an array"}), "cannot read"),
        (lambda folder: shard(folder / "x.tar", {"0.jpg": b"photo"}), "no vectors"),
    ],
)
def test_embeddings_that_cannot_be_right_are_refused(tmp_path, make, match) -> None:
    with pytest.raises(StoreError, match=match):
        read_embeddings(make(tmp_path))


def test_other_json_files_are_not_embeddings(tmp_path) -> None:
    (tmp_path / "x.json").write_text('{"images": []}', encoding="utf-8")
    assert not is_embeddings(tmp_path / "x.json")
    assert is_embeddings(bioclip(tmp_path))
