"""Datasets of images: what read_images finds, and what a dataset can be asked for."""

import os
from dataclasses import FrozenInstanceError
from pathlib import Path

import numpy as np
import pytest

from hcep.datasets import ImageDataset, read_images
from hcep.embeddings.images import ImageItem
from hcep.errors import DatasetError, HCEPError
from hcep.hierarchy.imagenet import imagenet_wnid
from tests.conftest import shared_file
from tests.datasets.tiny_files import VAL, imagenet, tiny_imagenet, touch, write

VAL_TXT = "".join(f"{name} n01440764\n" for name in VAL)


@pytest.fixture
def pets(tmp_path):
    """Four cats, two dogs."""
    return read_images(touch(tmp_path / "pets", *(f"cat/{i}.jpg" for i in range(4)), "dog/0.jpg", "dog/1.jpg"))


@pytest.fixture
def split_pets(tmp_path):
    return read_images(touch(tmp_path, "train/cat/0.jpg", "train/dog/0.jpg", "validation/cat/1.jpg"))


def test_items_have_path_label_and_id(pets):
    first, *_, last = pets
    assert first == ImageItem(pets.root / "cat" / "0.jpg", "cat", "cat/0.jpg")
    assert last == pets[-1]
    assert len(pets) == 6
    assert pets.classes == ("cat", "dog")


def test_real_images():
    dataset = read_images(shared_file("data/imagenette_images"))
    assert repr(dataset) == "ImageDataset(300 images, 10 classes, layout 'folder', train 200, val 100)"
    assert dataset.split("val").k_shot(3).labels == tuple(np.repeat(dataset.classes, 3).tolist())


@pytest.mark.parametrize(
    ("make", "layout"),
    [
        (lambda root: write(imagenet(root), "val.txt", VAL_TXT).parent, "imagenet"),
        (tiny_imagenet, "tiny_imagenet"),
        (lambda root: touch(root, "a/b.png"), "folder"),
        (lambda root: write(touch(root, "b.png"), "table.csv", "path,label\nb.png,b\n"), "table"),
    ],
    ids=["imagenet", "tiny_imagenet", "folder", "table"],
)
def test_layout_is_detected(make, layout, tmp_path):
    assert read_images(make(tmp_path / "data"), label_column=None).layout == layout


def test_a_dataset_does_not_change(pets):
    with pytest.raises(FrozenInstanceError):
        pets.labels = ()


def test_labels_can_be_left_out(pets):
    unlabelled = read_images(pets.root, label_column=None)
    assert unlabelled.labels == (None,) * 6
    assert unlabelled.classes == ()


# -- subsets -----------------------------------------------------------------------------------------


def test_splits(split_pets):
    assert split_pets.split_names == ("train", "val")
    assert split_pets.split("val").ids == split_pets.split("valid").ids == ("validation/cat/1.jpg",)
    assert read_images(split_pets.root, split="val").ids == ("validation/cat/1.jpg",)
    assert split_pets.pooled().split_names == ()


def test_unknown_split(split_pets):
    with pytest.raises(DatasetError, match=r"split 'test' is not in .*, which has 'train', 'val'"):
        split_pets.split("test")
    with pytest.raises(DatasetError, match=r"split 'test' is not in"):
        read_images(split_pets.root, split="test")


def test_dataset_without_splits(pets):
    with pytest.raises(
        DatasetError, match=r"has no splits, so there is no split 'train'; leave out the split to use all"
    ):
        pets.split("train")
    with pytest.raises(DatasetError, match=r"has no splits"):
        read_images(pets.root, split="train")


def test_relabel(tmp_path):
    dataset = read_images(touch(tmp_path, "tench/0.jpg", "golf_ball/0.jpg", "0.jpg")).relabel(imagenet_wnid)
    assert dataset.labels == (None, "n03445777", "n01440764")


def test_k_shot_and_train_val_keep_the_order_of_the_dataset(pets):
    chosen = pets.k_shot(2, seed=3)
    assert [chosen.labels.count(c) for c in pets.classes] == [2, 2]
    assert list(chosen.ids) == sorted(chosen.ids)
    train, val = pets.train_val(0.5)
    assert sorted(train.ids + val.ids) == list(pets.ids)
    assert val.labels == ("cat", "cat", "dog")
    assert (train.split_names, val.split_names) == (("train",), ("val",))


def test_drawing_does_not_mix_splits(split_pets):
    with pytest.raises(
        DatasetError, match=r"k_shot would mix the splits 'train', 'val'; choose one with .split\('train'"
    ):
        split_pets.k_shot(1)
    with pytest.raises(DatasetError, match=r"train_val would mix the splits"):
        split_pets.train_val()
    assert len(split_pets.pooled().k_shot(1)) == 2


def test_order_of_the_file_system_does_not_matter(pets, monkeypatch):
    scandir = os.scandir

    class Backwards:
        def __init__(self, path):
            self.entries = reversed(list(scandir(path)))

        def __enter__(self):
            return self.entries

        def __exit__(self, *_): ...

    monkeypatch.setattr(os, "scandir", Backwards)
    again = read_images(pets.root)
    assert again.ids == pets.ids
    assert again.k_shot(1).ids == pets.k_shot(1).ids


# -- what cannot be read -------------------------------------------------------------------------------


def test_missing_source(pets):
    with pytest.raises(DatasetError, match=r"no file or folder at '.*pest'. Near matches: 'pets'"):
        read_images(pets.root.with_name("pest"))
    with pytest.raises(HCEPError, match=r"no file or folder at 'nowhere/at/all'"):
        read_images(Path("nowhere/at/all"))


def test_an_unknown_layout_gives_one_sentence(tmp_path):
    write(tmp_path, "notes.txt", "no image")
    with pytest.raises(
        DatasetError, match=r"no images in .* and no known layout; put photos into one subfolder per class"
    ) as raised:
        read_images(tmp_path)
    with pytest.raises(DatasetError, match=r"notes.txt.* no known layout"):
        read_images(tmp_path / "notes.txt")
    assert "\n" not in str(raised.value)


def test_one_photo_is_a_dataset(tmp_path):
    (dataset := read_images(touch(tmp_path, "cat/a.jpg", "b.jpg") / "b.jpg"))
    assert (dataset.files, dataset.labels, dataset.layout) == (("b.jpg",), (None,), "photo")
    with pytest.raises(DatasetError, match="has no splits"):
        read_images(tmp_path / "b.jpg", split="val")


def test_unknown_layout_name(tmp_path):
    with pytest.raises(DatasetError, match=r"unknown layout 'folders'; there are .*Near matches: 'folder'"):
        read_images(tmp_path, layout="folders")


def test_no_images(tmp_path):
    with pytest.raises(DatasetError, match=r"no images in .* read as layout 'folder'; images end in .jpg"):
        read_images(tmp_path, layout="folder")


def test_fields_must_have_the_same_length():
    with pytest.raises(DatasetError, match=r"must have the same length, got \[1, 1, 2, 1, 1\]"):
        ImageDataset(Path(), ("a.png",), ("a",), ("cat", "dog"), (None,))


def test_ids_must_differ():
    with pytest.raises(DatasetError, match=r"ids must be unique; these occur more than once: 'a'"):
        ImageDataset(Path(), ("a.png", "b.png"), ("a", "a"), ("cat", "dog"), (None, None))
