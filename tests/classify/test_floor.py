"""What counts as unlike anything in training."""

import numpy as np
import pytest

from hcep import HCEPClassifier
from hcep.datasets import load_sample
from hcep.models.loading import load_model
from hcep.models.saving import save_model


@pytest.fixture(scope="module")
def sample():
    return load_sample()


def unlike(model, X):
    found = model.infer(X, explained=True)
    return found.explained < model.explained_floor_[found.class_index]


def test_new_images_of_the_classes_are_rarely_marked_and_of_other_classes_mostly(sample):
    seen = sorted(set(sample.y_train))[:7]
    train, known = np.isin(sample.y_train, seen), np.isin(sample.y_val, seen)
    model = HCEPClassifier(sample.hierarchy, anchor=0.03, shrinkage=0.45)
    model.fit(sample.X_train[train], sample.y_train[train])
    assert 0.01 < unlike(model, sample.X_val[known]).mean() < 0.1
    assert unlike(model, sample.X_val[~known]).mean() > 0.6


def test_training_images_left_out_look_as_new_ones_do(sample):
    half = np.arange(len(sample.y_train)) % 2 == 0
    model = HCEPClassifier(sample.hierarchy, anchor=0.03, shrinkage=None).fit(
        sample.X_train[half], sample.y_train[half]
    )
    assert 0.01 < unlike(model, sample.X_train[~half]).mean() < 0.12


def test_one_image_per_class_gives_no_floor():
    X, y = np.eye(3), np.array(["a", "b", "c"])
    model = HCEPClassifier(anchor=0.1, shrinkage=None).fit(X, y)
    assert model.explained_floor_ is None


def test_the_floor_is_saved_and_old_models_have_none(sample, tmp_path):
    model = HCEPClassifier(sample.hierarchy, anchor=0.03, shrinkage=None).fit(sample.X_train, sample.y_train)
    loaded = load_model(save_model(model, tmp_path / "m"))
    np.testing.assert_array_equal(loaded.explained_floor_, model.explained_floor_)
    np.testing.assert_array_equal(loaded.path_model().explained_floor, model.explained_floor_)
    model.explained_floor_ = None
    assert load_model(save_model(model, tmp_path / "old")).explained_floor_ is None
