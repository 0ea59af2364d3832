"""The comparison on the bundled sample."""

import numpy as np
import pytest

from hcep.datasets import load_sample
from hcep.evaluate.sample import compare_on_sample, only_ours_right


@pytest.fixture(scope="module")
def sample():
    return load_sample()


@pytest.fixture(scope="module")
def comparison():
    return compare_on_sample()


def test_every_method_has_a_row(comparison):
    assert [row["method"] for row in comparison.rows] == ["OMP", "HNN", "NN", "HB-OMP (paper)", "HCEP (ours)"]
    assert all(row["images_per_second"] > 0 for row in comparison.rows)


def test_ours_leads_in_precision_and_recall_and_is_not_clearly_behind_in_accuracy(comparison, sample):
    *others, ours = comparison.rows
    best = max(row["accuracy"] for row in others)
    assert ours["accuracy"] > best - 2 * np.sqrt(best * (1 - best) / len(sample.y_val))
    assert ours["precision"] > max(row["precision"] for row in others)
    assert ours["recall"] > max(row["recall"] for row in others)
    assert ours["precision"] > 0.98


def test_scores_belong_to_the_results(comparison, sample):
    ours = comparison.rows[-1]
    assert ours["accuracy"] == pytest.approx(np.mean(comparison.ours_result.leaves == sample.y_val))


def test_contrasted_images_are_wrong_by_the_paper_and_right_by_ours(comparison, sample):
    images = list(only_ours_right(comparison, sample.y_val))
    assert len(images) > 10
    assert (comparison.ours_result.leaves[images] == sample.y_val[images]).all()
    assert (comparison.paper_result.leaves[images] != sample.y_val[images]).all()
    lowest = [comparison.paper_result.coefficients(i).min() for i in images]
    assert lowest == sorted(lowest)
