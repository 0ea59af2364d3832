import pickle

import numpy as np
import pytest

from hcep import ConceptDictionary, Hierarchy
from hcep.dictionary.transform import EmbeddingTransform, shrunk_inverse_root, unit_rows
from hcep.errors import DictionaryError


@pytest.fixture
def images():
    """Three classes, twenty images each, correlated dimensions, far from the origin."""
    rng = np.random.default_rng(1)
    y = np.repeat(["a", "b", "c"], 20)
    mixing = rng.standard_normal((5, 5))
    return rng.standard_normal((60, 5)) @ mixing + rng.standard_normal((3, 5))[np.repeat([0, 1, 2], 20)] + 4.0, y


@pytest.fixture
def flat():
    return Hierarchy.from_edges([("r", "a"), ("r", "b"), ("r", "c")])


def pooled(X, y):
    centred = np.concatenate([X[y == c] - X[y == c].mean(axis=0) for c in np.unique(y)])
    return centred.T @ centred / (len(X) - 3)


@pytest.mark.parametrize("shrinkage", [1e-6, 0.3, 1.0])
def test_whitening_equals_its_formula(flat, images, shrinkage):
    X, y = images
    d = ConceptDictionary.from_images(flat, X, y, shrinkage=shrinkage)
    covariance = pooled(X, y)
    shrunk = (1 - shrinkage) * covariance + shrinkage * np.trace(covariance) / 5 * np.eye(5)
    whitener = d.transform.whitener
    np.testing.assert_allclose(whitener.T @ shrunk @ whitener, np.eye(5), atol=1e-9)
    np.testing.assert_allclose(pooled(d.embed(X), y), whitener.T @ covariance @ whitener, atol=1e-9)


def test_little_shrinkage_turns_the_within_class_covariance_into_the_identity(flat, images):
    X, y = images
    d = ConceptDictionary.from_images(flat, X, y, shrinkage=1e-9)
    np.testing.assert_allclose(pooled(d.embed(X), y), np.eye(5), atol=1e-6)


def test_full_shrinkage_only_scales(flat, images):
    X, y = images
    d = ConceptDictionary.from_images(flat, X, y, shrinkage=1.0)
    np.testing.assert_allclose(d.transform.whitener, np.eye(5) / np.sqrt(np.trace(pooled(X, y)) / 5), atol=1e-12)


def test_distances_are_mahalanobis_distances(flat, images):
    X, y = images
    d = ConceptDictionary.from_images(flat, X, y, center=True, shrinkage=1e-9)
    apart = X[0] - X[1]
    here = d.embed(X[0]) - d.embed(X[1])
    np.testing.assert_allclose(np.sum(here**2), apart @ np.linalg.solve(pooled(X, y), apart), rtol=1e-6)


def test_unit_norm(flat, images):
    X, y = images
    d = ConceptDictionary.from_images(flat, X, y, unit_norm=True)
    np.testing.assert_allclose(np.linalg.norm(d.embed(X), axis=1), 1.0)
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    np.testing.assert_allclose(d.synset_embedding("b"), unit[y == "b"].mean(axis=0))


def test_a_zero_row_stays_zero_without_a_warning():
    np.testing.assert_array_equal(unit_rows(np.array([[0.0, 0.0], [3.0, 4.0]])), [[0.0, 0.0], [0.6, 0.8]])


def test_centring(flat, images):
    X, y = images
    d = ConceptDictionary.from_images(flat, X, y, center=True)
    np.testing.assert_allclose(d.embed(X).mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(d.transform.mean, X.mean(axis=0))


options = pytest.mark.parametrize(
    "options",
    [
        {},
        {"unit_norm": True},
        {"center": True},
        {"shrinkage": 0.3},
        {"rescale": True},
        {"unit_norm": True, "center": True, "rescale": True},
        {"center": True, "shrinkage": 0.3, "rescale": True},
        {"unit_norm": True, "center": True, "shrinkage": 0.3, "rescale": True},
    ],
    ids=lambda given: "+".join(given) or "none",
)


@options
def test_rescaled_images_have_a_mean_square_norm_of_one(flat, images, options):
    X, y = images
    d = ConceptDictionary.from_images(flat, X, y, **{**options, "rescale": True})
    np.testing.assert_allclose((d.embed(X) ** 2).sum(axis=1).mean(), 1.0, rtol=1e-10)


@options
def test_synset_embeddings_are_means_of_transformed_images(flat, images, options):
    X, y = images
    d = ConceptDictionary.from_images(flat, X, y, **options)
    for c in "abc":
        np.testing.assert_allclose(d.synset_embedding(c), d.embed(X)[y == c].mean(axis=0), atol=1e-10)


@options
def test_new_images_go_through_the_same_transform(flat, images, options):
    X, y = images
    d = ConceptDictionary.from_images(flat, X, y, **options)
    np.testing.assert_allclose(d.embed(X[7]), d.embed(X)[7:8], atol=1e-12)
    np.testing.assert_allclose(d.embed(X.astype(np.float32)), d.embed(X), rtol=1e-3, atol=1e-4)


@options
@pytest.mark.parametrize(("dtype", "expected"), [(np.float16, np.float32), (np.float32, np.float32), (int, np.float64)])
def test_the_precision_is_kept(flat, images, options, dtype, expected):
    X, y = images
    assert ConceptDictionary.from_images(flat, X, y, **options).embed(X.astype(dtype)).dtype == expected


def test_a_large_common_offset_does_not_spoil_the_scale(flat, images):
    X, y = images
    far = X + 2.0**20
    d = ConceptDictionary.from_images(flat, far, y, center=True, shrinkage=0.2, rescale=True)
    np.testing.assert_allclose((d.embed(far) ** 2).sum(axis=1).mean(), 1.0, rtol=1e-9)


def test_the_identity_returns_its_input():
    X = np.ones((2, 3))
    assert EmbeddingTransform()(X) is X
    assert EmbeddingTransform().is_identity
    assert not EmbeddingTransform(scale=2.0).is_identity
    np.testing.assert_array_equal(EmbeddingTransform(scale=2.0)(X), 2 * X)


def test_a_direction_without_variance_is_not_amplified():
    root = shrunk_inverse_root(np.diag([-1e-18, 2.0]), 0.5)
    np.testing.assert_allclose(root, np.diag([1 / np.sqrt(0.5), 1 / np.sqrt(1.5)]))


@pytest.mark.parametrize("smallest", [1e-3, -1e-6])
def test_the_whitener_is_an_inverse_root_even_if_rounding_made_a_variance_negative(smallest: float) -> None:
    axes = np.linalg.qr(np.random.default_rng(0).standard_normal((4, 4)))[0]
    covariance = axes * [smallest, 1.0, 2.0, 3.0] @ axes.T
    root = shrunk_inverse_root(covariance, 1e-9)
    variances = np.maximum([smallest, 1.0, 2.0, 3.0], 0.0) * (1 - 1e-9) + 1e-9 * 1.5
    np.testing.assert_allclose(root @ root.T, axes / variances @ axes.T, rtol=1e-4)


@pytest.mark.parametrize("power", [0.5, 0.7])
@pytest.mark.parametrize("unit_norm", [False, True])
def test_a_power_comes_before_unit_norm_and_means(flat, images, power, unit_norm):
    X, y = np.abs(images[0]), images[1]
    direct = ConceptDictionary.from_images(flat, X, y, unit_norm=unit_norm, center=True, power=power)
    prepared = unit_rows(X**power) if unit_norm else X**power
    plain = ConceptDictionary.from_images(flat, prepared, y, center=True)
    np.testing.assert_allclose(direct.synset_embeddings, plain.synset_embeddings)
    np.testing.assert_allclose(direct.embed(X), plain.embed(prepared))
    assert not direct.transform.is_affine


def test_a_power_keeps_the_sign():
    np.testing.assert_allclose(EmbeddingTransform(power=0.5)(np.array([[-4.0, 9.0]])), [[-2.0, 3.0]])


@pytest.mark.parametrize("shrinkage", [0.0, -0.1, 1.1, np.nan])
def test_shrinkage_out_of_range_is_rejected(flat, images, shrinkage):
    with pytest.raises(DictionaryError, match=r"shrinkage must be a number in \(0, 1\], or None .*; got"):
        ConceptDictionary.from_images(flat, *images, shrinkage=shrinkage)


def test_images_without_covariance_are_rejected(flat):
    X, y = np.repeat(np.eye(3), 2, axis=0), np.repeat(["a", "b", "c"], 2)
    with pytest.raises(DictionaryError, match="all images of a class are equal"):
        ConceptDictionary.from_images(flat, X, y, shrinkage=0.5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_whitener_is_scaled_once_and_not_stored_twice(dtype: type) -> None:
    transform = EmbeddingTransform(mean=np.ones(3), whitener=2.0 * np.eye(3), scale=0.5)
    size = len(pickle.dumps(transform))
    X = np.arange(6, dtype=dtype).reshape(2, 3)
    first, second = transform(X), transform(X)
    assert np.array_equal(first, X - 1)
    assert np.array_equal(first, second)
    assert first.dtype == dtype
    assert len(pickle.dumps(transform)) == size
    assert np.array_equal(pickle.loads(pickle.dumps(transform))(X), first)


@pytest.mark.parametrize("blocks", [{"scale": 2.0}, {"scale": 0.0, "words": 3.0}, {"scale": 2.0, "words": 3.0}])
@pytest.mark.parametrize("constants", [None, np.array([1.0, -2.0])])
def test_directions_are_pulled_back_through_all_blocks(blocks, constants):
    rng = np.random.default_rng(0)
    arrays = {"mean": rng.normal(size=4), "whitener": rng.normal(size=(4, 4)), "constants": constants}
    transform, x = EmbeddingTransform(unit_norm=True, **arrays, **blocks), rng.normal(size=(3, 4))
    z = transform(x)
    directions = rng.normal(size=(5, z.shape[1]))
    back, constant = transform.pulled_back(directions)
    np.testing.assert_allclose(transform.prepared(x) @ back.T + constant, z @ directions.T, atol=1e-12)
    assert transform.n_dims(z.shape[1]) == 4
    assert transform.n_pictures(z.shape[1]) == (4 if blocks["scale"] else 0)


def test_the_picture_block_and_the_word_block_stand_side_by_side():
    x, mean = np.array([[3.0, 4.0]]), np.array([0.5, 0.5])
    transform = EmbeddingTransform(unit_norm=True, mean=mean, scale=2.0, words=10.0)
    np.testing.assert_allclose(transform(x), [[0.2, 0.6, 6.0, 8.0]])
    np.testing.assert_allclose(transform.pictures(x), [[0.2, 0.6]])
