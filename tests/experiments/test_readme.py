"""README's tables are those of the rows that are committed."""

from pathlib import Path

import pytest

from experiments.all_experiments import EXPERIMENTS
from experiments.page import TABLE_MARKS, results_page, with_tables

PROJECT = Path(__file__).parents[2]
RESULTS = PROJECT / "experiments" / "results"


@pytest.mark.parametrize("name", ["README.md", "docs/quality.md", "docs/trust.md"])
def test_tables_equal_those_generated_from_the_rows(name):
    text = (PROJECT / name).read_text(encoding="utf-8")
    assert with_tables(text, EXPERIMENTS, RESULTS) == text, f"run: python -m experiments --readme {name}"


@pytest.mark.slow
def test_the_results_page_equals_the_one_generated_from_the_rows():
    page = PROJECT / "docs" / "results.md"
    made = results_page(EXPERIMENTS, RESULTS, page)
    assert page.read_text(encoding="utf-8") == made, "run: python -m experiments --page docs/results.md"


@pytest.mark.parametrize("name", ["README.md", "docs/quality.md", "docs/trust.md"])
def test_marks_are_closed(name):
    text = (PROJECT / name).read_text(encoding="utf-8")
    assert text.count("<!-- rows: ") == len(TABLE_MARKS.findall(text))
