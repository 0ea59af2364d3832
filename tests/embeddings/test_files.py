"""Embeddings in .npy, .npz and Parquet files, in and out; none of them is trusted."""

import json
import pickle
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hcep.embeddings import Embeddings, read_embeddings, write_embeddings
from hcep.embeddings.vectors import StoreError
from tests.conftest import shared_file

X = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
LABELS = np.array(["cat", "dog", "cat", None, "fox", "cat"], dtype=object)
IDS = np.array([f"i{i}" for i in range(6)])
PATHS = np.array([f"ä {i}.jpg" for i in range(6)])
SPLITS = np.array(["train"] * 4 + ["val"] * 2)
EVERYTHING = Embeddings(X, LABELS, IDS, PATHS, SPLITS)


class Bomb:
    """Unpickled, it would make a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_round_trip(tmp_path, suffix, dtype):
    path = tmp_path / f"x{suffix}"
    write_embeddings(path, Embeddings(X.astype(dtype), LABELS, IDS, PATHS, SPLITS))
    found = read_embeddings(path)
    np.testing.assert_array_equal(found.X, X.astype(dtype))
    assert found.X.dtype == dtype
    assert found.labels.tolist() == LABELS.tolist()
    assert (found.ids.tolist(), found.paths.tolist()) == (IDS.tolist(), PATHS.tolist())
    assert found.splits.tolist() == SPLITS.tolist()
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".parquet"])
def test_vectors_without_columns(tmp_path, suffix):
    write_embeddings(tmp_path / f"x{suffix}", Embeddings(X))
    found = read_embeddings(tmp_path / f"x{suffix}")
    np.testing.assert_array_equal(found.X, X)
    assert (len(found), found.columns) == (6, {})


def test_images_without_ids_keep_their_row_numbers_in_a_split(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, vectors=X, splits=SPLITS)
    assert read_embeddings(path).image_ids.tolist() == list("012345")
    assert read_embeddings(path, "train").image_ids.tolist() == list("0123")
    assert read_embeddings(path, "val").image_ids.tolist() == list("45")


def test_a_selection_keeps_ids_and_hashes_of_its_rows():
    hashes = np.array([f"{i}" * 64 for i in range(6)])
    part = Embeddings(X, LABELS, paths=PATHS, content_hashes=hashes).take([1, 4])
    assert (part.labels.tolist(), part.image_ids.tolist()) == (["dog", "fox"], PATHS[[1, 4]].tolist())
    assert part.hashes == ["1" * 64, "4" * 64]


def test_npy_is_mapped(tmp_path):
    np.save(tmp_path / "x.npy", X)
    assert isinstance(read_embeddings(tmp_path / "x.npy").X, np.memmap)


def test_integer_labels_and_their_names(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, features=X, y=np.array([0, 1, 0, 1, 2, 2]), wnids=np.array(["cat", "dog", "fox"]))
    assert read_embeddings(path).labels.tolist() == ["cat", "dog", "cat", "dog", "fox", "fox"]
    assert read_embeddings(path, label="wnids").labels.tolist() == ["cat", "dog", "cat", "dog", "fox", "fox"]
    with pytest.raises(StoreError, match=r"x.npz' has no 'wnid', only .*\. Near matches: 'wnids'"):
        read_embeddings(path, label="wnid")
    with pytest.raises(StoreError, match=r"x.npz' has no 'class_names', only"):
        read_embeddings(path, label="class_names")
    np.savez(path, features=X, y=np.array([0, 1, 0, 1, 2, 2]), wnids=np.array(["cat", "dog"]))
    with pytest.raises(StoreError, match=r"x.npz': labels go from 0 to 2, but there are 2 class names"):
        read_embeddings(path)


def test_arrays_with_other_names(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, mine=X, klasse=LABELS.astype(str))
    assert read_embeddings(path, vectors="mine", label="klasse").labels[1] == "dog"
    with pytest.raises(
        StoreError, match=r"x.npz' has no vectors under a known name, only 'mine', 'klasse'; name them with vectors="
    ):
        read_embeddings(path)
    with pytest.raises(StoreError, match=r"x.npz' has no 'mein', only 'mine', 'klasse'\. Near matches: 'mine'"):
        read_embeddings(path, vectors="mein")


def test_the_real_files():
    data = read_embeddings(shared_file("data/imagenette_efficientnet_lite2.npz"), label="wnids")
    assert data.X.shape == (13394, 1280)
    assert len(set(data.labels.tolist())) == 10
    assert set(data.splits.tolist()) == {"train", "val"}


# -- Parquet of other people --------------------------------------------------------------------------


def write_table(path, metadata=None, **columns):
    pq.write_table(pa.table(columns).replace_schema_metadata(metadata), path, row_group_size=4)
    return path


@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.large_list(pa.float64()), pa.list_(pa.float32(), 4)])
def test_lists_of_any_kind(tmp_path, kind):
    path = write_table(tmp_path / "x.parquet", embedding=pa.array(X.tolist(), kind), label=pa.array(["a"] * 6))
    np.testing.assert_array_equal(read_embeddings(path).X, X)


def test_class_labels_of_hugging_face(tmp_path):
    features = {"label": {"names": ["cat", "dog", "fox"], "_type": "ClassLabel"}}
    path = write_table(
        tmp_path / "x.parquet",
        {"huggingface": json.dumps({"info": {"features": features}})},
        image_embeds=pa.array(X.tolist()),
        label=pa.array([0, 1, 2, 2, 1, 0]),
        file_name=pa.array(["p"] * 6).dictionary_encode(),
    )
    found = read_embeddings(path)
    assert found.labels.tolist() == ["cat", "dog", "fox", "fox", "dog", "cat"]
    assert found.paths.tolist() == ["p"] * 6


@pytest.mark.parametrize("metadata", [None, {"huggingface": "{"}, {"huggingface": '{"info": 3}'}])
def test_class_labels_without_names(tmp_path, metadata):
    path = write_table(tmp_path / "x.parquet", metadata, embedding=pa.array(X.tolist()), label=pa.array([0, 1] * 3))
    assert read_embeddings(path).labels.tolist() == ["0", "1"] * 3


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array([1.0, 2.0]), "column 'embedding' must hold lists of floats, not double"),
        (pa.array([[1, 2], [3, 4]]), "column 'embedding' must hold lists of floats, not list<"),
        (pa.array([[1.0, 2.0], [3.0]]), "column 'embedding' holds vectors of 1 and 2 numbers"),
        (pa.array([[1.0]] * 4 + [[1.0, 2.0]]), "column 'embedding' holds vectors of 1 and 2 numbers"),
        (pa.array([[1.0, 2.0], None]), "column 'embedding' has missing values"),
        (pa.array([[1.0, None]]), "column 'embedding' has missing values"),
        (
            pa.array([[], []], pa.list_(pa.float32())),
            r"vectors must be floats of shape .* got float32 of shape \(2, 0\)",
        ),
    ],
)
def test_invalid_columns_of_vectors_are_refused(tmp_path, column, message):
    path = write_table(tmp_path / "x.parquet", embedding=column)
    with pytest.raises(StoreError, match=f"x.parquet': {message}"):
        read_embeddings(path)


@pytest.mark.parametrize("labels", [pa.array([0.5] * 6), pa.array([1, None] * 3), pa.array([["a"]] * 6)])
def test_invalid_columns_of_labels_are_refused(tmp_path, labels):
    path = write_table(tmp_path / "x.parquet", embedding=pa.array(X.tolist()), label=labels)
    with pytest.raises(
        StoreError, match=r"x.parquet': expected a column of text or whole numbers without missing values, not "
    ):
        read_embeddings(path)


def test_an_empty_parquet(tmp_path):
    path = write_table(tmp_path / "x.parquet", embedding=pa.array([], pa.list_(pa.float32())))
    assert read_embeddings(path).X.shape == (0, 1)


# -- files not to trust ----------------------------------------------------------------------------------


def test_pickles_are_not_opened(tmp_path):
    made = tmp_path / "made"
    np.save(tmp_path / "x.npy", np.array([Bomb(made)], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "x.npz", embeddings=X, labels=np.array([Bomb(made)] * 6, dtype=object))
    (tmp_path / "y.npy").write_bytes(pickle.dumps(Bomb(made)))
    made.unlink(missing_ok=True)
    with pytest.raises(StoreError, match=r"x.npy': .*allow_pickle=False|x.npy': .*Python objects"):
        read_embeddings(tmp_path / "x.npy")
    with pytest.raises(StoreError, match=r"cannot read 'labels' in .*x.npz': .*allow_pickle=False"):
        read_embeddings(tmp_path / "x.npz")
    with pytest.raises(StoreError, match=r"y.npy': "):
        read_embeddings(tmp_path / "y.npy")
    assert not made.exists()


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".parquet"])
@pytest.mark.parametrize("part", [0.0, 0.1, 0.5, 0.95])
def test_truncated_files(tmp_path, suffix, part):
    path = tmp_path / f"x{suffix}"
    write_embeddings(path, EVERYTHING)
    path.write_bytes(path.read_bytes()[: int(part * path.stat().st_size)])
    with pytest.raises(StoreError, match=f"cannot read '.*x{suffix}'"):
        read_embeddings(path)


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".parquet"])
def test_files_of_something_else(tmp_path, suffix):
    path = tmp_path / f"x{suffix}"
    path.write_text("I am a poem, not a matrix.\n" * 20)
    with pytest.raises(StoreError, match=f"cannot read '.*x{suffix}'"):
        read_embeddings(path)
    path.unlink()
    with pytest.raises(StoreError, match=f"there is no file or folder '.*x{suffix}': expected a store made by `hcep"):
        read_embeddings(path)


def claim(shape):
    """A .npy header that claims a shape."""
    text = repr({"descr": "<f4", "fortran_order": False, "shape": shape}).encode() + b"\n"
    return b"\x93NUMPY\x02\x00" + len(text).to_bytes(4, "little") + text


def test_a_claim_of_an_absurd_shape(tmp_path):
    (tmp_path / "x.npy").write_bytes(claim((10**9, 10**6)) + bytes(100))
    with pytest.raises(StoreError, match=r"cannot read '.*x.npy'"):
        read_embeddings(tmp_path / "x.npy")
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("embeddings.npy", claim((10**9, 10**6)) + bytes(100))
    with pytest.raises(StoreError, match=r"cannot read 'embeddings' in .*x.npz': shape .* does not match 185 bytes"):
        read_embeddings(tmp_path / "x.npz")


def test_files_that_unpack_to_too_much(tmp_path, monkeypatch):
    monkeypatch.setattr("hcep.embeddings.files.MAX_BYTES", 50)
    monkeypatch.setattr("hcep.embeddings.tables.MAX_BYTES", 50)
    write_embeddings(tmp_path / "x.npz", EVERYTHING)
    write_embeddings(tmp_path / "x.parquet", EVERYTHING)
    with pytest.raises(StoreError, match=r"cannot read 'vectors' in .*x.npz': shape \(6, 4\) does not match"):
        read_embeddings(tmp_path / "x.npz")
    with pytest.raises(StoreError, match=r"x.parquet' unpacks to .* bytes; split it"):
        read_embeddings(tmp_path / "x.parquet")


@pytest.mark.parametrize("vectors", [np.zeros(3), np.zeros((2, 2, 2)), np.zeros((2, 2), int), np.zeros((2, 0))])
def test_arrays_that_are_not_vectors_are_refused(tmp_path, vectors):
    np.save(tmp_path / "x.npy", vectors)
    with pytest.raises(StoreError, match=r"x.npy': vectors must be floats of shape \(n_images, n_dims\), got "):
        read_embeddings(tmp_path / "x.npy")


def test_rows_that_do_not_match(tmp_path):
    np.savez(tmp_path / "x.npz", embeddings=X, labels=np.array(["cat"] * 5))
    with pytest.raises(StoreError, match=r"x.npz': 6 vectors, but labels have shape \(5,\)"):
        read_embeddings(tmp_path / "x.npz")


def test_unknown_suffixes(tmp_path):
    (tmp_path / "x.pkl").write_bytes(b"")
    with pytest.raises(StoreError, match=r"x.pkl': expected .*, a .npy, .npz, .parquet, .csv, .tsv, .pt, .pth, .json"):
        read_embeddings(tmp_path / "x.pkl")
    with pytest.raises(StoreError, match=r"x.csv': expected a .npy, .npz or .parquet file"):
        write_embeddings(tmp_path / "x.csv", EVERYTHING)


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".parquet"])
def test_a_file_that_cannot_be_written(tmp_path, suffix):
    (tmp_path / "nowhere").write_text("a file, not a folder")
    with pytest.raises(StoreError, match=f"cannot write '.*x{suffix}': (File exists|Not a directory)"):
        write_embeddings(tmp_path / "nowhere" / f"x{suffix}", EVERYTHING)


def test_pixels_are_not_taken_for_paths(tmp_path):
    file = tmp_path / "pixels.npz"
    np.savez(file, embeddings=np.eye(2, dtype=np.float32), images=np.zeros((2, 4, 4, 3), np.uint8))
    assert read_embeddings(file).paths is None


def test_images_that_are_text_are_paths(tmp_path):
    file = tmp_path / "paths.npz"
    np.savez(file, embeddings=np.eye(2, dtype=np.float32), images=np.array(["a.jpg", "b.jpg"]))
    assert read_embeddings(file).paths.tolist() == ["a.jpg", "b.jpg"]
