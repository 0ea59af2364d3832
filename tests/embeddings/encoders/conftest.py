"""Photos with known vectors, a picture to check by eye, and a hub that cannot be reached."""

import subprocess
import sys
from importlib import import_module

import numpy as np
import pytest
from PIL import Image

from tests.conftest import shared_file

NMS = "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


@pytest.fixture(scope="session")
def photos():
    """Paths of the 300 JPEGs, and the vectors that EfficientNet-Lite2 gave them."""
    folder = shared_file("data/imagenette_images")
    data = np.load(shared_file("data/imagenette_efficientnet_lite2.npz"), allow_pickle=False)
    rows = {str(path): row for row, path in enumerate(data["paths"])}
    paths = sorted(folder.rglob("*.JPEG"))
    known = data["embeddings"][[rows[path.relative_to(folder).as_posix()] for path in paths]]
    return paths, known.astype(np.float32)


@pytest.fixture
def picture():
    """90 x 60 pixels: smooth, coloured, nothing symmetric."""
    y, x = np.mgrid[0:60, 0:90]
    channels = [2 * x + y, 255 - 2 * x, 60 + x + 2 * y]
    return Image.fromarray(np.clip(np.stack(channels, axis=2), 0, 255).astype(np.uint8))


@pytest.fixture
def no_hub(monkeypatch, tmp_path):
    """Nothing listens at the hub's address."""
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")


@pytest.fixture(scope="session")
def torchvision():
    """torchvision; where its wheel was built for another torch, with the two operators that its import looks for."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    probe = subprocess.run([sys.executable, "-c", "import torchvision"], capture_output=True, text=True, check=False)
    if "No module named" in probe.stderr:
        pytest.skip("torchvision is not installed")
    library = torch.library.Library("torchvision", "DEF" if probe.returncode else "FRAGMENT")
    if probe.returncode:
        library.define(NMS)
        library.define("q" + NMS)
    yield import_module("torchvision")
    del library
