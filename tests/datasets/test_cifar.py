"""CIFAR in its published forms, and pickles that are not CIFAR's."""

import os
import pickle

import numpy as np
import pytest

from hcep.datasets import read_images
from hcep.datasets.hierarchies import SUPERCLASSES, cifar100_hierarchy
from hcep.errors import DatasetError
from tests.datasets.tiny_files import CIFAR10, cifar10, cifar100, cifar_pixels, python2_pickle

forms = pytest.mark.parametrize("binary", [False, True], ids=["python", "binary"])


@forms
def test_cifar10(tmp_path, binary):
    dataset = read_images(cifar10(tmp_path / "c", binary=binary))
    assert repr(dataset) == "ImageDataset(12 images, 10 classes, layout 'cifar', train 10, test 2)"
    assert dataset.labels == (*CIFAR10, "airplane", "automobile")
    assert dataset.ids[3] == "train/cat/00003.png"
    assert dataset.ids[-1] == "test/automobile/00001.png"
    assert dataset.pixels.shape == (12, 32, 32, 3)


@forms
def test_pixels_are_where_they_belong(tmp_path, binary):
    dataset = read_images(cifar10(tmp_path / "c", binary=binary))
    red, green, blue = cifar_pixels(2, seed=1)[0].reshape(3, 32, 32)  # the first of data_batch_2
    assert dataset.pixels[2, 30, 5].tolist() == [red[30, 5], green[30, 5], blue[30, 5]]


def test_the_python_and_binary_versions_agree(tmp_path):
    python, binary = (read_images(cifar10(tmp_path / str(b), binary=b)) for b in (False, True))
    assert python.ids == binary.ids
    assert np.array_equal(python.pixels, binary.pixels)


@forms
def test_cifar100_fine_and_coarse(tmp_path, binary):
    root = cifar100(tmp_path / "c", binary=binary)
    assert read_images(root).labels == ("apple", "bear", "lion", "bed", "bear")
    coarse = read_images(root, label_column="coarse_labels", split="train")
    assert coarse.labels == ("fruit_and_vegetables", "large_carnivores", "large_carnivores")
    assert read_images(root, label_column="fine_labels").ids == read_images(root).ids


def test_one_split_needs_only_its_files(tmp_path):
    root = cifar10(tmp_path / "c", binary=True)
    (root / "data_batch_3.bin").unlink()
    assert len(read_images(root, split="test")) == 2
    with pytest.raises(DatasetError, match=r"CIFAR-10, binary: 'data_batch_3.bin' of split 'train' not in"):
        read_images(root)


def test_pixels_cannot_be_written_to(tmp_path):
    dataset = read_images(cifar100(tmp_path / "c", binary=True))
    with pytest.raises(ValueError, match=r"read-only"):
        dataset.pixels[0] = 0


def test_a_modern_pickle_of_the_same_content(tmp_path):
    root = cifar10(tmp_path / "c", binary=False)
    pixels = np.asfortranarray(cifar_pixels(3, 7))
    (root / "test_batch").write_bytes(pickle.dumps({"data": pixels, "labels": [0, 1, 2]}, protocol=4))
    again = read_images(root, split="test")
    assert np.array_equal(again.pixels.transpose(0, 3, 1, 2).reshape(3, -1), pixels)


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
    dataset = read_images(cifar100(tmp_path / "c", binary=True))
    assert set(cifar100_hierarchy().restrict(dataset.classes).leaves) == set(dataset.classes)


# -- files that are not CIFAR's -----------------------------------------------------------------------


class Payload:
    def __init__(self, target, *arguments):
        self.call = (target, arguments)

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("file", ["batches.meta", "data_batch_1"])
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_malicious_pickle_is_refused(tmp_path, file, protocol):
    root = cifar10(tmp_path / "c", binary=False)
    payload = Payload(os.system, f"touch {tmp_path / 'executed'}")
    (root / file).write_bytes(pickle.dumps({"data": payload, "label_names": payload}, protocol=protocol))
    with pytest.raises(DatasetError, match=rf"{file}' is refused as a CIFAR python file: it asks for \w+\.system"):
        read_images(root)
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    "target", [eval, getattr, print, np.load, np.fromfile, np.zeros, os.path.join], ids=lambda f: f.__name__
)
def test_no_other_function_can_be_called(tmp_path, target):
    root = cifar10(tmp_path / "c", binary=False)
    (root / "test_batch").write_bytes(pickle.dumps({b"data": Payload(target, "1")}))
    with pytest.raises(
        DatasetError, match=r"it asks for .*, and CIFAR's files hold only dicts, lists, bytes and arrays"
    ):
        read_images(root, split="test")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not a pickle",
        python2_pickle({b"data": b"x"})[:-8],
        python2_pickle([1, 2]),
        b"\x80\x02cnumpy\nndarray\n.",  # the type itself
        b"\x80\x02cnumpy\nndarray\n}(K\x01K\x02ub.",  # a state set on the type
        b"\x80\x02}U\x04datacnumpy\nndarray\n)\x81s.",  # an array without content
        b"\x80\x02cnumpy.core.multiarray\n_reconstruct\n(K\x01K\x02K\x03tR(K\x01K\x05K\x00K\x00U\x01atb.",
        b"\x80\x02\x82\x01.",  # an extension code
        b"\x80\x02U\x01aQ.",  # a persistent id
    ],
)
def test_damaged_and_crafted_pickles_are_refused(tmp_path, content):
    root = cifar10(tmp_path / "c", binary=False)
    (root / "test_batch").write_bytes(content)
    with pytest.raises(DatasetError, match=r"test_batch' is refused as a CIFAR python file: "):
        read_images(root, split="test")


def test_arrays_of_other_types_are_refused(tmp_path):
    root = cifar10(tmp_path / "c", binary=False)
    (root / "test_batch").write_bytes(python2_pickle({b"data": np.zeros((1, 3072)), b"labels": [0]}))
    with pytest.raises(DatasetError, match=r"it holds an array of 'f8', and CIFAR's are of bytes, 'u1'"):
        read_images(root, split="test")


@pytest.mark.parametrize("name", [b"../../etc", b".hidden", b"a\\b", b""])
def test_class_names_cannot_lead_out_of_an_export(tmp_path, name):
    root = cifar10(tmp_path / "c", binary=False)
    (root / "batches.meta").write_bytes(python2_pickle({b"label_names": [name]}))
    with pytest.raises(DatasetError, match=r"has class names that cannot be folder names: "):
        read_images(root)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({b"labels": [0]}, "has no entry 'data', only 'labels'"),
        ({b"data": cifar_pixels(1, 0)}, "has no entry 'labels', only 'data'"),
        ({b"data": cifar_pixels(1, 0)[:, 1:], b"labels": [0]}, r"'data' must be bytes of shape \(n, 3072\)"),
        ({b"data": b"bytes", b"labels": [0]}, r"'data' must be bytes of shape \(n, 3072\)"),
        ({b"data": cifar_pixels(2, 0), b"labels": [0]}, "'labels' must be 2 whole numbers, one for each image"),
        ({b"data": cifar_pixels(1, 0), b"labels": [b"0"]}, "'labels' must be 1 whole numbers"),
        ({b"data": cifar_pixels(1, 0), b"labels": [10]}, "has the class number 10, but only 10 class names"),
        ({b"data": cifar_pixels(1, 0), b"labels": [-1]}, "has the class number -1, but only 10 class names"),
    ],
)
def test_python_files_of_another_content(tmp_path, batch, message):
    root = cifar10(tmp_path / "c", binary=False)
    (root / "test_batch").write_bytes(python2_pickle(batch))
    with pytest.raises(DatasetError, match=message):
        read_images(root, split="test")


@pytest.mark.parametrize("n_bytes", [0, 3072, 3074, 2 * 3073 - 1])
def test_truncated_binary_files(tmp_path, n_bytes):
    root = cifar10(tmp_path / "c", binary=True)
    (root / "test_batch.bin").write_bytes(bytes(n_bytes))
    with pytest.raises(DatasetError, match=f"has {n_bytes:,} bytes, not a multiple of the 3,073 of a record"):
        read_images(root, split="test")


def test_unknown_label_column(tmp_path):
    with pytest.raises(DatasetError, match=r"label_column='fine_label' is not .* Near matches: 'fine_labels'"):
        read_images(cifar100(tmp_path / "c", binary=True), label_column="fine_label")


def test_unknown_split(tmp_path):
    with pytest.raises(DatasetError, match=r"split 'val' is not in .*, which has 'train', 'test'"):
        read_images(cifar100(tmp_path / "c", binary=True), split="val")


def test_not_cifar(tmp_path):
    with pytest.raises(DatasetError, match=r"is not CIFAR: looked for data_batch_1 to 5"):
        read_images(tmp_path, layout="cifar")
