import numpy as np
import pytest

from hcep.dictionary.from_text import checked_texts, predicted_means, text_vectors
from hcep.errors import DictionaryError


class Letters:
    """A text encoder that counts a few letters, so that its vectors can be checked by eye."""

    name, n_dims, fingerprint, preprocessing, has_text = "letters", 6, "letters", {}, True

    def __init__(self):
        self.seen = []

    def encode_texts(self, texts):
        self.seen += texts
        return np.array([[1 + text.count(letter) for letter in "abcdog"] for text in texts], dtype=np.float32)


def test_names_are_encoded_with_templates_and_descriptions(pets):
    encoder = Letters()
    vectors = text_vectors(pets, encoder, ["a {}, a kind of {parent}", "{}"], {"cat": "it purrs"})
    assert set(encoder.seen) >= {"a cat, a kind of animal", "cat", "cat: it purrs", "a bus, a kind of vehicle", "bus"}
    assert vectors.shape == (len(pets.leaves), 6)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0)


def test_several_texts_of_a_concept_count_equally():
    texts = checked_texts({"cat": [[2.0, 0.0], [0.0, 5.0]], "dog": [3.0, 4.0]}, (), {"cat", "dog"})
    np.testing.assert_allclose(texts["cat"], [0.5**0.5, 0.5**0.5])
    np.testing.assert_allclose(texts["dog"], [0.6, 0.8])


def test_an_array_has_its_rows_in_the_order_of_the_concepts():
    texts = checked_texts(2.0 * np.eye(2), ["dog", "cat"], {"cat", "dog"})
    np.testing.assert_array_equal(np.stack([texts["dog"], texts["cat"]]), np.eye(2))


def test_pictures_that_depend_linearly_on_texts_are_predicted():
    rng = np.random.default_rng(0)
    texts, mixing = rng.normal(size=(60, 5)), rng.normal(size=(5, 8))
    means = texts @ mixing + 3.0
    predicted = predicted_means(texts[:50], means[:50] + 1e-4 * rng.normal(size=(50, 8)), texts[50:])
    np.testing.assert_allclose(predicted, means[50:], atol=0.02)


def test_pictures_that_do_not_depend_on_texts_are_predicted_by_their_mean():
    rng = np.random.default_rng(0)
    texts, means = rng.normal(size=(60, 5)), rng.normal(size=(60, 8))
    predicted = predicted_means(texts[:50], means[:50], texts[50:])
    assert np.abs(predicted - means[:50].mean(axis=0)).max() < 0.5


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (np.eye(5)[:4], "one row for each of the 5 leaves, got shape \\(4, 5\\)"),
        ({"unicorn": np.ones(5)}, "neither classes nor in the hierarchy: 'unicorn'"),
        ({"cat": np.ones(3)}, "texts\\['cat'\\] must be text vectors of 5 dimensions"),
        ({"cat": np.full(5, np.nan)}, "texts\\['cat'\\] has NaN or infinite values"),
        ({"cat": np.zeros(5)}, "texts\\['cat'\\] is a vector of zeros"),
    ],
)
def test_invalid_texts_are_rejected(pets, texts, message):
    with pytest.raises(DictionaryError, match=message):
        checked_texts(texts, pets.leaves, pets.ids, 5)


def test_invalid_templates_and_encoders_are_rejected(pets):
    encoder = Letters()
    with pytest.raises(DictionaryError, match="templates must be sentences with"):
        text_vectors(pets, encoder, ["a photo"])
    encoder.has_text = False
    with pytest.raises(DictionaryError, match="cannot encode text"):
        text_vectors(pets, encoder)
