"""Models as ONNX files, run by onnxruntime alone, against `predict_proba`; and AddaxAI's folder around such a file."""

from __future__ import annotations

import csv
import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from hcep import HCEPClassifier
from hcep.classify.linear_head import open_linear_head
from hcep.classify.right_level import Levels
from hcep.embeddings import load_encoder
from hcep.embeddings.pixels import area_of
from hcep.errors import HCEPError
from hcep.hierarchy import read_hierarchy
from hcep.models import read_model, save
from hcep.models.onnx_export import export_onnx
from hcep.models.onnx_folders import export_addaxai, export_space
from tests.embeddings.encoders.tiny_onnx import dynamically_quantised, mean_colour
from tests.models.conftest import CASES, PET_LABELS, PETS, images

onnx = pytest.importorskip("onnx", reason="the export needs onnx (extra photos)")
ort = pytest.importorskip("onnxruntime", reason="the tests of the export need onnxruntime (extra photos)")


def texts(n_images: int) -> HCEPClassifier:
    """A model of words and of images, or of words alone."""
    vectors = dict(zip(PET_LABELS, np.random.default_rng(1).normal(size=(6, 12)), strict=True))
    X, y = images(PET_LABELS)
    return HCEPClassifier(PETS).fit(X[:n_images], y[:n_images], texts=vectors)


def positive(model: HCEPClassifier) -> HCEPClassifier:
    """A model that is fitted to embeddings without negative numbers."""
    X, y = images(PET_LABELS)
    return model.fit(np.abs(X), y)


def linear() -> HCEPClassifier:
    rng = np.random.default_rng(2)
    return open_linear_head(rng.normal(size=(6, 12)), rng.normal(size=6), PET_LABELS, PETS)


EXPORTED: dict[str, Callable[[], HCEPClassifier]] = {
    **{
        name: CASES[name]
        for name in (
            *("default", "unit norm, centred, whitened", "unit norm only", "whitened, not rescaled"),
            *("integers, no hierarchy", "a class above a class, two parents", "one class"),
        )
    },
    "power and priors": lambda: positive(
        HCEPClassifier(PETS, power=0.5, unit_norm=True, priors=[0.0, 0.1, 0.2, 0.3, 0.2, 0.2])
    ),
    "images and texts": lambda: texts(36),
    "texts alone": lambda: texts(0),
    "a linear classifier": linear,
}


def exported(model: HCEPClassifier, folder: Path) -> tuple[Any, dict[str, str]]:
    """The session of an exported model, and its metadata."""
    save(model, folder / "model")
    export_onnx(read_model(folder / "model"), folder / "model.onnx")
    onnx.checker.check_model(onnx.load(folder / "model.onnx"), full_check=True)
    session = ort.InferenceSession(folder / "model.onnx")
    return session, session.get_modelmeta().custom_metadata_map


@pytest.mark.parametrize("name", EXPORTED)
def test_an_exported_model_gives_the_same_probabilities(name: str, tmp_path: Path) -> None:
    model = EXPORTED[name]()
    session, metadata = exported(model, tmp_path)
    X = (np.random.default_rng(0).normal(size=(40, 12)) + 1.0).astype(np.float32)
    X[0] = 0.0
    probabilities, concepts = session.run(["probabilities", "concepts"], {"embedding": X})
    np.testing.assert_allclose(probabilities, model.predict_proba(X), atol=1e-5)
    np.testing.assert_allclose(concepts, model.path_model().node_probabilities(X), atol=1e-5)
    assert json.loads(metadata["labels"]) == list(map(str, model.classes_.tolist()))
    assert json.loads(metadata["concept_ids"]) == list(model.hierarchy_.ids)


def test_the_hierarchy_in_the_metadata_is_the_models(auto_model: HCEPClassifier, tmp_path: Path) -> None:
    _, metadata = exported(auto_model, tmp_path)
    (tmp_path / "tree.json").write_text(metadata["hierarchy"], encoding="utf-8")
    assert list(read_hierarchy(tmp_path / "tree.json")) == list(auto_model.hierarchy_)


@pytest.mark.parametrize("sure", ["0.8", "0.9"])
def test_thresholds_in_the_metadata_choose_the_levels_of_the_model(sure: str, tmp_path: Path) -> None:
    model = CASES["default"]()
    X, y = images(PET_LABELS, n_per_class=40, seed=3)
    model.calibrate(X, y)
    session, metadata = exported(model, tmp_path)
    rows = (np.random.default_rng(4).normal(size=(60, 12)) + 1.0).astype(np.float32)
    (values,) = session.run(["probabilities"], {"embedding": rows})
    rules = json.loads(metadata["thresholds"])
    bins = np.searchsorted(rules["confidence"], values.max(axis=1), side="right") - 1
    levels: Levels = model.path_model().levels
    synsets, concepts = levels.candidates(values.astype(np.float64), values.argmax(axis=1))
    is_sure = concepts > np.array(rules["sure"][sure])[bins, None]
    answers = np.where(is_sure.any(axis=1), synsets[np.arange(60), is_sure.argmax(axis=1)], 0)
    expected = [answer or model.hierarchy_.root for answer in model.predict_concept(rows, sure=float(sure)).tolist()]
    assert [model.hierarchy_.ids[i] for i in answers] == expected


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("paper", "needs the path head, but the class is predicted by AdamWHead"),
        ("beam, steps, tolerance", "needs an exact search, but the model has a finite beam"),
        ("centred only, signed", "needs an exact search"),
    ],
)
def test_models_that_are_not_exact_are_refused(name: str, match: str, tmp_path: Path) -> None:
    save(CASES[name](), tmp_path / "model")
    with pytest.raises(HCEPError, match=match):
        export_onnx(read_model(tmp_path / "model"), tmp_path / "model.onnx")
    assert not (tmp_path / "model.onnx").exists()


# -- with an encoder ---------------------------------------------------------------------------------------------------

TAXA = "family,genus,species\nFelidae,Lynx,Lynx lynx\nFelidae,,Felis catus\n,,bus\n"
COLOURS = {"Lynx lynx": (200, 30, 30), "Felis catus": (150, 90, 30), "bus": (30, 30, 200)}


@pytest.fixture(scope="module")
def of_photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of the mean colours of photos, whose encoder is a tiny ONNX file."""
    return colour_model(tmp_path_factory.mktemp("photos"), mean_colour())


def colour_model(folder: Path, network: bytes) -> Path:
    (folder / "colour.onnx").write_bytes(network)
    (folder / "colour.json").write_text('{"preprocessing": {"size": 8, "edge": 10}}')
    encoder = load_encoder(f"onnx:{folder / 'colour.onnx'}")
    noise = np.random.default_rng(0).normal(scale=20.0, size=(3, 8, 3))
    X = (np.array(list(COLOURS.values()))[:, None] + noise).reshape(24, 3) / 255
    (folder / "taxa.csv").write_text(TAXA)
    hierarchy = read_hierarchy(folder / "taxa.csv", levels=["family", "genus", "species"], blank="skip")
    model = HCEPClassifier(hierarchy, collapse=False).fit(X, np.repeat(list(COLOURS), 8))
    save(model, folder / "model", encoder=encoder)
    return folder / "model"


def test_the_encoder_is_part_of_the_file(of_photos: Path, tmp_path: Path) -> None:
    saved = read_model(of_photos)
    export_onnx(saved, tmp_path / "model.onnx")
    session = ort.InferenceSession(tmp_path / "model.onnx")
    batch = np.random.default_rng(1).uniform(size=(5, 3, 8, 8)).astype(np.float32)
    embedding, probabilities = session.run(["embedding", "probabilities"], {"x": batch})
    np.testing.assert_allclose(embedding, batch.mean(axis=(2, 3)), atol=1e-6)
    np.testing.assert_allclose(probabilities, saved.classifier.predict_proba(embedding), atol=1e-5)
    metadata = session.get_modelmeta().custom_metadata_map
    assert json.loads(metadata["preprocessing"])["edge"] == 10
    assert metadata["encoder"].endswith("colour.onnx")


def test_an_encoder_whose_vectors_depend_on_their_batch_takes_one_photo_at_a_time(tmp_path: Path) -> None:
    saved = read_model(colour_model(tmp_path, dynamically_quantised()))
    export_addaxai(saved, tmp_path / "rounded")
    inference = loaded_by_addaxai(tmp_path / "rounded")
    batch = np.random.default_rng(1).uniform(size=(2, 3, 8, 8)).astype(np.float32)
    batch[1] *= 3.0
    with pytest.raises(Exception, match="Got: 2 Expected: 1"):
        inference.model.run(["probabilities"], {"x": batch})
    encoder = load_encoder(saved.encoder.name, preprocessing=saved.encoder.preprocessing)  # type: ignore[union-attr]
    expected = saved.path_model.probabilities(encoder.encode_images(batch))
    scores = [[score for _, score in row] for row in inference.classify_batch(batch)]
    np.testing.assert_allclose(scores, expected, atol=1e-5)


def imported(script: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"custom_inference_{script.parent.name}", script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def loaded_by_addaxai(folder: Path) -> Any:
    """What AddaxAI's worker does with a folder: it imports the file and calls the class with two paths."""
    module = imported(folder / "inference.py")
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    inference = module.ModelInference(folder, folder / manifest["model_fname"])
    inference.load_model()
    return inference


def test_addaxais_folder_classifies_boxes_as_the_model_does(of_photos: Path, tmp_path: Path) -> None:
    folder, saved = tmp_path / "LYNX-v1", read_model(of_photos)
    export_addaxai(saved, folder)
    inference = loaded_by_addaxai(folder)
    assert inference.check_gpu() in (True, False)
    assert inference.get_class_names() == {"1": "felis catus", "2": "lynx lynx", "3": "bus"}
    photo, box = Image.new("RGB", (90, 60), COLOURS["Lynx lynx"]), (0.5, 0.5, 0.4, 0.3)
    crop = inference.get_crop(photo, box)
    assert crop.size == photo.crop(area_of(box, photo.size)).size
    scores = inference.get_classification(crop)
    assert inference.classify_batch(np.stack([inference.get_tensor(crop)] * 2)) == [scores, scores]
    assert max(scores, key=lambda pair: pair[1])[0] == "lynx lynx"
    encoder = load_encoder(saved.encoder.name, preprocessing=saved.encoder.preprocessing)  # type: ignore[union-attr]
    expected = saved.path_model.probabilities(encoder.encode_images(encoder.preprocess(crop)[None]))
    np.testing.assert_allclose([score for _, score in scores], expected[0], atol=1e-5)


def test_addaxais_taxonomy_has_the_lineage_of_each_class(of_photos: Path, tmp_path: Path) -> None:
    export_addaxai(read_model(of_photos), tmp_path / "cats")
    rows = list(csv.DictReader((tmp_path / "cats" / "taxonomy.csv").read_text("utf-8").splitlines()))
    shown = [(row["model_class"], row["family"], row["genus"], row["species"]) for row in rows]
    assert shown == [
        ("felis catus", "felidae", "", "felis catus"),
        ("lynx lynx", "felidae", "lynx", "lynx"),
        ("bus", "", "", "bus"),
    ]


def test_addaxai_needs_an_encoder(auto_model: HCEPClassifier, tmp_path: Path) -> None:
    save(auto_model, tmp_path / "model", encoder="open_clip:ViT-B-32/openai")
    with pytest.raises(
        HCEPError, match=r"inference.py needs photos as input, but the model's encoder is not an ONNX network"
    ):
        export_addaxai(read_model(tmp_path / "model"), tmp_path / "folder")
    assert not (tmp_path / "folder").exists()


def test_a_space_answers_at_the_level_that_is_sure(of_photos: Path, tmp_path: Path) -> None:
    export_space(read_model(of_photos), tmp_path / "cats")
    app = imported(tmp_path / "cats" / "app.py")
    assert (tmp_path / "cats" / "README.md").read_text("utf-8").startswith('---\ntitle: "cats"\nsdk: gradio\n')
    answer, classes, path = app.classify(Image.new("RGB", (40, 40), COLOURS["bus"]))
    assert (answer, max(classes, key=classes.get)) == ("bus", "bus")
    assert path == "bus 100%"
    between = tuple(np.mean([COLOURS["Lynx lynx"], COLOURS["Felis catus"]], axis=0).astype(int).tolist())
    answer, classes, path = app.classify(Image.new("RGB", (40, 40), between))
    assert max(classes.values()) < 0.9
    assert answer == "Felidae"
    assert path.startswith("Felidae ")
