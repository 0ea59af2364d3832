"""The comparison on the bundled sample."""

import numpy as np
import pytest

from hcep.datasets import load_sample
from hcep.evaluate.sample import compare_on_sample


@pytest.fixture(scope="module")
def sample():
    return load_sample()


@pytest.fixture(scope="module")
def comparison():
    return compare_on_sample()


def test_every_method_has_a_row(comparison):
    assert [row["method"] for row in comparison] == ["OMP", "HNN", "NN", "HB-OMP (paper)", "HCEP (ours)"]
    assert all(row["images_per_second"] > 0 for row in comparison)


def test_ours_leads_in_precision_and_recall_and_is_not_clearly_behind_in_accuracy(comparison, sample):
    *others, ours = comparison
    best = max(row["accuracy"] for row in others)
    assert ours["accuracy"] > best - 2 * np.sqrt(best * (1 - best) / len(sample.y_val))
    assert ours["precision"] > max(row["precision"] for row in others)
    assert ours["recall"] > max(row["recall"] for row in others)
    assert ours["precision"] > 0.98
