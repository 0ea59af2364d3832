import numpy as np
import pytest
from sklearn.metrics import average_precision_score, f1_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from hcep import HCEPClassifier, HCEPError
from hcep.classify import MultiLabelHCEP
from hcep.classify.multilabel import FIXED, unmixed


@pytest.mark.slow
@parametrize_with_checks([MultiLabelHCEP()])
def test_scikit_learn_conventions(estimator, check):
    check(estimator)


LEAVES = ("cat", "dog", "fox", "car", "bus")


def pictures(pets_dictionary, n, seed, most=2, noise=0.15):
    """Means of one to `most` leaves with noise, and which leaves they are of."""
    rng, leaves = np.random.default_rng(seed), pets_dictionary.leaf_embeddings
    order = [LEAVES.index(leaf) for leaf in pets_dictionary.hierarchy.leaves]
    truth = np.zeros((n, len(LEAVES)), dtype=int)
    X = np.zeros((n, leaves.shape[1]))
    for i in range(n):
        chosen = rng.choice(len(LEAVES), rng.integers(1, most + 1), replace=False)
        truth[i, [order[c] for c in chosen]] = 1
        X[i] = leaves[chosen].mean(axis=0) + noise * rng.normal(size=leaves.shape[1])
    return X, truth


@pytest.fixture
def fitted(pets, pets_dictionary):
    return MultiLabelHCEP(pets, labels=LEAVES).fit(*pictures(pets_dictionary, 300, 0))


def test_labels_of_new_pictures(fitted, pets_dictionary):
    X, truth = pictures(pets_dictionary, 200, 1)
    f1 = f1_score(truth, fitted.predict(X), average="samples")
    assert f1 > 0.85
    assert average_precision_score(truth, fitted.label_scores(X), average="macro") > 0.9
    always_two = fitted.set_params(n_paths=2).predict(X)
    assert f1_score(truth, always_two, average="samples") < f1  # half of the pictures have one object


def test_every_label_that_is_predicted_is_the_end_of_a_path(fitted, pets_dictionary):
    X, _ = pictures(pets_dictionary, 20, 2)
    found, predicted = fitted.pursue(X), fitted.predict(X)
    assert [{LEAVES[c] for c in np.flatnonzero(row)} for row in predicted] == [set(leaves) for leaves in found.leaves]
    ranked = fitted.decision_function(X)
    np.testing.assert_array_equal(ranked > 0.0, predicted > 0)
    assert np.abs(ranked).max() <= 1.0


def test_pictures_with_one_label_each_are_those_of_the_classifier(pets, pets_dictionary):
    X, truth = pictures(pets_dictionary, 100, 3, most=1)
    many = MultiLabelHCEP(pets, labels=LEAVES).fit(X, truth)
    one = HCEPClassifier(pets, **FIXED).fit(X, np.array(LEAVES)[truth.argmax(axis=1)])
    np.testing.assert_array_equal(many.model_.dictionary_.synset_embeddings, one.dictionary_.synset_embeddings)


def test_a_label_that_only_occurs_with_another_is_separated_from_it():
    """Cats alone; dogs only ever beside a cat: the mean of pictures with dogs is half cat, the unmixed one is not."""
    rng, cat, dog = np.random.default_rng(0), np.array([4.0, 0.0, 0.0]), np.array([0.0, 4.0, 0.0])
    truth = np.array([[1, 0]] * 20 + [[1, 1]] * 20, dtype=bool)
    X = np.where(truth[:, 1:], (cat + dog) / 2, cat) + 0.01 * rng.normal(size=(40, 3))
    single, column, _ = unmixed(X, truth)
    np.testing.assert_allclose(single[column == 1].mean(axis=0), dog, atol=0.1)
    np.testing.assert_allclose(single[column == 0].mean(axis=0), cat, atol=0.1)


def test_features_that_are_never_negative_stay_so():
    rng = np.random.default_rng(0)
    truth = rng.random((50, 3)) < 0.6
    single, column, _ = unmixed(np.abs(rng.normal(size=(50, 4))).astype(np.float32), truth)
    assert single.min() >= 0.0
    assert single.dtype == np.float32
    assert len(column) == truth.sum()


def test_images_without_a_label_are_ignored(pets, pets_dictionary):
    X, truth = pictures(pets_dictionary, 100, 4)
    strange = np.vstack([X, np.full((5, 4), 99.0)])
    with_blank = MultiLabelHCEP(pets, labels=LEAVES).fit(strange, np.vstack([truth, np.zeros((5, 5), dtype=int)]))
    without = MultiLabelHCEP(pets, labels=LEAVES).fit(X, truth)
    np.testing.assert_array_equal(with_blank.predict(X), without.predict(X))


def test_a_label_that_never_occurs_is_never_predicted(pets, pets_dictionary):
    X, truth = pictures(pets_dictionary, 100, 5)
    kept = truth[:, 2] == 0
    model = MultiLabelHCEP(pets, labels=LEAVES).fit(X[kept], truth[kept])
    assert model.predict(X).shape == (100, 5)
    assert not model.predict(X)[:, 2].any()


def test_labels_come_from_a_data_frame(pets, pets_dictionary):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    X, truth = pictures(pets_dictionary, 60, 6)
    model = MultiLabelHCEP(pets).fit(X, pandas.DataFrame(truth, columns=list(LEAVES)))
    assert model.classes_.tolist() == list(LEAVES)


@pytest.mark.parametrize(
    ("labels", "y", "message"),
    [
        (None, [[1, 0, 0, 0, 0]] * 3, "labels is missing"),
        (("cat", "dog"), [[1, 0, 0, 0, 0]] * 3, "labels must be 5 distinct names"),
        (LEAVES, [[0, 0, 0, 0, 0]] * 3, "y has no label: every row is zero"),
        (LEAVES, [[2, 0, 1, 0, 3]] * 3, "indicator matrix of zeros and ones"),
    ],
)
def test_invalid_targets_are_rejected(pets, labels, y, message):
    with pytest.raises(HCEPError, match=message):
        MultiLabelHCEP(pets, labels=labels).fit(np.eye(3, 4), y)
