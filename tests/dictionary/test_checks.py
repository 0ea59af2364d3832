import numpy as np
import pytest

from hcep.dictionary import checks
from hcep.dictionary.checks import as_embeddings, check_shape, refuse_non_finite, working_dtype
from hcep.errors import DictionaryError, near_matches, quoted


def test_a_valid_array_is_not_copied():
    X = np.ones((2, 3), dtype=np.float32)
    assert check_shape(X) is X
    assert np.shares_memory(as_embeddings(X, 3), X)


def test_a_single_vector_becomes_one_row():
    assert check_shape([1.0, 2.0, 3.0], 3).shape == (1, 3)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (np.float16, np.float32),
        (np.float32, np.float32),
        (np.float64, np.float64),
        (np.int64, np.float64),
        (np.uint8, np.float64),
        (bool, np.float64),
        (np.longdouble, np.float64),
    ],
)
def test_precision_follows_the_input(dtype, expected):
    X = np.ones((2, 3), dtype=dtype)
    assert working_dtype(X) == expected
    assert as_embeddings(X).dtype == expected


@pytest.mark.parametrize("X", [[["a"]], np.ones((2, 2), complex), np.array([[None]]), [np.datetime64("2020")], {}])
def test_arrays_of_other_types_are_rejected(X):
    with pytest.raises(DictionaryError, match="X must be an array of real numbers, got dtype"):
        check_shape(X)


def test_rows_of_different_lengths_are_rejected():
    with pytest.raises(DictionaryError, match=r"X must be an array of shape \(n_images, n_dims\): .*inhomogeneous"):
        check_shape([[1.0, 2.0], [1.0]])


@pytest.mark.parametrize("X", [1.0, np.ones(3), np.ones((1, 2, 3)), []])
def test_a_wrong_number_of_axes_is_rejected(X):
    with pytest.raises(
        DictionaryError, match=r"X must be a two-dimensional array of shape \(n_images, n_dims\); got shape \("
    ):
        check_shape(X, n_dims=2)


def test_a_wrong_number_of_dimensions_is_rejected():
    with pytest.raises(DictionaryError, match="rows has 3 dimensions, but the dictionary has 1,280; encode the images"):
        check_shape(np.ones((2, 3)), 1280, name="rows")


@pytest.mark.parametrize("X", [np.empty((0, 3)), np.full((2, 2), 1e300), np.full((2, 2), 1e30, dtype=np.float32)])
def test_large_finite_values_are_accepted(X):
    refuse_non_finite(X)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_non_finite_rows_are_counted_and_listed(dtype, order, bad):
    X = np.ones((9, 2), dtype=dtype, order=order)
    X[1:8, 1] = bad
    message = "emb has NaN or infinite values in 7 of 9 rows, such as rows 101, 102, 103, 104, 105 and 2 more;"
    with pytest.raises(DictionaryError, match=message):
        refuse_non_finite(X, first_row=100, name="emb")


def test_non_finite_rows_of_all_chunks_are_counted(monkeypatch):
    monkeypatch.setattr(checks, "CHUNK", 2)
    with pytest.raises(DictionaryError, match="in 2 of 5 rows, such as rows 0, 4;"):
        refuse_non_finite(np.array([[np.nan], [1.0], [1.0], [1.0], [np.inf]]))


def test_quoted_lists_values_for_messages():
    assert quoted(["a", "b"]) == "'a', 'b'"
    assert quoted(range(7), limit=3) == "0, 1, 2 and 4 more"
    assert quoted(np.array(["a", "b"])) == "'a', 'b'"
    assert quoted(np.arange(2)) == "0, 1"


def test_near_matches_are_a_sentence():
    assert near_matches("cats", ["cat", "dog"]) == " Near matches: 'cat'."
    assert near_matches("zebra", ["cat", "dog"]) == ""
    assert near_matches(3, ["cat"]) == ""
