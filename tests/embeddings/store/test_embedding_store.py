"""Reading a store: in pieces, in part, as one array; and every way in which its files can be wrong."""

import json
import os
import tracemalloc

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hcep.embeddings import Embeddings, read_embeddings
from hcep.embeddings.images import ImageItem
from hcep.embeddings.protocol import EncoderRecord
from hcep.embeddings.store import manifest as manifest_module
from hcep.embeddings.store.embedding_store import EmbeddingStore
from hcep.embeddings.store.manifest import ROW_GROUP
from hcep.embeddings.store.writer import StoreWriter, import_embeddings
from hcep.embeddings.vectors import StoreError

N, DIMS = 50, 6
X = np.random.default_rng(0).normal(size=(N, DIMS)).astype(np.float32)
LABELS = np.array(["cat", "dog", "fox", "car", "bus"])[np.arange(N) % 5]
SPLITS = np.where(np.arange(N) % 10 < 8, "train", "val")


def write(folder, vectors=X, shard=16, dtype="float32", **options):
    record = EncoderRecord("tiny", "tiny-1", {"size": [2, 2]})
    with StoreWriter.open(folder, record, vectors.shape[1], dtype) as writer:
        for start in range(0, len(vectors), shard):
            rows = range(start, min(start + shard, len(vectors)))
            items = [
                ImageItem(f"{LABELS[i % N]}/{i}.jpg", str(LABELS[i % N]), f"i{i}", str(SPLITS[i % N])) for i in rows
            ]
            writer.add(items, vectors[rows.start : rows.stop], ["0" * 64] * len(rows), **options)
            writer.flush()
    return folder


@pytest.fixture
def folder(tmp_path):
    return write(tmp_path / "store")


@pytest.fixture
def store(folder):
    return EmbeddingStore(folder)


def edit(folder, **changes):
    """Change fields of the manifest."""
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return folder


def edit_shard(folder, **changes):
    """Change fields of the first shard in the manifest."""
    shards = json.loads((folder / "manifest.json").read_text())["shards"]
    return edit(folder, shards=[shards[0] | changes, *shards[1:]])


# -- reading -------------------------------------------------------------------------------------------


def test_opening_reads_only_the_manifest(folder):
    for shard in folder.glob("shard-*"):
        shard.unlink()
    store = EmbeddingStore(str(folder))
    assert (len(store), store.n_dims, store.dtype, store.shape) == (50, 6, np.float32, (50, 6))
    assert store.encoder == EncoderRecord("tiny", "tiny-1", {"size": [2, 2]})
    assert "50 images, 6 dimensions, float32, encoder 'tiny')" in repr(store)


def test_columns(store):
    assert store.ids.tolist() == [f"i{i}" for i in range(N)]
    assert store.labels.tolist() == LABELS.tolist()
    assert store.paths[3] == "car/3.jpg"
    assert store.splits.tolist() == SPLITS.tolist()
    assert store.labels.dtype.kind == "U"


def test_to_numpy(store):
    np.testing.assert_array_equal(store.to_numpy(), X)
    assert store.to_numpy(np.float64).dtype == np.float64


@pytest.mark.parametrize("size", [1, 7, 16, 49, 50, 51, 8192])
def test_batches_are_the_rows_in_order(store, size):
    batches = list(store.batches(size))
    assert [len(rows) for rows, _ in batches] == [size] * (N // size) + [N % size] * (N % size > 0)
    np.testing.assert_array_equal(np.concatenate([rows for rows, _ in batches]), X)
    assert np.concatenate([labels for _, labels in batches]).tolist() == LABELS.tolist()


def test_batches_do_not_share_memory(store):
    first, second = (rows for rows, _ in list(store.batches(25)))
    assert not np.shares_memory(first, second)


def test_a_batch_size_of_zero(store):
    with pytest.raises(StoreError, match="size must be at least 1, got 0"):
        store.batches(0)


def test_float16_comes_out_as_it_went_in_and_as_float32_in_batches(tmp_path):
    store = EmbeddingStore(write(tmp_path / "half", dtype="float16"))
    np.testing.assert_array_equal(store.to_numpy(), X.astype(np.float16))
    rows, _ = next(store.batches())
    assert rows.dtype == np.float32


def test_shards_of_several_row_groups(tmp_path):
    many = np.random.default_rng(1).normal(size=(2 * ROW_GROUP + 5, 2)).astype(np.float32)
    store = EmbeddingStore(write(tmp_path / "large", many, shard=len(many)))
    rows = np.array([0, ROW_GROUP - 1, ROW_GROUP, 2 * ROW_GROUP + 4])
    np.testing.assert_array_equal(store.to_numpy(), many)
    np.testing.assert_array_equal(store.select(rows=rows).to_numpy(), many[rows])


def test_no_second_copy_in_memory(tmp_path):
    many = np.zeros((4 * ROW_GROUP, 64), np.float32)
    store = EmbeddingStore(write(tmp_path / "large", many, shard=2 * ROW_GROUP))
    # What Arrow holds is one of these pieces, what numpy holds is traced.
    assert [len(piece) for piece in store._vectors()] == [ROW_GROUP] * 4
    tracemalloc.start()
    found = store.to_numpy()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.nbytes <= peak < 1.2 * found.nbytes


# -- in part -------------------------------------------------------------------------------------------


def test_select(store):
    part = store.select(labels=["car", "fox"], splits="val")
    expected = np.isin(LABELS, ["car", "fox"]) & (SPLITS == "val")
    np.testing.assert_array_equal(part.to_numpy(), X[expected])
    assert part.labels.tolist() == LABELS[expected].tolist()
    assert "5 of 50 images" in repr(part)
    rows, labels = next(part.batches())
    np.testing.assert_array_equal(rows, X[expected])
    assert labels.tolist() == LABELS[expected].tolist()


def test_select_of_a_selection(store):
    part = store.select(labels="cat").select(rows=[1, 3])
    assert part.ids.tolist() == ["i5", "i15"]
    np.testing.assert_array_equal(part.to_numpy(), X[[5, 15]])


def test_select_by_mask_and_by_rows_keeps_the_order(store):
    mask = np.arange(N) % 7 == 0
    np.testing.assert_array_equal(store.select(rows=mask).to_numpy(), X[mask])
    assert store.select(rows=[20, 3, 3]).ids.tolist() == ["i3", "i20"]
    assert store.select(rows=[]).shape == (0, 6)


def test_shards_without_a_selected_image_stay_closed(folder, store):
    part = store.select(rows=[0, 1])
    (folder / "shard-000003.parquet").write_bytes(b"")
    rows, _ = next(part.batches())
    np.testing.assert_array_equal(rows, X[:2])


def test_select_what_is_not_there(store):
    with pytest.raises(StoreError, match=r"no image in .*store' has label 'cut'\. Near matches: 'cat'"):
        store.select(labels=["cat", "cut"])
    with pytest.raises(StoreError, match="has split 'test'"):
        store.select(splits="test")


@pytest.mark.parametrize("rows", [[50], [-1], [0.5], [[0, 1]], [True, False]])
def test_rows_that_are_not_there(store, rows):
    with pytest.raises(StoreError, match="rows must be 50 booleans or indices from 0 to 49; got"):
        store.select(rows=rows)


# -- integrity -------------------------------------------------------------------------------------------


def test_a_sound_store(store):
    store.verify()
    assert store.damaged_shards() == {}
    assert store.repair() == []


def test_one_flipped_bit_is_found_and_named(folder, store):
    shard = folder / "shard-000001.parquet"
    content = bytearray(shard.read_bytes())
    content[len(content) // 3] ^= 1
    shard.write_bytes(content)
    with pytest.raises(StoreError, match=r"1 of 4 shards of .* damaged \(shard-000001.parquet: its checksum differs"):
        store.verify()


def test_a_flipped_bit_of_a_vector_is_found_while_reading(folder, store):
    shard = folder / "shard-000001.parquet"
    content = shard.read_bytes()
    at = content.index(X[20].tobytes())
    shard.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    with pytest.raises(StoreError, match=r"shard-000001.parquet' is damaged: .*CRC"):
        store.to_numpy()


@pytest.mark.parametrize("length", [0, 3, 100, 1000])
def test_a_truncated_shard(folder, store, length):
    shard = folder / "shard-000002.parquet"
    shard.write_bytes(shard.read_bytes()[:length])
    with pytest.raises(StoreError, match=rf"shard-000002.parquet' is damaged: {length:,} bytes instead of .*repair"):
        store.to_numpy()
    with pytest.raises(StoreError, match=r"shard-000002.parquet: "):
        store.verify()


def test_a_shard_overwritten_by_as_many_zeros(folder, store):
    shard = folder / "shard-000002.parquet"
    shard.write_bytes(bytes(shard.stat().st_size))
    with pytest.raises(StoreError, match=r"shard-000002.parquet' is damaged: .*magic bytes"):
        list(store.batches())


def test_missing_shards_are_all_named(folder, store):
    (folder / "shard-000000.parquet").unlink()
    (folder / "shard-000003.parquet").unlink()
    with pytest.raises(StoreError, match=r"2 of 4 .*shard-000000.parquet: No such file.*shard-000003.parquet: No such"):
        store.verify()
    with pytest.raises(StoreError, match=r"shard-000000.parquet' is damaged: No such file"):
        store.ids  # noqa: B018
    assert store.repair() == ["shard-000000.parquet", "shard-000003.parquet"]
    store.verify()
    np.testing.assert_array_equal(store.to_numpy(), X[16:48])
    assert store.ids[0] == "i16"


def test_a_selection_cannot_be_repaired(store):
    with pytest.raises(StoreError, match="a selection cannot be repaired: open the whole store"):
        store.select(rows=[0]).repair()


def test_a_shard_of_another_encoder(folder, tmp_path):
    other = tmp_path / "other"
    with StoreWriter.open(other, EncoderRecord("else", "else-1", {}), DIMS, "float32") as writer:
        writer.add([ImageItem(f"{i}") for i in range(16)], X[:16], [None] * 16)
        writer.flush()
    smuggle(folder, (other / "shard-000000.parquet").read_bytes())
    with pytest.raises(StoreError, match=r"shard-000000.parquet' is damaged: its vectors do not come from the encoder"):
        EmbeddingStore(folder).to_numpy()


def smuggle(folder, content):
    """Put a file in the first shard's place, with a manifest that knows its size."""
    (folder / "shard-000000.parquet").write_bytes(content)
    edit_shard(folder, n_bytes=len(content))


def with_ids(table, ids):
    return table.set_column(1, table.schema.field("id"), pa.array(ids))


def rewritten(folder, change, **options):
    """The first shard's table, changed, as a Parquet file."""
    sink = pa.BufferOutputStream()
    pq.write_table(change(pq.read_table(folder / "shard-000000.parquet")), sink, **options)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda table: table.drop_columns(["label"]), r"its columns are \(row: int64, id: string, path: string, split"),
        (lambda table: table.slice(0, 15), "15 rows instead of 16"),
        (lambda table: with_ids(table, ["x" * 10**6] * 16), "a row group of 16 rows has .* bytes, too many"),
    ],
)
def test_a_shard_with_other_content(folder, change, message):
    smuggle(folder, rewritten(folder, change, use_dictionary=False))
    with pytest.raises(StoreError, match=f"shard-000000.parquet' is damaged: {message}"):
        EmbeddingStore(folder).to_numpy()


def test_a_shard_that_could_unpack_to_any_size(folder):
    smuggle(folder, rewritten(folder, lambda table: with_ids(table, ["x" * 1000] * 16), use_dictionary=True))
    with pytest.raises(StoreError, match=r"shard-000000.parquet' is damaged: a column has a dictionary"):
        EmbeddingStore(folder).to_numpy()


def test_another_encoder_is_refused(folder):
    with StoreWriter.open(folder, EncoderRecord("any name", "tiny-1", {}), DIMS, "float32"):
        pass
    with (
        pytest.raises(
            StoreError,
            match=r"'tiny' .*, not from 'clip' \(clip-1\); a store holds vectors of one encoder",
        ),
        StoreWriter.open(folder, EncoderRecord("clip", "clip-1", {}), DIMS, "float32"),
    ):
        pass


# -- the manifest ----------------------------------------------------------------------------------------


def test_no_store(tmp_path):
    with pytest.raises(StoreError, match=r"no embedding store at .*: manifest.json is missing"):
        EmbeddingStore(tmp_path)


def test_a_manifest_that_is_a_folder(tmp_path):
    (tmp_path / "manifest.json").mkdir()
    with pytest.raises(StoreError, match=r"cannot read '.*manifest.json': Is a directory"):
        EmbeddingStore(tmp_path)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b'{"format": "hcep-emb', b"[" * 200_000])
def test_a_manifest_that_is_not_json_is_refused(folder, content):
    (folder / "manifest.json").write_bytes(content)
    with pytest.raises(StoreError, match=r"manifest.json' is damaged: invalid JSON"):
        EmbeddingStore(folder)


@pytest.mark.parametrize("content", ["[]", "3", '{"format": "other"}', "{}"])
def test_a_manifest_of_something_else(folder, content):
    (folder / "manifest.json").write_text(content)
    with pytest.raises(
        StoreError, match=r'manifest.json\' is not an embedding store: .*"format": "hcep-embedding-store"'
    ):
        EmbeddingStore(folder)


def test_a_manifest_of_a_newer_version_is_refused(folder):
    with pytest.raises(StoreError, match=r"is of version 2; this release reads version 1: upgrade hcep"):
        EmbeddingStore(edit(folder, version=2))


def test_an_absurdly_large_manifest(folder, monkeypatch):
    monkeypatch.setattr(manifest_module, "MAX_MANIFEST_BYTES", 100)
    with pytest.raises(StoreError, match=r"manifest.json' is .* bytes: too large for a manifest"):
        EmbeddingStore(folder)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("n_dims", 0, "n_dims must be a whole number from 1 to"),
        ("n_dims", 10**12, "n_dims must be a whole number from 1 to"),
        ("n_dims", True, "n_dims must be a whole number from 1 to"),
        ("n_dims", "6", "n_dims must be a whole number from 1 to"),
        ("dtype", "object", "dtype must be one of 'float16', 'float32', got 'object'"),
        ("dtype", None, "dtype must be one of 'float16', 'float32', got None"),
        ("next_row", -1, "next_row must be an integer of at least 0, got -1"),
        ("encoder", None, "encoder must be a JSON object, got None"),
        (
            "encoder",
            {"name": "x", "fingerprint": "y", "preprocessing": []},
            "encoder.preprocessing must be a JSON object, got \\[\\]",
        ),
        (
            "encoder",
            {"name": "x"},
            "encoder.fingerprint must be a string, and encoder.preprocessing must be a JSON object",
        ),
        ("encoder", {"name": 1, "fingerprint": "y", "preprocessing": {}}, "encoder.name must be a string, got 1"),
        ("shards", {}, "shards must be a list"),
        ("shards", ["x"], r"shards\[0\] must be a JSON object, got 'x'"),
        ("skipped", None, "skipped must be a list"),
        ("skipped", [{"id": "a", "path": "b"}], r"field 'skipped\[0\].reason' is missing"),
        ("n_images", 51, "n_images is 51, its shards hold 50"),
    ],
)
def test_an_invalid_field_is_refused(folder, field, value, message):
    with pytest.raises(StoreError, match=rf"manifest.json' is damaged: {message}"):
        EmbeddingStore(edit(folder, **{field: value}))


@pytest.mark.parametrize(
    "name",
    [
        "../shard-000000.parquet",
        "/etc/passwd",
        "shard-000000.parquet\n",
        "a/shard-000000.parquet",
        "",
        "shard-٣٣٣٣٣٣.parquet",
    ],
)
def test_a_shard_name_that_leads_elsewhere(folder, name):
    with pytest.raises(StoreError, match=r"shards\[0\].file must be a name such as shard-000000.parquet, got"):
        EmbeddingStore(edit_shard(folder, file=name))


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("n_images", 10**12, "shard-000000.parquet cannot hold 1,000,000,000,000 vectors"),
        ("sha256", "xyz", r"shards\[0\].sha256 must be 64 hexadecimal digits"),
        ("file", "shard-000001.parquet", "a shard is listed twice"),
    ],
)
def test_an_invalid_shard_is_refused(folder, field, value, message):
    with pytest.raises(StoreError, match=message):
        EmbeddingStore(edit_shard(folder, **{field: value}))


def test_absurd_counts_allocate_no_memory(folder):
    store = EmbeddingStore(edit(edit_shard(folder, n_images=10**12, n_bytes=10**15), n_images=10**12 + 34))
    with pytest.raises(
        StoreError, match=r"shard-000000.parquet' is damaged: .* bytes instead of 1,000,000,000,000,000"
    ):
        store.to_numpy()


def test_a_platform_that_cannot_open_folders(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "O_DIRECTORY")
    EmbeddingStore(write(tmp_path / "store")).verify()


# -- vectors from elsewhere --------------------------------------------------------------------------------


def test_vectors_from_elsewhere_are_imported(tmp_path):
    arrays = Embeddings(X.astype(np.float64), labels=LABELS, ids=None, paths=np.array([f"{i}.jpg" for i in range(N)]))
    import_embeddings(arrays, tmp_path / "store", encoder="clip")
    store = EmbeddingStore(tmp_path / "store")
    np.testing.assert_array_equal(store.to_numpy(), X)
    assert (store.encoder.name, store.encoder.fingerprint, store.dtype) == ("clip", "imported:clip", np.float32)
    assert store.ids[:2].tolist() == ["0.jpg", "1.jpg"]
    assert store.labels.tolist() == LABELS.tolist()
    assert store.content_hashes[0] is None


def test_import_without_names(tmp_path):
    import_embeddings(Embeddings(X.astype(np.float16)), tmp_path / "store", encoder="clip", fingerprint="abc")
    store = EmbeddingStore(tmp_path / "store")
    assert (store.ids[:2].tolist(), store.encoder.fingerprint, store.dtype) == (["0", "1"], "abc", np.float16)
    back = read_embeddings(store)
    np.testing.assert_array_equal(back.X, X.astype(np.float16))
    assert back.labels.tolist() == [None] * N


def test_import_of_nan(tmp_path):
    bad = X.copy()
    bad[7, 2] = np.nan
    with pytest.raises(StoreError, match="the vector of '7' has NaN or infinite values"):
        import_embeddings(Embeddings(bad), tmp_path / "store", encoder="clip")


def test_vectors_of_another_length(folder):
    with (
        StoreWriter.open(folder, EncoderRecord("tiny", "tiny-1", {}), DIMS, "float32") as writer,
        pytest.raises(StoreError, match=r"expected vectors of shape \(1, 6\) for .*store', got \(1, 5\)"),
    ):
        writer.add([ImageItem("a.jpg")], X[:1, :5], [None])
