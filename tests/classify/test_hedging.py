"""Answers that stop where they should: guarantees hold, sets are subtrees, quantiles as others compute them."""

from __future__ import annotations

import itertools
from functools import partial

import numpy as np
import pytest

from hcep import HCEPClassifier, Hierarchy, explain_images, roll_up
from hcep.classify.hedging import as_subtrees, class_quantiles, class_sets, held_out_levels, held_out_scores
from hcep.classify.right_level import conformal_quantile, promise
from hcep.errors import HCEPError
from hcep.explain.report import photo_report
from tests.conftest import k_shot

EDGES = [
    ("thing", "animal"), ("thing", "vehicle"), ("animal", "cat"), ("animal", "dog"), ("animal", "fox"),
    ("vehicle", "car"), ("vehicle", "bus"),
]  # fmt: skip
CLASSES = ("cat", "dog", "fox", "car", "bus")


def images(n: int, seed: int, noise: float = 0.8) -> tuple[np.ndarray, np.ndarray]:
    """Animals that are hard to tell apart, far from vehicles that are not."""
    rng = np.random.default_rng(seed)
    means = np.array([[4, 0.5, 0, 0, 0], [4, -0.5, 0, 0, 0], [4, 0, 0.5, 0, 0], [-4, 0, 0, 4, 0], [-4, 0, 0, -4, 0]])
    y = np.repeat(np.arange(5), n)
    return means[y] + noise * rng.standard_normal((len(y), 5)), np.array(CLASSES)[y]


@pytest.fixture(scope="module")
def model() -> HCEPClassifier:
    return HCEPClassifier(Hierarchy.from_edges(EDGES), shrinkage=0.5, anchor=0.1).fit(*images(20, 0))


@pytest.fixture
def calibrated(model: HCEPClassifier) -> HCEPClassifier:
    return model.calibrate(*images(100, 1))


def covers(model: HCEPClassifier, concepts: np.ndarray, y: np.ndarray) -> np.ndarray:
    above = {label: {label, *model.hierarchy_.ancestors(label)} for label in CLASSES}
    return np.array([concept in above[label] for concept, label in zip(concepts, y, strict=True)])


def test_guarantees_need_held_out_images() -> None:
    X, y = images(5, 0)
    fresh = HCEPClassifier(Hierarchy.from_edges(EDGES)).fit(X, y)
    for ask in (partial(fresh.predict_concept, by_class=True), fresh.predict_set, fresh.unknown_kind, fresh.is_unknown):
        with pytest.raises(HCEPError, match=r"no held-out scores.*calibrate\(X, y\).*hcep model calibrate"):
            ask(X)


def test_a_new_fit_forgets_the_old_guarantees() -> None:
    X, y = images(5, 0)
    fitted = HCEPClassifier(Hierarchy.from_edges(EDGES)).fit(X, y).calibrate(X, y)
    assert fitted.fit(X, y).held_out_ is None


def test_calibrate_refuses_labels_it_does_not_know(model: HCEPClassifier) -> None:
    X, _ = images(1, 0)
    with pytest.raises(HCEPError, match="y contains labels that are not classes of the model: 'cow'"):
        model.calibrate(X, ["cat", "dog", "cow", "car", "bus"])
    with pytest.raises(HCEPError, match="X has 5 images, but y has 2 labels"):
        model.calibrate(X, ["cat", "dog"])


@pytest.mark.parametrize("share", [0, 1, -0.1, "much", float("nan")])
def test_sure_is_a_share(calibrated: HCEPClassifier, share: object) -> None:
    X = images(1, 0)[0]
    for ask in (calibrated.predict_concept, calibrated.predict_set, calibrated.unknown_kind):
        with pytest.raises(HCEPError, match="sure must be a number between 0 and 1"):
            ask(X, sure=share)


def test_without_held_out_images_the_answer_is_the_most_specific_concept_that_is_likely_enough() -> None:
    fresh = HCEPClassifier(Hierarchy.from_edges(EDGES), shrinkage=0.5, anchor=0.1).fit(*images(20, 0))
    X = images(100, 3)[0]
    rolled = roll_up(fresh.predict_proba(X), fresh.hierarchy_, classes=fresh.classes_.tolist())
    assert fresh.predict_concept(X).tolist() == rolled.answer.tolist()
    assert {*rolled.answer.tolist()} >= {"animal", "car"}


@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.2])
@pytest.mark.parametrize("by_class", [False, True])
def test_the_true_class_is_below_the_answer_as_often_as_guaranteed(
    calibrated: HCEPClassifier, alpha: float, by_class: bool
) -> None:
    X, y = images(400, 2)
    right = covers(calibrated, calibrated.predict_concept(X, sure=1 - alpha, by_class=by_class), y)
    assert right.mean() >= 1 - alpha - 0.03
    if by_class:
        assert min(right[y == label].mean() for label in CLASSES) >= 1 - alpha - 0.08


def test_answers_are_no_vaguer_than_they_must_be_among_doubtful_images(calibrated: HCEPClassifier) -> None:
    X, y = images(400, 2)
    right = covers(calibrated, calibrated.predict_concept(X, sure=0.8), y)
    doubtful = calibrated.predict_proba(X).max(axis=1) < 0.8
    assert abs(right[doubtful].mean() - 0.8) < 0.05
    assert right[~doubtful].mean() > 0.8


def test_animals_are_hedged_and_vehicles_are_not(calibrated: HCEPClassifier) -> None:
    X, y = images(200, 3)
    concepts = calibrated.predict_concept(X, sure=0.9)
    assert (concepts[np.isin(y, ["car", "bus"])] == y[np.isin(y, ["car", "bus"])]).mean() > 0.95
    assert (concepts[np.isin(y, ["cat", "dog", "fox"])] == "animal").mean() > 0.3


def test_a_higher_coverage_never_gives_a_more_specific_answer(calibrated: HCEPClassifier) -> None:
    X, _ = images(100, 4)
    levels = [
        np.array([calibrated.hierarchy_.level(c or "thing") for c in calibrated.predict_concept(X, sure=1 - alpha)])
        for alpha in (0.01, 0.05, 0.1, 0.3)
    ]
    assert all((a <= b).all() for a, b in itertools.pairwise(levels))


def test_with_too_few_held_out_images_the_model_estimates_and_sets_have_all_classes(model: HCEPClassifier) -> None:
    X = images(3, 6)[0]
    estimate = roll_up(model.predict_proba(X), model.hierarchy_, classes=model.classes_.tolist())
    few = model.calibrate(*images(1, 5))
    allowed = [{concept, *few.hierarchy_.ancestors(concept)} for concept in estimate.answer]
    assert all(concept in above for concept, above in zip(few.predict_concept(X, sure=0.9), allowed, strict=True))
    assert [one.promise for one in explain_images(X, few)] == [None] * len(X)
    assert set(few.predict_set(X, sure=0.9)) == {("thing",)}


def test_every_answer_is_on_the_path_of_the_predicted_class(calibrated: HCEPClassifier) -> None:
    X, _ = images(50, 7)
    assert covers(calibrated, calibrated.predict_concept(X, sure=0.9), calibrated.predict(X)).all()


def test_sets_hold_the_true_class_and_are_subtrees(calibrated: HCEPClassifier) -> None:
    X, y = images(400, 8)
    sets = calibrated.predict_set(X, sure=0.9)
    right = [covers(calibrated, np.array(s), np.repeat(label, len(s))).any() for s, label in zip(sets, y, strict=True)]
    assert abs(np.mean(right) - 0.9) < 0.03
    assert {s for s in sets if len(s) == 1} >= {("animal",), ("car",), ("bus",)}


def test_a_whole_branch_is_one_concept(model: HCEPClassifier) -> None:
    sets = np.array([[True, False, True, True, False], [True, False, True, True, True], [True] * 5])
    assert model.classes_.tolist() == ["bus", "car", "cat", "dog", "fox"]
    assert as_subtrees(model.path_model(), sets) == [("cat", "dog", "bus"), ("animal", "bus"), ("thing",)]


def test_a_class_of_two_parents_is_in_both(diamond: Hierarchy) -> None:
    rng = np.random.default_rng(0)
    y = np.repeat(["cat", "hamster", "lion"], 10)
    X = np.repeat(np.eye(4)[:3], 10, axis=0) + 0.05 * rng.standard_normal((30, 4))
    fitted = HCEPClassifier(diamond).fit(X, y)
    assert as_subtrees(fitted.path_model(), np.array([[True, True, False]])) == [("pet",)]
    assert set(fitted.calibrate(X, y).predict_concept(X, sure=0.9)) <= {"cat", "hamster", "lion"}


def test_a_linear_head_is_hedged_along_the_class_it_names() -> None:
    X, y = images(20, 0)
    fitted = HCEPClassifier(Hierarchy.from_edges(EDGES), head="logistic").fit(X, y).calibrate(*images(100, 1))
    X, y = images(200, 2)
    concepts = fitted.predict_concept(X, sure=0.9)
    assert covers(fitted, concepts, fitted.predict(X)).all()
    assert covers(fitted, concepts, y).mean() > 0.87


def test_an_unknown_kind_is_above_the_class_that_is_missing() -> None:
    X, y = images(30, 0)
    known = y != "fox"
    fitted = HCEPClassifier(Hierarchy.from_edges(EDGES)).fit(X[known], y[known])
    X_new, y_new = images(100, 1)
    fitted.calibrate(X_new[y_new != "fox"], y_new[y_new != "fox"])
    foxes = images(100, 2)[0][200:300]
    assert (fitted.unknown_kind(foxes, sure=0.7) == "animal").mean() > 0.7


def test_false_alarms_are_as_many_as_chosen(calibrated: HCEPClassifier) -> None:
    known, _ = images(400, 9)
    for rate in (0.05, 0.2):
        assert abs(calibrated.is_unknown(known, rate).mean() - rate) < 0.03
    strange = known + np.array([0, 0, 0, 0, 12.0])
    assert calibrated.is_unknown(strange, 0.05).mean() > 0.9
    assert calibrated.unknown_score(strange).mean() > calibrated.unknown_score(known).mean()


def test_quantiles_and_sets_are_those_of_crepes(model: HCEPClassifier) -> None:
    crepes = pytest.importorskip("crepes", reason="crepes is not installed: the independent check of quantiles")
    X, y = images(36, 10)  # alpha (n + 1) is no whole number, where they also keep a score that ties
    own = np.searchsorted(model.classes_, y)
    found = model.infer(X, explained=True)
    plain = model.path_model()
    scores = held_out_scores(plain, found, own)
    for alpha in (0.05, 0.1, 0.2, 0.5):
        for by_class in (False, True):
            theirs = crepes.ConformalClassifier()
            theirs.fit(scores.scores[:, 1], bins=own if by_class else None)
            new = model.infer(images(20, 11)[0])
            bins = np.tile(np.arange(5), (len(new.probabilities), 1)) if by_class else None
            expected = _crepes_sets(theirs, 1.0 - new.probabilities, alpha, bins)
            expected[np.arange(len(expected)), new.class_index] = True
            model.calibrate(X, y)
            ours = class_sets(model.path_model(), new, alpha, by_class=by_class)
            np.testing.assert_array_equal(ours, expected)


def _crepes_sets(theirs, scores: np.ndarray, alpha: float, bins: np.ndarray | None) -> np.ndarray:
    """Their prediction sets; in Mondrian mode one class, which is one bin, at a time."""
    if bins is None:
        return theirs.predict_set(scores, confidence=1 - alpha, smoothing=False).astype(bool)
    columns = [
        theirs.predict_set(scores[:, [c]], bins=bins[:, c], confidence=1 - alpha, smoothing=False)
        for c in range(scores.shape[1])
    ]
    return np.hstack(columns).astype(bool)


def test_a_quantile_is_the_rank_that_the_theorem_asks_for() -> None:
    scores = np.arange(1.0, 100.0)  # 99 of them: the coverage is exact
    assert [conformal_quantile(scores, a) for a in (0.05, 0.1, 0.5)] == [95.0, 90.0, 50.0]
    assert conformal_quantile(scores[:8], 0.1) == np.inf
    assert conformal_quantile(scores[:9], 0.1) == 9.0


def test_one_quantile_for_all_or_one_for_each(calibrated: HCEPClassifier) -> None:
    plain = calibrated.path_model()
    assert len(set(class_quantiles(plain, "concept", 0.1, False).tolist())) == 1
    assert len(set(class_quantiles(plain, "concept", 0.1, True).tolist())) > 1


@pytest.mark.slow
def test_coverage_on_tiny_imagenet(tiny_imagenet: dict[str, np.ndarray]) -> None:
    X, y = k_shot(tiny_imagenet["X"], tiny_imagenet["y"], 25)
    fitted = HCEPClassifier(tiny_imagenet["hierarchy"]).fit(X, y)
    X_val, y_val = tiny_imagenet["X_val"], tiny_imagenet["y_val"]
    half = np.random.default_rng(0).permutation(len(y_val)) < len(y_val) // 2
    fitted.calibrate(X_val[half], y_val[half])
    above = {c: {None, c, *fitted.hierarchy_.ancestors(c)} for c in fitted.classes_.tolist()}
    doubtful = fitted.predict_proba(X_val[~half]).max(axis=1) < 0.6
    for alpha in (0.05, 0.1, 0.2):
        answers = fitted.predict_concept(X_val[~half], sure=1 - alpha)
        right = np.array([a in above[c] for a, c in zip(answers, y_val[~half].tolist(), strict=True)])
        assert abs(right[doubtful].mean() - (1 - alpha)) < 0.02
        assert right[~doubtful].mean() > 1 - alpha - 0.01


def test_answers_are_put_into_words(calibrated: HCEPClassifier) -> None:
    X, y = images(50, 12)
    answers = explain_images(X, calibrated)
    assert [one.answer for one in answers] == calibrated.predict_concept(X).tolist()
    assert any(one.headline().startswith("an animal, >99 %") and "(perhaps a " in one.headline() for one in answers)
    assert all((one.doubt == "") == (one.answer in CLASSES) for one in answers if not one.unlike)
    assert "an animal, &gt;99\N{NO-BREAK SPACE}%" in photo_report(explain_images(X[y == "cat"], calibrated))
    (strange,) = explain_images(X[:1] + np.array([0, 0, 0, 0, 12.0]), calibrated)
    assert "maybe a kind of" in strange.line()
    assert "that is not among the training images" in strange.line()


def test_no_answer_is_less_likely_than_was_promised(calibrated: HCEPClassifier) -> None:
    for sure in (0.6, 0.8, 0.9, 0.95):
        answers = explain_images(images(100, 13)[0], calibrated, sure=sure)
        assert min(one.answer_probability for one in answers if one.answer_probability is not None) >= sure
        assert {one.promise for one in answers} == {promise(sure, held_out_levels(calibrated.path_model()))}


def test_nothing_is_promised_without_held_out_images_or_with_other_limits(model: HCEPClassifier) -> None:
    X = images(5, 12)[0]
    assert explain_images(X, model.calibrate(*images(100, 1)), forbid="dog")[0].promise is None
    assert "calibrated with" in str(explain_images(X, model)[0].promise)
    model.held_out_ = None
    answers = explain_images(X, model)
    assert {one.promise for one in answers} == {None}
    assert "by the model&#39;s own estimate" in photo_report(answers)
    assert "held-out" not in photo_report(answers)
