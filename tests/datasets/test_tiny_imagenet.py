"""Tiny-ImageNet as published."""

import pytest

from hcep.datasets import read_images
from hcep.errors import DatasetError
from hcep.hierarchy.imagenet import imagenet_hierarchy
from tests.datasets.tiny_files import tiny_imagenet, touch, write


@pytest.fixture
def root(tmp_path):
    return tiny_imagenet(tmp_path / "tiny-imagenet-200")


def test_splits_and_labels(root):
    dataset = read_images(root)
    assert repr(dataset) == "ImageDataset(9 images, 2 classes, layout 'tiny_imagenet', train 6, val 2, test 1)"
    assert dataset.split("train").labels == ("n01443537",) * 3 + ("n02124075",) * 3
    assert dict(zip(dataset.split("val").ids, dataset.split("val").labels, strict=True)) == {
        "val/images/val_0.JPEG": "n02124075",
        "val/images/val_1.JPEG": "n01443537",
    }
    assert dataset.split("test").labels == (None,)
    assert all(item.path.is_file() for item in dataset)


def test_the_bundled_hierarchy_has_the_classes(root):
    assert set(imagenet_hierarchy(read_images(root).classes).leaves) == {"n01443537", "n02124075"}


def test_one_split_needs_only_its_files(root):
    (root / "val" / "val_annotations.txt").unlink()
    assert len(read_images(root, split="train")) == 6
    with pytest.raises(DatasetError, match=r"the labels of val are missing: there is no file '.*val_annotations.txt'"):
        read_images(root)


def test_annotated_but_absent(root):
    (root / "val" / "images" / "val_1.JPEG").unlink()
    with pytest.raises(DatasetError, match=r"1 of 2 files listed in .* are not in '.*images': 'val_1.JPEG'"):
        read_images(root)


def test_images_without_annotation(root):
    touch(root, "val/images/val_2.JPEG")
    with pytest.raises(DatasetError, match=r"1 of 3 images in .* have no label in .*: 'val_2.JPEG'"):
        read_images(root)


def test_classes_that_are_not_listed(root):
    touch(root, "train/n00000001/images/a.JPEG")
    with pytest.raises(DatasetError, match=r"1 classes of train are not in '.*wnids.txt': 'n00000001'"):
        read_images(root)


def test_annotations_of_another_form(root):
    write(root, "val/val_annotations.txt", "val_0.JPEG n02124075\n")
    with pytest.raises(
        DatasetError, match=r"must have lines of name, class and box separated by tabs, got 'val_0.JPEG"
    ):
        read_images(root)


def test_a_label_column_is_refused(root):
    with pytest.raises(DatasetError, match=r"label_column='box': the tiny_imagenet layout has one label"):
        read_images(root, label_column="box")


def test_not_tiny_imagenet(tmp_path):
    with pytest.raises(DatasetError, match=r"is not Tiny-ImageNet: looked for wnids.txt, train/<wnid>/images/"):
        read_images(tmp_path, layout="tiny_imagenet")
