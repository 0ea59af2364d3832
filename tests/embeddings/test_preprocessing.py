"""A preprocessing is data: it survives JSON, says what is wrong with it, and does what it says."""

import json

import numpy as np
import pytest
from PIL import Image

from hcep.embeddings.preprocessing import PRESETS, Preprocessing, PreprocessingError, as_preprocessing


def striped(width, height):
    """Column x has the value x, modulo 256."""
    return Image.fromarray(np.tile(np.arange(width, dtype=np.uint8)[None, :, None], (height, 1, 3)))


@pytest.mark.parametrize("steps", [*PRESETS.values(), Preprocessing(size=(32, 48), resize="squash", fill=7)])
def test_json_round_trip(steps):
    assert Preprocessing.from_dict(json.loads(json.dumps(steps.to_dict()))) == steps


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("size", [(300, 200), (200, 300), (260, 260), (1, 1), (31, 1000)])
def test_every_preset_takes_every_shape(name, size):
    x = PRESETS[name](striped(*size))
    assert x.shape == (3, *PRESETS[name].size)
    assert x.dtype == np.float32
    assert x.flags.c_contiguous


def test_values_are_scaled_then_normalised():
    grey = Image.new("RGB", (4, 4), (0, 127, 255))
    np.testing.assert_allclose(PRESETS["efficientnet-lite2"](grey)[:, 0, 0], [-127 / 128, 0, 1], rtol=1e-6)
    np.testing.assert_allclose(Preprocessing(size=2, mean=0.5, std=0.25)(grey)[:, 0, 0], [-2, -0.0078431, 2], rtol=1e-4)


def test_shortest_keeps_proportions_and_crops_the_middle():
    x = Preprocessing(size=20, interpolation="nearest", rescale=1.0)(striped(60, 20))
    assert x[0, 0].tolist() == list(range(20, 40))


def test_an_edge_beyond_the_size_is_cropped():
    x = Preprocessing(size=10, edge=20, interpolation="nearest", rescale=1.0)(striped(20, 20))
    assert x[0, 0].tolist() == list(range(5, 15))


def test_a_square_image_may_be_scaled_without_a_crop():
    x = Preprocessing(size=10, edge=20, crop_square=False, interpolation="nearest", rescale=1.0)(striped(20, 20))
    assert x[0, 0].tolist() == list(range(1, 20, 2))


def test_longest_pads():
    x = Preprocessing(size=20, resize="longest", rescale=1.0, fill=9)(Image.new("RGB", (20, 10), "white"))
    assert x[0, :, 0].tolist() == [9] * 5 + [255] * 10 + [9] * 5


def test_squash_loses_proportions():
    x = Preprocessing(size=(10, 20), resize="squash", interpolation="nearest", rescale=1.0)(striped(40, 10))
    assert x[0, 0].tolist() == list(range(1, 40, 2))


@pytest.mark.parametrize("size", [(1, 2_000_000), (2_000_000, 1)])
def test_a_strip_does_not_fill_memory(size):
    assert PRESETS["clip"](Image.new("RGB", size)).shape == (3, 224, 224)


def test_a_strip_is_cut_to_its_middle():
    x = Preprocessing(size=10, interpolation="nearest", rescale=1.0)(striped(210, 10))
    assert x[0, 0].tolist() == list(range(100, 110))


def test_a_preprocessing_can_be_a_preset_a_file_or_a_mapping(tmp_path):
    (tmp_path / "steps.json").write_text('{"preset": "clip", "size": 336}')
    large = as_preprocessing(tmp_path / "steps.json")
    assert large.size == (336, 336)
    assert large.mean == PRESETS["clip"].mean
    assert as_preprocessing("clip") is PRESETS["clip"]
    assert as_preprocessing(large) is large
    assert as_preprocessing(None, large) is large
    assert as_preprocessing(None) == Preprocessing()
    assert as_preprocessing({"size": [336, 336]}, PRESETS["clip"]) == large


BAD = [
    ({"sise": 3}, r"unknown key 'sise' in the preprocessing\. Near matches: 'size'"),
    ({"preset": "klip"}, r"no preset 'klip'; there are 'clip', .* Near matches: 'clip'"),
    ({"preset": ["clip"]}, "no preset"),
    ({"size": [1, 2, 3]}, r"size must be one int or 2 of them, got \[1, 2, 3\]"),
    ({"size": "224"}, "size must be one int or 2 of them, got '224'"),
    ({"size": 2.5}, "size must be one int or 2 of them, got 2.5"),
    ({"mean": [1, 2]}, r"mean must be one float or 3 of them, got \[1, 2\]"),
    ({"std": None}, "std must be one float or 3 of them, got None"),
    ({"size": 0}, "size and edge must be positive, got size"),
    ({"edge": -1}, "size and edge must be positive, got size .* and edge -1"),
    ({"edge": "256"}, "edge must be an integer, got '256'"),
    ({"fill": None}, "fill must be one int or 3 of them, got None"),
    ({"rescale": "1"}, "rescale must be a number, got '1'"),
    ({"std": 0}, "std and rescale must be positive"),
    ({"rescale": 0}, "std and rescale must be positive"),
    ({"resize": "crop"}, "resize must be one of 'shortest', 'longest', 'squash', got 'crop'"),
    ({"interpolation": ["a"]}, "interpolation must be one of 'nearest', .*, got"),
    ({"size": [2, 3]}, r"size \(2, 3\) is not square, which only resize='squash' supports"),
]


@pytest.mark.parametrize(("description", "message"), BAD)
def test_bad_descriptions(description, message):
    with pytest.raises(PreprocessingError, match=message):
        as_preprocessing(description)


@pytest.mark.parametrize(
    ("content", "message"), [("{", "cannot be read as JSON"), ("[1]", "expected a JSON object, got list")]
)
def test_bad_files(tmp_path, content, message):
    (tmp_path / "steps.json").write_text(content)
    with pytest.raises(PreprocessingError, match=f"steps.json: {message}"):
        as_preprocessing(tmp_path / "steps.json")


def test_a_missing_file(tmp_path):
    with pytest.raises(PreprocessingError, match=r"none\.json: cannot be read as JSON"):
        as_preprocessing(str(tmp_path / "none.json"))
