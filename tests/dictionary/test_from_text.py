import numpy as np
import pytest

from experiments.tasks import SHARED, cifar10
from hcep import ConceptDictionary, save
from hcep.dictionary.from_text import text_dictionary, text_vectors
from hcep.dictionary.transform import unit_rows
from hcep.errors import DictionaryError
from hcep.evaluate import paired_draws
from hcep.models.fitting import text_classifier
from tests.conftest import shared_file


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


def test_names_alone_make_a_dictionary(pets):
    d = ConceptDictionary.from_text(pets, Letters())
    texts = text_vectors(pets, Letters())
    np.testing.assert_allclose(d.leaf_embeddings, texts - texts.mean(axis=0))
    assert text_classifier(text_dictionary(pets, texts)).predict(texts).tolist() == list(pets.leaves)


@pytest.fixture(scope="module")
def task():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SHARED, str(shared_file("data/cifar10_500_clip_vitb32.npz").parents[1]))
        return cifar10()


def synthetic_texts(task, seed=0, gap=0.8, noise=0.03):
    """Class means of CLIP's image embeddings, all shifted by one vector, with noise."""
    rng, X = np.random.default_rng(seed), unit_rows(task.X.astype(np.float64))
    direction = rng.normal(size=X.shape[1])
    means = np.stack([X[task.y == leaf].mean(axis=0) for leaf in task.hierarchy.leaves])
    return means + gap * direction / np.linalg.norm(direction) + noise * rng.normal(size=means.shape)


def correct(text_based, task):
    return (text_classifier(text_based, anchor=1000.0).predict(task.X_val) == task.y_val).astype(float)


def test_closing_the_gap_improves_accuracy(task):
    """A paired comparison over validation images and draws of the texts; only the mean of the images is used."""
    closed, left = [], []
    for seed in range(8):
        texts = synthetic_texts(task, seed)
        closed.append(correct(text_dictionary(task.hierarchy, texts, task.X), task))
        left.append(correct(text_dictionary(task.hierarchy, texts, task.X, close_gap=False), task))
    assert paired_draws(closed, left).low > 0.02


def test_the_gap_is_measured_and_its_size_hardly_matters(task):
    small, large = (text_dictionary(task.hierarchy, synthetic_texts(task, gap=gap), task.X) for gap in (0.3, 0.8))
    assert small.gap < large.gap
    assert abs(correct(small, task).mean() - correct(large, task).mean()) < 0.05


@pytest.mark.parametrize("shots", [1, 5])
def test_texts_and_images_together_are_at_least_as_good_as_either(task, shots):
    few, texts = task.shots(shots, 0), synthetic_texts(task)
    both = text_dictionary(task.hierarchy, texts, task.X, few.X, few.y)
    text_only = text_dictionary(task.hierarchy, texts, task.X)
    images_only = ConceptDictionary.from_images(task.hierarchy, few.X, few.y, unit_norm=True, center=True, rescale=True)
    alone = correct(text_only._replace(dictionary=images_only), task).mean()
    assert correct(both, task).mean() >= max(correct(text_only, task).mean(), alone) - 0.03
    assert both.n_text_only == 0


def test_noisier_texts_get_less_weight(task):
    few = task.shots(12, 0)
    clean, noisy = (
        text_dictionary(task.hierarchy, synthetic_texts(task, noise=noise), task.X, few.X, few.y).weight
        for noise in (0.0, 0.3)
    )
    assert noisy < clean


def test_classes_with_and_without_images_can_be_mixed(task):
    chosen = ["cat", "dog", "ship", "truck"]
    seen, of_seen = np.isin(task.y, chosen), np.isin(task.y_val, chosen)
    texts = synthetic_texts(task)
    mixed = text_dictionary(task.hierarchy, texts, task.X, task.X[seen], task.y[seen])
    assert mixed.n_text_only == 6
    right, before = correct(mixed, task), correct(text_dictionary(task.hierarchy, texts, task.X), task)
    assert right[of_seen].mean() > before[of_seen].mean() + 0.05
    assert right[~of_seen].mean() > 0.5


def test_probabilities_sum_to_one_and_survive_saving(task, tmp_path):
    from hcep.models.loading import load_model

    model = text_classifier(text_dictionary(task.hierarchy, synthetic_texts(task), task.X))
    save(model, tmp_path / "model")
    again = load_model(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(task.X_val[:5]), model.predict_proba(task.X_val[:5]))
    np.testing.assert_allclose(model.predict_proba(task.X_val).sum(axis=1), 1.0)


def test_invalid_arguments_are_rejected(pets):
    encoder, texts = Letters(), np.eye(5)
    with pytest.raises(DictionaryError, match="templates must be sentences with"):
        text_vectors(pets, encoder, ["a photo"])
    encoder.has_text = False
    with pytest.raises(DictionaryError, match="cannot encode text"):
        text_vectors(pets, encoder)
    with pytest.raises(DictionaryError, match="texts must have one row for each of the 5 leaves, got 4 rows"):
        text_dictionary(pets, texts[:4])
    with pytest.raises(DictionaryError, match="X has 3 dimensions, but texts has 5"):
        text_dictionary(pets, texts, X=np.ones((1, 3)), y=["cat"])
    with pytest.raises(DictionaryError, match="labels are not leaves of the hierarchy"):
        text_dictionary(pets, texts, X=np.ones((1, 5)), y=["unicorn"])
    with pytest.raises(DictionaryError, match="one leaf per row of X"):
        text_dictionary(pets, texts, X=np.ones((1, 5)))
    with pytest.raises(DictionaryError, match="NaN or infinite"):
        text_dictionary(pets, texts, images=np.full((1, 5), np.nan))
