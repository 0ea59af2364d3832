"""Device, precision and weights; a GPU is pretended where a choice depends on one."""

import numpy as np
import pytest

from hcep.embeddings.encoders.torch_runner import TorchRunner, torch_encoder, weights_hash
from hcep.embeddings.preprocessing import Preprocessing
from hcep.errors import HCEPError

torch = pytest.importorskip("torch", reason="torch is not installed")


@pytest.fixture
def a_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def choice(device=None, precision=None):
    runner = TorchRunner.choose(device, precision)
    return str(runner.device), runner.precision


def test_without_a_gpu(no_gpu):
    assert choice() == ("cpu", "fp32")
    assert choice("cpu", "fp32") == ("cpu", "fp32")


def test_with_a_gpu(a_gpu):
    assert choice() == ("cuda", "fp16")
    assert choice("cuda:1", "bf16") == ("cuda:1", "bf16")
    assert choice("cuda", "fp32") == ("cuda", "fp32")
    assert choice("cpu") == ("cpu", "fp32")


@pytest.mark.parametrize(
    ("device", "precision", "message"),
    [
        ("gpu", None, "device must be 'cpu', 'cuda' or another device of torch, got 'gpu'"),
        ("cuda", None, "device 'cuda': torch finds no CUDA device; leave out device, or give 'cpu'"),
        (None, "half", "precision must be 'fp32', 'fp16' or 'bf16', got 'half'"),
        (None, "fp61", "got 'fp61'. Near matches: 'fp16'"),
        ("cpu", "fp16", "precision 'fp16' needs a CUDA device, but the device is 'cpu'; leave out precision"),
    ],
)
def test_impossible_choices(no_gpu, device, precision, message):
    with pytest.raises(HCEPError, match=message):
        TorchRunner.choose(device, precision)


@pytest.mark.parametrize(("precision", "calls"), [("fp32", []), ("fp16", [torch.float16]), ("bf16", [torch.bfloat16])])
def test_autocast_is_for_less_than_full_precision(monkeypatch, precision, calls):
    found = []
    autocast = torch.autocast

    def recorded(device, *, dtype):
        found.append(dtype)
        return autocast("cpu", dtype=torch.bfloat16)

    monkeypatch.setattr(torch, "autocast", recorded)
    runner = TorchRunner(torch, torch.device("cpu"), precision)
    vectors = runner.run(torch.nn.Linear(3, 2), np.ones((1, 3), dtype=np.float32))
    assert found == calls
    assert vectors.dtype == np.float32


def test_a_run_needs_no_gradients_and_sets_evaluation_mode():
    runner = TorchRunner.choose("cpu", None)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Dropout(0.5), torch.nn.Linear(12, 2).half())
    encoder = torch_encoder("tiny", runner, model, model, preprocessing=Preprocessing(size=2), architecture="")
    assert not model.training
    assert model[2].weight.dtype == torch.float32
    batch = np.ones((4, 3, 2, 2), dtype=np.float32)
    np.testing.assert_array_equal(encoder.encode_images(batch), encoder.encode_images(batch))


class Renamed(torch.nn.Module):
    """A linear layer's parameters under another name, and a buffer of positions."""

    def __init__(self, layer):
        super().__init__()
        self.projection, self.offset = layer.weight, layer.bias
        self.register_buffer("positions", torch.arange(3))


def test_weights_count_by_content():
    first, second = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    assert weights_hash(first, "a") == weights_hash(Renamed(first), "a")
    assert weights_hash(first, "a") != weights_hash(second, "a")
    assert weights_hash(first, "a") != weights_hash(first, "b")
    assert weights_hash(first.half(), "a") == weights_hash(first.float(), "a")
