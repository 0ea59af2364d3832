"""One answer for several photos: how probabilities are combined, and what must not come of it."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

from hcep import HCEPClassifier, Hierarchy, explain_images
from hcep.classify.groups import combine_photos, group_rows, infer_groups
from hcep.errors import HCEPError
from hcep.models.saving import save_model


def test_copies_of_a_photo_are_no_surer_than_the_photo() -> None:
    photo = np.array([0.6, 0.3, 0.1])
    _, combined = combine_photos(np.tile(photo, (20, 1)), ["a"] * 20)
    np.testing.assert_allclose(combined[0], photo)


def test_photos_that_agree_on_different_things_leave_what_they_share() -> None:
    _, combined = combine_photos([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]], ["a", "a"])
    assert combined[0].argmax() == 1
    assert combined[0, 1] > 0.99
    np.testing.assert_allclose(combined.sum(), 1.0)


def test_the_order_of_photos_does_not_matter_and_groups_keep_their_order() -> None:
    rng = np.random.default_rng(0)
    values, groups = rng.dirichlet(np.ones(4), 30), [str(i % 3) for i in range(30)]
    names, combined = combine_photos(values, groups)
    order = rng.permutation(30)
    others, shuffled = combine_photos(values[order], [groups[i] for i in order])
    assert names == ["0", "1", "2"]
    np.testing.assert_allclose(shuffled[[others.index(name) for name in names]], combined)


def test_what_is_impossible_in_all_photos_stays_so_and_what_is_unassigned_too() -> None:
    _, combined = combine_photos([[0.5, 0.0], [0.4, 0.0]], ["a", "a"])
    assert combined[0, 1] == 0.0
    assert 0.4 < combined[0, 0] < 0.5
    _, nothing = combine_photos([[0.0, 0.0]], ["a"])
    assert nothing.tolist() == [[0.0, 0.0]]


def test_groups_must_be_one_per_photo() -> None:
    with pytest.raises(HCEPError, match="one entry per row of probabilities; got 1 for shape"):
        combine_photos([[0.5, 0.5], [0.5, 0.5]], ["a"])


# -- models ------------------------------------------------------------------------------------------------------------

EDGES = [("thing", "pet"), ("pet", "cat"), ("pet", "dog"), ("thing", "vehicle"), ("vehicle", "car"), ("vehicle", "bus")]


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Four classes of 60 noisy photos, in bursts of three."""
    y = np.repeat(["bus", "car", "cat", "dog"], 60)
    means = np.repeat(1.2 * np.random.default_rng(1).standard_normal((4, 8)), 60, axis=0)
    return means + np.random.default_rng(0).standard_normal((240, 8)), y, [f"burst {i // 3}" for i in range(240)]


@pytest.fixture(scope="module")
def model(data) -> HCEPClassifier:
    X, y, _ = data
    return HCEPClassifier(Hierarchy.from_edges(EDGES)).fit(X[::2], y[::2])


def test_whole_groups_come_together_whatever_the_order_of_the_photos() -> None:
    assert [rows.tolist() for rows in group_rows(list("aabacb"), 1)] == [[0, 1, 3], [2, 5], [4]]
    assert [rows.tolist() for rows in group_rows(list("aabacb"), 5)] == [[0, 1, 3, 2, 5], [4]]
    assert list(group_rows([], 5)) == []


def test_a_group_has_one_answer_with_a_path_to_its_class(model: HCEPClassifier, data) -> None:
    X, y, bursts = data
    names, rows, inference = infer_groups(model.path_model(), X, bursts)
    assert names == list(dict.fromkeys(bursts))
    _, combined = combine_photos(model.predict_proba(X), bursts)
    np.testing.assert_allclose(inference.probabilities, combined, atol=1e-9)
    ends = [path[-1] for path in inference.paths]
    assert ends == inference.labels.tolist()
    assert [bursts[row] for row in rows] == names
    # Three photos together are right more often than one.
    assert (inference.labels == y[::3]).mean() > (model.predict(X) == y).mean() + 0.05
    pets = infer_groups(model.path_model(), X, bursts, model.path_model().limits(only="pet"))
    assert set(pets.inference.labels.tolist()) == {"cat", "dog"}


def test_groups_are_promised_something_only_by_groups(model: HCEPClassifier, data, tmp_path) -> None:
    X, y, bursts = data
    one = clone(model).fit(X[::2], y[::2]).calibrate(X, y, groups=bursts)
    assert len(one.held_out_) == 80
    save_model(one, tmp_path / "model")
    answers = explain_images(X[:60], tmp_path / "model", groups=bursts[:60])
    assert [answer.file for answer in answers] == [f"burst {i}" for i in range(20)]
    assert all("for groups of photos like the 80 held-out ones" in str(answer.promise) for answer in answers)
    assert explain_images(X[:1], tmp_path / "model")[0].promise is None
    of_photos = clone(model).fit(X[::2], y[::2]).calibrate(X, y)
    assert explain_images(X[:3], of_photos, groups=["a"] * 3)[0].promise is None
    assert explain_images(X[:1], of_photos)[0].promise is not None


def test_groups_that_cannot_be_used_are_refused(model: HCEPClassifier, data) -> None:
    X, y, _ = data
    with pytest.raises(HCEPError, match="groups must have one entry for each of 240 images; got 1"):
        model.calibrate(X, y, groups=["a"])
    with pytest.raises(HCEPError, match="the photos of 'all' have different labels"):
        model.calibrate(X, y, groups=["all"] * 240)
    with pytest.raises(HCEPError, match="groups must have one entry for each of 3 images; got 1"):
        explain_images(X[:3], model, groups=["a"])
