"""ImageNette as published, with its table of noisy labels."""

import pytest

from hcep.datasets import read_images
from hcep.errors import DatasetError
from tests.conftest import shared_file
from tests.datasets.tiny_files import touch, write

HEADER = "path,noisy_labels_0,noisy_labels_1,noisy_labels_5,noisy_labels_25,noisy_labels_50,is_valid\n"
FILES = ["train/n01440764/a.JPEG", "train/n02102040/b.JPEG", "val/n02102040/c.JPEG"]


@pytest.fixture
def root(tmp_path):
    touch(tmp_path, *FILES)
    rows = [
        f"{FILES[2]},n02102040,n02102040,n02102040,n02102040,n02102040,True\n",
        f"{FILES[0]},n01440764,n01440764,n01440764,n02979186,n03000684,False\n",
        f"{FILES[1]},n02102040,n02102040,n02102040,n02102040,n02102040,False\n",
    ]
    write(tmp_path, "noisy_imagenette.csv", HEADER + "".join(rows))
    return tmp_path


def test_labels_are_the_folders(root):
    dataset = read_images(root)
    assert dataset.layout == "imagenette"
    assert dataset.labels == ("n01440764", "n02102040", "n02102040")
    assert dataset.splits == ("train", "train", "val")
    assert list(dataset.ids) == FILES


def test_noisy_labels(root):
    assert read_images(root, label_column="noisy_labels_0").labels == ("n01440764", "n02102040", "n02102040")
    assert read_images(root, label_column="noisy_labels_25").labels == ("n02979186", "n02102040", "n02102040")
    assert read_images(root, label_column="noisy_labels_50", split="train").labels == ("n03000684", "n02102040")


def test_real_images():
    dataset = read_images(shared_file("data/imagenette_images"), layout="imagenette", split="train")
    assert len(dataset) == 200
    assert [dataset.labels.count(c) for c in dataset.classes] == [20] * 10


@pytest.mark.parametrize("column", ["noisy_labels_2", "is_valid"])
def test_unknown_column(root, column):
    with pytest.raises(DatasetError, match=f"label_column='{column}' is not a column of .* 'noisy_labels_50'"):
        read_images(root, label_column=column)


def test_no_table(root):
    (root / "noisy_imagenette.csv").unlink()
    with pytest.raises(
        DatasetError, match=r"label_column='noisy_labels_5' needs noisy_imagenette.csv or noisy_imagewoof"
    ):
        read_images(root, layout="imagenette", label_column="noisy_labels_5")


def test_images_that_are_not_in_the_table(root):
    touch(root, "train/n01440764/new.JPEG")
    with pytest.raises(DatasetError, match=r"1 of 4 images are not in '.*noisy_imagenette.csv': 'train/n01440764/new"):
        read_images(root, label_column="noisy_labels_5")


def test_a_table_without_paths(root):
    write(root, "noisy_imagenette.csv", "file,noisy_labels_5\na,b\n")
    with pytest.raises(DatasetError, match=r"must have a column 'path', it has 'file', 'noisy_labels_5'"):
        read_images(root, label_column="noisy_labels_5")
