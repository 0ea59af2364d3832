"""Classes of the hierarchy without images: ignored unless asked for, and then answers only where they earn it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hcep import HCEPClassifier, HCEPError, load, save
from hcep.classify.unseen import TAKEN, unseen_classes
from tests.classify.test_tree_prior import CLASSES, TREE, draw

#: One class of each group has no images.
ABSENT = np.array(["c00", "c11", "c22", "c33", "c44"])


def seen(n: int) -> tuple[np.ndarray, np.ndarray]:
    X, y = draw(np.where(np.isin(CLASSES, ABSENT), 0, n))
    return X, y


def test_classes_without_images_are_no_answers_by_default() -> None:
    X, y = seen(5)
    model = HCEPClassifier(TREE).fit(X, y)
    assert set(model.classes_) == set(CLASSES) - set(ABSENT)
    assert unseen_classes(TREE, model.classes_) == sorted(ABSENT)


def test_a_leaf_below_a_class_belongs_to_it() -> None:
    assert unseen_classes(TREE, np.array(["g0", "c10"])) == [c for c in CLASSES if c[1] != "0" and c != "c10"]
    assert unseen_classes(None, np.array(["a", "b"])) == []


@pytest.mark.parametrize("n", [3, 20])
def test_they_get_the_mean_that_the_tree_expects(n: int) -> None:
    X, y = seen(n)
    model = HCEPClassifier(TREE, unseen="use").fit(X, y)
    assert model.classes_.tolist() == CLASSES.tolist()
    assert model.images_per_class_[np.isin(CLASSES, ABSENT)].tolist() == [0] * 5
    new, labels = draw(np.where(np.isin(CLASSES, ABSENT), 40, 0))
    columns = np.flatnonzero(np.isin(CLASSES, ABSENT))
    best = CLASSES[columns][model.predict_proba(new)[:, columns].argmax(axis=1)]
    assert (best == labels).mean() > 0.6  # among themselves; chance is 0.2


def test_they_take_few_images_from_the_others() -> None:
    X, y = seen(20)
    model, without = (HCEPClassifier(TREE, unseen=unseen).fit(X, y) for unseen in ("use", "ignore"))
    new, labels = draw(np.where(np.isin(CLASSES, ABSENT), 0, 40))
    assert 0.0 < model.unseen_odds_ <= 1.0
    assert np.isin(model.predict(new), ABSENT).mean() < 4 * TAKEN
    assert model.score(new, labels) > without.score(new, labels) - 0.03


def test_images_that_come_later_make_it_a_class_like_the_others(tmp_path: Path) -> None:
    X, y = seen(20)
    model = HCEPClassifier(TREE, unseen="use").fit(X, y)
    loaded = load(save(model, tmp_path / "model"))
    assert loaded.unseen_odds_ == model.unseen_odds_
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    new, labels = draw(np.where(CLASSES == "c00", 60, 0))
    before = (loaded.predict(new) == labels).mean()
    loaded.partial_fit(new[:20], labels[:20])
    after = (loaded.predict(new[20:]) == labels[20:]).mean()
    assert after > before + 0.3
    # Its odds are those of the other classes now; the classes that are left without images keep theirs.
    absent = np.isin(CLASSES, ABSENT[1:])
    np.testing.assert_allclose(loaded.priors_[absent] / loaded.priors_[~absent].max(), loaded.unseen_odds_)


def test_without_a_prior_they_are_refused() -> None:
    X, y = seen(5)
    with pytest.raises(HCEPError, match="unseen='use' needs a prior over the tree"):
        HCEPClassifier(TREE, unseen="use", prior=None).fit(X, y)
    with pytest.raises(HCEPError, match="unseen must be 'ignore' or 'use'; got 'keep'"):
        HCEPClassifier(TREE, unseen="keep").fit(X, y)


def test_without_a_hierarchy_there_are_none() -> None:
    X, y = seen(5)
    assert HCEPClassifier(unseen="use").fit(X, y).classes_.tolist() == sorted(set(y))
