"""Memory does not grow with the number of images."""

import subprocess
import sys

import numpy as np
import pytest

from hcep import HCEPClassifier
from hcep.embeddings import read_embeddings
from hcep.embeddings.arrays import EmbeddingArrays
from hcep.embeddings.store.writer import import_arrays
from hcep.models import fit_model, load_model, streaming

PEAK = """
import sys
from hcep.cli import main
try:
    main()
except SystemExit as ended:
    assert not ended.code, ended.code
# Not ru_maxrss, which a process inherits from the one that started it.
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def make_store(folder, n_images, n_dims=256, n_classes=20):
    rng = np.random.default_rng(0)
    y = np.arange(n_images) % n_classes
    X = (rng.normal(size=(n_classes, n_dims))[y] + rng.normal(size=(n_images, n_dims))).astype(np.float16)
    import_arrays(EmbeddingArrays(X, labels=np.array([f"c{i:02d}" for i in y])), folder, encoder="e")
    return folder


def test_a_fit_in_blocks_is_the_fit_in_memory(tmp_path, monkeypatch):
    store = make_store(tmp_path / "store", 900, n_dims=12, n_classes=5)
    options = {"shrinkage": 0.3, "anchor": 0.5, "power": 1.0, "refine": False}
    whole = fit_model(read_embeddings(store), None, tmp_path / "whole", **options)
    monkeypatch.setattr(streaming, "SAMPLE", 300)
    monkeypatch.setattr(streaming, "BLOCK", 128)
    stays = read_embeddings(store, in_memory=300)
    monkeypatch.setattr("hcep.embeddings.EmbeddingStore.to_numpy", None)  # no way to have all at once
    parts = fit_model(stays, None, tmp_path / "parts", **options)
    assert parts.n_images == whole.n_images == 900
    one, other = load_model(tmp_path / "whole").dictionary_, load_model(tmp_path / "parts").dictionary_
    np.testing.assert_allclose(other.synset_embeddings, one.synset_embeddings, rtol=1e-6, atol=1e-9)
    assert parts.metrics["training accuracy"] == pytest.approx(whole.metrics["training accuracy"], abs=1e-9)


def test_a_linear_head_still_has_its_images(tmp_path):
    store = make_store(tmp_path / "store", 200, n_dims=12, n_classes=5)
    fitted = fit_model(read_embeddings(store, in_memory=100), None, tmp_path / "m", head="logistic")
    assert isinstance(fitted.model, HCEPClassifier)
    assert fitted.metrics["training accuracy"] > 0.5


@pytest.mark.slow
def test_the_memory_of_fit_is_flat_from_1000_to_100_000_images(tmp_path):
    peaks = []
    for n_images in (1_000, 100_000):
        store = make_store(tmp_path / f"s{n_images}", n_images)
        command = ["fit", store, "--hierarchy", "flat", "-o", tmp_path / f"m{n_images}"]
        done = subprocess.run([sys.executable, "-c", PEAK, *command], capture_output=True, text=True, check=True)
        peaks.append(int(done.stdout.split()[-1]))
    assert peaks[1] < 1.2 * peaks[0], peaks
