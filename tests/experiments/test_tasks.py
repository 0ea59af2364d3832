import numpy as np
import pytest

from experiments.tasks import SHARED, Task, cifar10, imagenette, task_from_arrays, tiny_imagenet
from hcep import Hierarchy
from hcep.datasets import load_sample
from hcep.errors import HCEPError
from tests.conftest import shared_file

HIERARCHY = Hierarchy.from_edges([("r", "animal"), ("animal", "cat"), ("animal", "dog"), ("r", "car")])


def small(n_per_class=4) -> Task:
    y = np.repeat(["cat", "dog", "car"], n_per_class)
    X = np.arange(3.0 * len(y)).reshape(-1, 3)
    return task_from_arrays("small", "none", HIERARCHY, (X, y), (X[:2], y[:2]))


def test_shots_are_drawn_for_every_class():
    drawn = small().shots(2, seed=0)
    assert np.unique(drawn.y, return_counts=True)[1].tolist() == [2, 2, 2]
    assert drawn.X_val is small().X_val or np.array_equal(drawn.X_val, small().X_val)


def test_fewer_shots_are_a_subset_of_more():
    assert set(small().shots(1, seed=5).ids) < set(small().shots(3, seed=5).ids)


def test_none_or_too_many_shots_keep_all_images():
    task = small()
    assert task.shots(None, 0) is task
    assert task.shots(4, 0) is task


def test_the_digest_depends_on_images_labels_and_hierarchy():
    task = small()
    flat = Hierarchy.from_edges([("r", "cat"), ("r", "dog"), ("r", "car")])
    digests = {task.digest, task.shots(2, 0).digest, task.under(flat).digest, small(5).digest}
    assert len(digests) == 4
    assert task.digest == small().digest


def test_first_images_are_spread_over_the_validation_set():
    sample = imagenette_sample()
    assert len(np.unique(sample.first_images(20).y_val)) == 10


def test_fewer_classes_keep_their_images_and_ancestors():
    sample = imagenette_sample().first_classes(3)
    assert len(sample.hierarchy.leaves) == 3
    assert set(sample.y) == set(sample.y_val) == set(sample.hierarchy.leaves)
    assert (len(sample.y), len(sample.y_val), len(sample.ids)) == (150, 150, 150)


def test_too_many_classes_keep_all_classes():
    sample = imagenette_sample()
    assert sample.first_classes(10) is sample


def imagenette_sample():
    data = load_sample()
    train, val = (data.X_train, data.y_train), (data.X_val, data.y_val)
    return task_from_arrays("sample", "none", data.hierarchy, train, val)


def test_the_sample_replaces_missing_imagenette(monkeypatch, tmp_path):
    monkeypatch.setenv(SHARED, str(tmp_path))
    task = imagenette()
    assert task.name == "ImageNette sample"
    assert len(task.y_val) == 500
    assert "bundled" in task.note


@pytest.mark.parametrize("make", [tiny_imagenet, cifar10])
def test_missing_data_errors_say_what_to_do(monkeypatch, tmp_path, make):
    monkeypatch.setenv(SHARED, str(tmp_path))
    with pytest.raises(HCEPError, match=r"no data: .* is not in the `data` folder of HCEP_SHARED .* --data"):
        make()


def test_a_validation_label_without_training_images():
    X = np.eye(3)
    with pytest.raises(HCEPError, match="1 validation labels have no training image, such as 'car'"):
        task_from_arrays("x", "x", HIERARCHY, (X[:2], ["cat", "dog"]), (X[2:], ["car"]))


def test_no_validation_images():
    X = np.eye(3)
    with pytest.raises(HCEPError, match="there are no validation images; pass data with a `val` or `test` split"):
        task_from_arrays("x", "x", HIERARCHY, (X, ["cat", "dog", "car"]), (X[:0], []))


def test_real_cifar_has_a_tree_of_three_levels(monkeypatch):
    monkeypatch.setenv(SHARED, str(shared_file("data/cifar10_500_clip_vitb32.npz").parents[1]))
    task = cifar10()
    assert (len(task.y), len(task.y_val), task.hierarchy.depth) == (250, 250, 3)
