"""The paper's setting end to end: a folder of images, an open_clip model, one command. The model is tiny and local."""

import json

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from experiments.command import app

# Before the next import: a module that was skipped halfway has nothing to give.
pytest.importorskip("torch", reason="torch is not installed")
from tests.embeddings.encoders.test_open_clip_adapter import CLIP, folder_of

COLOURS = {
    "n01440764": (200, 40, 40),
    "n02102040": (40, 200, 40),
    "n02979186": (40, 40, 200),
    "n03000684": (200, 200, 40),
}


@pytest.fixture
def photos(tmp_path):
    """Four of ImageNette's classes as colours with noise, six training and four validation pictures each."""
    rng = np.random.default_rng(0)
    for split, n in (("train", 6), ("val", 4)):
        for wnid, colour in COLOURS.items():
            (tmp_path / "photos" / split / wnid).mkdir(parents=True)
            for i in range(n):
                pixels = np.clip(rng.normal(colour, 25, (24, 24, 3)), 0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(tmp_path / "photos" / split / wnid / f"{i}.png")
    return tmp_path / "photos"


@pytest.mark.slow
def test_an_open_clip_model_from_photos_to_figure(torchvision, photos, tmp_path):
    open_clip = pytest.importorskip("open_clip", reason="open_clip is not installed")
    folder_of(open_clip, tmp_path / "clip", CLIP, {})
    command = ["imagenette", "--smoke", "--data", photos, "-o", tmp_path / "out", "--json"]
    command += ["--encoder", f"open_clip:local-dir:{tmp_path / 'clip'}"]
    result = CliRunner().invoke(app, [str(part) for part in command], catch_exceptions=False)
    report = json.loads(result.stdout[result.stdout.index("{\n") :])["imagenette"]
    assert report["rows"] > 0
    (folder,) = (tmp_path / "out/imagenette").iterdir()
    provenance = json.loads((folder / "rows.json").read_text(encoding="utf-8"))["provenance"]
    assert provenance["data"][0]["encoder"].startswith("open_clip:local-dir:")
    assert (provenance["data"][0]["n_train"], provenance["data"][0]["n_val"]) == (24, 16)
    assert (folder / "figure.png").is_file()
    again = CliRunner().invoke(app, [str(part) for part in command], catch_exceptions=False)
    assert json.loads(again.stdout[again.stdout.index("{\n") :])["imagenette"] == report
