"""CIFAR in its published binary form, and files that are not CIFAR's."""

import pytest

from hcep.datasets import read_images
from hcep.datasets.hierarchies import SUPERCLASSES, cifar100_hierarchy
from hcep.errors import DatasetError
from tests.datasets.tiny_files import CIFAR10, cifar10, cifar100, cifar_pixels


def test_cifar10(tmp_path):
    dataset = read_images(cifar10(tmp_path / "c"))
    assert repr(dataset) == "ImageDataset(12 images, 10 classes, layout 'cifar', train 10, test 2)"
    assert dataset.labels == (*CIFAR10, "airplane", "automobile")
    assert dataset.ids[3] == "train/cat/00003.png"
    assert dataset.ids[-1] == "test/automobile/00001.png"
    assert dataset.pixels.shape == (12, 32, 32, 3)


def test_pixels_are_where_they_belong(tmp_path):
    dataset = read_images(cifar10(tmp_path / "c"))
    red, green, blue = cifar_pixels(2, seed=1)[0].reshape(3, 32, 32)  # the first of data_batch_2
    assert dataset.pixels[2, 30, 5].tolist() == [red[30, 5], green[30, 5], blue[30, 5]]


def test_cifar100_fine_and_coarse(tmp_path):
    root = cifar100(tmp_path / "c")
    assert read_images(root).labels == ("apple", "bear", "lion", "bed", "bear")
    coarse = read_images(root, label_column="coarse_labels", split="train")
    assert coarse.labels == ("fruit_and_vegetables", "large_carnivores", "large_carnivores")
    assert read_images(root, label_column="fine_labels").ids == read_images(root).ids


def test_one_split_needs_only_its_files(tmp_path):
    root = cifar10(tmp_path / "c")
    (root / "data_batch_3.bin").unlink()
    assert len(read_images(root, split="test")) == 2
    with pytest.raises(DatasetError, match=r"CIFAR-10: 'data_batch_3.bin' of split 'train' not in"):
        read_images(root)


def test_pixels_cannot_be_written_to(tmp_path):
    dataset = read_images(cifar100(tmp_path / "c"))
    with pytest.raises(ValueError, match=r"read-only"):
        dataset.pixels[0] = 0


# -- hierarchy ---------------------------------------------------------------------------------------

#: The superclass of each fine label, both counted in alphabetical order, as in the published files.
COARSE_OF_FINE = """
 4  1 14  8  0  6  7  7 18  3  3 14  9 18  7 11  3  9  7 11  6 11  5 10  7  6 13 15  3 15  0 11  1 10 12 14 16  9 11  5
 5 19  8  8 15 13 14 17 18 10 16  4 17  4  2  0 17  4 18 17 10  3  2 12 12 16 12  1  9 19  2 10  0  1 16 12  9 13 15 13
16 19  2  4  6 19  5  5  8 19 18  1  2 15  6  0 17  8 14 13
"""


def test_cifar100_hierarchy_is_the_published_one():
    h = cifar100_hierarchy()
    coarse = sorted(SUPERCLASSES)
    assert [coarse.index(h.parents(fine)[0]) for fine in sorted(h.leaves)] == list(map(int, COARSE_OF_FINE.split()))
    assert {len(h.children(c)) for c in coarse} == {5}


def test_cifar100_hierarchy_has_the_labels_as_leaves(tmp_path):
    dataset = read_images(cifar100(tmp_path / "c"))
    assert set(cifar100_hierarchy().restrict(dataset.classes).leaves) == set(dataset.classes)


# -- files that are not CIFAR's -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["../../etc", ".hidden", "a\\b"])
def test_class_names_cannot_lead_out_of_an_export(tmp_path, name):
    root = cifar10(tmp_path / "c")
    (root / "batches.meta.txt").write_text(name)
    with pytest.raises(DatasetError, match=r"has class names that cannot be folder names: "):
        read_images(root)


def test_a_class_without_a_name_is_refused(tmp_path):
    root = cifar10(tmp_path / "c")
    (root / "test_batch.bin").write_bytes(bytes([10]) + bytes(3072))
    with pytest.raises(DatasetError, match="has the class number 10, but only 10 class names"):
        read_images(root, split="test")


def test_pickles_for_python_are_not_read(tmp_path):
    for name in ("data_batch_1", "test_batch", "batches.meta"):
        (tmp_path / name).write_bytes(b"\x80\x02}.")
    with pytest.raises(
        DatasetError, match=r"no images and no known layout(?s:.*)cifar: the binary version: data_batch_1"
    ):
        read_images(tmp_path)


@pytest.mark.parametrize("n_bytes", [0, 3072, 3074, 2 * 3073 - 1])
def test_truncated_binary_files(tmp_path, n_bytes):
    root = cifar10(tmp_path / "c")
    (root / "test_batch.bin").write_bytes(bytes(n_bytes))
    with pytest.raises(DatasetError, match=f"has {n_bytes:,} bytes, not a multiple of the 3,073 of a record"):
        read_images(root, split="test")


def test_unknown_label_column(tmp_path):
    with pytest.raises(DatasetError, match=r"label_column='fine_label' is not .* Near matches: 'fine_labels'"):
        read_images(cifar100(tmp_path / "c"), label_column="fine_label")


def test_unknown_split(tmp_path):
    with pytest.raises(DatasetError, match=r"split 'val' is not in .*, which has 'train', 'test'"):
        read_images(cifar100(tmp_path / "c"), split="val")


def test_not_cifar(tmp_path):
    with pytest.raises(DatasetError, match=r"is not CIFAR: looked for the binary version: data_batch_1"):
        read_images(tmp_path, layout="cifar")
