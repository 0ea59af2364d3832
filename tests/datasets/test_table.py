"""Tables of paths and labels."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hcep.datasets import read_images
from hcep.errors import DatasetError
from tests.datasets.tiny_files import touch, write

CONTENT = {"path": ["z.jpg", "sub/a.jpg"], "label": ["dog", "cat"], "split": ["train", "validation"]}


def parquet(path, columns):
    pq.write_table(pa.table(columns), path)
    return path


def text(path, delimiter):
    rows = [CONTENT.keys(), *zip(*CONTENT.values(), strict=True)]
    return write(path.parent, path.name, "".join(delimiter.join(row) + "\n" for row in rows))


@pytest.fixture
def images(tmp_path):
    return touch(tmp_path, "z.jpg", "sub/a.jpg")


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("t.csv", lambda path: text(path, ",")),
        ("t.TSV", lambda path: text(path, "\t")),
        ("t.parquet", lambda path: parquet(path, CONTENT)),
        ("d.parquet", lambda path: parquet(path, {k: pa.array(v).dictionary_encode() for k, v in CONTENT.items()})),
    ],
)
def test_rows_in_their_order(images, name, make):
    dataset = read_images(make(images / name))
    assert dataset.ids == ("z.jpg", "sub/a.jpg")
    assert dataset.labels == ("dog", "cat")
    assert dataset.splits == ("train", "val")
    assert [item.path for item in dataset] == [images / "z.jpg", images / "sub" / "a.jpg"]
    assert dataset.split("val").ids == read_images(images / name, split="val").ids == ("sub/a.jpg",)


def test_columns_of_other_names(images):
    table = write(images, "t.csv", 'file,breed,id\nz.jpg,"dog, big",7\nsub/a.jpg,,8\n')
    dataset = read_images(table, path_column="file", label_column="breed")
    assert dataset.labels == ("dog, big", None)
    assert dataset.ids == ("7", "8")


def test_absolute_paths(images, tmp_path_factory):
    table = write(tmp_path_factory.mktemp("elsewhere"), "t.csv", f"path,label\n{images / 'z.jpg'},dog\n")
    assert read_images(table)[0].path == images / "z.jpg"


def test_a_table_without_labels(images):
    assert read_images(write(images, "t.csv", "path\nz.jpg\n"), label_column=None).labels == (None,)


def test_numbers_as_labels(images):
    touch(images, "n.jpg")
    paths = ["z.jpg", "sub/a.jpg", "n.jpg"]
    assert read_images(write(images, "t.csv", "path,label\nz.jpg,007\n")).labels == ("007",)
    assert read_images(parquet(images / "i.parquet", {"path": paths, "label": [1, 2, None]})).labels == ("1", "2", None)
    floats = parquet(images / "f.parquet", {"path": paths, "label": [3.0, 0.5, float("nan")]})
    assert read_images(floats).labels == ("3", "0.5", None)


def test_vectors_and_pixels_of_a_parquet_file_are_not_read(images):
    columns = {"path": ["z.jpg"], "label": ["dog"], "vector": [[1.0, 2.0]], "image": [{"bytes": b"", "path": "z.jpg"}]}
    assert read_images(parquet(images / "t.parquet", columns)).labels == ("dog",)


def test_missing_label_column(images):
    table = write(images, "t.csv", "path,labels\nz.jpg,dog\n")
    message = "label_column='label' is not a column of '.*t.csv', which has 'path', 'labels'. Near matches: 'labels'"
    with pytest.raises(DatasetError, match=message):
        read_images(table)


def test_missing_path_column(images):
    table = write(images, "t.csv", "file_path,label\nz.jpg,dog\n")
    with pytest.raises(DatasetError, match=r"path_column='path' is not a column .* Name the column with path_column="):
        read_images(table)


def test_listed_but_absent(images):
    rows = "".join(f"{i}.jpg,dog\n" for i in range(7))
    table = write(images, "t.csv", f"path,label\nz.jpg,dog\n{rows}")
    with pytest.raises(DatasetError, match=r"7 of 8 files listed in '.*t.csv' are not in .*: '0.jpg', .* and 2 more"):
        read_images(table)


def test_duplicate_ids(images):
    with pytest.raises(DatasetError, match=r"ids must be unique; these occur more than once: 'z.jpg'"):
        read_images(write(images, "t.csv", "path,label\nz.jpg,dog\nz.jpg,cat\n"))


@pytest.mark.parametrize("paths", [[None, "z.jpg"], ["", "z.jpg"]])
def test_empty_paths(images, paths):
    with pytest.raises(DatasetError, match=r"must hold file paths; 1 of 2 rows do not: row 1 has (None|'')"):
        read_images(parquet(images / "t.parquet", {"path": paths, "label": ["a", "b"]}))


def test_paths_that_are_numbers(images):
    with pytest.raises(DatasetError, match=r"path_column='label' of .* must hold file paths; 1 of 1 rows"):
        read_images(parquet(images / "t.parquet", {"label": [3]}), path_column="label")


def test_ragged_rows(images):
    table = write(images, "t.csv", "path,label\nz.jpg,dog\nsub/a.jpg,dog,big\n")
    with pytest.raises(DatasetError, match=r"line 3: 3 cells, but the first line has 2: \['sub/a.jpg'"):
        read_images(table)


@pytest.mark.parametrize("content", ["", "path,label\n"])
def test_no_rows(images, content):
    with pytest.raises(DatasetError, match=r"t.csv' has no rows"):
        read_images(write(images, "t.csv", content))


@pytest.mark.parametrize("name", ["t.parquet", "t.csv"])
@pytest.mark.parametrize("content", [b'path,label\n"z.jpg,\xff\n', b'path,label\n"z.jpg'])
def test_not_a_table(images, name, content):
    (images / name).write_bytes(content)
    with pytest.raises(DatasetError, match=f"{name}' cannot be read as a table: "):
        read_images(images / name)


def test_unknown_kind_of_table(images):
    with pytest.raises(DatasetError, match=r"layout 'table' needs a .csv, .tsv or .parquet file .*, got '.*t.xlsx'"):
        read_images(touch(images, "t.xlsx") / "t.xlsx", layout="table")


def test_unknown_split_of_a_table(images):
    with pytest.raises(DatasetError, match=r"split 'test' is not in .*, which has 'train', 'val'"):
        read_images(text(images / "t.csv", ","), split="test")
