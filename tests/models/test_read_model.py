"""A saved model opened part by part: each file is read and parsed once, and only what is asked for."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from hcep import HCEPClassifier, save
from hcep.models import ModelError, loading as loading_module, read_model, schema
from hcep.models.loading import load_model
from tests.models.conftest import PET_LABELS, images
from tests.models.damage import drop, edit_document


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each file is read, and each document parsed."""
    counts: Counter[str] = Counter()
    read, parse = loading_module.ModelFiles.read, schema.parse_document

    def count_read(files: loading_module.ModelFiles, name: str) -> bytes:
        counts[name] += 1
        return read(files, name)

    def count_parse(data: bytes) -> object:
        counts["parsed"] += 1
        return parse(data)

    monkeypatch.setattr(loading_module.ModelFiles, "read", count_read)
    monkeypatch.setattr(schema, "parse_document", count_parse)
    return counts


def test_there_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no model at"):
        read_model(tmp_path / "nowhere")


def test_a_damaged_document_is_refused_at_once(saved: Path) -> None:
    edit_document(saved, drop("fitted"))
    with pytest.raises(ModelError, match="field 'fitted' is missing"):
        read_model(saved)


def test_each_file_is_read_once_whatever_is_asked(saved_named: Path, reads: Counter[str]) -> None:
    model = read_model(saved_named)
    for _ in range(2):
        _ = model.document, model.hierarchy, model.path_model, model.atom_names, model.classifier
    assert dict(reads) == {
        "model.json": 1, "parsed": 1, "hierarchy.json": 1, "model.safetensors": 1, "atoms.json": 1
    }  # fmt: skip


def test_the_document_is_the_only_file_that_is_read_at_first(saved_named: Path, reads: Counter[str]) -> None:
    assert read_model(saved_named).document.n_dims == 12
    assert dict(reads) == {"model.json": 1, "parsed": 1}


def test_prediction_does_not_decode_the_leave_one_out_table(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = []
    array = loading_module._array

    def note(name: str, *rest: object) -> np.ndarray:
        decoded.append(name)
        return array(name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(loading_module, "_array", note)
    model = read_model(saved)
    _ = model.path_model
    assert "leave_one_out.correct" not in decoded
    assert len(model.classifier.leave_one_out_) > 0
    assert decoded.count("leave_one_out.correct") == 1
    assert decoded.count("synset_embeddings") == 1


def test_both_forms_predict_the_same(saved: Path) -> None:
    X, _ = images(PET_LABELS)
    assert read_model(saved).path_model.infer(X).labels.tolist() == load_model(saved).predict(X).tolist()


def test_a_model_without_names_has_none(saved: Path) -> None:
    assert read_model(saved).atom_names is None


def test_a_model_saved_without_facts_still_counts_its_images(tmp_path: Path) -> None:
    X, y = images(PET_LABELS)
    save(HCEPClassifier().fit(X, y), tmp_path / "m")
    facts = read_model(tmp_path / "m").facts()
    assert (facts["images"], facts["trained_on"]) == (len(X), "not recorded")
