"""ImageNette as published, with its table of noisy labels."""

import pytest

from hcep.datasets.image_dataset import DatasetError, read_images
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


def test_real_images():
    dataset = read_images(shared_file("data/imagenette_images"), layout="imagenette", split="train")
    assert len(dataset) == 200
    assert [dataset.labels.count(c) for c in dataset.classes] == [20] * 10


def test_noisy_labels_are_no_labels(root):
    with pytest.raises(DatasetError, match="has one label per image and no columns"):
        read_images(root, label_column="noisy_labels_5")
