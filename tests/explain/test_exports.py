"""Answers as a FiftyOne dataset and as a table for Embedding Atlas, and what `hcep export` refuses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from hcep import HCEPClassifier
from hcep.embeddings import load_encoder
from hcep.errors import HCEPError
from hcep.explain.exports import export_fiftyone
from hcep.explain.map_drawing import heat_map
from hcep.explain.predictions import predict_data
from hcep.explain.where import EvidenceMap
from hcep.formats.fiftyone import read_annotations
from hcep.hierarchy import Hierarchy
from hcep.models import read_model, save
from tests.cli.test_own_data import COLOURS, TREE, fails, photos, run  # noqa: F401
from tests.embeddings.encoders.tiny_onnx import mean_colour

pytest.importorskip("onnxruntime", reason="the encoder of these tests is an ONNX file (extra photos)")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of mean colours, whose encoder has feature maps: the photo itself, in 8 x 8 pixels."""
    folder = tmp_path_factory.mktemp("models")
    (folder / "colour.onnx").write_bytes(mean_colour())
    (folder / "colour.json").write_text('{"preprocessing": {"size": 8}}')
    hierarchy = Hierarchy.from_edges([line.split(",") for line in TREE.splitlines()[1:]], names={"cat": "Katze"})
    noise = np.random.default_rng(0).normal(scale=10.0, size=(4, 8, 3))
    X = (np.array(list(COLOURS.values()))[:, None] + noise).reshape(32, 3) / 255
    fitted = HCEPClassifier(hierarchy, power=1.0).fit(X, np.repeat(list(COLOURS), 8))
    save(fitted, folder / "model", encoder=load_encoder(f"onnx:{folder / 'colour.onnx'}"))
    return folder / "model"


def test_a_fiftyone_dataset_has_answers_and_heat_maps(model: Path, photos: Path, tmp_path: Path) -> None:  # noqa: F811
    (photos / "val" / "cat" / "broken.png").write_bytes(b"not an image")
    notes: list[str] = []
    n_samples = export_fiftyone(read_model(model), photos, tmp_path / "fo", "val", on_note=notes.append)
    (photos / "val" / "cat" / "broken.png").unlink()
    assert notes == [
        "1 of 13 files not used: 1 not an image or not in a format that can be read; files: 'val/cat/broken.png'"
    ]
    samples = json.loads((tmp_path / "fo" / "samples.json").read_text(encoding="utf-8"))["samples"]
    assert n_samples == len(samples) == 12
    cat = next(sample for sample in samples if sample["ground_truth"]["label"] == "Katze")
    assert Path(cat["filepath"]).is_file()
    assert cat["tags"] == ["val"]
    assert cat["best_class"]["label"] == "Katze"
    assert cat["path"] == ["animal", "Katze"]
    assert [cat[name]["concept"] for name in ("where_1", "where_2")] == cat["path"]
    heat = np.asarray(Image.open(tmp_path / "fo" / cat["where_2"]["map_path"]))
    assert heat.shape == (160, 160)
    assert heat.dtype == np.uint8
    assert heat.max() > 0


def test_the_labels_of_an_exported_dataset_can_be_read_back(
    model: Path,
    photos: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    export_fiftyone(read_model(model), photos, tmp_path / "fo", "val")
    regions = read_annotations(tmp_path / "fo").regions
    assert [(region.label, region.split) for region in regions[:3]] == [("bus", "val")] * 3


def test_a_heat_map_is_black_where_the_model_does_not_see() -> None:
    evidence = EvidenceMap(np.array([[1.0, -1.0], [1.0, -1.0]]), 0.0)
    heat = np.asarray(heat_map(evidence, 1.0, (80.0, 0.0, 240.0, 160.0), (320, 160)))
    assert heat.shape == (80, 160)
    assert heat[40, 45] == 255
    assert heat[40, 115] == 0
    assert not heat[:, :40].any()
    assert not heat[:, 120:].any()


def test_a_table_for_embedding_atlas_has_vectors_names_and_doubt(
    model: Path,
    photos: Path,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hcep.explain.predictions.BLOCK", 5)
    n_rows = predict_data(read_model(model), photos, tmp_path / "points.parquet", "val", embeddings=True)
    table = pq.read_table(tmp_path / "points.parquet")
    assert n_rows == table.num_rows == 12
    assert {"id", "label", "answer_name", "class", "doubt", "names", "embedding"} <= set(table.column_names)
    vectors, labels = np.stack(table["embedding"].to_numpy()), np.array(table["label"].to_pylist())
    for label, colour in COLOURS.items():
        np.testing.assert_allclose(vectors[labels == label].mean(axis=0), np.array(colour) / 255, atol=0.03)


def test_embeddings_cannot_become_a_fiftyone_dataset(model: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", embeddings=np.ones((2, 3)))
    with pytest.raises(HCEPError, match="has embeddings, but FiftyOne shows photos"):
        export_fiftyone(read_model(model), tmp_path / "x.npz", tmp_path / "fo")


def test_what_the_command_refuses(model: Path, photos: Path, tmp_path: Path) -> None:  # noqa: F811
    fails("KIND: expected one of onnx, .* got 'onxx'. Near matches: 'onnx'", "export", "onxx", model, "-o", "a.onnx")
    fails("DATA: atlas needs images to answer for", "export", "atlas", model, "-o", "a.parquet")
    fails("DATA: onnx takes a model and no images", "export", "onnx", model, photos, "-o", "a.onnx")
    fails("--output: onnx needs a name ending in .onnx, got 'a.pb'", "export", "onnx", model, "-o", "a.pb")
    fails("--output: fiftyone needs the name of a folder", "export", "fiftyone", model, photos, "-o", "a.json")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    fails("already exists; pass --overwrite", "export", "addaxai", model, "-o", tmp_path / "full")


def test_the_command_says_how_to_open_what_it_wrote(model: Path, photos: Path, tmp_path: Path) -> None:  # noqa: F811
    output, _ = run("export", "atlas", model, photos, "--split", "val", "-o", tmp_path / "points.parquet")
    assert "12 images; embedding-atlas" in output
    output, _ = run("export", "fiftyone", model, photos, "--split", "val", "-o", tmp_path / "fo")
    assert "12 photos; fo.Dataset.from_dir(" in output
    assert "its input is preprocessed photos" in run("export", "onnx", model, "-o", tmp_path / "m.onnx")[0]
    assert "copy it to models/cls/" in run("export", "addaxai", model, "-o", tmp_path / "MINE-v1")[0]
