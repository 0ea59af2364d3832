"""Image folders: which files are images, which folders are classes and which are splits."""

import os
import sys

import pytest

from hcep.datasets import read_images
from hcep.errors import DatasetError
from tests.datasets.tiny_files import touch, write


def test_only_images_count(tmp_path):
    touch(tmp_path, "cat/a.JPG", "cat/b.webp", "cat/._a.jpg", "cat/.thumbs/c.png", "cat/notes.txt", "README.md")
    assert read_images(tmp_path).ids == ("cat/a.JPG", "cat/b.webp")


def test_the_label_is_the_first_folder(tmp_path):
    dataset = read_images(touch(tmp_path, "n01440764/images/deep/a.jpg", "loose.jpg"))
    assert dict(zip(dataset.ids, dataset.labels, strict=True)) == {
        "loose.jpg": None,
        "n01440764/images/deep/a.jpg": "n01440764",
    }


def test_splits_by_any_name_in_their_order(tmp_path):
    dataset = read_images(touch(tmp_path, "Test/a.jpg", "training/cat/a.jpg", "valid/cat/b.jpg"))
    assert dataset.splits == ("train", "val", "test")
    assert dataset.labels == ("cat", "cat", None)


def test_folders_without_images_do_not_hide_the_splits(tmp_path):
    write(tmp_path, "annotations/boxes.csv", "")
    assert read_images(touch(tmp_path, "train/cat/a.jpg", "val/cat/b.jpg")).split_names == ("train", "val")


@pytest.mark.parametrize("names", [["train/a.jpg", "car/a.jpg"], ["train/a.jpg", "b.jpg"]])
def test_a_class_may_be_called_train(tmp_path, names):
    dataset = read_images(touch(tmp_path, *names))
    assert "train" in dataset.classes
    assert dataset.split_names == ()


def test_splits_beside_other_images_are_ambiguous(tmp_path):
    touch(tmp_path, "train/cat/a.jpg", "val/cat/b.jpg", "more/c.jpg")
    with pytest.raises(
        DatasetError,
        match=r"'val' beside 'more', so its folders cannot be read as splits or as classes",
    ):
        read_images(tmp_path)


def test_broken_links_are_listed_for_whoever_opens_them(tmp_path):
    touch(tmp_path, "cat/a.jpg")
    (tmp_path / "cat" / "b.jpg").symlink_to("nowhere.jpg")
    assert read_images(tmp_path).ids == ("cat/a.jpg", "cat/b.jpg")


def test_links_to_folders_are_followed_but_not_in_circles(tmp_path):
    touch(tmp_path / "elsewhere", "a.jpg")
    touch(tmp_path / "pets", "dog/b.jpg")
    (tmp_path / "pets" / "cat").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    (tmp_path / "pets" / "dog" / "again").symlink_to(tmp_path / "pets", target_is_directory=True)
    assert read_images(tmp_path / "pets").ids == ("cat/a.jpg", "dog/b.jpg")


@pytest.mark.skipif(sys.platform != "linux", reason="file names are bytes only there")
def test_file_names_that_are_not_utf8_get_a_printable_id(tmp_path):
    folder = os.fsencode(tmp_path) + b"/c\xe9ramique"
    os.mkdir(folder)
    with open(folder + b"/\xff.jpg", "wb"):
        pass
    (item,) = read_images(tmp_path)
    assert (item.id, item.label) == (r"c\xe9ramique/\xff.jpg", r"c\xe9ramique")
    assert item.path.is_file()


def test_a_folder_has_no_columns(tmp_path):
    with pytest.raises(DatasetError, match=r"label_column='breed': the folder layout has one label per image"):
        read_images(touch(tmp_path, "cat/a.jpg"), label_column="breed")


def test_the_folder_layout_needs_a_folder(tmp_path):
    with pytest.raises(DatasetError, match=r"layout 'folder' needs a folder, got the file '.*a.jpg'"):
        read_images(touch(tmp_path, "a.jpg") / "a.jpg", layout="folder")
