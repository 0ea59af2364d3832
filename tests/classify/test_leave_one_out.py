"""The closed form of leaving one image out, against doing it."""

from __future__ import annotations

import numpy as np
import pytest

from hcep import ConceptDictionary, Hierarchy
from hcep.classify import LeaveOneOutScore, leave_one_out, leave_one_out_scores
from hcep.classify.leave_one_out import ANCHORS, SHRINKAGES, choose, fit_temperature
from tests.reference.oracle import Oracle
from tests.reference.random_problems import random_hierarchy

pytestmark = pytest.mark.filterwarnings("ignore::hcep.dictionary.DependentAtomsWarning")


def training_set(seed: int, several_parents: bool) -> tuple[Hierarchy, np.ndarray, np.ndarray]:
    """A small hierarchy, and two to six correlated images of each leaf."""
    rng = np.random.default_rng(seed)
    hierarchy = random_hierarchy(rng, several_parents)
    n_dims = int(rng.integers(3, 7))
    y = np.concatenate([[leaf] * int(rng.integers(2, 7)) for leaf in hierarchy.leaves])
    mean = {leaf: 2.0 * rng.standard_normal(n_dims) for leaf in hierarchy.leaves}
    mixing = rng.standard_normal((n_dims, n_dims))
    X = np.array([mean[leaf] for leaf in y]) + rng.standard_normal((len(y), n_dims)) @ mixing
    return hierarchy, X, y


def whitener(covariance: np.ndarray, trace: float, shrinkage: float | None) -> np.ndarray:
    """Inverse root of (1 - a) C + a tr(C)/d I; with None the identity."""
    n_dims = len(covariance)
    if shrinkage is None:
        return np.eye(n_dims)
    variances, axes = np.linalg.eigh((1 - shrinkage) * covariance + shrinkage * trace / n_dims * np.eye(n_dims))
    return (axes / np.sqrt(variances)) @ axes.T


def refitted_objectives(
    hierarchy: Hierarchy, X: np.ndarray, y: np.ndarray, image: int, shrinkage: float | None, anchor: float
) -> dict[str, float]:
    """Take one image out, make everything anew, and return the lowest objective of each leaf.

    The trace of the covariance, its degrees of freedom and the common scale are held at those of all images.
    """
    n_free = len(X) - len(hierarchy.leaves)
    scatter = within_scatter(X, y)
    kept = np.arange(len(X)) != image
    scale = (
        np.mean(np.sum((X @ whitener(scatter / n_free, np.trace(scatter / n_free), shrinkage)) ** 2, axis=1)) ** -0.5
    )
    left = scale * whitener(within_scatter(X[kept], y[kept]) / n_free, np.trace(scatter / n_free), shrinkage)
    means = {leaf: X[kept][y[kept] == leaf].mean(axis=0) @ left for leaf in hierarchy.leaves}
    answer = Oracle(ConceptDictionary.from_leaf_embeddings(hierarchy, means), anchor=anchor).exact(X[image] @ left)
    best: dict[str, float] = {}
    for hypothesis in answer.beam:
        best.setdefault(hypothesis.synsets[-1], hypothesis.objective)
    return best


def within_scatter(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    centred = np.vstack([X[y == c] - X[y == c].mean(axis=0) for c in np.unique(y)])
    return centred.T @ centred


@pytest.fixture
def objectives(monkeypatch: pytest.MonkeyPatch) -> list[tuple[np.ndarray, np.ndarray]]:
    """(rivals, objectives) of every call that the scores are made from."""
    seen: list[tuple[np.ndarray, np.ndarray]] = []
    compute, rank = leave_one_out._left_out_objectives, leave_one_out._rivals
    rivals: list[np.ndarray] = []

    def spy_rivals(*args: np.ndarray) -> np.ndarray:
        rivals.append(rank(*args))
        return rivals[-1]

    def spy(*args: object) -> np.ndarray:
        found = compute(*args)
        seen.append((rivals[-1], found))
        return found

    monkeypatch.setattr(leave_one_out, "_rivals", spy_rivals)
    monkeypatch.setattr(leave_one_out, "_left_out_objectives", spy)
    return seen


@pytest.mark.parametrize("shrinkage", [None, 0.1, 0.6, 1.0])
@pytest.mark.parametrize("several_parents", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_the_closed_form_equals_refitting(
    objectives: list[tuple[np.ndarray, np.ndarray]], seed: int, several_parents: bool, shrinkage: float | None
) -> None:
    hierarchy, X, y = training_set(seed, several_parents)
    anchors = (0.01, 1.0, 1000.0)
    scores = leave_one_out_scores(hierarchy, X, y, (shrinkage,), anchors, min_images=2)
    classes, own = np.unique(y, return_inverse=True)
    rivals, found = objectives[0]
    for k, anchor in enumerate(anchors):
        correct = []
        for i in range(0, len(X), 3):
            expected = refitted_objectives(hierarchy, X, y, i, shrinkage, anchor)
            slots = [classes[own[i]], *classes[rivals[i]]]
            assert found[i, :, k] == pytest.approx([expected[str(leaf)] for leaf in slots], rel=1e-8, abs=1e-8)
            correct.append(min(expected, key=expected.__getitem__) == y[i])
        assert scores[k].correct[::3].tolist() == correct


def test_without_an_anchor_a_dependent_atom_explains_nothing(
    objectives: list[tuple[np.ndarray, np.ndarray]],
) -> None:
    # Paths of three atoms in the plane, the first pair a single-child chain.
    hierarchy = Hierarchy.from_edges([("r", "a"), ("a", "b"), ("b", "c"), ("b", "d"), ("r", "e"), ("r", "f")])
    rng = np.random.default_rng(0)
    y = np.repeat(hierarchy.leaves, 5)
    X = rng.standard_normal((20, 3)) + np.repeat(3 * rng.standard_normal((4, 3)), 5, axis=0)
    leave_one_out_scores(hierarchy, X, y, (None,), (0.0,), min_images=2)
    classes, own = np.unique(y, return_inverse=True)
    rivals, found = objectives[0]
    for i in range(20):
        expected = refitted_objectives(hierarchy, X, y, i, None, 0.0)
        slots = [classes[own[i]], *classes[rivals[i]]]
        assert found[i, :, 0] == pytest.approx([expected[str(leaf)] for leaf in slots], abs=1e-8)


def test_every_pair_is_scored_in_order() -> None:
    hierarchy, X, y = training_set(0, False)
    scores = leave_one_out_scores(hierarchy, X, y)
    assert [(s.shrinkage, s.anchor) for s in scores] == [(s, a) for s in SHRINKAGES for a in ANCHORS]
    assert all(0.0 <= s.accuracy == s.correct.mean() <= 1.0 for s in scores)
    assert all(s.temperature > 0 and np.isfinite(s.log_loss) for s in scores)


def test_images_of_small_classes_are_not_left_out() -> None:
    hierarchy = Hierarchy.from_edges([("root", c) for c in "abc"])
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((9, 3)), np.array(list("abbcccccc"))
    assert [len(leave_one_out_scores(hierarchy, X, y, (0.5,), (0.1,), min_images=n)[0].correct) for n in (1, 2, 3)] == [
        8,
        8,
        6,
    ]


@pytest.mark.parametrize("n", [1, 2])
def test_nothing_is_scored_where_every_class_is_small(n: int) -> None:
    hierarchy = Hierarchy.from_edges([("root", c) for c in "abc"])
    X = np.random.default_rng(0).standard_normal((3 * n, 2))
    assert leave_one_out_scores(hierarchy, X, np.repeat(list("abc"), n)) == []


def test_a_single_class_is_always_right() -> None:
    hierarchy = Hierarchy.from_edges([("root", "a")])
    scores = leave_one_out_scores(hierarchy, np.random.default_rng(0).standard_normal((5, 2)), np.array(["a"] * 5))
    assert {s.accuracy for s in scores} == {1.0}
    assert {s.temperature for s in scores} == {1.0}


def test_equal_images_keep_the_metric_euclidean() -> None:
    hierarchy = Hierarchy.from_edges([("root", c) for c in "abc"])
    scores = leave_one_out_scores(hierarchy, np.repeat(np.eye(3), 4, axis=0), np.repeat(list("abc"), 4), (0.5,), (0.1,))
    assert scores[0].accuracy == 1.0


def test_a_sample_stands_for_many_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leave_one_out, "MAX_IMAGES", 40)
    hierarchy = Hierarchy.from_edges([("root", c) for c in "abc"])
    rng = np.random.default_rng(0)
    y = np.array(["a"] * 200 + ["b"] * 50 + ["c"] * 6)
    X = rng.standard_normal((256, 4)) + 3.0 * np.eye(3, 4)[np.unique(y, return_inverse=True)[1]]
    scores = leave_one_out_scores(hierarchy, X, y, (0.5,), (0.1,))
    assert len(scores[0].correct) == 40
    again, other = (leave_one_out_scores(hierarchy, X, y, (0.5,), (0.1,), random_state=s) for s in (0, 1))
    assert again[0].correct.tolist() == scores[0].correct.tolist()
    assert other[0].log_loss != scores[0].log_loss


def test_the_sample_is_even_over_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leave_one_out, "MAX_IMAGES", 40)
    own = np.repeat([0, 1, 2, 3], [200, 50, 6, 2])
    sample = leave_one_out._sample(own, np.bincount(own), 3, 0)
    assert np.bincount(own[sample]).tolist() == [17, 17, 6]
    assert (np.diff(sample) > 0).all()


def score(shrinkage: float | None, anchor: float, correct: list[int]) -> LeaveOneOutScore:
    right = np.array(correct, dtype=bool)
    return LeaveOneOutScore(shrinkage, anchor, float(right.mean()), 0.0, 1.0, right)


def test_choose_takes_a_clear_winner() -> None:
    winner = score(0.05, 1000.0, [1] * 100)
    assert choose([score(0.6, 0.03, [1] * 50 + [0] * 50), winner]) is winner


def test_choose_leans_to_the_prior_among_equals() -> None:
    # One image worse, but of three that they differ on: no more than chance.
    prior = score(0.6, 0.03, [1, 0, 0] + [1] * 97)
    assert choose([score(0.05, 1000.0, [0] + [1] * 99), prior]) is prior
    assert choose([score(0.3, 0.03, [1] * 10), score(0.6, 0.1, [1] * 10)]).shrinkage == 0.6
    assert choose([score(None, 0.03, [1] * 10), score(0.05, 0.03, [1] * 10)]).shrinkage is None


def test_choose_takes_anchor_0_only_when_it_wins() -> None:
    assert choose([score(0.6, 0.0, [1] * 10), score(0.6, 1000.0, [1] * 10)]).anchor == 1000.0
    assert choose([score(0.6, 0.0, [1] * 10), score(0.3, 0.0, [1] * 10)]).shrinkage == 0.6


def test_the_temperature_makes_the_own_class_most_likely() -> None:
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((4000, 3)) * 3.0
    drawn = np.array([rng.choice(3, p=np.exp(row) / np.exp(row).sum()) for row in logits])
    own_first = np.array([np.roll(row, -k) for row, k in zip(-0.5 * logits, drawn, strict=True)])
    temperature, loss = fit_temperature(own_first)
    assert temperature == pytest.approx(0.5, rel=0.1)
    assert loss < np.log(3)


def test_the_temperature_without_rivals_is_1() -> None:
    assert fit_temperature(np.ones((5, 1))) == (1.0, 0.0)
    assert fit_temperature(np.ones((5, 3))) == (1.0, 0.0)
