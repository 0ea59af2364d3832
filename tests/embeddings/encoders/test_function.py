"""The encoder class on plain functions: what it checks, and what its fingerprint follows."""

import numpy as np
import pytest

from hcep.embeddings import Encoder
from hcep.embeddings.encoders import FunctionEncoder, load_encoder
from hcep.errors import HCEPError

MODULE = """
import numpy as np

n_dims = 3


def mean_colour(batch):
    return batch.mean(axis=(2, 3))
"""


def mean_colour(batch):
    return batch.mean(axis=(2, 3))


def brightest(batch):
    return batch.max(axis=(2, 3))


class Lengths:
    """A callable without a name of its own; texts become their lengths."""

    def __init__(self, n_dims=3):
        self.n_dims = n_dims

    def __call__(self, batch):
        return [[0.5] * self.n_dims] * len(batch)

    def of_texts(self, texts):
        return [[len(text)] * self.n_dims for text in texts]


@pytest.fixture
def small():
    return load_encoder(mean_colour, preprocessing={"size": 8})


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module that can be imported, with a function and a number."""
    (tmp_path / "my_encoder.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)


def test_it_is_an_encoder(small, picture):
    assert isinstance(small, Encoder)
    assert small.name.startswith("function:")
    assert small.name.endswith(":mean_colour")
    found = small.encode_images(np.stack([small.preprocess(picture)] * 2))
    assert found.shape == (2, 3)
    assert found.dtype == np.float32


def test_a_function_is_loaded_by_its_path(module, picture):
    encoder = load_encoder("function:my_encoder:mean_colour", preprocessing={"size": 8}, fingerprint="1")
    assert encoder.name == "function:my_encoder:mean_colour"
    assert encoder.n_dims == 3


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("my_encoder:median", "no function at 'my_encoder:median', expected package.module:attribute .* 'median'"),
        ("no_such_module:f", "no function at 'no_such_module:f'.*No module named"),
        ("my_encoder", "no function at 'my_encoder'"),
        (":f", "no function at ':f'"),
        ("my_encoder:n_dims", "'my_encoder:n_dims' is a int, not a function of a batch"),
    ],
)
def test_a_path_without_a_function_is_refused(module, path, message):
    with pytest.raises(HCEPError, match=message):
        load_encoder(f"function:{path}")


@pytest.mark.parametrize("what", ["function:my_encoder:mean_colour", mean_colour])
@pytest.mark.parametrize("options", [{"device": "cpu"}, {"precision": "fp32"}])
def test_device_and_precision_are_refused(module, what, options):
    with pytest.raises(HCEPError, match="device and precision do not apply to"):
        load_encoder(what, **options)


def test_options_of_a_function():
    encoder = load_encoder(Lengths(), texts=Lengths().of_texts, fingerprint="v1")
    assert encoder.has_text
    with pytest.raises(HCEPError, match=r"a function has no option 'text', it has .* Near matches: 'texts'"):
        load_encoder(Lengths(), text=len)


def test_a_callable_without_a_name():
    assert load_encoder(Lengths()).name.endswith(":Lengths")


def test_texts_in_pieces():
    encoder = FunctionEncoder(Lengths(), name="lengths", texts=Lengths().of_texts)
    texts = ["x" * (i % 7) for i in range(200)]
    assert encoder.encode_texts(texts)[:, 0].tolist() == [len(text) for text in texts]
    assert encoder.encode_texts([]).shape == (0, 3)


def test_one_string_is_not_a_list_of_texts():
    with pytest.raises(HCEPError, match="texts must be a list of strings, got one string 'a cat'"):
        FunctionEncoder(Lengths(), name="lengths", texts=Lengths().of_texts).encode_texts("a cat")


def test_without_texts(small):
    with pytest.raises(HCEPError, match="mean_colour' cannot encode texts: the model has no text tower"):
        small.encode_texts(["a cat"])


def test_fingerprints_follow_code_preprocessing_and_what_is_given():
    prints = [
        load_encoder(mean_colour),
        load_encoder(brightest),
        load_encoder(mean_colour, preprocessing={"size": 8}),
        load_encoder(mean_colour, fingerprint="weights of May"),
        load_encoder(mean_colour, fingerprint="weights of June"),
    ]
    assert len({encoder.fingerprint for encoder in prints}) == len(prints)
    assert load_encoder(mean_colour).fingerprint == prints[0].fingerprint


@pytest.mark.parametrize("shape", [(3, 8, 8), (2, 3, 9, 8), (2, 8, 8, 3), (4,)])
def test_batches_of_another_shape(small, shape):
    with pytest.raises(HCEPError, match=r"batch must have the shape \(n, 3, 8, 8\) of preprocessed images, got"):
        small.encode_images(np.zeros(shape, dtype=np.float32))


def test_an_empty_batch(small):
    assert small.encode_images(np.zeros((0, 3, 8, 8), dtype=np.float32)).shape == (0, 3)


def test_the_function_may_write_into_its_batch(small):
    def overwrite(batch):
        batch -= 1
        return batch.mean(axis=(2, 3))

    batch = np.ones((1, 3, 8, 8), dtype=np.float32)
    batch.flags.writeable = False
    assert load_encoder(overwrite, preprocessing={"size": 8}).encode_images(batch).tolist() == [[0, 0, 0]]
    assert batch.min() == 1


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda batch: batch, r"must return \(n, n_dims\) vectors, got \(1, 3, 8, 8\) for one image"),
        (lambda batch: [1.0, 2.0], r"must return \(n, n_dims\) vectors, got \(2,\) for one image"),
        (lambda batch: 1 / 0, r"fails on a blank \(1, 3, 8, 8\) batch: division by zero"),
    ],
)
def test_functions_that_are_not_encoders_are_refused(function, message):
    with pytest.raises(HCEPError, match=message):
        FunctionEncoder(function, name="odd", preprocessing={"size": 8})


def test_an_error_about_the_input_is_left_as_it_is():
    def refuse(batch):
        raise HCEPError("not today")

    with pytest.raises(HCEPError, match=r"^not today$"):
        FunctionEncoder(refuse, name="odd")


def test_a_wrong_number_of_vectors_is_refused():
    encoder = FunctionEncoder(lambda batch: np.zeros((len(batch) ** 2, 3)), name="odd", preprocessing={"size": 8})
    with pytest.raises(HCEPError, match=r"encoder 'odd' returned \(4, 3\) for 2 images, not \(2, 3\)"):
        encoder.encode_images(np.zeros((2, 3, 8, 8), dtype=np.float32))


def test_vectors_that_are_not_finite():
    encoder = FunctionEncoder(mean_colour, name="odd", preprocessing={"size": 8})
    batch = np.zeros((3, 3, 8, 8), dtype=np.float32)
    batch[1] = np.nan
    with pytest.raises(
        HCEPError, match="1 of 3 images got a vector that is not finite; if the precision is 'fp16', try"
    ):
        encoder.encode_images(batch)


@pytest.mark.parametrize(
    ("maps", "expected"),
    [
        (lambda batch: batch, (True, True)),
        (lambda batch: batch + 1, (True, False)),
        (lambda batch: batch[:, :2], (False, False)),
        (lambda batch: 1 / 0, (False, False)),
    ],
    ids=["mean", "other", "wrong shape", "fails"],
)
def test_maps_are_tested_at_their_first_use(maps, expected):
    runs = []

    def counted(batch):
        runs.append(len(batch))
        return maps(batch)

    encoder = FunctionEncoder(
        lambda batch: batch.mean(axis=(2, 3)), name="mean", preprocessing={"size": 8}, maps=counted, maps_are_exact=None
    )
    assert runs == []
    assert (encoder.has_maps, encoder.maps_are_exact) == expected
    assert runs == [1]
