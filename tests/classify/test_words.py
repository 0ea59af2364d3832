"""Texts as a second view of every concept: how much they count, classes without images, and changes of the model."""

import numpy as np
import pytest
from scipy.special import softmax

from hcep import HCEPClassifier, HCEPError, Hierarchy, explain_images, load, save
from hcep.dictionary.transform import unit_rows
from hcep.hierarchy.imagenet import imagenet_hierarchy
from tests.conftest import shared_file

TREE = Hierarchy.from_edges(
    [("thing", group) for group in "ABC"] + [(group, f"{group}{i}") for group in "ABC" for i in range(1, 5)]
)
LEAVES, N_DIMS = TREE.leaves, 20


def views(noise: float = 0.25, per_class: int = 6, seed: int = 0):
    """Images and texts of the same concepts; all texts share a direction that no image has."""
    rng = np.random.default_rng(seed)
    groups = {group: rng.normal(size=N_DIMS) for group in "ABC"}
    means = unit_rows(np.stack([groups[leaf[0]] + 0.8 * rng.normal(size=N_DIMS) for leaf in LEAVES]))
    y = np.repeat(LEAVES, per_class)
    X = unit_rows(np.repeat(means, per_class, axis=0) + 0.22 * rng.normal(size=(len(y), N_DIMS)))
    gap = 1.5 * unit_rows(rng.normal(size=(1, N_DIMS)))
    return X, y, means + gap + noise * rng.normal(size=means.shape)


X, Y, TEXTS = views()
NEW, TRUE, _ = views(per_class=20)
NEW, TRUE = NEW[6:], TRUE[6:]


@pytest.fixture(scope="module")
def model():
    return HCEPClassifier(TREE).fit(X[::2], Y[::2], texts=TEXTS)


def cosines(texts):
    return unit_rows(NEW) @ unit_rows(texts).T


def test_without_images_probabilities_are_the_softmax_of_cosines(tmp_path):
    model = HCEPClassifier(TREE).fit(X[:0], [], texts=TEXTS)
    assert model.classes_.tolist() == sorted(LEAVES)
    order = [LEAVES.index(label) for label in model.classes_]
    np.testing.assert_allclose(model.predict_proba(NEW), softmax(cosines(TEXTS[order]) / 0.01, axis=1), atol=1e-6)
    assert model.words_.share == 1.0
    save(model, tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").predict_proba(NEW), model.predict_proba(NEW))


@pytest.mark.parametrize("precision", [np.float16, np.float32, np.float64])
def test_texts_of_clip_give_the_softmax_of_cosines_in_every_precision(precision):
    with np.load(shared_file("data/clip_vitb32/imagenet1k_6shot.npz"), allow_pickle=False) as data:
        wnids, texts, images = data["wnids"], data["text_photo"].astype(float), data["embeddings"][::6]
    images = images.astype(precision)
    expected = unit_rows(images.astype(float)) @ unit_rows(texts[np.argsort(wnids)]).T
    by_class = dict(zip(wnids.tolist(), texts, strict=True))
    model = HCEPClassifier(imagenet_hierarchy()).fit(images[:0], [], texts=by_class)
    for probabilities in (model.predict_proba(images), model.path_model().infer(images).probabilities):
        np.testing.assert_allclose(probabilities, softmax(expected / 0.01, axis=1), rtol=0, atol=1e-6)


def test_words_and_pictures_are_better_than_either(model):
    pictures = HCEPClassifier(TREE, unit_norm=True).fit(X[::2], Y[::2])
    words = np.mean(np.array(LEAVES)[cosines(TEXTS).argmax(axis=1)] == TRUE)
    assert model.score(NEW, TRUE) >= max(pictures.score(NEW, TRUE), words) - 0.01
    assert 0.05 < model.words_.share < 0.95


def test_meaningless_texts_hardly_count():
    texts = np.random.default_rng(5).normal(size=TEXTS.shape)
    model, pictures = HCEPClassifier(TREE).fit(X, Y, texts=texts), HCEPClassifier(TREE, unit_norm=True).fit(X, Y)
    assert model.words_.share < 0.1
    assert model.score(NEW, TRUE) > pictures.score(NEW, TRUE) - 0.03


def test_a_mapping_says_the_same_as_an_array(model):
    texts = {leaf: [text, 3.0 * text] for leaf, text in zip(LEAVES, TEXTS, strict=True)}
    again = HCEPClassifier(TREE).fit(X[::2], Y[::2], texts=texts)
    np.testing.assert_allclose(again.predict_proba(NEW), model.predict_proba(NEW), atol=1e-9)


def test_one_image_of_each_class_is_enough():
    texts = views(noise=0.1)[2]
    model = HCEPClassifier(TREE).fit(X[::6], Y[::6], texts=texts)
    assert model.words_.share > 0.5
    assert model.score(NEW, TRUE) > HCEPClassifier(TREE).fit(X[::6], Y[::6]).score(NEW, TRUE)


def test_leaves_with_a_text_but_no_images_become_classes():
    seen = np.isin(Y, ["A4", "C2"], invert=True)
    model = HCEPClassifier(TREE).fit(X[seen], Y[seen], texts=TEXTS)
    assert model.classes_.tolist() == sorted(LEAVES)
    assert model.images_per_class_[model.classes_ == "A4"] == 0
    unseen = np.isin(TRUE, ["A4", "C2"])
    assert model.score(NEW[unseen], TRUE[unseen]) > 0.5
    model.partial_fit(X[~seen], Y[~seen])
    assert model.images_per_class_.min() == 6
    assert model.score(NEW[unseen], TRUE[unseen]) > 0.7


def test_two_classes_and_one_have_words_too():
    two = np.isin(Y, ["A1", "B1"])
    model = HCEPClassifier(TREE).fit(X[two], Y[two], texts=TEXTS)
    assert 0.0 < model.words_.share < 1.0
    assert model.classes_.tolist() == sorted(LEAVES)
    one = HCEPClassifier(TREE).fit(X[:6], Y[:6], texts={"A1": TEXTS[0]})
    assert one.predict(NEW[:1]).tolist() == ["A1"]


def test_flat_classes_take_texts_by_their_label():
    labels = np.repeat(np.arange(len(LEAVES)), 6)
    model = HCEPClassifier().fit(X[:-6], labels[:-6], texts=dict(enumerate(TEXTS)))
    assert model.classes_.dtype == labels.dtype
    assert model.classes_.tolist() == list(range(len(LEAVES)))


def test_coefficients_split_exactly_into_look_and_name(model):
    answers = explain_images(NEW[::17], model)
    steps = [step for answer in answers for step in answer.path]
    assert [step.by_look + step.by_name for step in steps] == pytest.approx([step.coefficient for step in steps])
    assert all("its name" in answer.views() for answer in answers)


def test_the_prior_of_a_coefficient_is_split_by_the_parts_of_its_atom(model):
    evidence, dictionary = explain_images(NEW[:1], model)[0].context.explainer.evidence, model.dictionary_
    node = int(model.path_model().infer(NEW[:1]).nodes[0])
    gain, prior = evidence.problem.affine(node)
    z, first = dictionary.transform(NEW[:1])[0], dictionary.n_pictures
    squares = dictionary.atoms[evidence.edges(node)] ** 2
    expected = gain[:, first:] @ z[first:] + prior * squares[:, first:].sum(axis=1) / squares.sum(axis=1)
    np.testing.assert_allclose(evidence.by_name(NEW[0], node), expected)


def test_an_explanation_without_images_is_all_by_name():
    (answer,) = explain_images(NEW[:1], HCEPClassifier(TREE).fit(X[:0], [], texts=TEXTS))
    assert [step.by_look for step in answer.path] == pytest.approx([0.0] * len(answer.path), abs=1e-9)
    assert answer.views() == "100 % by its name, 0 % by its appearance"


def test_an_explanation_without_texts_says_nothing_about_them():
    (answer,) = explain_images(NEW[:1], HCEPClassifier(TREE).fit(X, Y))
    assert (answer.by_name, answer.views(), answer.path[0].by_name) == (None, "", None)


def test_a_saved_model_predicts_and_grows_as_before(model, tmp_path):
    save(model, tmp_path / "model")
    again = load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(NEW), model.predict_proba(NEW))
    assert again.words_ == model.words_
    text = np.random.default_rng(1).normal(size=N_DIMS)
    again.add_class("A5", "A", unit_rows(text[None] + 0.01), text=text)
    word_part = again.dictionary_.synset_embedding("A5")[N_DIMS:]
    np.testing.assert_allclose(word_part, model.words_.text_scale * text / np.linalg.norm(text))
    again.remove_class("A5")
    np.testing.assert_allclose(again.predict_proba(NEW), model.predict_proba(NEW), atol=1e-9)


def test_more_images_move_the_pictures_and_not_the_words():
    model = HCEPClassifier(TREE, prior=None, refine=False).fit(X[::2], Y[::2], texts=TEXTS)
    words = model.dictionary_.word_block.copy()
    model.partial_fit(X[1::2], Y[1::2])
    np.testing.assert_allclose(model.dictionary_.word_block, words, atol=1e-12)
    means = np.stack([unit_rows(X[leaf == Y]).mean(axis=0) for leaf in LEAVES])
    pictures = model.dictionary_.transform.pictures.after_unit_norm(means)
    np.testing.assert_allclose(model.dictionary_.leaf_embeddings[:, :N_DIMS], pictures, atol=1e-9)


def test_texts_of_inner_concepts_are_used_if_held_out_images_gain_and_stay_when_the_model_changes(tmp_path):
    own = dict(zip(LEAVES, unit_rows(TEXTS), strict=True))
    means = {group: np.mean([own[leaf] for leaf in LEAVES if leaf[0] == group], axis=0) for group in "ABC"}
    assert HCEPClassifier(TREE).fit(X, Y, texts=own | means).words_.concepts == ()
    # A group's text on the other side of the origin makes the steps to its classes longer, and these tell them apart.
    model = HCEPClassifier(TREE).fit(X, Y, texts=own | {group: -mean for group, mean in means.items()})
    assert model.words_.concepts == ("A", "B", "C")
    save(model, tmp_path / "model")
    again = load(tmp_path / "model").rename("A1", "another name").partial_fit(X[1:2], Y[1:2]).remove_class("B4")
    for group in "ABC":
        word_part = again.dictionary_.synset_embedding(group)[N_DIMS:]
        np.testing.assert_allclose(word_part, -model.words_.text_scale * unit_rows(means[group][None])[0])


@pytest.mark.parametrize(
    ("options", "texts", "message"),
    [
        ({}, TEXTS[:3], "one row for each of the 12 leaves"),
        ({}, {"unicorn": TEXTS[0]}, "neither classes nor in the hierarchy: 'unicorn'"),
        ({}, {"A1": TEXTS[0]}, "texts lacks 11 of 12 classes"),
        ({}, TEXTS[:, :5], "must be text vectors of 20 dimensions"),
        ({}, np.full_like(TEXTS, np.inf), "NaN or infinite"),
        ({}, 0.0 * TEXTS, "a vector of zeros"),
        ({"head": "logistic"}, TEXTS, "texts needs head='path'"),
        ({"power": 0.5}, TEXTS, "texts needs power=1"),
    ],
)
def test_invalid_texts_are_rejected(options, texts, message):
    with pytest.raises(HCEPError, match=message):
        HCEPClassifier(TREE, **options).fit(X, Y, texts=texts)


def test_a_new_class_without_a_text_has_the_one_that_its_images_predict():
    seen = Y != "B2"
    model = HCEPClassifier(TREE).fit(X[seen], Y[seen], texts=dict(zip(LEAVES, TEXTS, strict=True)) | {"B2": TEXTS[0]})
    model.remove_class("B2").add_class("B2", "B", X[~seen])
    word_part = model.dictionary_.synset_embedding("B2")[N_DIMS:]
    assert np.linalg.norm(word_part) == pytest.approx(model.words_.text_scale)
    assert LEAVES[int((unit_rows(TEXTS) @ word_part).argmax())].startswith("B")
    assert np.mean(model.predict(NEW[TRUE == "B2"]) == "B2") > 0.8


def test_a_model_without_texts_takes_none_for_a_new_class():
    with pytest.raises(HCEPError, match="the model has no texts: leave out text"):
        HCEPClassifier(TREE).fit(X, Y).add_class("A9", "A", X[:2], text=TEXTS[0])
