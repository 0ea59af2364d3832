"""One answer for several photos: how probabilities are combined, and what must not come of it."""

from __future__ import annotations

import numpy as np
import pytest

from hcep.classify.groups import combine_photos
from hcep.errors import HCEPError


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
    with pytest.raises(HCEPError, match="one per row of probabilities, got 1 for shape"):
        combine_photos([[0.5, 0.5], [0.5, 0.5]], ["a"])
