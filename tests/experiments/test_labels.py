"""The experiment on labels at any level: which labels images get, which cells are measured, and what verdicts say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments.labels import (
    ALL_EXACT,
    EIGHT,
    EXACT,
    EXACT_HALF,
    HALF,
    HALF_COARSE,
    LEVELS,
    LOCAL,
    NO_PRIOR,
    ONE_SHOT,
    ONE_SHOT_CONTROLS,
    OURS,
    PARENT,
    PRIORS,
    RARE,
    RELATIVES,
    TAIL,
    TIME,
    UNLABELLED,
    UNSEEN,
    Config,
    allowed_classes,
    cells,
    coarse_labels,
    draw,
    images_of_classes,
    measure,
    table,
    time_ratio,
    verdicts,
)
from experiments.records import Records
from experiments.tasks import Task, sample
from hcep import Hierarchy

RESULTS = Path(__file__).parents[2] / "experiments" / "results"
TREE = Hierarchy.from_edges(
    [
        ("r", "dog"),
        ("r", "cat"),
        ("r", "car"),
        ("dog", "beagle"),
        ("dog", "boxer"),
        ("cat", "siamese"),
        ("cat", "bombay"),
    ]
)
SHORT = Config(seeds=(0,), exact=(2,), levels=(PARENT, UNLABELLED), n_unseen=2, timed=6)


@pytest.fixture(scope="module")
def task() -> Task:
    return sample(tree=True).first_classes(8).first_images(80)


@pytest.fixture(scope="module")
def rows(task: Task) -> list[dict]:
    """The rows of the short settings, without HiClass."""
    chosen = [cell for cell in cells(SHORT, task) if cell["label"] != LOCAL]
    return [{"data": task.name, **row} for cell in chosen for row in measure(SHORT, task, cell)]


def test_images_get_the_nearest_ancestor_with_enough_classes() -> None:
    near = coarse_labels(TREE, PARENT)
    assert near == {"beagle": "dog", "boxer": "dog", "siamese": "cat", "bombay": "cat", "car": "r"}
    assert set(coarse_labels(TREE, EIGHT).values()) == {"r"}
    assert set(coarse_labels(TREE, UNLABELLED).values()) == {"r"}


def test_a_label_allows_itself_or_the_classes_below_it() -> None:
    classes = np.array(["beagle", "boxer", "car", "siamese"])
    allowed = allowed_classes(np.array(["dog", "car", "r"]), classes, TREE)
    assert allowed.astype(int).tolist() == [[1, 1, 0, 0], [0, 0, 1, 0], [1, 1, 1, 1]]


def test_numbers_of_images_fall_geometrically_or_are_one_of_two() -> None:
    tail = np.sort(images_of_classes(TAIL, 5, 81, seed=0))
    assert tail.tolist() == [1, 3, 9, 27, 81]
    assert np.sort(images_of_classes(HALF, 6, 50, seed=0)).tolist() == [1, 1, 1, 50, 50, 50]
    assert images_of_classes(TAIL, 50, 50, seed=0).tolist() != images_of_classes(TAIL, 50, 50, seed=1).tolist()


def test_data_by_clip_have_one_shot_cells_and_others_rare_classes(task: Task) -> None:
    assert {cell["part"] for cell in cells(SHORT, task)} == {LEVELS, RARE, UNSEEN, TIME}
    by_clip = replace(task, encoder="CLIP ViT-B/32")
    assert {cell["part"] for cell in cells(SHORT, by_clip)} == {ONE_SHOT}
    few = task.shots(5, 0)
    assert {cell["part"] for cell in cells(SHORT, few)} == {LEVELS}


def test_controls_run_on_all_draws_at_the_first_level_only(task: Task) -> None:
    config = Config(seeds=(0, 1), exact=(1, 2), parts=(LEVELS,))
    controls = [c for c in cells(config, task) if c["method"] == "linear-probe"]
    assert {(c["exact"], c["seed"]) for c in controls if c["level"] == PARENT} == {(1, 0), (2, 0), (1, 1), (2, 1)}
    assert {(c["exact"], c["seed"]) for c in controls if c["level"] != PARENT} == {(2, 0)}


@pytest.mark.slow
def test_rows_tables_and_verdicts(rows: list[dict], task: Task) -> None:
    assert {row["part"] for row in rows} == {LEVELS, RARE, UNSEEN, TIME}
    assert all(0.0 <= row["accuracy"] <= 1.0 for row in rows if row["part"] != TIME)
    text = table(rows)
    for part in (
        "Other images: near ancestor",
        "With all labels exact",
        "Long tail",
        "Half and half",
        "Unseen classes",
    ):
        assert part in text
    assert all(verdict.claim and verdict.measured for verdict in verdicts(rows))
    assert draw(rows).axes


@pytest.mark.slow
def test_rare_and_other_classes_are_scored_apart(rows: list[dict], task: Task) -> None:
    ours = {row["group"]: row for row in rows if row["part"] == RARE and row["label"] == OURS and row["shape"] == HALF}
    assert ours["rare"]["n_val"] + ours["other"]["n_val"] == ours["all"]["n_val"] == len(task.y_val)
    assert {row["label"] for row in rows if row["part"] == RARE} == set(PRIORS)


@pytest.mark.slow
def test_one_image_per_class_by_ours_and_by_every_control(task: Task) -> None:
    by_clip = replace(task, encoder="CLIP ViT-B/32")
    measured = [row for cell in cells(SHORT, by_clip) for row in measure(SHORT, by_clip, cell)]
    assert {row["label"] for row in measured} == {OURS, *ONE_SHOT_CONTROLS}
    assert min(row["accuracy"] for row in measured) > 0.4


def row(label: str, seed: int = 0, **settings: object) -> dict:
    return {"data": "Tiny-ImageNet-200", "label": label, "seed": seed, **settings}


def test_verdicts_say_what_the_rows_say() -> None:
    at = {"part": LEVELS, "exact": 2, "ece": 0.1}
    rows = [row(OURS, seed, level=PARENT, accuracy=0.61, **at) for seed in range(3)]
    rows += [row(EXACT, seed, level="none", accuracy=0.4 + 0.01 * seed, **at) for seed in range(3)]
    found = {verdict.claim: verdict for verdict in verdicts(rows)}
    exact = found[
        f"Tiny-ImageNet-200, near ancestor: {OURS} is above {EXACT} in accuracy at every number of exact labels"
    ]
    assert exact.holds
    target = found["Tiny-ImageNet-200, near ancestor, 2 exact labels per class: the accuracy is at least .600"]
    assert target.holds
    worse = [{**r, "accuracy": 0.3} if r["label"] == OURS else r for r in rows]
    assert not any(verdict.holds for verdict in verdicts(worse))


def test_other_targets() -> None:
    rows = [row(OURS, part=UNSEEN, accuracy=0.3, chance=0.025), row(RELATIVES, part=UNSEEN, accuracy=0.2, chance=0.025)]
    rows += [row(OURS, part=RARE, shape=TAIL, group=g, accuracy=a) for g, a in (("all", 0.53), ("rare", 0.3))]
    outcomes = {verdict.claim.split(": ")[-1]: verdict.outcome for verdict in verdicts(rows)}
    assert outcomes["among unseen classes, at least .280 of their images are right"] == "better"
    assert outcomes["the accuracy of all classes is at least .525"] == "better"
    assert outcomes["the accuracy of rare classes is at least .370"] == "worse"


def test_times_are_compared_within_a_draw() -> None:
    seconds = {HALF_COARSE: (4.0, 9.0, 30.0), ALL_EXACT: (2.0, 3.0, 10.0), EXACT_HALF: (1.0, 1.0, 1.0)}
    rows = [
        row(label, seed, part=TIME, fit_seconds=s) for label, some in seconds.items() for seed, s in enumerate(some)
    ]
    assert time_ratio(rows, ALL_EXACT) == 3.0
    assert time_ratio(rows, EXACT_HALF) == 9.0
    assert time_ratio([], ALL_EXACT) is None
    assert [verdict.outcome for verdict in verdicts(rows)] == ["worse"]
    assert "takes 3.00 times as long as with all labels exact and 9.00 times" in table(rows)


def test_the_summary_is_what_the_committed_rows_say() -> None:
    rows = [r for r in Records(RESULTS / "labels", "labels").rows if r["data"] == "Tiny-ImageNet-200"]
    assert rows
    outcomes = {verdict.claim: verdict.outcome for verdict in verdicts(rows)}
    by_level = [outcome for claim, outcome in outcomes.items() if claim.endswith("number of exact labels")]
    assert len(by_level) >= 12
    assert set(by_level) == {"better"}
    rare = [outcome for claim, outcome in outcomes.items() if "rare classes: " in claim]
    assert len(rare) == 8
    assert set(rare) == {"better"}
    others = {claim: outcome for claim, outcome in outcomes.items() if "other classes: " in claim and NO_PRIOR in claim}
    assert [outcome for claim, outcome in others.items() if HALF in claim] == ["worse"]
