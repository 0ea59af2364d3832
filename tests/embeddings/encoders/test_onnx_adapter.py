"""ONNX files by onnxruntime: the real encoder on real photos, and tiny files for what may be wrong with one."""

import json

import numpy as np
import pytest
from PIL import Image

from hcep.embeddings import Encoder
from hcep.embeddings.encoders import load_encoder
from hcep.embeddings.images import open_image
from hcep.errors import HCEPError
from tests.conftest import shared_file
from tests.embeddings.encoders.tiny_onnx import FLOAT16, UINT8, dynamically_quantised, mean_colour

onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

TINY = {"size": 8, "rescale": 1.0}


@pytest.fixture(scope="module")
def real():
    path = shared_file("encoders/efficientnet_lite2.onnx")
    return load_encoder(f"onnx:{path}", preprocessing="efficientnet-lite2", threads=1)


@pytest.fixture
def tiny(tmp_path):
    path = tmp_path / "tiny.onnx"
    path.write_bytes(mean_colour())
    return path


def cosines(encoder, paths, known):
    """Cosine of each photo's vector with the known one, in batches of 30."""
    starts = range(0, len(paths), 30)
    batches = [np.stack([encoder.preprocess(open_image(p)) for p in paths[i : i + 30]]) for i in starts]
    found = np.concatenate([encoder.encode_images(batch) for batch in batches])
    return (found * known).sum(1) / np.linalg.norm(found, axis=1) / np.linalg.norm(known, axis=1)


def test_real_vectors_of_real_photos(real, photos):
    paths, known = photos
    assert cosines(real, paths[::10], known[::10]).min() >= 0.999


def test_a_real_onnx_encoder(real):
    assert isinstance(real, Encoder)
    assert real.n_dims == 1280
    assert not real.has_text
    assert real.preprocessing["size"] == [260, 260]
    assert repr(real).endswith(": 1280 dimensions>")


def test_another_output_of_the_real_encoder(real):
    logits = load_encoder(real.name, preprocessing=real.preprocessing, output="logits")
    assert logits.n_dims == 1000
    assert logits.fingerprint != real.fingerprint


def test_its_own_preprocessing_makes_the_same_encoder_again(real):
    assert load_encoder(real.name, preprocessing=real.preprocessing).fingerprint == real.fingerprint


def test_an_onnx_file_is_an_encoder(tiny):
    encoder = load_encoder(f"onnx:{tiny}", preprocessing=TINY)
    batch = np.stack([encoder.preprocess(Image.new("RGB", (20, 10), colour)) for colour in ("red", "lime")])
    assert encoder.encode_images(batch).tolist() == [[255, 0, 0], [0, 255, 0]]
    assert encoder.encode_images(batch[:0]).shape == (0, 3)
    assert encoder.name == f"onnx:{tiny}"


def test_a_json_file_beside_it_has_the_preprocessing(tiny):
    tiny.with_suffix(".json").write_text(json.dumps({"preprocessing": TINY, "output": "vector"}))
    encoder = load_encoder(f"onnx:{tiny}")
    assert encoder.preprocessing["size"] == [8, 8]
    assert load_encoder(f"onnx:{tiny}", preprocessing={"mean": 1}).preprocessing["rescale"] == 1.0


def test_the_fingerprint_follows_weights_and_preprocessing(tiny):
    first = load_encoder(f"onnx:{tiny}", preprocessing=TINY).fingerprint
    assert load_encoder(f"onnx:{tiny}", preprocessing={**TINY, "mean": 1}).fingerprint != first
    tiny.with_name("tiny.onnx.data").write_bytes(b"weights of a file beyond 2 GB")
    assert load_encoder(f"onnx:{tiny}", preprocessing=TINY).fingerprint != first


def test_photos_run_one_by_one_if_a_vector_depends_on_its_batch(tmp_path, caplog):
    (tmp_path / "int8.onnx").write_bytes(dynamically_quantised())
    encoder = load_encoder(f"onnx:{tmp_path / 'int8.onnx'}", preprocessing=TINY)
    photos = np.random.default_rng(1).random((4, 3, 8, 8), dtype=np.float32) * [[[[1]]], [[[100]]], [[[5]]], [[[1]]]]
    photos = photos.astype(np.float32)
    alone = np.concatenate([encoder.encode_images(photos[[i]]) for i in range(4)])
    assert caplog.messages == []
    assert np.array_equal(encoder.encode_images(photos), alone)
    encoder.encode_images(photos[:2])
    assert [m.partition(": ")[2] for m in caplog.messages] == [
        "the vector of a photo depends on its batch (dynamic quantisation), so photos are encoded one at a time"
    ]


def test_photos_run_together_if_a_vector_does_not_depend_on_its_batch(tiny, caplog):
    encoder = load_encoder(f"onnx:{tiny}", preprocessing=TINY)
    encoder.encode_images(np.ones((3, 3, 8, 8), dtype=np.float32))
    assert caplog.messages == []


def test_a_file_with_a_fixed_batch_size_encodes_any_number_of_images(tmp_path):
    (tmp_path / "two.onnx").write_bytes(
        mean_colour(inputs=[("x", (2, 3, 8, 8))], outputs=[("mean", (2, 3, 1, 1)), ("vector", (2, 3))])
    )
    encoder = load_encoder(f"onnx:{tmp_path / 'two.onnx'}", preprocessing=TINY)
    batch = np.arange(5, dtype=np.float32)[:, None, None, None] * np.ones((3, 8, 8), dtype=np.float32)
    assert encoder.encode_images(batch)[:, 0].tolist() == [0, 1, 2, 3, 4]


def test_half_precision_files(tmp_path):
    (tmp_path / "half.onnx").write_bytes(mean_colour(kind=FLOAT16, result=FLOAT16))
    encoder = load_encoder(f"onnx:{tmp_path / 'half.onnx'}", preprocessing=TINY)
    assert encoder.encode_images(np.ones((1, 3, 8, 8), dtype=np.float32)).dtype == np.float32


WRONG = [
    (
        {"preprocessing": None},
        r"the preprocessing of images is unknown; give preprocessing= \(--preprocessing\), which is one of "
        r"'clip'.*write tiny.json",
    ),
    ({"preprocessing": {"size": 9}}, r"its input is \['n', 3, 8, 8\], the preprocessing makes \(n, 3, 9, 9\)"),
    ({"precision": "fp16"}, "the file determines the precision; leave out precision='fp16'"),
    ({"device": "tpu"}, "device must be 'cpu' or 'cuda' for ONNX files, got 'tpu'"),
    ({"output": "vektor"}, "no output 'vektor', there are 'mean', 'vector'. Near matches: 'vector'"),
    ({"outputs": "vector"}, "has no option 'outputs', it has .* Near matches: 'output'"),
    ({"output": "mean"}, r"must return \(n, n_dims\) vectors, got \(1, 3, 1, 1\) for one image"),
]


@pytest.mark.parametrize(("options", "message"), WRONG)
def test_wrong_options(tiny, options, message):
    with pytest.raises(HCEPError, match=message):
        load_encoder(f"onnx:{tiny}", **{"preprocessing": TINY, **options})


def test_cuda_without_its_provider(tiny, monkeypatch):
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])
    with pytest.raises(HCEPError, match="device 'cuda': this onnxruntime has 'CPUExecutionProvider'"):
        load_encoder(f"onnx:{tiny}", preprocessing=TINY, device="cuda")


UNFIT = [
    ({"inputs": [("x", ("n", 3))]}, r"expected one input, images \(n, 3, height, width\), got \"x \['n', 3\]\""),
    ({"inputs": [("x", ("n", 3, 8, 8)), ("ids", ("n", 9))]}, "export the image tower alone"),
    ({"inputs": [("x", ("n", 8, 8, 3))]}, r"its input is \['n', 8, 8, 3\]"),
    ({"outputs": [("mean", ("n", 3, 1, 1))]}, r"no output of two axes \(n, n_dims\) among"),
]


@pytest.mark.parametrize(("parts", "message"), UNFIT)
def test_files_that_are_not_image_encoders_are_refused(tmp_path, parts, message):
    (tmp_path / "a.onnx").write_bytes(mean_colour(**parts))
    with pytest.raises(HCEPError, match=message):
        load_encoder(f"onnx:{tmp_path / 'a.onnx'}", preprocessing=TINY)


def test_an_input_of_bytes_is_refused(tmp_path):
    (tmp_path / "a.onnx").write_bytes(mean_colour_of_bytes())
    with pytest.raises(HCEPError, match=r"its input is a tensor\(uint8\), expected floating-point images"):
        load_encoder(f"onnx:{tmp_path / 'a.onnx'}", preprocessing=TINY)


def mean_colour_of_bytes():
    """Flatten takes bytes, where the pooling does not."""
    from tests.embeddings.encoders import tiny_onnx as t

    graph = [
        t.node("Flatten", "x", "vector"),
        t.text(2, "flat"),
        t.value_info(11, "x", ("n", 3, 8, 8), UINT8),
        t.value_info(12, "vector", ("n", 192), UINT8),
    ]
    return t.number(1, 8) + t.message(7, *graph) + t.message(8, t.number(2, 13))


def test_a_missing_file():
    with pytest.raises(HCEPError, match=r"^onnx:none.onnx: no such file$"):
        load_encoder("onnx:none.onnx")


def test_a_damaged_file(tmp_path):
    (tmp_path / "a.onnx").write_bytes(b"not a model")
    with pytest.raises(HCEPError, match=r"a\.onnx could not be loaded: .*") as found:
        load_encoder(f"onnx:{tmp_path / 'a.onnx'}", preprocessing=TINY)
    assert "\n" not in str(found.value)


def test_an_unknown_key_beside_it(tiny):
    tiny.with_suffix(".json").write_text('{"preprocesing": {}}')
    with pytest.raises(HCEPError, match=r"tiny.json: unknown key 'preprocesing', .* Near matches: 'preprocessing'"):
        load_encoder(f"onnx:{tiny}")


def test_texts_are_refused(tiny):
    with pytest.raises(HCEPError, match="cannot encode texts: no text tower"):
        load_encoder(f"onnx:{tiny}", preprocessing=TINY).encode_texts(["a cat"])


def test_the_map_before_the_final_mean_is_found(tmp_path):
    pytest.importorskip("onnx", reason="onnx is not installed")
    (tmp_path / "mean.onnx").write_bytes(mean_colour())
    encoder = load_encoder(f"onnx:{tmp_path / 'mean.onnx'}", preprocessing={"size": 8})
    batch = np.random.default_rng(0).random((2, 3, 8, 8), dtype=np.float32)
    assert encoder.has_maps
    assert np.array_equal(encoder.feature_map(batch), batch)
    assert np.allclose(encoder.feature_map(batch).mean(axis=(2, 3)), encoder.encode_images(batch), atol=1e-6)


def test_an_encoder_without_maps_says_so():
    encoder = load_encoder(lambda batch: batch.mean(axis=(2, 3)), preprocessing={"size": 8})
    assert not encoder.has_maps
    with pytest.raises(HCEPError, match="has no feature maps"):
        encoder.feature_map(np.zeros((1, 3, 8, 8), np.float32))


def test_a_quantised_clip_returns_the_vectors_that_it_should():
    """On x86 processors without VNNI, onnxruntime overflows unless it is told to be precise: vectors mean nothing then.

    Correct vectors differ a little between processors, because 8-bit kernels round differently (cosine .978 seen).
    """
    stored = np.load(shared_file("data/imagenette_clip_vitb16.npz"), allow_pickle=False)
    folder = shared_file("data/imagenette_images")
    rows = [i for i, path in enumerate(stored["paths"].tolist()) if (folder / path).is_file()][::20]
    assert len(rows) > 2
    path = shared_file("encoders/clip_vitb16_image_int8.onnx")
    encoder = load_encoder(f"onnx:{path}", preprocessing="clip")
    found = cosines(encoder, [folder / stored["paths"][i] for i in rows], stored["embeddings"][rows].astype(np.float64))
    assert found.min() > 0.95
