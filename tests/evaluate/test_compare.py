"""The table of methods: what is tested how, and what is set in bold."""

import csv
import json
from io import StringIO

import numpy as np
import pytest
from scipy.stats import ttest_rel

from hcep.errors import HCEPError
from hcep.evaluate import compare_scores, score_images
from hcep.evaluate.image_scores import ImageScores
from hcep.evaluate.statistics import mcnemar
from hcep.evaluate.table import METRICS, metric_of
from tests.evaluate.resampling import bootstrap_interval, ece_interval, paired_bootstrap

N = 400


def made_scores(**columns):
    """Scores with the given columns alone."""
    return ImageScores(("cat",) * N, None, {name: np.asarray(values, float) for name, values in columns.items()})


@pytest.fixture
def methods():
    """Four methods: good, one as good, one a little worse, and a bad one; a black box has no supports."""
    rng = np.random.default_rng(0)
    ease = rng.random(N)
    confidence = rng.uniform(0.5, 1.0, N)

    def method(share, noise, seed):
        own = np.random.default_rng(seed)
        correct = (ease + own.normal(0, noise, N) < share).astype(float)
        return made_scores(
            correct=correct,
            support_f1=np.clip(0.5 * correct + 0.5 * own.random(N), 0, 1),
            tree_distance=np.where(correct == 1.0, np.nan, own.integers(1, 6, N)),
            n_atoms=own.integers(1, 6, N),
            confidence=confidence,
        )

    return {
        "good": method(0.9, 0.02, 1),
        "as good": method(0.9, 0.03, 2),
        "bad": method(0.4, 0.1, 3),
        "box": made_scores(
            correct=method(0.8, 0.1, 4)["correct"], support_f1=[np.nan] * N, tree_distance=[np.nan] * N,
            n_atoms=[np.nan] * N, confidence=[np.nan] * N,
        ),
    }  # fmt: skip


COLUMNS = ("correct", "support_f1", "tree_distance", "n_atoms", "ece")


@pytest.fixture
def table(methods):
    return compare_scores(methods, columns=COLUMNS)


def test_means_and_intervals_equal_those_of_single_columns(methods, table):
    for name in ("good", "bad"):
        for column in COLUMNS[:-1]:
            score = table.score(name, column)
            assert (score.mean, score.low, score.high) == pytest.approx(bootstrap_interval(methods[name][column]))
        score = table.score(name, "ece")
        expected = ece_interval(methods[name]["confidence"], methods[name]["correct"])
        assert (score.mean, score.low, score.high) == pytest.approx(expected)


def test_each_column_uses_its_own_test(methods, table):
    good, bad = methods["good"], methods["bad"]
    assert table.score("bad", "correct").p == mcnemar(good["correct"], bad["correct"])
    assert table.score("bad", "support_f1").p == pytest.approx(ttest_rel(good["support_f1"], bad["support_f1"]).pvalue)
    paired = paired_bootstrap(bad["tree_distance"], good["tree_distance"])
    score = table.score("bad", "tree_distance")
    assert score.p == paired.p
    assert (score.difference, score.difference_low, score.difference_high) == pytest.approx(paired[:3])


def test_only_the_bad_method_differs_from_the_good_one(table):
    assert table.reference == "good"
    assert table.is_significant(table.score("bad", "correct"))
    assert not table.is_significant(table.score("as good", "correct"))
    assert not table.is_significant(table.score("good", "correct"))
    assert np.isnan(table.score("good", "correct").p)
    assert table.score("bad", "correct").p_holm >= table.score("bad", "correct").p


def test_bold_marks_the_best_and_everything_not_significantly_worse(table):
    bold = {column: [name for name in table.methods if table.score(name, column).best] for column in COLUMNS}
    assert bold["correct"] == ["good", "as good"]
    assert bold["support_f1"] == ["good", "as good"]
    assert bold["ece"] == ["good", "as good"]
    assert bold["n_atoms"] == []  # neither many nor few are better


def test_bold_does_not_depend_on_the_reference_and_order(methods, table):
    other = compare_scores(dict(reversed(methods.items())), reference="bad", columns=COLUMNS)
    assert other.reference == "bad"
    assert [other.score(s.method, s.metric).best for s in table.scores] == [s.best for s in table.scores]
    assert table.is_significant(other.score("good", "correct"))


def test_bold_for_equal_methods_and_for_clearly_different_ones():
    half, most, all_ = np.arange(N) % 2, np.arange(N) % 20 > 0, np.ones(N)
    equal = compare_scores({"a": made_scores(correct=half), "b": made_scores(correct=1 - half)}, columns=["correct"])
    assert [score.best for score in equal.scores] == [True, True]
    clear = compare_scores({"a": made_scores(correct=most), "b": made_scores(correct=all_)}, columns=["correct"])
    assert [score.best for score in clear.scores] == [False, True]


def test_equal_methods_are_all_bold_in_nineteen_of_twenty_tables():
    rng = np.random.default_rng(0)
    tables = [
        compare_scores(
            {name: made_scores(correct=rng.random(N) < 0.8) for name in "abcd"}, columns=["correct"], n_resamples=50
        )
        for _ in range(100)
    ]
    # The best of four is the luckiest, so that a few more are told apart than one in twenty.
    assert np.mean([all(score.best for score in table.scores) for table in tables]) >= 0.85


def test_a_lower_error_is_better():
    near, far = np.where(np.arange(N) % 4, np.nan, 1.0), np.where(np.arange(N) % 4, np.nan, 5.0)
    scores = {"far": made_scores(tree_distance=far), "near": made_scores(tree_distance=near)}
    table = compare_scores(scores, columns=["tree_distance"])
    assert [score.best for score in table.scores] == [False, True]
    assert table.score("near", "tree_distance").n_images == 100


def test_missing_values_of_a_method_are_nan(table):
    box = table.score("box", "support_f1")
    assert np.isnan([box.mean, box.low, box.high, box.difference, box.p, box.p_holm]).all()
    assert (box.n_images, box.best) == (0, False)
    assert table.score("box", "correct").n_images == N


def test_a_column_without_any_values(pets):
    scores = score_images([("animal",)], ["cat"], pets)
    table = compare_scores({"a": scores, "b": scores}, columns=["correct", "ece"])
    assert [score.best for score in table.scores] == [False] * 4


def test_the_plain_note_omits_only_bold_type(table):
    assert "Bold" not in table.plain_note
    assert table.plain_note.split("† ")[1] == table.note.split("† ")[1]


def test_one_method_alone(methods):
    table = compare_scores({"good": methods["good"]}, columns=COLUMNS)
    assert "differs" not in table.note
    assert table.note == f"{table.plain_note} Bold: the best of a column, and everything not significantly worse."
    assert table.score("good", "correct").best


def test_the_default_columns_are_all_there(pets):
    scores = score_images([("animal", "cat")] * 3, ["cat"] * 3, pets, predicted=["cat"] * 3)
    assert len(compare_scores({"a": scores}).metrics) == 7


def test_no_images(pets):
    scores = score_images([], [], pets, predicted=[])
    assert np.isnan([score.mean for score in compare_scores({"a": scores, "b": scores}).scores]).all()


def test_markdown(table):
    lines = table.to_markdown().splitlines()
    assert lines[0] == "| method | accuracy ↑ | F1 ↑ | mistake distance ↓ | atoms | ECE ↓ |"
    assert lines[1] == "|---|---|---|---|---|---|"
    good = table.score("good", "correct")
    assert lines[2].startswith(f"| good | **{good.mean:.3f}** [".replace("0.", "."))
    assert lines[4].startswith(f"| bad | {table.score('bad', 'correct').mean:.3f}† [".replace("0.", "."))
    assert lines[5].endswith("| – | – | – | – |")
    assert "400 images; intervals: 95%" in lines[-1]
    assert "[" not in table.to_markdown(intervals=False)


def test_markdown_of_a_name_with_a_bar(methods):
    assert "| a&#124;b |" in compare_scores({"a|b": methods["good"]}, columns=["correct"]).to_markdown()


def test_latex(methods):
    text = compare_scores({"HCEP_1 & 50%": methods["good"], "bad": methods["bad"]}, columns=COLUMNS[:2]).to_latex()
    lines = text.splitlines()
    assert lines[1:4] == [r"\begin{tabular}{lrr}", r"\toprule", r"method & accuracy $\uparrow$ & F1 $\uparrow$ \\"]
    assert lines[5].startswith(r"HCEP\_1 \& 50\% & \textbf{.")
    assert lines[6].startswith("bad & .")
    assert r"$^{\dagger}$ {\scriptsize [" in lines[6]
    assert lines[-2:] == [r"\bottomrule", r"\end{tabular}"]
    assert all(line.count("&") - line.count(r"\&") == 2 for line in lines[5:7])
    assert text.isascii()


def test_csv(table):
    rows = list(csv.DictReader(StringIO(table.to_csv())))
    assert len(rows) == len(table.methods) * len(table.metrics)
    first = rows[0]
    assert (first["method"], first["metric"], first["best"], first["p"]) == ("good", "correct", "True", "")
    assert float(first["mean"]) == table.score("good", "correct").mean


def test_json(table):
    whole = json.loads(table.to_json())
    assert (whole["n_images"], whole["reference"], whole["level"]) == (N, "good", 0.95)
    assert whole["scores"][0]["p"] is None
    assert whole["scores"][0]["mean"] == table.score("good", "correct").mean


def test_every_column_of_scores_has_a_title(pets):
    columns = [*score_images([], [], pets, top_k=(1, 5)).columns, "ece"]
    titles = [metric_of(column).title for column in columns]
    assert len(set(titles)) == len(titles)
    assert metric_of("top_5").title == "top-5"
    assert {metric.better for metric in METRICS.values()} == {"higher", "lower", None}


def test_invalid_arguments_are_rejected(methods, table):
    with pytest.raises(HCEPError, match="scores is empty: pass the scores of at least one method"):
        compare_scores({})
    with pytest.raises(HCEPError, match="columns is empty: pass at least one metric"):
        compare_scores(methods, columns=[])
    with pytest.raises(HCEPError, match=r"reference: there is no method 'god'. Near matches: 'good'"):
        compare_scores(methods, reference="god", columns=COLUMNS)
    with pytest.raises(HCEPError, match=r"there is no metric 'corect'. Near matches: 'correct'"):
        compare_scores(methods, columns=["corect"])
    with pytest.raises(HCEPError, match=r"'goood' is not in the table. Near matches: 'good'"):
        table.score("goood", "correct")
    with pytest.raises(HCEPError, match="'good' and 'fewer' were not scored on the same images in the same order"):
        compare_scores({"good": methods["good"], "fewer": methods["bad"].take(range(5))}, columns=COLUMNS)


def test_str_is_the_table_and_repr_is_short(table):
    assert str(table) == table.to_markdown()
    assert repr(table).startswith("ScoreTable('good'")
    assert len(repr(table)) < 200
