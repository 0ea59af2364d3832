"""`hcep fit --from-text` with a tiny CLIP of random weights, saved to a folder and loaded by its path."""

import json

import numpy as np
import pytest

from hcep.models.loading import load_model
from tests.cli.test_interpret import fails, run

# Before the next import: a module that was skipped halfway has no fixtures to give.
pytest.importorskip("torch", reason="torch is not installed")
from tests.embeddings.encoders.test_transformers_adapter import clip, mended, transformers  # noqa: F401

pytestmark = [pytest.mark.usefixtures("mended"), pytest.mark.filterwarnings("ignore::DeprecationWarning")]


@pytest.fixture
def tree(tmp_path):
    file = tmp_path / "pets.csv"
    file.write_text("parent,child\nthing,pet\npet,cat\npet,dog\nthing,car\n", encoding="utf-8")
    return file


def test_a_model_from_names_and_from_names_and_images(clip, tree, tmp_path):  # noqa: F811
    encoder = f"transformers:{clip[0]}"
    given = ["fit", "--from-text", "--encoder", encoder, "--hierarchy", str(tree), "-o"]
    run(*given, str(tmp_path / "names"))
    model = load_model(tmp_path / "names")
    assert model.classes_.tolist() == ["car", "cat", "dog"]
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(6, model.n_features_in_)).astype(np.float32), np.array(["cat", "dog"] * 3)
    np.savez(tmp_path / "few.npz", embeddings=X, labels=y)
    np.save(tmp_path / "all.npy", X)
    facts = json.loads(run(*given, str(tmp_path / "joint"), str(tmp_path / "few.npz"), "--json"))
    assert facts["n_text_only"] == 1
    assert 0 < facts["words"] <= 1
    assert load_model(tmp_path / "joint").classes_.tolist() == ["car", "cat", "dog"]
    facts = json.loads(run(*given, str(tmp_path / "scaled"), "--unlabelled", str(tmp_path / "all.npy"), "--json"))
    assert facts["words"] == 1
    both = (str(tmp_path / "few.npz"), "--unlabelled", str(tmp_path / "all.npy"))
    fails("--unlabelled has no effect if DATA is given", *given, str(tmp_path / "both"), *both)


def test_missing_inputs_are_rejected(tmp_path):
    fails("--from-text needs --hierarchy", "fit", "--from-text", "-o", str(tmp_path / "model"))
    fails("DATA is missing", "fit", "-o", str(tmp_path / "model"))
