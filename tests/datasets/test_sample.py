"""The bundled sample is what it says."""

from importlib.resources import files
from pathlib import Path

import numpy as np

from hcep.datasets import load_sample


def test_sample_is_balanced_and_finite():
    sample = load_sample()
    assert sample.X_train.shape == sample.X_val.shape == (500, 1280)
    assert np.isfinite(sample.X_train).all()
    assert np.isfinite(sample.X_val).all()
    for y in (sample.y_train, sample.y_val):
        assert np.unique(y, return_counts=True)[1].tolist() == [50] * 10


def test_sample_hierarchy_has_the_classes_as_leaves():
    sample = load_sample()
    assert set(sample.hierarchy.leaves) == set(sample.y_train) == set(sample.y_val)
    assert sample.hierarchy.name(sample.hierarchy.root) == "entity"
    assert sample.hierarchy.collapse().depth == 4


def test_no_image_is_in_both_splits():
    sample = load_sample()
    assert not set(sample.images_train) & set(sample.images_val)


def test_sample_stays_small():
    folder = files("hcep.datasets") / "sample"
    sizes = [item.stat().st_size for item in Path(str(folder)).rglob("*") if item.is_file()]
    assert sum(sizes) < 2_500_000


def test_wordnet_licence_ships_with_the_sample():
    text = (files("hcep.datasets") / "sample" / "WORDNET_LICENSE").read_text(encoding="utf-8")
    assert "Princeton University" in text
