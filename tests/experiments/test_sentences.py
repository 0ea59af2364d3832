"""No sentence on the pages contradicts the verdicts of its rows."""

from pathlib import Path

import pytest

from experiments import sentences
from experiments.measuring import measured, method_cell
from experiments.records import TEXTS
from experiments.tasks import sample
from experiments.ties import reordered

ROOT = Path(__file__).parents[2]


def test_no_sentence_is_contradicted_by_a_verdict() -> None:
    assert list(sentences.contradictions(ROOT)) == []


def test_every_sentence_of_a_summary_is_checked() -> None:
    known = {sentence["text"] for sentence in sentences.SENTENCES}
    shorts = [text["short"] for text in TEXTS.values() if isinstance(text.get("short"), str)]
    assert [one for short in shorts for one in sentences.split_sentences(short) if one not in known] == []


def test_every_sentence_that_compares_methods_is_checked() -> None:
    assert list(sentences.unchecked(ROOT)) == []


@pytest.mark.parametrize(
    ("text", "claim", "message"),
    [
        ("Ours wins.", "✓ ours is above theirs", None),
        ("Ours wins.", "≈ ours is above theirs", "'Ours wins.' is contradicted: ✓ ours is above theirs: .9"),
        ("Ours wins.", "✓ ours is below", "x has no claim 'ours is below', on which 'Ours wins.' relies"),
        ("Ours loses.", "✓ ours is above", "docs/results.md does not have the sentence 'Ours loses.'"),
    ],
)
def test_a_contradiction_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, claim: str, message: str | None
) -> None:
    (tmp_path / "docs").mkdir()
    page = "## X\n\n`python -m experiments x`. Who wins?\n\nOurs\nwins.\n\n- ✓ ours is above theirs: .9\n"
    (tmp_path / "docs" / "results.md").write_text(page, encoding="utf-8")
    monkeypatch.setattr(sentences, "SENTENCES", [{"experiment": "x", "text": text, "claims": [claim]}])
    assert list(sentences.contradictions(tmp_path)) == ([message] if message else [])


@pytest.mark.parametrize(
    ("page", "old", "new"),
    [
        (
            "README.md",
            "Naming the path costs no accuracy:",
            "HCEP outperforms every other method. Naming the path costs no accuracy:",
        ),
        ("README.md", "has the same F1.", "wins."),
        ("docs/trust.md", "only 21 % of", "only 61 % of"),
        ("docs/trust.md", "(.638 instead of .630)", "(.738 instead of .630)"),
        ("docs/quality.md", "### Read", "Our estimator is ten points more accurate than any linear probe.\n\n### Read"),
        ("docs/methods.md", "for .607 instead of .608", "for .657 instead of .608"),
        ("docs/differences.md", "from .803 to .828", "from .803 to .838"),
        ("docs/comparison.md", "HCEP trains no network:", "HCEP is better than HiClass. HCEP trains no network:"),
        ("docs/results.md", "**Explanation:** The coverage", "**Explanation:** Ours beats all others. The coverage"),
    ],
)
def test_a_false_sentence_on_a_page_is_found(tmp_path: Path, page: str, old: str, new: str) -> None:
    (tmp_path / "docs").mkdir()
    for name in (*sentences.PAGES, sentences.RESULTS_PAGE):
        text = (ROOT / name).read_text("utf-8")
        assert name != page or old in text
        (tmp_path / name).write_text(text.replace(old, new, 1) if name == page else text, encoding="utf-8")
    assert [*sentences.contradictions(tmp_path), *sentences.unchecked(tmp_path)]


def test_a_figure_that_rows_do_not_have_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "docs").mkdir()
    page = "## X\n\n`python -m experiments x`. Who?\n\nOurs has 76 %.\n\nOurs has 61 %.\n\n**A**\n\n| ours | .760 |\n"
    (tmp_path / "docs" / "results.md").write_text(page, encoding="utf-8")
    own = {"experiment": "x", "rows": ["A | | ours |"]}
    pair = [{**own, "text": f"Ours has {share} %."} for share in (76, 61)]
    monkeypatch.setattr(sentences, "SENTENCES", pair)
    found = list(sentences.contradictions(tmp_path))
    assert found == ["'Ours has 61 %.' has the figure 61 %, which is not in what it relies on"]


def test_a_method_without_concepts_is_scored_by_the_path_of_its_class() -> None:
    task = sample().first_classes(3).first_images(30)
    row, graded = measured(method_cell("linear-probe"), task)
    paths = {task.hierarchy.paths(task.hierarchy.leaf_of(label))[0] for label in graded.scores.predicted}
    assert set(graded.result) == paths
    assert row["support_precision"] >= row["accuracy"] > 0.5


def test_reordering_siblings_changes_nothing_else() -> None:
    tree = sample().hierarchy
    other = reordered(tree, 0)
    assert other.ids != tree.ids
    assert set(other.edges) == set(tree.edges)
