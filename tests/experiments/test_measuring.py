"""A measured row has the scores of the grader's table, and times."""

import pytest

from experiments.measuring import measured, method_cell
from experiments.tasks import sample
from hcep.evaluate import compare_scores


def test_rows_and_table_have_the_same_means() -> None:
    row, graded = measured(method_cell("nn"), sample().first_classes(3).first_images(60))
    table = compare_scores({"nn": graded.scores})
    assert row["accuracy"] == pytest.approx(table.score("nn", "correct").mean)
    assert row["support_f1"] == pytest.approx(table.score("nn", "support_f1").mean)
    assert row["accuracy_low"] <= row["accuracy"] <= row["accuracy_high"]
    assert row["ece_low"] <= row["ece"] <= row["ece_high"]
    assert row["fit_seconds"] > 0
    assert row["evaluate_seconds"] > 0
