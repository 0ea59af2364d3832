"""Draws depend on seed and ids alone."""

from itertools import pairwise

import pytest
from hypothesis import given, settings, strategies as st

from hcep.datasets.image_dataset import k_shot_rows, train_val_rows
from hcep.errors import DatasetError

laws = settings(max_examples=50, deadline=None)
datasets = st.dictionaries(
    st.text(min_size=1, max_size=8), st.sampled_from(["cat", "dog", "fox"]), min_size=1, max_size=40
)
seeds = st.integers(-5, 5)


def chosen(images: dict[str, str], rows: list[int]) -> set[str]:
    return {list(images)[row] for row in rows}


@laws
@given(images=datasets, seed=seeds, data=st.data())
def test_the_order_does_not_matter(images, seed, data):
    shuffled = dict(data.draw(st.permutations(list(images.items()))))
    assert chosen(images, train_val_rows(list(images), list(images.values()), 0.4, seed)[1]) == chosen(
        shuffled, train_val_rows(list(shuffled), list(shuffled.values()), 0.4, seed)[1]
    )
    assert chosen(images, k_shot_rows(list(images), list(images.values()), 1, seed)) == chosen(
        shuffled, k_shot_rows(list(shuffled), list(shuffled.values()), 1, seed)
    )


@laws
@given(images=datasets, fraction=st.floats(0.01, 0.99), seed=seeds)
def test_every_class_is_divided_in_the_same_proportion(images, fraction, seed):
    labels = list(images.values())
    train, val = train_val_rows(list(images), labels, fraction, seed)
    assert sorted(train + val) == list(range(len(images)))
    for label in set(labels):
        n, n_val = labels.count(label), [labels[row] for row in val].count(label)
        assert min(1, n - 1) <= n_val <= max(n - 1, 0)
        assert abs(n_val - fraction * n) <= 1


def test_k_shot_draws_k_of_every_class():
    ids = [f"{i}.jpg" for i in range(20)]
    rows = k_shot_rows(ids, ["cat", "dog"] * 10, k=3, seed=0)
    assert [["cat", "dog"][row % 2] for row in rows].count("cat") == 3
    assert len(rows) == 6


def test_fewer_shots_are_a_subset_of_more():
    ids, labels = [f"{i}.jpg" for i in range(30)], ["cat", "dog", "fox"] * 10
    shots = [set(k_shot_rows(ids, labels, k, seed=1)) for k in range(1, 11)]
    assert all(few < more for few, more in pairwise(shots))


def test_other_classes_do_not_change_the_draw():
    ids, labels = [f"{i}.jpg" for i in range(20)], ["cat"] * 10 + ["dog"] * 10
    assert set(k_shot_rows(ids[:10], labels[:10], 4, seed=0)) < set(k_shot_rows(ids, labels, 4, seed=0))


def test_seeds_differ():
    ids, labels = [f"{i}.jpg" for i in range(50)], ["cat"] * 50
    assert len({tuple(k_shot_rows(ids, labels, 5, seed)) for seed in range(10)}) == 10


def test_a_draw_is_the_same_in_every_release():
    # Published k-shot results depend on it: a change here is a change of everyone's subsets.
    assert k_shot_rows([f"{i}.jpg" for i in range(100)], ["cat"] * 100, 5, seed=0) == [13, 23, 42, 57, 93]


def test_images_without_label_are_divided_like_a_class():
    train, val = train_val_rows(list("abcd"), [None] * 4, 0.5, seed=0)
    assert len(train) == len(val) == 2


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, 2, float("nan")])
def test_fraction_out_of_range(fraction):
    with pytest.raises(DatasetError, match=r"the share of the validation images, must be between 0 and 1; got"):
        train_val_rows(["a"], ["cat"], fraction, 0)


def test_k_must_be_positive():
    with pytest.raises(DatasetError, match=r"k must be at least 1, got 0"):
        k_shot_rows(["a"], ["cat"], 0, 0)


def test_k_shot_needs_labels():
    with pytest.raises(DatasetError, match=r"1 of 2 images have no label, so no 1-shot subset can be drawn"):
        k_shot_rows(["a", "b"], ["cat", None], 1, 0)


def test_k_shot_needs_k_images():
    with pytest.raises(DatasetError, match=r"1 of 2 classes have fewer than k=2 images: 'dog \(1\)'"):
        k_shot_rows(["a", "b", "c"], ["cat", "cat", "dog"], 2, 0)
