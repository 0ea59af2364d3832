"""A saved model keeps where images with labels above its classes went, and shows it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hcep import HCEPClassifier
from hcep.models import ModelError, model_card, read_model
from hcep.models.loading import load_model
from hcep.models.saving import change_model, save_model
from hcep.models.schema import seal
from tests.models.conftest import PET_LABELS, PETS, images


@pytest.fixture
def model() -> HCEPClassifier:
    X, y = images(PET_LABELS)
    grown = HCEPClassifier(PETS, shrinkage=0.5, anchor=0.3, refine=False).fit(X, y)
    return grown.partial_fit(X[y == "cat"], ["animal"] * 6)


def test_counts_survive_saving_and_later_changes(model: HCEPClassifier, tmp_path: Path) -> None:
    folder = save_model(model, tmp_path / "model")
    loaded = load_model(folder)
    assert loaded.coarse_counts_ == model.coarse_counts_
    np.testing.assert_array_equal(loaded.class_weights_, model.class_weights_)
    X, y = images(PET_LABELS)
    change_model(folder, "added dogs", lambda one: one.partial_fit(X[y == "dog"], ["animal"] * 6))
    again = load_model(folder)
    assert again.coarse_counts_["animal"].n_images == 12
    assert dict(again.coarse_counts_["animal"].most()) == pytest.approx({"cat": 6, "dog": 6}, abs=0.5)
    assert again.classes_.tolist() == PET_LABELS


def test_a_model_without_such_labels_has_no_such_field(tmp_path: Path) -> None:
    folder = save_model(HCEPClassifier(PETS).fit(*images(PET_LABELS)), tmp_path / "model")
    assert "coarse_counts" not in json.loads((folder / "model.json").read_text("utf-8"))["fitted"]
    assert read_model(folder).coarse_counts is None
    assert "labels_above_classes" not in read_model(folder).facts()


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"animal": {"n_images": 6, "classes": {"catt": 6.0}}}, r"animal.classes has 'catt'.*Near matches: 'cat'"),
        ({"animal": {"n_images": 6, "classes": {"cat": 60.0}}}, r"classes must be at most 6 images in all"),
        ({"animal": {"n_images": 0, "classes": {}}}, r"coarse_counts.animal.n_images must be"),
        ({"animal": {"n_images": 6, "classes": {"cat": -1.0}}}, r"coarse_counts.animal.classes.cat must be"),
        ({"animal": 6}, r"fitted.coarse_counts.animal must be"),
    ],
)
def test_invalid_counts_are_rejected(model: HCEPClassifier, tmp_path: Path, record: object, message: str) -> None:
    file = save_model(model, tmp_path / "model") / "model.json"
    document = json.loads(file.read_text("utf-8"))
    document["fitted"]["coarse_counts"] = record
    document.pop("checksum")
    file.write_bytes(seal(document))
    with pytest.raises(ModelError, match=message):
        read_model(file.parent)


def test_they_are_shown_in_words(model: HCEPClassifier, tmp_path: Path) -> None:
    saved = read_model(save_model(model, tmp_path / "model"))
    assert saved.images_of("animal") == "exact 18, coarse 6 (they went to: Katze 6)"
    assert saved.images_of("cat") == "exact 6, from coarse labels 6"
    assert saved.images_of("car") == "exact 6"
    assert saved.images_of("thing") == "exact 36"
    assert saved.facts()["labels_above_classes"] == {"animal": "exact 18, coarse 6 (they went to: Katze 6)"}
    card = model_card(model, images_per_class=dict.fromkeys(PET_LABELS, 6))
    assert "6 more images have labels above the classes; each teaches the classes below its label." in card
    assert "| animal | animal | 6 (they went to: Katze 6) |" in card
