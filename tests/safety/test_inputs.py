"""Hostile and damaged inputs: one sentence each, soon, and without taking memory."""

import io
import json
import os
import zipfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from threadpoolctl import threadpool_info

from hcep import HCEPClassifier, Hierarchy
from hcep._files import json_bytes, read_csv, read_lines
from hcep.datasets import read_images
from hcep.embeddings import Embeddings, read_embeddings
from hcep.embeddings.files import read_labels
from hcep.embeddings.preprocessing import read_json_object
from hcep.embeddings.store.embedding_store import EmbeddingStore
from hcep.embeddings.store.writer import import_embeddings
from hcep.embeddings.vectors import StoreError
from hcep.errors import DictionaryError, HCEPError, HierarchyError
from hcep.explain.corrections import Corrections
from hcep.explain.possible import read_possible
from hcep.hierarchy import read_hierarchy
from hcep.pursuit.blocks import single_threaded_blas
from hcep.taxonomy.induction.induced import read_names
from hcep.taxonomy.naming.phrases import read_phrases


def npy(header):
    text = header.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


ABSURD = "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999999, 3)}"


@pytest.fixture
def whole(tmp_path):
    np.savez_compressed(tmp_path / "whole.npz", vectors=np.eye(30, dtype=np.float32), labels=np.arange(30))
    return (tmp_path / "whole.npz").read_bytes()


@pytest.mark.parametrize("n_left", [5, 40, 200, 300, -10, -30])
def test_a_truncated_npz_is_one_sentence(whole, tmp_path, n_left):
    (tmp_path / "cut.npz").write_bytes(whole[:n_left])
    with pytest.raises(StoreError, match=r"cut\.npz"):
        read_embeddings(tmp_path / "cut.npz")


def test_bytes_changed_inside_an_npz_are_one_sentence(whole, tmp_path):
    for place in range(30, len(whole), 7):
        (tmp_path / "bad.npz").write_bytes(whole[:place] + b"\xff\x00\xfe" + whole[place + 3 :])
        with suppress(StoreError):  # or it is in a name that nobody looks at
            read_embeddings(tmp_path / "bad.npz")


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_absurd_shapes_are_refused_by_the_header(tmp_path, suffix):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("vectors.npy", npy(ABSURD))
    (tmp_path / f"a{suffix}").write_bytes(npy(ABSURD) if suffix == ".npy" else packed.getvalue())
    with pytest.raises(StoreError, match=f"a{suffix}"):
        read_embeddings(tmp_path / f"a{suffix}")


def test_a_small_parquet_file_never_unpacks_to_gigabytes(tmp_path, monkeypatch):
    monkeypatch.setattr("hcep.embeddings.tables.BOMB_BYTES", 1 << 22)
    n_rows = 4_000
    values = pa.array(np.zeros(n_rows * 512, np.float32))
    table = pa.table({"embedding": pa.FixedSizeListArray.from_arrays(values, 512)})
    pq.write_table(table, tmp_path / "bomb.parquet", compression="zstd")
    assert (tmp_path / "bomb.parquet").stat().st_size < 20_000
    with pytest.raises(StoreError, match=r"unpacks to [0-9,]+ bytes; split it"):
        read_embeddings(tmp_path / "bomb.parquet")


def test_one_very_long_name_does_not_exhaust_memory(tmp_path):
    n_rows = 20_000
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(2 * n_rows, np.float32)), 2)
    table = pa.table({"embedding": vectors, "label": ["x" * 1_000_000, *["y"] * (n_rows - 1)]})
    pq.write_table(table, tmp_path / "long.parquet")
    with pytest.raises(StoreError, match="'label' has 1,000,000 bytes, too long for a name"):
        read_embeddings(tmp_path / "long.parquet")


def test_a_number_of_thousands_of_digits_is_one_sentence(tmp_path):
    (tmp_path / "n.json").write_text('{"name": "a", "children": [' + "9" * 5000 + "]}")
    with pytest.raises(HierarchyError, match=r"not JSON that can be read: a number has thousands of digits$"):
        read_hierarchy(tmp_path / "n.json")


def test_a_pipe_is_refused_as_a_hierarchy(tmp_path):
    os.mkfifo(tmp_path / "tree.csv")
    with pytest.raises(HierarchyError, match="not a regular file"):
        read_hierarchy(tmp_path / "tree.csv")


@pytest.mark.parametrize(
    "read",
    [
        read_lines,
        read_csv,
        json_bytes,
        read_names,
        read_phrases,
        read_json_object,
        read_labels,
        Corrections,
        Hierarchy.from_json,
        lambda path: read_possible(path, Hierarchy.from_edges([("a", "b")]), print),
    ],
)
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_no_reader_waits_for_a_pipe_or_reads_a_device_without_an_end(tmp_path, read, kind):
    file = tmp_path / "list.txt"
    {"pipe": os.mkfifo, "device": lambda place: place.symlink_to("/dev/zero")}[kind](file)
    with pytest.raises((HCEPError, OSError), match="not a regular file"):
        read(file)


@pytest.mark.parametrize("name", ["labels.csv", "labels.npy"])
def test_labels_are_not_read_from_a_pipe(tmp_path, name):
    os.mkfifo(tmp_path / name)
    with pytest.raises(StoreError, match=rf"{name}': it is not a regular file$"):
        read_labels(tmp_path / name)


def test_a_link_to_itself_does_not_stop_the_others(tmp_path):
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "a.png").write_bytes(b"x")
    (tmp_path / "cat" / "loop.png").symlink_to("loop.png")
    (tmp_path / "loop").symlink_to("loop")
    assert [item.id for item in read_images(tmp_path)] == ["cat/a.png", "cat/loop.png"]


@pytest.mark.parametrize(("dtype", "scale"), [(np.float32, 1e-40), (np.float64, 1e-160), (np.float64, 1e160)])
def test_embeddings_too_small_or_large_to_compute_with_are_refused(dtype, scale):
    X = (np.random.default_rng(0).normal(size=(30, 8)) * scale).astype(dtype)
    with pytest.raises(DictionaryError, match=r"too (small|large) to compute with; divide all embeddings by"):
        HCEPClassifier().fit(X, np.arange(30) % 3)


def test_threads_that_end_in_any_order_leave_blas_as_it_was():
    def threads():
        return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]

    before = threads()
    first, second = single_threaded_blas(), single_threaded_blas()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert set(threads()) == {1}
    second.__exit__(None, None, None)
    assert threads() == before


@pytest.mark.parametrize("options", [{}, {"head": "logistic"}, {"beam_width": 4}], ids=str)
def test_eight_threads_get_the_same_numbers_as_one(options):
    rng = np.random.default_rng(0)
    y = np.arange(1200) % 12
    X = (rng.normal(size=(12, 200))[y] + 3 * rng.normal(size=(1200, 200))).astype(np.float32)
    model = HCEPClassifier(**options).fit(X, y)
    start = Barrier(8)  # on a model that nobody has asked yet

    def ask(_):
        start.wait()
        found = model.infer(X)
        return [model.predict_proba(X), found.codes.toarray(), found.residual_norms, found.class_index]

    with ThreadPoolExecutor(8) as pool:
        among_others = list(pool.map(ask, range(8)))
    start = Barrier(1)
    alone = ask(0)
    model.set_params(n_jobs=1)
    for answers in (*among_others, ask(0)):
        for given, expected in zip(answers, alone, strict=True):
            np.testing.assert_array_equal(given, expected)


# -- stores --------------------------------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path):
    X = np.random.default_rng(0).normal(size=(50, 8)).astype(np.float32)
    import_embeddings(Embeddings(X, labels=np.array(["a", "b"] * 25)), tmp_path / "store", encoder="e")
    return EmbeddingStore(tmp_path / "store")


@pytest.mark.parametrize("content", ["", "{", "[1, 2", "\x00\x00"])
def test_a_fresh_encoding_replaces_a_damaged_manifest(store, content):
    X = store.to_numpy()
    (store.folder / "manifest.json").write_text(content)
    with pytest.raises(StoreError, match="encode again with --fresh"):
        EmbeddingStore(store.folder)
    from hcep.embeddings.images import ImageItem
    from hcep.embeddings.protocol import EncoderRecord
    from hcep.embeddings.store.writer import StoreWriter

    record = EncoderRecord("e", "f", {})
    with StoreWriter.open(store.folder, record, 8, "float32", resume=False) as writer:
        writer.add([ImageItem(str(i)) for i in range(len(X))], X, [None] * len(X))
        writer.flush()
    assert np.array_equal(EmbeddingStore(store.folder).to_numpy(), X)


def test_a_fresh_encoding_keeps_the_manifest_of_another_program(tmp_path):
    from hcep.embeddings.protocol import EncoderRecord
    from hcep.embeddings.store.writer import StoreWriter

    (tmp_path / "manifest.json").write_text(json.dumps({"name": "my web page"}))
    with (
        pytest.raises(HCEPError, match="is not an embedding store"),
        StoreWriter.open(tmp_path, EncoderRecord("e", "f", {}), 8, "float32", resume=False),
    ):
        pass
    assert "my web page" in (tmp_path / "manifest.json").read_text()
