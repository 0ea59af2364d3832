"""Embeddings as people have them: wide tables, files of torch, folders of Hugging Face's datasets, labels beside."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hcep.embeddings import read_embeddings
from hcep.embeddings.files import is_embeddings, read_labels
from hcep.embeddings.vectors import StoreError
from hcep.errors import HCEPError
from tests.embeddings.torch_files import legacy, state, tensor, zipped

X = np.array([[0.5, 1.25], [2.0, -3.5], [4.0, 5.0]])
LABELS = ["cat", "dog", "cat"]


def write(tmp_path: Path, name: str, text: str, encoding: str = "utf-8") -> Path:
    path = tmp_path / name
    path.write_bytes(text.encode(encoding))
    return path


WIDE = "label,f0,f1\ncat,0.5,1.25\ndog,2,-3.5\ncat,4,5\n"


# -- what cannot be read -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "cannot read"),
        (
            "path,label\na.jpg,cat\n",
            r"no vectors under a known name, only 'path', 'label'; it needs a column of lists",
        ),
        ("label,f0\ncat,0.5\n", "no vectors under a known name, only 'label', 'f0'"),
        ("f0,f1\n0.5,\n1.5,2\n", r"column 'f1' has missing values, the first in row 1"),
        ("f0,f1\n0.5,nan\n1.5,2\n", r"column 'f1' has missing values"),
        ("f0,f1,f2\n0.5,1\n", "cannot read .*Expected 3 columns, got 2"),
        (
            "a0,a1,b0,b1\n0.5,1.5,2.5,3.5\n",
            r"columns 'a0' … 'a1' and 'b0' … 'b1' both look like vectors; choose with --vectors",
        ),
        (
            "f0,f1,y\n0.5,1,0.25\n",
            r"expected a column of text or whole numbers without missing values, not fractions \('y'\)",
        ),
    ],
)
def test_a_csv_that_is_refused(text: str, match: str, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=match):
        read_embeddings(write(tmp_path, "x.csv", text))


def test_columns_that_are_not_there(tmp_path: Path) -> None:
    path = write(tmp_path, "x.csv", WIDE)
    with pytest.raises(StoreError, match=r"x.csv' has no 'g\*', only 'label', 'f0', 'f1'"):
        read_embeddings(path, vectors="g*")
    with pytest.raises(StoreError, match=r"x.csv' has no 'lable', only .* Near matches: 'label'"):
        read_embeddings(path, label="lable")
    with pytest.raises(StoreError, match=r"column 'label' must hold lists of floats, not string"):
        read_embeddings(path, vectors="label")
    with pytest.raises(StoreError, match=r"column 'label' must hold numbers, not string"):
        read_embeddings(path, vectors="label,f0")


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("y.txt", "cat\n\ncat\n", r"y.txt': line 2 is empty; give one label per line"),
        ("y.csv", "a,b\n1,2\n", r"y.csv': which column has the labels\? The columns are 'a', 'b'; pass --labels"),
        ("y.csv", 'label\ncat\n""\ncat\n', r"y.csv': column 'label' has empty cells"),
        ("y.json", "[]", r"y.json': expected labels in a .npy, .txt, .csv or .tsv file"),
        ("y.txt", "cat\ndog\n", r"x.npy': 3 vectors, but labels have shape \(2,\)"),
        ("y.npy", "no array", r"cannot read '.*y.npy'"),
    ],
)
def test_labels_that_are_refused(name: str, content: str, match: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    with pytest.raises(StoreError, match=match):
        read_embeddings(tmp_path / "x.npy", labels=write(tmp_path, name, content))


def test_labels_that_are_not_a_list_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "y.npy", X)
    with pytest.raises(StoreError, match=r"labels must be text or whole numbers of shape \(n_images,\), got float64"):
        read_labels(tmp_path / "y.npy")
    with pytest.raises(StoreError, match=r"cannot read '.*none.txt'"):
        read_labels(tmp_path / "none.txt")


def test_columns_of_text_are_listed_if_labels_are_needed(tmp_path: Path) -> None:
    path = write(tmp_path, "x.csv", "breed,owner,f0,f1\npug,ann,0.5,1\nlab,bob,1.5,2\n")
    embeddings = read_embeddings(path)
    with pytest.raises(HCEPError, match=r"no labels; .*\(pass --labels to choose among 'breed', 'owner'\)"):
        _ = embeddings.y
    assert read_embeddings(path, label="breed").y.tolist() == ["pug", "lab"]


# -- CSV -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        (WIDE, "utf-8"),
        (WIDE, "utf-8-sig"),
        (WIDE, "utf-16"),
        (WIDE.replace(",", ";"), "utf-8"),
        (WIDE.replace(",", "\t"), "utf-8"),
        (WIDE.replace(",", ";").replace(".", ","), "utf-8"),
        (WIDE.replace("label", "Label").replace("f0", "0").replace("f1", "1"), "utf-8"),
        (WIDE.replace("label", "breed"), "utf-8"),
        ("cat,0.5,1.25\ndog,2.0,-3.5\ncat,4.0,5.0\n", "utf-8"),
    ],
    ids=["plain", "bom", "utf-16", "semicolons", "tabs", "decimal commas", "counted", "any name", "no header"],
)
def test_wide_tables_as_spreadsheets_write_them(text: str, encoding: str, tmp_path: Path) -> None:
    found = read_embeddings(write(tmp_path, "x.csv", text, encoding))
    np.testing.assert_array_equal(found.X, X)
    assert found.labels is not None
    assert found.labels.tolist() == LABELS


def test_a_note_says_how_columns_were_read(tmp_path: Path) -> None:
    path = write(tmp_path, "x.csv", "id,label,age,f0,f1\na,cat,3,0.5,1.25\nb,dog,4,2,-3.5\n")
    found = read_embeddings(path)
    assert found.notes == ("x.csv: 2 vectors from 2 columns 'f0' … 'f1', labels from column 'label'; ignored 'age'",)
    assert found.ids is not None
    assert found.ids.tolist() == ["a", "b"]


def test_labels_stay_text(tmp_path: Path) -> None:
    found = read_embeddings(write(tmp_path, "x.csv", "label,f0,f1\n007,0.5,1\n010,2.5,3\n"))
    assert found.labels is not None
    assert found.labels.tolist() == ["007", "010"]


@pytest.mark.parametrize("vectors", ["a,c", "a:c", "[ac]"])
def test_columns_by_name(vectors: str, tmp_path: Path) -> None:
    path = write(tmp_path, "x.csv", "a,c,weight\n0.5,1.25,9.5\n2,-3.5,8.5\n4,5,7.5\n")
    np.testing.assert_array_equal(read_embeddings(path, vectors=vectors).X, X)


def test_numbers_only(tmp_path: Path) -> None:
    np.savetxt(tmp_path / "x.csv", X, delimiter=",")
    write(tmp_path, "y.txt", "\n".join(LABELS))
    found = read_embeddings(tmp_path / "x.csv", labels=tmp_path / "y.txt")
    np.testing.assert_array_equal(found.X, X)
    assert found.y.tolist() == LABELS


# -- labels beside -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("y.txt", "cat\ndog\ncat"),
        ("y.txt", "\ufeffcat\r\ndog\r\ncat\r\n"),
        ("y.csv", "label\ncat\ndog\ncat\n"),
        ("y.csv", "id,Class\n1,cat\n2,dog\n3,cat\n"),
        ("y.tsv", "breed\ncat\ndog\ncat\n"),
    ],
)
def test_vectors_with_labels_in_another_file(name: str, content: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    assert read_embeddings(tmp_path / "x.npy", labels=write(tmp_path, name, content)).y.tolist() == LABELS


@pytest.mark.parametrize("values", [np.array(LABELS), np.array([0, 1, 0])])
def test_labels_of_an_array(values: np.ndarray, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", values)
    assert read_embeddings(tmp_path / "x.npy", labels=tmp_path / "y.npy").y.tolist() == values.astype(str).tolist()


def test_a_column_of_the_labels_file(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    labels = write(tmp_path, "y.csv", "a,b\ncat,1\ndog,2\ncat,3\n")
    assert read_embeddings(tmp_path / "x.npy", label="a", labels=labels).y.tolist() == LABELS


# -- npz -----------------------------------------------------------------------------------------------------


def test_any_keys_of_an_npz(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", feats=X, klass=np.array(LABELS))
    with pytest.raises(StoreError, match=r"only 'feats', 'klass'; name them .*--vectors NAME"):
        read_embeddings(tmp_path / "x.npz")
    assert read_embeddings(tmp_path / "x.npz", vectors="feats", label="klass").y.tolist() == LABELS


# -- Parquet -------------------------------------------------------------------------------------------------


def test_a_wide_parquet(tmp_path: Path) -> None:
    columns: dict[str, Any] = {"species": LABELS, "f0": X[:, 0].astype(np.float32), "f1": X[:, 1].astype(np.float32)}
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    found = read_embeddings(tmp_path / "x.parquet", label="species", vectors="f*")
    assert found.X.dtype == np.float32
    np.testing.assert_array_equal(found.X, X)
    assert found.y.tolist() == LABELS


# -- torch ---------------------------------------------------------------------------------------------------


def torch_bytes(form: str, old: bool) -> bytes:
    view = b"N" if old else b""
    vectors = tensor(shape=(3, 2), strides=(2, 1), view=view)
    labels = tensor("1", 3, (3,), (1,), kind="torch\nLongStorage", view=view)
    content = {
        "tensor": b"\x80\x02" + vectors + b".",
        "pair": b"\x80\x02(" + vectors + labels + b"t.",
        "dict": state(features=vectors, label=labels),
    }[form]
    storages = [X.astype("<f4"), np.array([0, 1, 0], dtype="<i8")][: 1 if form == "tensor" else 2]
    if old:
        return legacy(content, [str(i) for i in range(len(storages))], storages)
    return zipped(content, {f"archive/data/{i}": storage.tobytes() for i, storage in enumerate(storages)})


@pytest.mark.parametrize("old", [False, True], ids=["zip", "legacy"])
@pytest.mark.parametrize(("form", "labels"), [("tensor", None), ("pair", ["0", "1", "0"]), ("dict", ["0", "1", "0"])])
def test_tensors(form: str, labels: list[str] | None, old: bool, tmp_path: Path) -> None:
    (tmp_path / "x.pt").write_bytes(torch_bytes(form, old))
    found = read_embeddings(tmp_path / "x.pt")
    np.testing.assert_array_equal(found.X, X)
    assert (None if found.labels is None else found.labels.tolist()) == labels


def test_a_pickle_is_not_run(tmp_path: Path) -> None:
    trace = tmp_path / "was run"
    (tmp_path / "x.pt").write_bytes(f"cpathlib\nPath\n(V{trace}\ntRp0\n0cpathlib\nPath.touch\n(g0\ntR.".encode())
    with pytest.raises(StoreError, match=r"cannot read '.*x.pt': .*refused as a torch file"):
        read_embeddings(tmp_path / "x.pt")
    assert not trace.exists()


@pytest.mark.parametrize(
    "content",
    [pickle.dumps({"state": 3}, 2), pickle.dumps(3, 2), pickle.dumps(["a"], 2), state(weights=tensor(view=b""))],
)
def test_files_of_torch_without_vectors(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.pt").write_bytes(zipped(content))
    with pytest.raises(StoreError, match=r"x.pt'(: vectors must be floats| has no vectors under a known name)"):
        read_embeddings(tmp_path / "x.pt")


# -- Hugging Face --------------------------------------------------------------------------------------------


def save_to_disk(folder: Path, table: pa.Table, n_files: int = 1) -> None:
    """As Hugging Face's datasets does: Arrow streams, and a list of them."""
    folder.mkdir(parents=True)
    names = [f"data-{i:05d}-of-{n_files:05d}.arrow" for i in range(n_files)]
    step = -(-table.num_rows // n_files)
    for i, name in enumerate(names):
        with pa.OSFile(str(folder / name), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table.slice(i * step, step))
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": name} for name in names]}))
    (folder / "dataset_info.json").write_text("{}")


def hugging_face_table() -> pa.Table:
    features = {"label": {"names": ["cat", "dog"], "_type": "ClassLabel"}}
    columns = {
        "image": pa.array([{"bytes": b"", "path": None}] * 3),
        "embedding": pa.array(X.tolist(), pa.list_(pa.float32())),
        "label": pa.array([0, 1, 0]),
    }
    return pa.table(columns).replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})


@pytest.mark.parametrize("n_files", [1, 2])
def test_a_dataset_saved_to_disk(n_files: int, tmp_path: Path) -> None:
    save_to_disk(tmp_path / "hf", hugging_face_table(), n_files)
    assert is_embeddings(tmp_path / "hf")
    found = read_embeddings(tmp_path / "hf")
    np.testing.assert_array_equal(found.X, X)
    assert found.y.tolist() == LABELS


def test_splits_saved_to_disk(tmp_path: Path) -> None:
    for split in ("train", "test"):
        save_to_disk(tmp_path / "hf" / split, hugging_face_table())
    (tmp_path / "hf" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    assert len(read_embeddings(tmp_path / "hf").X) == 6
    assert len(read_embeddings(tmp_path / "hf", "test").X) == 3


def test_a_dataset_as_the_hub_has_it(tmp_path: Path) -> None:
    (tmp_path / "hf" / "data").mkdir(parents=True)
    for name in ("train-00000-of-00002", "train-00001-of-00002", "test-00000-of-00001"):
        pq.write_table(hugging_face_table(), tmp_path / "hf" / "data" / f"{name}.parquet")
    assert is_embeddings(tmp_path / "hf")
    assert read_embeddings(tmp_path / "hf", "train").y.tolist() == LABELS * 2
    assert len(read_embeddings(tmp_path / "hf", "test").X) == 3


@pytest.mark.parametrize(
    ("file", "text", "match"),
    [
        ("state.json", '{"_data_files": [{"filename": "../../x.arrow"}]}', "must list Arrow files beside it, got"),
        ("state.json", '{"_data_files": []}', "must list Arrow files beside it"),
        ("state.json", "{", "is damaged: expected a list '_data_files'"),
        (
            "dataset_dict.json",
            '{"splits": ["../other"]}',
            "the split '../other', which is not a folder beside it",
        ),
        ("data-00000-of-00001.arrow", "no arrow", "cannot read"),
    ],
)
def test_a_folder_that_is_refused(file: str, text: str, match: str, tmp_path: Path) -> None:
    save_to_disk(tmp_path / "hf", hugging_face_table())
    (tmp_path / "hf" / file).write_text(text)
    with pytest.raises(StoreError, match=match):
        read_embeddings(tmp_path / "hf")


def test_a_table_of_images_is_not_read_as_vectors(tmp_path: Path) -> None:
    assert not is_embeddings(write(tmp_path, "images.csv", "path,label\na.jpg,cat\n"))
    assert is_embeddings(write(tmp_path, "x.csv", WIDE))
    assert not is_embeddings(tmp_path / "nothing.npz")
    with pytest.raises(
        HCEPError, match=r"there is no file or folder .*: expected a store made by `hcep encode`, a .npy"
    ):
        read_embeddings(tmp_path / "nothing.npz")
