import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from hcep.classify.linear_head import ANCHORS, SAFE_ANCHOR, open_linear_head
from hcep.datasets import load_sample
from hcep.errors import HCEPError


@pytest.fixture(scope="module")
def sample():
    return load_sample()


@pytest.fixture(scope="module")
def probe(sample):
    return LogisticRegression(C=0.01, max_iter=2000).fit(sample.X_train, sample.y_train)


@pytest.fixture(scope="module")
def opened(sample, probe):
    return open_linear_head(
        probe.coef_, probe.intercept_, probe.classes_, sample.hierarchy, images=sample.X_train, anchor="auto"
    )


def test_the_path_ends_in_the_classifiers_class(sample, probe, opened):
    agree = opened.predict(sample.X_val) == probe.predict(sample.X_val)
    assert opened.agreement_ >= 0.99
    assert opened.anchor_ in ANCHORS
    assert agree.mean() >= 0.98


def test_without_images_the_anchor_is_so_large_that_they_always_agree(sample, probe):
    opened = open_linear_head(probe.coef_, probe.intercept_, probe.classes_, sample.hierarchy)
    assert opened.anchor_ == SAFE_ANCHOR
    assert np.isnan(opened.agreement_)
    assert (opened.predict(sample.X_val) == probe.predict(sample.X_val)).all()


def test_probabilities_are_the_classifiers_own_at_a_large_anchor(sample, probe):
    opened = open_linear_head(probe.coef_, probe.intercept_, probe.classes_, sample.hierarchy)
    expected = probe.predict_proba(sample.X_val[:50].astype(np.float64))
    assert np.abs(opened.predict_proba(sample.X_val[:50].astype(np.float64)) - expected).max() < 1e-3


def test_coefficients_of_typical_images_are_about_one(sample, opened):
    found = opened.pursue(sample.X_val)
    assert np.mean([found.coefficients(i).mean() for i in range(len(found))]) == pytest.approx(1.0, abs=0.15)


def test_two_classes_with_one_row(pets):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 5)) + np.repeat([[1.0], [-1.0]], 30, axis=0)
    y = np.repeat(["cat", "bus"], 30)
    probe = LogisticRegression().fit(X, y)
    opened = open_linear_head(probe.coef_, probe.intercept_, probe.classes_, pets)
    assert (opened.predict(X) == probe.predict(X)).all()
    assert np.abs(opened.predict_proba(X) - probe.predict_proba(X)).max() < 1e-3


def test_classes_in_any_order(pets):
    rng = np.random.default_rng(1)
    classes = ["fox", "bus", "cat", "dog", "car"]
    coef, intercept, X = rng.normal(size=(5, 6)), rng.normal(size=5), rng.normal(size=(40, 6))
    opened = open_linear_head(coef, intercept, classes, pets)
    assert opened.predict(X).tolist() == [classes[i] for i in (X @ coef.T + intercept).argmax(axis=1)]


@pytest.mark.parametrize(
    ("coef", "intercept", "classes", "message"),
    [
        (np.ones((3, 2)), np.ones(2), ["cat", "dog"], "coef must be"),
        (np.ones((2, 2)), np.ones(3), ["cat", "dog"], "intercept"),
        (np.ones((2, 2)), np.ones(2), ["cat", "cat"], "two distinct labels"),
        (np.ones((1, 2)), np.ones(1), ["cat"], "at least two"),
        (np.full((2, 2), np.nan), np.ones(2), ["cat", "dog"], "must be finite"),
    ],
)
def test_invalid_weights_are_rejected(pets, coef, intercept, classes, message):
    with pytest.raises(HCEPError, match=message):
        open_linear_head(coef, intercept, classes, pets)


def test_images_unlike_those_it_was_opened_with_are_marked(sample, probe, opened):
    def unlike(X):
        found = opened.path_model().infer(X.astype(np.float32), explained=True)
        return (found.explained < opened.explained_floor_[found.class_index]).mean()

    assert len(set(opened.explained_floor_.tolist())) == 1
    assert 0.02 < unlike(sample.X_val) < 0.10
    # Images of no class, with the known ones' energy in every dimension.
    rng = np.random.default_rng(0)
    assert unlike(rng.permuted(sample.X_val, axis=0)) > 0.5
    few = open_linear_head(probe.coef_, probe.intercept_, probe.classes_, sample.hierarchy, images=sample.X_train[:10])
    assert few.explained_floor_ is None
