"""`hcep rollup` from the sample: what it writes and says, and that it overwrites nothing."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from hcep.cli.rollup import rollup
from hcep.datasets.sample_data import write_sample
from tests.cli.test_model import fails, run


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    return write_sample(tmp_path / "sample")


def test_answers_are_written_with_a_promise_and_never_overwritten(sample: Path, tmp_path: Path) -> None:
    words = ("rollup", sample / "scores.csv", "--hierarchy", sample / "tree.json", "-o", tmp_path / "a.csv")
    text, _ = run(*words, "--labels", "label")
    assert "500 images" in text
    assert "At least 90 % of such answers are right" in text
    with (tmp_path / "a.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    names = ["id", "answer", "answer_name", "answer_probability", "rank", "class", "class_probability", "doubt"]
    assert list(rows[0]) == [*names, "answer_estimate"]
    fails("already exists", *words)
    text, notes = run(*words, "--labels", "label", "--sure", "0.999", "--overwrite")
    assert "promise" not in text
    assert "500 labelled images are too few to promise 0.999" in notes


def test_the_summary_is_json_on_request_and_errors_are_one_line(sample: Path, tmp_path: Path) -> None:
    words = ("rollup", sample / "scores.csv", "--hierarchy", sample / "tree.json", "-o", tmp_path / "a.json")
    fails("columns other than 'image' must be classes .name others with --labels.*'label'", *words)
    summary = json.loads(run(*words, "--labels", "label", "--json")[0])
    assert summary["n_images"] == 500
    assert 0 < summary["n_classes"] < summary["n_answered"] <= 500
    assert len(json.loads((tmp_path / "a.json").read_text())) == 500
    fails("expected a name ending in .csv", *words[:-1], tmp_path / "a.txt", "--labels", "label")


def test_without_an_output_the_answers_are_printed_and_the_rest_goes_to_standard_error(sample: Path) -> None:
    words = ("rollup", sample / "scores.csv", "--hierarchy", sample / "tree.json", "--labels", "label")
    text, notes = run(*words)
    rows = list(csv.DictReader(text.splitlines()))
    assert len(rows) == 500
    assert rows[0]["answer_name"]
    assert "500 images" in notes
    assert "At least 90 % of such answers are right" in notes
    assert run(*words, "-o", "-")[0] == text
    assert [row["answer"] or "" for row in json.loads(run(*words, "--json")[0])] == [row["answer"] for row in rows]


def test_a_terminal_shows_the_words_of_the_other_commands(tmp_path: Path, monkeypatch, capsys) -> None:
    (tmp_path / "tree.csv").write_text(
        "family,species\nFelidae,Lynx lynx\nFelidae,Felis catus\nCanidae,Vulpes vulpes\n"
    )
    rows = "a,0.5,0.45,0.05\nb,0.02,0.02,0.96\nc,0.4,0.1,0.5\nd,0,0,0\n"
    (tmp_path / "scores.csv").write_text("image,Lynx lynx,Felis catus,Vulpes vulpes\n" + rows)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")
    rollup(tmp_path / "scores.csv", hierarchy=str(tmp_path / "tree.csv"))
    printed = capsys.readouterr()
    assert "2 have no answer that is sure enough" in printed.err
    assert printed.out.splitlines() == [
        "a: Felidae, 95 % (perhaps Lynx lynx, 50 %)",
        "b: Vulpes vulpes, 96 %",
        "c: perhaps Vulpes vulpes, 50 % (nothing is sure enough)",
        "d: nothing is sure enough",
    ]
    (tmp_path / "scores.csv").write_text("image,Lynx lynx,Felis catus,Vulpes vulpes\n" + rows[:-8])
    rollup(tmp_path / "scores.csv", hierarchy=str(tmp_path / "tree.csv"))
    assert "1 has no answer that is sure enough" in capsys.readouterr().err
