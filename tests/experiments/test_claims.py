"""Better, tied or worse: verdicts from paired differences, and tables that set all ties in bold."""

import numpy as np
import pytest

from experiments.claims import Verdict, ahead, best_labels, by_metric, counted, difference, outcome
from experiments.records import OF_IMAGES, PER_IMAGE, packed, unpacked
from hcep.evaluate import expected_calibration_error
from hcep.evaluate.image_scores import ImageScores
from tests.evaluate.resampling import paired_bootstrap

N = 1000


def row(label, correct, *, seed=0, shots=1, **columns):
    """A row as the grader makes it, from what each image got."""
    values = {name: np.full(N, np.nan) for name in PER_IMAGE} | {"correct": np.asarray(correct, float), **columns}
    scores = ImageScores(("cat",) * N, None, values)
    return {"label": label, "seed": seed, "shots": shots, "accuracy": scores["correct"].mean(),
            "ece": scores.summary()["ece"], OF_IMAGES: packed(scores)}  # fmt: skip


def right(share, seed=0):
    return np.random.default_rng(seed).random(N) < share


@pytest.fixture
def easy():
    return right(0.8)


def test_a_clear_difference_a_tie_and_a_defeat(easy):
    few_flips = easy.copy()
    few_flips[:6] = ~few_flips[:6]
    rows = [row("a", easy), row("b", few_flips), row("c", easy & right(0.5, 1))]
    assert outcome(difference(rows[:1], rows[2:], "accuracy"), "accuracy") == "better"
    assert outcome(difference(rows[:1], rows[1:2], "accuracy"), "accuracy") == "tied"
    assert outcome(difference(rows[2:], rows[:1], "accuracy"), "accuracy") == "worse"
    assert best_labels(rows, "accuracy") == {"a", "b"}


def test_a_difference_is_the_paired_one(easy):
    other = easy & right(0.9, 1)
    found = difference([row("a", easy)], [row("b", other)], "accuracy")
    assert found[:3] == pytest.approx(paired_bootstrap(easy, other)[:3], abs=0.003)


def test_seeds_that_disagree_make_a_tie():
    lucky = [row("a", right(0.9, 1), seed=0), row("a", right(0.7, 2), seed=1)]
    steady = [row("b", right(0.78, 3), seed=0), row("b", right(0.78, 4), seed=1)]
    assert outcome(difference(lucky, steady, "accuracy"), "accuracy") == "tied"
    assert outcome(difference(lucky[:1], steady[:1], "accuracy"), "accuracy") == "better"


def test_only_seeds_that_both_have_are_compared():
    a = [row("a", right(0.9, 1), seed=0), row("a", right(0.1, 2), seed=1)]
    assert difference(a, [row("b", right(0.5, 3), seed=0)], "accuracy").difference == pytest.approx(0.4, abs=0.05)


def test_calibration_is_compared_by_its_bins():
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.5, 1.0, N)
    honest, boastful = rng.random(N) < confidence, rng.random(N) < confidence - 0.3
    rows = [row("honest", honest, confidence=confidence), row("boastful", boastful, confidence=confidence)]
    found = difference(rows[:1], rows[1:], "ece")
    gap = expected_calibration_error(confidence, honest) - expected_calibration_error(confidence, boastful)
    assert found.difference == pytest.approx(gap)
    assert found.low < gap < found.high < 0
    assert outcome(found, "ece") == "better"


def test_without_images_or_seeds_rounding_alone_is_a_tie():
    rows = [{"label": "a", "accuracy": 0.2660}, {"label": "b", "accuracy": 0.2657}, {"label": "c", "accuracy": 0.265}]
    assert outcome(difference(rows[:1], rows[1:2], "accuracy"), "accuracy") == "tied"
    assert outcome(difference(rows[:1], rows[2:], "accuracy"), "accuracy") == "better"


def test_the_worst_setting_decides_a_claim(easy):
    rows = [row("ours", easy, shots=1), row("rival", easy & right(0.5, 1), shots=1),
            row("ours", easy & right(0.5, 2), shots=5), row("rival", easy, shots=5)]  # fmt: skip
    (verdict,) = ahead(rows, "data", "ours", ["rival", "absent"], "accuracy", at="shots", paper=True)
    assert (verdict.outcome, verdict.holds, verdict.paper) == ("worse", False, True)
    assert verdict.claim == "data: ours is above rival in accuracy at every number of shots"
    assert verdict.measured.startswith("worse: shots 5: ")
    assert "shots 1" not in verdict.measured


def test_no_claim_without_rows(easy):
    assert ahead([row("ours", easy)], "data", "ours", ["absent"], "accuracy") == []
    assert ahead([], "data", "ours", ["absent"], "accuracy") == []


def test_bold_marks_what_is_tied_with_the_best(easy):
    few_flips = easy.copy()
    few_flips[:6] = ~few_flips[:6]
    text = by_metric([row("a", easy), row("b", few_flips), row("c", easy & right(0.5, 1))], ["accuracy"])
    assert [line.count("**") for line in text.splitlines()[2:]] == [2, 2, 0]


def test_outcomes_are_counted():
    verdicts = [Verdict("", name, "") for name in ("tied", "better", "worse", "better")]
    assert counted(verdicts) == "2 ✓ 1 ≈ 1 ✗"
    assert counted([]) == "–"


def test_packed_scores_are_restored():
    values = np.array([0.0, 1.0, 2 / 3, np.nan])
    scores = ImageScores(("cat",) * 4, None, dict.fromkeys(PER_IMAGE, values))
    np.testing.assert_allclose(unpacked(packed(scores), "support_recall"), values, atol=1 / 500)
    np.testing.assert_allclose(unpacked(packed(scores), "correct")[:2], values[:2])
