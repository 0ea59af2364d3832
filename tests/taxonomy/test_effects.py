"""What an edit does to held-out images: the same as a refit, for a fraction of its time."""

import time
from types import SimpleNamespace

import numpy as np
import pytest

from hcep import HCEPClassifier, HCEPError, Hierarchy, HierarchyError, support_scores
from hcep.datasets import load_sample
from hcep.evaluate.support import Outcome, class_f1
from hcep.hierarchy.imagenet import imagenet_hierarchy
from hcep.taxonomy import Add, Move, Remove, Rename, apply_edits
from hcep.taxonomy.effects import HeldOut, compare, stratified_folds, what_if

N_DIMS = 128
EDITS = [Move("n03417042", "n03183080"), Add("noise makers", "n00003553", ("n03000684", "n03394916"))]


@pytest.fixture(scope="module")
def sample():
    """The first dimensions of the sample, which are enough to make some mistakes in, and quick."""
    whole = load_sample()
    data = SimpleNamespace(
        hierarchy=whole.hierarchy,
        X_train=whole.X_train[:, :N_DIMS],
        y_train=whole.y_train,
        X_val=whole.X_val[:, :N_DIMS],
        y_val=whole.y_val,
    )
    model = HCEPClassifier(data.hierarchy, shrinkage=0.6, anchor=0.03).fit(data.X_train, data.y_train)
    return data, model, HeldOut.from_model(model, data.X_val, data.y_val)


def test_no_edit_no_effect(sample):
    _, _, held_out = sample
    assert all(change.difference == change.error == 0 for change in what_if(held_out, []).metrics.values())


def test_before_is_the_model_itself(sample):
    data, model, held_out = sample
    effect = what_if(held_out, EDITS)
    support = support_scores(model.pursue(data.X_val), data.y_val, model.hierarchy_)
    assert effect.accuracy.before == model.score(data.X_val, data.y_val)
    np.testing.assert_array_equal(effect.before.support.f1, support.f1)


def test_after_equals_a_refit_with_the_same_metric_and_anchor(sample):
    data, model, held_out = sample
    effect = what_if(held_out, EDITS)
    edited = apply_edits(data.hierarchy, EDITS)
    refit = HCEPClassifier(edited, shrinkage=model.shrinkage_, anchor=model.anchor_).fit(data.X_train, data.y_train)
    np.testing.assert_array_equal(effect.after.predicted, refit.predict(data.X_val))
    support = support_scores(refit.pursue(data.X_val), data.y_val, refit.hierarchy_)
    np.testing.assert_array_equal(effect.after.support.f1, support.f1)
    assert effect.after.hierarchy == refit.hierarchy_
    assert effect.metrics["support_f1"].difference != 0


def test_differences_are_paired(sample):
    _, _, held_out = sample
    effect = what_if(held_out, EDITS)
    change = effect.after.support.f1 - effect.before.support.f1
    assert effect.metrics["support_f1"].difference == pytest.approx(change.mean())
    assert effect.metrics["support_f1"].error == pytest.approx(change.std() / np.sqrt(len(change)))
    assert effect.metrics["support_f1"].after - effect.metrics["support_f1"].before == pytest.approx(
        effect.metrics["support_f1"].difference
    )


def test_a_name_changes_no_metric(sample):
    _, _, held_out = sample
    assert what_if(held_out, [Rename("n03417042", "bin lorry")]).metrics["support_f1"].difference == 0


def test_another_hierarchy_altogether(sample):
    data, _, held_out = sample
    flat = Hierarchy.from_edges([("all", label) for label in np.unique(data.y_val).tolist()])
    effect = compare(held_out, flat)
    assert effect.metrics["support_f1"].after == pytest.approx(effect.accuracy.after)
    assert effect.after.chance_f1 == pytest.approx(0.1, abs=0.01)


def test_the_tree_policy_and_the_beam_of_the_model_stay(sample):
    data, _, _ = sample
    options = {"tree": "first", "beam_width": 2, "signed": True, "shrinkage": 0.6, "anchor": 0.03, "tol": 0.2}
    model = HCEPClassifier(data.hierarchy, **options).fit(data.X_train, data.y_train)
    held_out = HeldOut.from_model(model, data.X_val, data.y_val)
    assert held_out.baseline.hierarchy.is_tree
    np.testing.assert_array_equal(held_out.baseline.predicted, model.predict(data.X_val))


def test_a_model_without_a_hierarchy_is_flat(sample):
    data, _, _ = sample
    model = HCEPClassifier(shrinkage=0.6, anchor=0.03).fit(data.X_train, data.y_train)
    assert HeldOut.from_model(model, data.X_val, data.y_val).baseline.hierarchy.depth == 1


def test_every_image_is_held_out_once(sample):
    data, _, _ = sample
    held_out = HeldOut.from_images(data.hierarchy, data.X_train, data.y_train, shrinkage=0.6, anchor=0.03)
    assert sorted(held_out.y.tolist()) == sorted(data.y_train)
    assert sum(len(fold.images) for fold in held_out.folds) == len(data.y_train)
    assert held_out.baseline.accuracy > 0.9
    other = held_out.on(data.X_val, data.y_val)
    refit = HCEPClassifier(data.hierarchy, shrinkage=0.6, anchor=0.03).fit(data.X_train, data.y_train)
    np.testing.assert_array_equal(other.baseline.predicted, refit.predict(data.X_val))


def test_folds_are_stratified_and_leave_single_images_in_the_means():
    y = np.array(["a"] * 6 + ["b"] * 2 + ["c"])
    fold_of = stratified_folds(y, 3, 0)
    assert np.bincount(fold_of[:6]).tolist() == [2, 2, 2]
    assert len(set(fold_of[6:8])) == 2
    assert fold_of[8] == -1
    np.testing.assert_array_equal(fold_of, stratified_folds(y, 3, 0))


def test_chance_by_hand():
    hierarchy = Hierarchy.from_edges([("r", "a"), ("a", "x"), ("a", "y"), ("r", "z"), ("r", "w")])
    y = np.array(["x", "y"])
    # One class in two is right by chance; the other shares one of two synsets.
    assert Outcome(hierarchy, y, y, None).chance_f1 == pytest.approx(0.75)
    assert class_f1(hierarchy, ["x", "z"]).tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_class_f1_takes_the_closest_path_of_the_truth(diamond):
    # cat's first path is pet; lion's is feline: hamster shares pet with it, lion nothing.
    table = class_f1(diamond, ["cat", "hamster", "lion"])
    assert table[0].tolist() == [1.0, 0.5, 0.0]
    assert table[2].tolist() == [0.5, 0.0, 1.0]


def test_a_common_trunk_raises_f1_but_not_f1_above_chance():
    y, predicted = np.array(["x", "y"] * 20), np.array(["x", "y", "y", "x"] * 10)
    flat = Hierarchy.from_edges([("r", "x"), ("r", "y"), ("r", "o")])
    trunk = Hierarchy.from_edges([("r", "t"), ("t", "x"), ("t", "y"), ("r", "o")])
    outcomes = [
        Outcome(h, y, predicted, support_scores([h.paths(p)[0] for p in predicted], y, h)) for h in (flat, trunk)
    ]
    assert outcomes[1].support_f1 > outcomes[0].support_f1
    above = [(o.support_f1 - o.chance_f1) / (1 - o.chance_f1) for o in outcomes]
    assert above[0] == pytest.approx(above[1]) == 0


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (np.eye(N_DIMS)[:2], ["n03417042", "cat"], "1 labels that are not classes of the model: 'cat'"),
        (np.eye(N_DIMS)[:2], ["n03417042"], "the same length, at least 1; got 2 and 1"),
        (np.zeros((0, N_DIMS)), np.array([], dtype=str), "the same length, at least 1; got 0 and 0"),
    ],
)
def test_images_that_do_not_fit_the_model(sample, X, y, message):
    _, model, _ = sample
    with pytest.raises(HCEPError, match=message):
        HeldOut.from_model(model, X, y)


def test_nothing_to_hold_out(pets):
    X, y = np.eye(5), ["cat", "dog", "fox", "car", "bus"]
    with pytest.raises(HCEPError, match="no class has two images"):
        HeldOut.from_images(pets, X, y)
    with pytest.raises(HCEPError, match="NaN or infinite values in 5 of 5 rows"):
        HeldOut.from_images(pets, X * np.nan, y)


def test_an_edit_must_not_lose_a_class_of_the_data(sample):
    _, _, held_out = sample
    with pytest.raises(HierarchyError, match="class 'n03417042' would be lost"):
        what_if(held_out, [Remove("n03417042")])


@pytest.mark.slow
def test_what_if_is_far_quicker_than_a_refit(tiny_imagenet):
    data = tiny_imagenet
    start = time.process_time()
    model = HCEPClassifier(imagenet_hierarchy()).fit(data["X"], data["y"])
    support_scores(model.pursue(data["X_val"]), data["y_val"], model.hierarchy_)
    refit = time.process_time() - start
    held_out = HeldOut.from_model(model, data["X_val"], data["y_val"])
    assert held_out.baseline.support_f1 > 0.8
    start = time.process_time()
    what_if(held_out, [Move("reef", "coelenterate")])
    assert time.process_time() - start < refit / 10
