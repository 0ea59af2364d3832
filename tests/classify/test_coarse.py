"""Labels above the classes: what they mean, what they teach, and when they are refused."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

from hcep import HCEPClassifier, HCEPError, Hierarchy, HierarchyError
from hcep.classify.coarse import CoarseImages, Space, read_labels, responsibilities

EDGES = [
    ("thing", "bird"), ("thing", "vehicle"), ("bird", "finch"), ("bird", "owl"), ("owl", "barn owl"),
    ("owl", "eagle owl"), ("vehicle", "car"), ("vehicle", "bus"), ("vehicle", "bike"),
]  # fmt: skip
CLASSES = ("barn owl", "bike", "bus", "car", "eagle owl", "finch")


@pytest.fixture
def tree() -> Hierarchy:
    return Hierarchy.from_edges(EDGES)


def draw(n: int, spread: float = 1.0, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """As many images of each class, around means that are far apart."""
    means = 3.0 * np.random.default_rng(1).standard_normal((len(CLASSES), 12))
    y = np.repeat(np.array(CLASSES), n)
    noise = np.random.default_rng(seed).standard_normal((len(y), 12))
    return means[np.repeat(np.arange(len(CLASSES)), n)] + spread * noise, y


PARENT = {"barn owl": "owl", "eagle owl": "owl", "finch": "bird", "car": "vehicle", "bus": "vehicle", "bike": "vehicle"}


def mostly_coarse(n_exact: int, n: int, spread: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The first images of each class are labelled with it, the others with its parent; also the true classes."""
    X, truth = draw(n, spread)
    y = truth.astype(object)
    later = np.tile(np.arange(n), len(CLASSES)) >= n_exact
    y[later] = [PARENT[label] for label in truth[later]]
    return X, y.astype(str), truth


# -- what labels mean ----------------------------------------------------------------------------------


def test_a_concept_with_classes_below_means_one_of_them(tree):
    labels = read_labels(["finch", "barn owl", "eagle owl", "owl", "bird"], tree)
    assert labels.classes == ["barn owl", "eagle owl", "finch"]
    assert labels.own.tolist() == [2, 0, 1, -1, -1]
    assert labels.names == ("owl", "bird")
    assert labels.sets.tolist() == [[True, True, False], [True, True, True]]


def test_a_concept_without_classes_below_is_a_class(tree):
    labels = read_labels(["bird", "car", "bus"], tree)
    assert labels.classes == ["bird", "bus", "car"]
    assert (labels.own >= 0).all()


def test_several_concepts_mean_one_of_all_their_classes(tree):
    labels = read_labels(["finch", "barn owl", "eagle owl", "car", "bus", ["owl", "car"]], tree)
    assert labels.names == ("car or owl",)
    assert [labels.classes[c] for c in np.flatnonzero(labels.sets[0])] == ["barn owl", "car", "eagle owl"]


def test_the_root_means_unlabelled_and_is_ignored_unless_asked_for(tree):
    y = ["car", "bus", "thing"]
    assert read_labels(y, tree).dropped.tolist() == [False, False, True]
    assert read_labels(y, tree, unlabelled="use").sets.tolist() == [[True, True]]


def test_own_keeps_a_concept_as_a_class_beside_those_below_it(tree):
    labels = read_labels(["owl", "barn owl", "car"], tree, coarse="own")
    assert labels.classes == ["barn owl", "car", "owl"]


def test_drop_leaves_images_of_inner_concepts_out(tree):
    labels = read_labels(["owl", "barn owl", "eagle owl"], tree, coarse="drop")
    assert labels.dropped.tolist() == [True, False, False]


def test_a_single_class_below_is_refused_with_the_choices(tree):
    with pytest.raises(HierarchyError, match=r"'owl'.*only class below it is 'barn owl'.*coarse='own'.*coarse='drop'"):
        read_labels(["owl", "barn owl", "car"], tree)


def test_a_label_above_the_only_leaf_is_the_label_of_that_leaf():
    chain = Hierarchy.from_edges([("thing", "genus"), ("genus", "species"), ("thing", "other")])
    labels = read_labels(["genus", "species", "other"], chain)
    assert labels.classes == ["other", "species"]
    assert labels.own.tolist() == [1, 1, 0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"coarse": "above"}, r"coarse must be 'below', 'own' or 'drop', got 'above'"),
        ({"unlabelled": "drop"}, r"unlabelled must be 'ignore' or 'use', got 'drop'"),
    ],
)
def test_unknown_choices_are_rejected(tree, options, message):
    with pytest.raises(HCEPError, match=message):
        read_labels(["car"], tree, **options)


def test_an_empty_list_of_concepts_is_rejected(tree):
    with pytest.raises(HCEPError, match="a label is an empty list"):
        read_labels(["car", []], tree)


# -- what they teach -----------------------------------------------------------------------------------


def test_coarse_images_make_the_model_better_than_the_exact_ones_alone(tree):
    X, y, truth = mostly_coarse(2, 60, spread=2.5)
    X_new, y_new = draw(100, spread=2.5, seed=7)
    is_exact = y == truth
    alone = HCEPClassifier(tree).fit(X[is_exact], y[is_exact]).score(X_new, y_new)
    model = HCEPClassifier(tree).fit(X, y)
    assert model.coarse_.used
    assert model.score(X_new, y_new) > alone + 0.05
    assert model.classes_.tolist() == sorted(CLASSES)


def test_most_coarse_images_go_to_their_class(tree):
    X, y, truth = mostly_coarse(3, 40, spread=1.0)
    coarse = HCEPClassifier(tree).fit(X, y).coarse_
    best, probability = coarse.best()
    assert np.mean(best == truth[coarse.rows]) > 0.95
    assert ((probability > 0) & (probability <= 1)).all()
    assert dict(coarse.counts["owl"].most())["barn owl"] == pytest.approx(37, abs=2)
    line = "owl: 74 images labelled only to this level teach 2 classes below it (-P coarse=own makes it a class)"
    assert line in coarse.lines()
    assert str(coarse.counts["owl"]) == "74 (they went to: barn owl 37, eagle owl 37)"


def test_the_images_of_coarse_labels_keep_their_weight_when_the_model_grows(tree):
    X, y, truth = mostly_coarse(3, 40, spread=1.0)
    model = HCEPClassifier(tree).fit(X, y)
    of_class = model.classes_.tolist().index("barn owl")
    assert model.images_per_class_.tolist() == [3] * 6
    assert model.class_weights_[of_class] == pytest.approx(40, abs=2)
    before, mean = model.class_weights_[of_class], model._class_means()["barn owl"].mean
    owls = X[truth == "barn owl"][:2]
    model.partial_fit(owls, ["owl", "barn owl"])
    assert model.class_weights_[of_class] == pytest.approx(before + 2, abs=0.1)
    assert model.images_per_class_[of_class] == 4
    assert model.coarse_counts_["owl"].n_images == 75
    expected = (before * mean + model.dictionary_.transform(owls).sum(axis=0)) / (before + 2)
    np.testing.assert_allclose(model._class_means()["barn owl"].mean, expected, atol=1e-3)
    model.remove_class("barn owl")
    assert list(model.coarse_counts_["owl"].classes) == ["eagle owl"]


def test_labels_of_classes_alone_fit_the_same_model_to_the_bit(tree):
    X, y = draw(6)
    below, own = (HCEPClassifier(tree, coarse=coarse).fit(X, y) for coarse in ("below", "own"))
    assert below.coarse_ is None
    np.testing.assert_array_equal(below.predict_proba(X), own.predict_proba(X))


def test_the_order_of_coarse_images_changes_nothing(tree):
    X, y, truth = mostly_coarse(3, 20, spread=1.5)
    order = np.concatenate(
        [np.flatnonzero(y == truth), np.random.default_rng(3).permutation(np.flatnonzero(y != truth))]
    )
    first, second = (HCEPClassifier(tree).fit(X[rows], y[rows]) for rows in (np.sort(order), order))
    np.testing.assert_allclose(first.predict_proba(X), second.predict_proba(X), atol=1e-4)


def test_a_label_on_a_chain_equals_the_exact_label():
    chain = Hierarchy.from_edges([("thing", "genus"), ("genus", "species"), ("thing", "other")])
    X = np.random.default_rng(0).standard_normal((20, 4)) + np.repeat([[3.0, 0, 0, 0], [0, 3.0, 0, 0]], 10, axis=0)
    exact = np.repeat(["species", "other"], 10)
    mixed = np.where(np.arange(20) % 3 == 0, np.where(exact == "species", "genus", exact), exact)
    models = [HCEPClassifier(chain).fit(X, y) for y in (exact, mixed)]
    np.testing.assert_array_equal(*(model.predict_proba(X) for model in models))


def test_coarse_images_that_would_harm_are_not_used(tree):
    X, y, truth = mostly_coarse(6, 30, spread=1.0)
    X[y != truth] = (
        np.random.default_rng(5).standard_normal((np.count_nonzero(y != truth), 12)) * 30.0
    )  # no birds at all
    model = HCEPClassifier(tree).fit(X, y)
    assert not model.coarse_.used
    alone = HCEPClassifier(tree).fit(X[y == truth], y[y == truth])
    np.testing.assert_array_equal(model.predict_proba(X), alone.predict_proba(X))
    assert "they are not used" in model.coarse_.lines()[0]


def test_lists_of_concepts_are_labels_in_fit(tree):
    X, y = draw(8)
    labels = [["barn owl", "eagle owl"] if i % 16 == 5 else label for i, label in enumerate(y.tolist())]
    labels = [label if isinstance(label, str) or y[i] in label else str(y[i]) for i, label in enumerate(labels)]
    model = HCEPClassifier(tree).fit(X, labels)
    assert model.coarse_.names == ("barn owl or eagle owl",)
    assert model.score(X, y) > 0.9


def test_parameters_survive_cloning(tree):
    model = clone(HCEPClassifier(tree, coarse="drop", unlabelled="use"))
    assert (model.coarse, model.unlabelled) == ("drop", "use")


def test_images_with_coarse_labels_alone_are_rejected(tree):
    with pytest.raises(HCEPError, match="no image is labelled with a class"):
        HCEPClassifier(tree).fit(np.eye(3), ["thing", "thing", "thing"])


# -- labels as text, and the labels of a fitted model ----------------------------------------------------


def test_a_text_with_a_bar_means_either_concept(tree):
    y = ["finch", "barn owl", "eagle owl", "car", "owl | car"]
    text, several = read_labels(y, tree), read_labels([*y[:-1], ["owl", "car"]], tree)
    assert text.names == several.names == ("car or owl",)
    np.testing.assert_array_equal(text.sets, several.sets)


def test_a_concept_with_a_bar_in_its_name_stays_that_concept():
    tree = Hierarchy.from_edges([("thing", "oak"), ("thing", "beech"), ("thing", "oak|beech")])
    labels = read_labels(["oak", "beech", "oak|beech"], tree)
    assert labels.classes == ["beech", "oak", "oak|beech"]
    assert labels.own.tolist() == [1, 0, 2]


def test_a_text_with_an_unknown_part_is_not_read_as_the_known_ones(tree):
    labels = read_labels(["car", "bus", "car|bsu"], tree)
    assert "car|bsu" in labels.classes
    with pytest.raises(HierarchyError, match=r"1 of 3 classes is not a concept of the hierarchy: 'car\|bsu'"):
        HCEPClassifier(tree).fit(np.eye(3), ["car", "bus", "car|bsu"])


def test_a_list_with_an_unknown_concept_is_rejected(tree):
    with pytest.raises(HierarchyError, match=r"the label \['bsu', 'car'\] has 'bsu', which is not a known concept"):
        read_labels(["car", "bus", ["car", "bsu"]], tree)


def test_without_a_hierarchy_a_bar_separates_labels_of_other_images():
    labels = read_labels(["oak", "beech", "oak|beech", "oak|elm"], None)
    assert labels.classes == ["beech", "oak", "oak|elm"]
    assert labels.names == ("beech or oak",)
    assert read_labels(["oak", "beech", "oak|beech"], None, coarse="own").classes == ["beech", "oak", "oak|beech"]


def test_texts_and_lists_fit_the_same_model(tree):
    X, y, _ = mostly_coarse(4, 12, spread=1.5)
    lists = [["car", "bus"] if i % 16 == 5 and label == "vehicle" else label for i, label in enumerate(y.tolist())]
    texts = [label if isinstance(label, str) else "|".join(label) for label in lists]
    assert any("|" in label for label in texts)
    models = [HCEPClassifier(tree).fit(X, labels) for labels in (lists, texts)]
    np.testing.assert_array_equal(*(model.predict_proba(X) for model in models))


def test_labels_of_a_fitted_model_are_its_classes_and_the_concepts_above_them(tree):
    hierarchy = tree.restrict(["finch", "barn owl", "car", "bus"]).collapse()  # 'owl' is merged into 'barn owl'
    y = ["finch", "owl", "bird", "thing", "bike", "car|owl"]
    labels = read_labels(y, hierarchy, classes=["finch", "car", "bus", "barn owl"])
    assert labels.classes == ["finch", "car", "bus", "barn owl"]
    assert labels.own.tolist() == [0, -1, -1, -1, -1, -1]
    assert labels.concepts == (("barn owl",), ("bird",), ("car", "barn owl"))
    assert labels.dropped.tolist() == [False, False, False, True, True, False]
    assert labels.unknown.tolist() == [False, False, False, False, True, False]
    assert labels.allows(np.array([0, 3, 3, 0, 0, 2])).tolist() == [True, True, True, False, False, False]


def test_a_class_of_a_fitted_model_that_is_also_a_concept_means_the_class(tree):
    hierarchy = tree.restrict(["owl", "barn owl", "car"]).collapse()
    labels = read_labels(["owl", "bird"], hierarchy, classes=["barn owl", "car", "owl"])
    assert labels.own.tolist() == [2, -1]
    assert labels.sets.tolist() == [[True, False, True]]


def test_an_image_that_may_be_of_very_many_classes_alike_still_counts_for_one() -> None:
    n = 80
    sets = np.ones((1, n), dtype=bool)
    images = CoarseImages(np.zeros((3, 4)), np.zeros(3, dtype=np.intp), np.ones(3), np.arange(3), ("all",), sets)
    exact = np.tile(np.eye(4, dtype=np.float32), (n // 4, 1))
    space = Space(exact, np.arange(n), np.ones(n), np.zeros((3, 4), dtype=np.float32), images)
    for probabilities in responsibilities(space, 1.0, 2):
        np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
