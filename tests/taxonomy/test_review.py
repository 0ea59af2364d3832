"""A hierarchy looked over and mended in one go."""

import numpy as np
import pytest

from hcep import Hierarchy
from hcep.taxonomy import review


@pytest.fixture
def file(tmp_path):
    """A chain, a shortcut and a self-loop."""
    path = tmp_path / "animals.csv"
    path.write_text("parent,child\nr,a\na,feline\nfeline,cat\na,dog\nr,dog\ndog,dog\nr,b\nb,x\nb,y\n")
    return path


@pytest.fixture
def images():
    """Animals and vehicles far apart; "bat", among the animals, lies with the vehicles."""
    labels = ["cat", "dog", "fox", "bat", "car", "bus", "van"]
    tree = [("thing", "animal"), ("thing", "vehicle"), *(("animal", c) for c in labels[:4])]
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(7, 8)) + np.repeat([[5.0, 0.0], [0.0, 5.0]], [3, 4], axis=0) @ np.eye(2, 8)
    y = np.repeat(labels, 40)
    X = np.repeat(centres, 40, axis=0) + 1.2 * rng.normal(size=(len(y), 8))
    return Hierarchy.from_edges([*tree, *(("vehicle", c) for c in labels[4:])]), X, y


def test_findings_are_not_repaired_without_mend(file):
    found = review(file)
    assert [finding.code for finding in found.errors] == ["self-loop"]
    assert found.after == found.before
    assert found.changes == []
    assert found.effects == {}


def test_mending_reports_every_change_and_leaves_no_error(file):
    found = review(file, mend=True)
    assert found.errors == []
    assert found.changes[0].startswith("- self-loop, ")
    assert found.changes[1:] == ["- r → dog"]
    assert review(file, mend=True, collapse=True).after.merged("cat") == (("feline", "feline"),)


def test_no_hierarchy_at_all(tmp_path):
    (tmp_path / "cycle.csv").write_text("parent,child\nr,a\na,b\nb,a\nr,c\n")
    found = review(tmp_path / "cycle.csv", mend=True)
    assert (found.before, found.after) == (None, None)
    assert [finding.code for finding in found.errors] == ["cycle"]


def test_a_known_name_and_the_folder_of_a_model(tmp_path):
    assert review("cifar10").before.root == review("cifar10").after.root
    review("cifar10").before.to_json(tmp_path / "hierarchy.json")
    assert review(tmp_path).before == review("cifar10").before


def test_moves_that_help_are_applied_and_measured_on_other_images(images, tmp_path):
    hierarchy, X, y = images
    hierarchy.to_json(tmp_path / "h.json")
    train = np.arange(len(y)) % 40 < 28
    data = (X[train], y[train], np.flatnonzero(train))
    found = review(tmp_path / "h.json", data, (X[~train], y[~train]), n_moves=3, max_moves=5)
    assert found.changes == ["- animal → bat", "+ vehicle → bat"]
    chosen, other = found.effects.values()
    assert chosen.metrics["support_f1"].difference > 0
    assert len(other.before.y) == np.count_nonzero(~train)
    assert review(tmp_path / "h.json", data, max_moves=5).changes == []


def test_images_of_unknown_classes_are_left_out(images, tmp_path):
    hierarchy, X, y = images
    hierarchy.restrict(["cat", "dog", "car", "bus"]).to_json(tmp_path / "h.json")
    found = review(tmp_path / "h.json", (X, y, np.arange(len(y))), max_moves=0)
    assert [finding.code for finding in found.errors] == ["missing-class"]
    assert set(found.errors[0].synsets) == {"fox", "bat", "van"}
