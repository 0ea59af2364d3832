"""Photos with known vectors, a picture to check by eye, and a hub that cannot be reached."""

import numpy as np
import pytest
from PIL import Image

from tests.conftest import shared_file


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
