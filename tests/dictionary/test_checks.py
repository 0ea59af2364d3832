import numpy as np
import pytest

from hcep.dictionary import checks
from hcep.dictionary.checks import as_embeddings, check_shape, refuse_non_finite, working_dtype
from hcep.errors import DictionaryError, near_matches, quoted


def test_an_array_of_the_right_kind_is_neither_copied_nor_changed():
    X = np.ones((2, 3), dtype=np.float32)
    assert check_shape(X) is X
    assert np.shares_memory(as_embeddings(X, 3), X)


def test_one_image_becomes_one_row():
    assert check_shape([1.0, 2.0, 3.0], 3).shape == (1, 3)


@pytest.mark.parametrize(
    ("given", "works_in"),
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
def test_precision_follows_the_input(given, works_in):
    X = np.ones((2, 3), dtype=given)
    assert working_dtype(X) == works_in
    assert as_embeddings(X).dtype == works_in


@pytest.mark.parametrize("X", [[["a"]], np.ones((2, 2), complex), np.array([[None]]), [np.datetime64("2020")], {}])
def test_what_is_no_number(X):
    with pytest.raises(DictionaryError, match="X must be an array of real numbers, got dtype"):
        check_shape(X)


def test_rows_of_different_length():
    with pytest.raises(DictionaryError, match=r"X must be an array of shape \(n_images, n_dims\): .*inhomogeneous"):
        check_shape([[1.0, 2.0], [1.0]])


@pytest.mark.parametrize("X", [1.0, np.ones(3), np.ones((1, 2, 3)), []])
def test_a_wrong_number_of_axes(X):
    with pytest.raises(DictionaryError, match=r"shape \(n_images, n_dims\); got an array of \d dimensions, shape \("):
        check_shape(X, n_dims=2)


def test_another_number_of_dimensions():
    with pytest.raises(DictionaryError, match="rows has 3 dimensions, the dictionary 1,280; encode the images"):
        check_shape(np.ones((2, 3)), 1280, name="rows")


@pytest.mark.parametrize("X", [np.empty((0, 3)), np.full((2, 2), 1e300), np.full((2, 2), 1e30, dtype=np.float32)])
def test_values_whose_squares_overflow_are_finite_all_the_same(X):
    refuse_non_finite(X)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_rows_that_are_not_finite_are_counted_and_shown(dtype, order, bad):
    X = np.ones((9, 2), dtype=dtype, order=order)
    X[1:8, 1] = bad
    message = "emb has NaN or infinite values in 7 of 9 rows, such as rows 101, 102, 103, 104, 105 and 2 more;"
    with pytest.raises(DictionaryError, match=message):
        refuse_non_finite(X, first_row=100, name="emb")


def test_chunks_are_counted_together(monkeypatch):
    monkeypatch.setattr(checks, "CHUNK", 2)
    with pytest.raises(DictionaryError, match="in 2 of 5 rows, such as rows 0, 4;"):
        refuse_non_finite(np.array([[np.nan], [1.0], [1.0], [1.0], [np.inf]]))


def test_lists_in_messages():
    assert quoted(["a", "b"]) == "'a', 'b'"
    assert quoted(range(7), limit=3) == "0, 1, 2 and 4 more"
    assert quoted(np.array(["a", "b"])) == "'a', 'b'"
    assert quoted(np.arange(2)) == "0, 1"


def test_near_matches_end_a_sentence():
    assert near_matches("cats", ["cat", "dog"]) == " Near matches: 'cat'."
    assert near_matches("zebra", ["cat", "dog"]) == ""
    assert near_matches(3, ["cat"]) == ""
