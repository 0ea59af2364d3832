import logging

import numpy as np
import pytest
from scipy import sparse

from hcep.dictionary import moments as module
from hcep.dictionary.moments import ClassMoments, one_hot


def moments_of(X, y, second_moment=True, n_batches=1):
    """Return the moments of X and y, added in `n_batches` batches."""
    moments = ClassMoments(second_moment)
    for rows, labels in zip(np.array_split(X, n_batches), np.array_split(y, n_batches), strict=True):
        classes, index = np.unique(labels, return_inverse=True)
        moments.update(rows, classes.tolist(), index)
    return moments


def within(X, y):
    """Return the pooled covariance about the class means by its textbook formula."""
    centred = np.concatenate([X[y == c] - X[y == c].mean(axis=0) for c in np.unique(y)])
    return centred.T @ centred / (len(X) - len(np.unique(y)))


@pytest.fixture
def images():
    rng = np.random.default_rng(0)
    return rng.standard_normal((60, 4)) + 3.0, rng.choice(["a", "b", "c"], 60)


def test_moments_of_four_images_by_hand():
    moments = moments_of(np.array([[0.0], [2.0], [5.0], [7.0]]), np.array(["a", "a", "b", "b"]))
    assert dict(zip(moments.labels, moments.class_means()[:, 0], strict=True)) == {"a": 1.0, "b": 6.0}
    assert moments.counts.tolist() == [2, 2]
    assert moments.n_dims == 1
    assert moments.total_mean().tolist() == [3.5]
    assert moments.within_covariance().tolist() == [[2.0]]  # (1 + 1 + 1 + 1) / (4 - 2)
    assert moments.second_moment().tolist() == [[19.5]]  # (0 + 4 + 25 + 49) / 4
    assert moments.mean_square_norm(None, None) == 19.5
    assert moments.mean_square_norm(np.array([3.5]), None) == 7.25
    assert moments.mean_square_norm(np.array([3.5]), np.array([[2.0]])) == 29.0


@pytest.mark.parametrize("n_batches", [2, 7, 60])
def test_batches_give_the_same_moments_as_one_array(images, n_batches):
    X, y = images
    whole, parts = moments_of(X, y), moments_of(X, y, n_batches=n_batches)
    order = [parts.labels[c] for c in whole.labels]
    np.testing.assert_allclose(parts.class_means()[order], whole.class_means(), rtol=1e-13)
    np.testing.assert_array_equal(parts.counts[order], whole.counts)
    np.testing.assert_allclose(parts.within_covariance(), whole.within_covariance(), rtol=1e-12)
    np.testing.assert_allclose(parts.total_mean(), X.mean(axis=0), rtol=1e-13)


def test_chunks_give_the_same_moments_as_one_array(images, monkeypatch):
    X, y = images
    whole = moments_of(X, y)
    monkeypatch.setattr(module, "CHUNK", 7)
    np.testing.assert_allclose(moments_of(X, y).within_covariance(), whole.within_covariance(), rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("order", ["C", "F"])
def test_sums_are_in_double_precision(images, dtype, order):
    X, y = images
    X = np.asarray(X, dtype=dtype, order=order)
    exact = X.astype(np.float64)
    moments = moments_of(X, y, n_batches=3)
    means = dict(zip(moments.labels, moments.class_means(), strict=True))
    np.testing.assert_allclose(means["b"], exact[y == "b"].mean(axis=0), rtol=1e-13)
    np.testing.assert_allclose(moments.within_covariance(), within(exact, y), rtol=1e-12)


def test_a_large_common_offset_loses_no_digits(images):
    X, y = images
    far = X + 2.0**20  # a power of two, so that adding it loses little of X itself
    near = far - 2.0**20
    moments = moments_of(far, y, n_batches=4)
    np.testing.assert_allclose(moments.within_covariance(), within(near, y), rtol=1e-9)
    mean, whitener = moments.total_mean(), np.diag([1.0, 2.0, 3.0, 4.0])
    expected = (((near - near.mean(axis=0)) @ whitener) ** 2).sum(axis=1).mean()
    np.testing.assert_allclose(moments.mean_square_norm(mean, whitener), expected, rtol=1e-9)


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("whitened", [False, True])
def test_mean_square_norm(images, centred, whitened):
    X, y = images
    moments = moments_of(X, y)
    mean = [None, moments.total_mean()][centred]
    whitener = [None, np.diag([1.0, 2.0, 3.0, 4.0])][whitened]
    mapped = (X - [0.0, X.mean(axis=0)][centred]) @ [np.eye(4), np.diag([1.0, 2.0, 3.0, 4.0])][whitened]
    np.testing.assert_allclose(moments.mean_square_norm(mean, whitener), (mapped**2).sum(axis=1).mean(), rtol=1e-12)


def test_second_moment(images):
    X, y = images
    np.testing.assert_allclose(moments_of(X, y).second_moment(), X.T @ X / len(X), rtol=1e-12)


def test_zero_images_have_a_mean_square_norm_of_one():
    moments = moments_of(np.zeros((2, 3)), np.array(["a", "b"]))
    assert moments.mean_square_norm(None, None) == 1.0


def test_one_image_per_class_falls_back_to_the_total_covariance(caplog):
    X = np.array([[0.0, 0.0], [2.0, 0.0], [1.0, 3.0]])
    with caplog.at_level(logging.INFO, logger="hcep"):
        covariance = moments_of(X, np.array(["a", "b", "c"])).within_covariance()
    np.testing.assert_allclose(covariance, np.cov(X.T))
    assert "no class has two images" in caplog.text


def test_empty_batches_change_nothing(images):
    X, y = images
    moments = moments_of(X, y)
    before = moments.class_means()
    moments.update(X[:0], [], np.zeros(0, dtype=np.intp))
    np.testing.assert_array_equal(moments.class_means(), before)


def test_many_classes_can_be_added_at_once():
    rows = np.arange(3000)
    moments = ClassMoments()
    moments.update(np.ones((3000, 2)), [str(i) for i in rows], rows)
    assert moments.counts.tolist() == [1] * 3000


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_merged_moments_equal_those_of_all_images(offset):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3)) + offset
    y = np.array(["a", "b", "c", "d"])[rng.integers(4, size=60)]
    parts = [(X[:20], y[:20]), (X[:0], y[:0]), (X[20:25], y[20:25]), (X[25:], y[25:])]
    merged = ClassMoments(second_moment=True)
    for rows, labels in parts:
        part = ClassMoments(second_moment=True)
        names, index = np.unique(labels, return_inverse=True)
        part.update(rows, names.tolist(), index)
        merged.merge(part)
    whole = ClassMoments(second_moment=True)
    names, index = np.unique(y, return_inverse=True)
    whole.update(X, names.tolist(), index)
    order = [merged.labels[name] for name in whole.labels]
    assert merged.counts[order].tolist() == whole.counts.tolist()
    np.testing.assert_allclose(merged.class_means()[order], whole.class_means(), rtol=1e-12)
    np.testing.assert_allclose(merged.within_covariance(), whole.within_covariance(), atol=1e-9)
    np.testing.assert_allclose(merged.second_moment(), whole.second_moment(), rtol=1e-9)
    assert merged.mean_square_norm(None, None) == pytest.approx(whole.mean_square_norm(None, None))


@pytest.mark.parametrize("n_batches", [1, 3])
def test_integer_weights_equal_repeated_images(images, n_batches):
    X, y = images
    weights = np.random.default_rng(1).integers(1, 4, size=len(X))
    classes, index = np.unique(y, return_inverse=True)
    weighted = ClassMoments(second_moment=True)
    for rows in np.array_split(np.arange(len(X)), n_batches):
        weighted.update(X[rows], classes.tolist(), one_hot(index[rows], 3, weights[rows].astype(float)))
    repeated = moments_of(np.repeat(X, weights, axis=0), np.repeat(y, weights))
    assert weighted.counts.tolist() == moments_of(X, y).counts.tolist()
    assert weighted.weights.tolist() == repeated.counts.tolist()
    np.testing.assert_allclose(weighted.class_means(), repeated.class_means(), rtol=1e-12)
    np.testing.assert_allclose(weighted.total_mean(), repeated.total_mean(), rtol=1e-12)
    np.testing.assert_allclose(weighted.within_covariance(), repeated.within_covariance(), rtol=1e-11)
    np.testing.assert_allclose(weighted.second_moment(), repeated.second_moment(), rtol=1e-11)
    assert weighted.mean_square_norm(None, None) == pytest.approx(repeated.mean_square_norm(None, None))


def test_an_image_may_belong_to_several_classes():
    half = sparse.csr_array([[0.5, 0.5], [0.0, 1.0]])
    moments = ClassMoments(second_moment=True)
    moments.update(np.array([[0.0], [3.0]]), ["a", "b"], half)
    assert moments.weights.tolist() == [0.5, 1.5]
    assert moments.class_means().tolist() == [[0.0], [2.0]]
    assert moments.total_mean().tolist() == [1.5]
    assert moments.second_moment().tolist() == [[4.5]]


@pytest.mark.parametrize("scale", [1e-6, 0.3])
def test_small_equal_weights_do_not_change_the_covariance(images, scale):
    X, y = images
    classes, index = np.unique(y, return_inverse=True)
    moments = ClassMoments(second_moment=True)
    moments.update(X, classes.tolist(), one_hot(index, 3, np.full(len(X), scale)))
    np.testing.assert_allclose(moments.within_covariance(), within(X, y), rtol=1e-9)


def test_merged_weights_equal_those_of_all_images(images):
    X, y = images
    classes, index = np.unique(y, return_inverse=True)
    weighted = one_hot(index, 3, np.linspace(0.5, 2.0, len(X)))
    whole, merged, part = (ClassMoments(second_moment=True) for _ in range(3))
    whole.update(X, classes.tolist(), weighted)
    merged.update(X[:20], classes.tolist(), weighted[:20])
    part.update(X[20:], classes.tolist(), weighted[20:])
    merged.merge(part)
    np.testing.assert_allclose(merged.class_means(), whole.class_means(), rtol=1e-12)
    np.testing.assert_allclose(merged.within_covariance(), whole.within_covariance(), rtol=1e-10)
