"""The most specific concept that is sure enough, from anyone's probabilities, and what held-out images promise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from hcep import Hierarchy, HierarchyError, roll_up
from hcep.classify import calibrate_levels
from hcep.classify.right_level import promise
from hcep.errors import HCEPError

TREE = Hierarchy.from_edges(
    [
        ("thing", "animal"), ("thing", "car"), ("animal", "pet"), ("animal", "wolf"), ("pet", "cat"), ("pet", "dog"),
    ]
)  # fmt: skip
CLASSES = ["cat", "dog", "wolf", "car"]


def answers(row: list[float], **options: object) -> tuple[object, float]:
    rolled = roll_up([row], TREE, **{"classes": CLASSES, **options})
    return rolled.answer[0], round(float(rolled.answer_probability[0]), 3)


def test_the_answer_is_the_most_specific_concept_that_is_sure_enough() -> None:
    assert answers([0.95, 0.03, 0.01, 0.01]) == ("cat", 0.95)
    assert answers([0.5, 0.44, 0.05, 0.01]) == ("pet", 0.94)
    assert answers([0.5, 0.3, 0.15, 0.05]) == ("animal", 0.95)
    assert answers([0.5, 0.3, 0.15, 0.05], sure=0.75) == ("pet", 0.8)
    assert answers([0.6, 0.3, 0.05, 0.05]) == ("pet", 0.9)  # although 0.6 + 0.3 is a little less than 0.9


def test_the_root_is_never_an_answer() -> None:
    rolled = roll_up([[0.3, 0.3, 0.1, 0.3]], TREE, classes=CLASSES)
    assert rolled.answer.tolist() == rolled.answer_name.tolist() == [None]
    assert np.isnan(rolled.answer_probability).all()
    assert (rolled.class_index[0], rolled.class_probability[0]) == (0, 0.3)


def test_the_rest_of_the_best_few_belongs_to_no_concept() -> None:
    assert answers([0.5, 0.41, 0.0, 0.0]) == ("pet", 0.91)
    assert answers([0.5, 0.35, 0.0, 0.0])[0] is None


def test_by_default_the_columns_are_the_leaves() -> None:
    assert TREE.leaves == ("car", "wolf", "cat", "dog")
    assert roll_up([[0.0, 0.0, 0.5, 0.5]], TREE).answer.tolist() == ["pet"]


def test_logits_with_a_temperature() -> None:
    logits = [[2.0, 1.0, 0.0, 0.0]]
    assert roll_up(logits, TREE, classes=CLASSES, temperature=1.0).answer.tolist() == ["animal"]
    assert roll_up(logits, TREE, classes=CLASSES, temperature=0.5).answer.tolist() == ["pet"]


def test_in_a_dag_a_class_counts_once_and_the_smaller_concept_wins() -> None:
    edges = [
        ("thing", "pet"), ("thing", "feline"), ("thing", "car"), ("pet", "cat"), ("pet", "dog"), ("pet", "hamster"),
        ("feline", "cat"), ("feline", "lion"),
    ]  # fmt: skip
    dag, classes = Hierarchy.from_edges(edges), ["cat", "dog", "hamster", "lion", "car"]
    rolled = roll_up([[0.9, 0.05, 0.0, 0.05, 0.0], [0.85, 0.1, 0.0, 0.05, 0.0]], dag, classes=classes)
    assert rolled.answer.tolist() == ["cat", "feline"]
    assert roll_up([[0.85, 0.14, 0.0, 0.01, 0.0]], dag, classes=classes).answer.tolist() == ["pet"]


def test_a_class_may_be_an_inner_concept_and_its_own_leaf_is_never_shown() -> None:
    rolled = roll_up([[0.95, 0.05, 0.0]], TREE, classes=["pet", "cat", "car"])
    assert rolled.answer.tolist() == ["pet"]
    own = TREE.with_classes(["pet"])
    rolled = roll_up([[0.95, 0.05, 0.0]], own, classes=["pet", "cat", "car"])
    assert (rolled.answer.tolist(), rolled.answer_name.tolist()) == (["pet"], ["pet"])


def test_a_chain_of_single_children_answers_at_its_lowest_concept() -> None:
    chain = Hierarchy.from_edges([("thing", "animal"), ("animal", "pet"), ("pet", "cat"), ("thing", "car")])
    assert roll_up([[0.99, 0.01]], chain, classes=["cat", "car"]).answer.tolist() == ["cat"]


@pytest.mark.parametrize("sure", [0, 1, -0.1, 90, "much", float("nan"), True])
def test_sure_is_between_0_and_1(sure: object) -> None:
    with pytest.raises(HCEPError, match=r"sure must be a number between 0 and 1, such as 0\.9"):
        answers([1.0, 0.0, 0.0, 0.0], sure=sure)


def test_what_is_not_a_table_of_probabilities_is_refused() -> None:
    with pytest.raises(
        HCEPError, match=r"probabilities must have 4 columns, the number of classes; got shape \(1, 3\)"
    ):
        answers([0.1, 0.2, 0.3])
    with pytest.raises(HCEPError, match=r"rows must add up to at most 1; for logits, pass temperature=1\.0"):
        answers([2.0, 1.0, 0.0, 0.0])
    with pytest.raises(HCEPError, match="at least 0"):
        answers([0.5, -0.1, 0.0, 0.0])
    with pytest.raises(HCEPError, match="must be finite"):
        answers([0.5, float("nan"), 0.0, 0.0])
    with pytest.raises(HCEPError, match="temperature must be a number above 0, got 0"):
        answers([2.0, 1.0, 0.0, 0.0], temperature=0)
    with pytest.raises(HierarchyError, match="'cow' is not a concept"):
        answers([0.5, 0.1, 0.0, 0.0], classes=["cat", "dog", "wolf", "cow"])
    with pytest.raises(HCEPError, match="classes must be different concepts; 'cat' occurs twice"):
        answers([0.5, 0.1, 0.0, 0.0], classes=["cat", "dog", "wolf", "cat"])


def photos(n: int, seed: int, temperature: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities of many kinds of photos, easy and hard, and classes drawn by them; then made too sure or unsure."""
    rng = np.random.default_rng(seed)
    logits = rng.gumbel(size=(n, 4)) * rng.uniform(0.5, 6.0, size=(n, 1))
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    odds /= odds.sum(axis=1, keepdims=True)
    own = (odds.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1).clip(max=3)
    scaled = odds ** (1.0 / temperature)
    return scaled / scaled.sum(axis=1, keepdims=True), own


def right(rolled: object, own: np.ndarray) -> np.ndarray:
    """Whether an answer is above the true class; no answer cannot be wrong."""
    above = [{*TREE.ancestors(c), c, None} for c in CLASSES]
    return np.array([concept in above[c] for concept, c in zip(rolled.answer, own, strict=True)])  # type: ignore[attr-defined]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("sure", [0.8, 0.9, 0.95])
def test_the_promise_holds_for_doubtful_photos_and_sure_ones(temperature: float, sure: float) -> None:
    held, own = photos(10_000, 1, temperature)
    calibration = calibrate_levels(held, [CLASSES[c] for c in own], TREE, classes=CLASSES)
    probabilities, own = photos(20_000, 2, temperature)
    rolled = roll_up(probabilities, TREE, classes=CLASSES, sure=sure, calibration=calibration)
    correct, doubtful = right(rolled, own), rolled.class_probability < 0.6
    assert min(correct.mean(), correct[doubtful].mean(), correct[~doubtful].mean()) > sure - 0.025


def test_no_answer_is_printed_below_what_was_promised() -> None:
    held, own = photos(2000, 1, 2.0)  # the classifier is not sure enough of itself
    calibration = calibrate_levels(held, [CLASSES[c] for c in own], TREE, classes=CLASSES)
    rolled = roll_up(photos(4000, 2, 2.0)[0], TREE, classes=CLASSES, calibration=calibration)
    is_class = np.array([concept in CLASSES for concept in rolled.answer])
    assert rolled.answer_probability[rolled.answer != None].min() >= 0.9  # noqa: E711
    assert rolled.class_probability[is_class].min() > 0.5
    assert is_class.mean() > (roll_up(photos(4000, 2, 2.0)[0], TREE, classes=CLASSES).class_probability > 0.9).mean()


def test_with_too_few_held_out_images_nothing_is_promised_and_the_model_estimates() -> None:
    held, own = photos(8, 1)
    calibration = calibrate_levels(held, [CLASSES[c] for c in own], TREE, classes=CLASSES)
    rows = [[0.99, 0.01, 0.0, 0.0], [0.3, 0.3, 0.2, 0.2]]
    rolled = roll_up(rows, TREE, classes=CLASSES, calibration=calibration)
    assert (rolled.answer[1], rolled.answer_probability[0]) == (None, 0.99)
    assert promise(0.9, calibration) is promise(0.9, None) is None


def test_sure_photos_do_not_speak_for_doubtful_ones() -> None:
    """A classifier that is nearly always sure and right: few held-out photos are doubtful."""
    held, own = np.tile(0.97 * np.eye(4) + 0.01 * (1 - np.eye(4)), (100, 1)), np.tile(np.arange(4), 100)
    calibration = calibrate_levels(held, [CLASSES[c] for c in own], TREE, classes=CLASSES)
    rolled = roll_up(
        [[0.55, 0.44, 0.01, 0.0], [0.97, 0.01, 0.01, 0.01]], TREE, classes=CLASSES, calibration=calibration
    )
    assert rolled.answer.tolist() == ["pet", "cat"]


def test_what_is_promised_is_said_in_one_sentence() -> None:
    held, own = photos(1000, 1)
    calibration = calibrate_levels(held, [CLASSES[c] for c in own], TREE, classes=CLASSES)
    assert promise(0.9, calibration) == (
        "At least 90 % of such answers are right, among doubtful photos and among sure ones, for photos like the 1,000 "
        "held-out ones that the model was calibrated with."
    )


def test_the_printed_probability_is_the_own_estimate_or_what_is_promised() -> None:
    held, own = photos(10_000, 1, 2.0)
    calibration = calibrate_levels(held, [CLASSES[c] for c in own], TREE, classes=CLASSES)
    rows = photos(1000, 2, 2.0)[0]
    rolled = roll_up(rows, TREE, classes=CLASSES, calibration=calibration)
    is_class = np.array([concept in CLASSES for concept in rolled.answer])
    expected = np.maximum(rolled.class_probability[is_class], 0.9)
    np.testing.assert_allclose(rolled.answer_probability[is_class], expected)
    # What is promised hides no estimate.
    np.testing.assert_allclose(rolled.answer_estimate[is_class], rolled.class_probability[is_class])
    assert (rolled.answer_estimate[is_class] < 0.9).any()
    assert np.isnan(rolled.answer_estimate[rolled.answer == None]).all()  # noqa: E711


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=30, deadline=None)
def test_a_higher_level_never_gives_a_more_specific_answer(seed: int) -> None:
    rng = np.random.default_rng(seed)
    held, own = photos(int(rng.integers(1, 400)), seed)
    calibration = calibrate_levels(held, [CLASSES[c] for c in own], TREE, classes=CLASSES)
    rows = photos(50, seed + 1)[0]
    answered = [
        roll_up(rows, TREE, classes=CLASSES, sure=sure, calibration=calibration).answer
        for sure in (0.5, 0.8, 0.9, 0.95, 0.98)
    ]
    levels = [[0 if concept is None else TREE.level(concept) for concept in row] for row in answered]
    assert (np.diff(levels, axis=0) <= 0).all()


def test_calibration_refuses_labels_that_are_not_classes() -> None:
    with pytest.raises(HCEPError, match="labels must have one entry for each of 1 rows of probabilities; got 2"):
        calibrate_levels([[1.0, 0.0, 0.0, 0.0]], ["cat", "dog"], TREE, classes=CLASSES)
    with pytest.raises(HCEPError, match="labels must be among the classes; 'pet' is not one of them"):
        calibrate_levels([[1.0, 0.0, 0.0, 0.0]], ["pet"], TREE, classes=CLASSES)


@given(st.integers(0, 2**32 - 1), st.floats(0.05, 0.95))
@settings(max_examples=50, deadline=None)
def test_the_answer_is_above_the_best_guess_and_as_likely_as_asked(seed: int, sure: float) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.dirichlet(np.full(4, 0.4), size=20)
    rolled = roll_up(rows, TREE, classes=CLASSES, sure=sure)
    for row, concept, p, c in zip(rows, rolled.answer, rolled.answer_probability, rolled.class_index, strict=True):
        above = [CLASSES[c], *TREE.ancestors(CLASSES[c])[:0:-1]]
        likely = {
            name: sum(q for q, k in zip(row, CLASSES, strict=True) if name in (k, *TREE.ancestors(k))) for name in above
        }
        expected = next((name for name in above if likely[name] >= sure - 1e-9), None)
        assert concept == expected
        assert concept is None or abs(p - likely[concept]) < 1e-9


def test_a_concept_above_all_classes_is_no_answer_either() -> None:
    h = Hierarchy.from_edges([("all", "living"), ("living", "pet"), ("pet", "cat"), ("pet", "dog"), ("living", "tree")])
    rows = [[0.4, 0.1, 0.5], [0.5, 0.45, 0.05], [0.4, 0.1, 0.45]]  # the last has a rest that may be anything
    assert roll_up(rows, h, classes=["cat", "dog", "tree"]).answer.tolist() == [None, "pet", "living"]
