"""CIFAR in its published binary form, and files that are not CIFAR's."""

import numpy as np
import pytest
from PIL import Image

from hcep.datasets import read_images
from hcep.datasets.cifar import write_images
from hcep.datasets.hierarchies import SUPERCLASSES, cifar100_hierarchy
from hcep.errors import DatasetError
from tests.datasets.tiny_files import CIFAR10, cifar10, cifar100, cifar_pixels


def written(root):
    """The dataset of the images that are written for a published folder."""
    write_images(root, root.with_name("images"))
    return read_images(root.with_name("images"))


def test_cifar10(tmp_path):
    dataset = written(cifar10(tmp_path / "cifar-10-batches-bin"))
    assert repr(dataset) == "ImageDataset(12 images, 10 classes, layout 'folder', train 10, test 2)"
    numbered = sorted((item.id.rpartition("/")[2], item.label) for item in dataset.split("train"))
    assert [label for _, label in numbered] == CIFAR10
    assert {item.id for item in dataset.split("test")} == {"test/airplane/00000.png", "test/automobile/00001.png"}


def test_pixels_are_where_they_belong(tmp_path):
    dataset = written(cifar10(tmp_path / "cifar-10-batches-bin"))
    red, green, blue = cifar_pixels(2, seed=1)[0].reshape(3, 32, 32)  # the first of data_batch_2
    picture = np.asarray(Image.open(dataset.root / "train" / "bird" / "00002.png"))
    assert np.array_equal(picture, np.stack([red, green, blue], axis=2))


def test_cifar100_has_the_fine_labels(tmp_path):
    dataset = written(cifar100(tmp_path / "cifar-100-binary"))
    assert dataset.ids == (
        *("train/apple/00000.png", "train/bear/00001.png", "train/lion/00002.png"),
        *("test/bear/00001.png", "test/bed/00000.png"),
    )


def test_a_missing_file_is_named(tmp_path):
    root = cifar10(tmp_path / "cifar-10-batches-bin")
    (root / "data_batch_3.bin").unlink()
    with pytest.raises(DatasetError, match=r"lacks 'data_batch_3.bin'; delete the folder and fetch it again"):
        write_images(root, tmp_path / "images")


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
    dataset = written(cifar100(tmp_path / "cifar-100-binary"))
    assert set(cifar100_hierarchy().restrict(dataset.classes).leaves) == set(dataset.classes)


# -- files that are not CIFAR's -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["../../etc", ".hidden", "a\\b"])
def test_class_names_cannot_lead_out_of_the_folder(tmp_path, name):
    root = cifar10(tmp_path / "cifar-10-batches-bin")
    (root / "batches.meta.txt").write_text(name)
    with pytest.raises(DatasetError, match=r"has class names that cannot be folder names: "):
        write_images(root, tmp_path / "images")


def test_a_class_without_a_name_is_refused(tmp_path):
    root = cifar10(tmp_path / "cifar-10-batches-bin")
    (root / "test_batch.bin").write_bytes(bytes([10]) + bytes(3072))
    with pytest.raises(DatasetError, match="has the class number 10, but only 10 class names"):
        write_images(root, tmp_path / "images")


@pytest.mark.parametrize("n_bytes", [0, 3072, 3074, 2 * 3073 - 1])
def test_truncated_binary_files(tmp_path, n_bytes):
    root = cifar10(tmp_path / "cifar-10-batches-bin")
    (root / "test_batch.bin").write_bytes(bytes(n_bytes))
    with pytest.raises(DatasetError, match=f"has {n_bytes:,} bytes, not a multiple of the 3,073 of a record"):
        write_images(root, tmp_path / "images")
