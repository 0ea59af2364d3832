"""CLIP and SigLIP by transformers: ``transformers:google/siglip-base-patch16-224`` or a folder."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from hcep.embeddings.encoders.extras import require
from hcep.embeddings.encoders.function import FunctionEncoder, TextFunction
from hcep.embeddings.encoders.hub import loading
from hcep.embeddings.encoders.torch_runner import TorchRunner, weights_hash
from hcep.embeddings.preprocessing import Preprocessing, PreprocessingLike, as_preprocessing
from hcep.errors import HCEPError

_log = logging.getLogger(__name__)
_EXTRA = "transformers"
# What decides a vector beside the weights, in either tower's configuration.
_FACTS = ("model_type", "hidden_act", "layer_norm_eps", "num_attention_heads", "patch_size")


def load(
    model: str,
    *,
    device: str | None = None,
    precision: str | None = None,
    preprocessing: PreprocessingLike | None = None,
    revision: str | None = None,
) -> FunctionEncoder:
    """Load a model with image embeddings (CLIP, SigLIP and their kin); vectors are not normalised.

    Parameters
    ----------
    model : str
        Folder, or the hub's ``owner/model``.
    device, precision : str, optional
        See `TorchRunner.choose`.
    preprocessing : Preprocessing, mapping, str or path-like, optional
        What differs from the model's own.
    revision : str, optional
        Branch, tag or commit on the hub.

    Raises
    ------
    HCEPError
        When there is no such model, it has no image embeddings, or it cannot be loaded.
    HubUnreachableError
        When it would have to be fetched and cannot be.
    MissingExtraError
        When transformers is not installed.
    """
    transformers = require("transformers", _EXTRA)
    runner = TorchRunner.choose(device, precision, _EXTRA)
    name = f"transformers:{model}"
    folder = Path(model).is_dir()
    where = {"local_files_only": folder, "revision": revision or "main"}
    with loading(name, local=folder):
        config = transformers.AutoConfig.from_pretrained(model, **where)
        network = transformers.AutoModel.from_pretrained(model, config=config, **where)
        steps = _own_preprocessing(name, transformers.AutoImageProcessor.from_pretrained(model, **where).to_dict())
    if not hasattr(network, "get_image_features"):
        raise HCEPError(f"{name} is a {type(network).__name__}, without image embeddings; try timm: or onnx: for it")
    network = runner.settle(network)

    def images(batch: NDArray[np.float32]) -> NDArray[np.float32]:
        return runner.run(lambda pixels: _vectors(network.get_image_features(pixel_values=pixels)), batch)

    texts, problem = _text_function(transformers, model, where, network, runner)
    return FunctionEncoder(
        images,
        name=name,
        preprocessing=as_preprocessing(preprocessing, steps),
        fingerprint=weights_hash(network, _facts(config)),
        texts=texts,
        no_texts_because=problem,
    )


def _vectors(found: Any) -> Any:
    """The embeddings: what transformers 4 returns, and what transformers 5 wraps in an output object."""
    return getattr(found, "pooler_output", found)


def _text_function(
    transformers: Any, model: str, where: Mapping[str, Any], network: Any, runner: TorchRunner
) -> tuple[TextFunction | None, str]:
    """The text tower, or why there is none; a folder without a tokenizer still encodes images."""
    try:
        with loading(f"the tokenizer of {model}", local=bool(where["local_files_only"])):
            tokenizer = transformers.AutoTokenizer.from_pretrained(model, **where)
    except HCEPError as error:
        _log.warning("texts cannot be encoded: %s", error)
        return None, str(error)
    length = network.config.text_config.max_position_embeddings

    def texts(few: Sequence[str]) -> NDArray[np.float32]:
        # SigLIP was trained on texts padded to full length and without a mask; CLIP gives the same either way.
        tokens = tokenizer(list(few), padding="max_length", truncation=True, max_length=length, return_tensors="pt")
        names = [key for key in ("input_ids", "attention_mask") if key in tokens]
        return runner.run(
            lambda *given: _vectors(network.get_text_features(**dict(zip(names, given, strict=True)))),
            *(tokens[key] for key in names),
        )

    return texts, ""


def _facts(config: Any) -> dict[str, Any]:
    towers = {"text": getattr(config, "text_config", None), "vision": getattr(config, "vision_config", None)}
    return {f"{tower}.{key}": getattr(part, key, None) for tower, part in towers.items() for key in _FACTS}


def _own_preprocessing(name: str, config: Mapping[str, Any]) -> Preprocessing:
    """Read an image processor's configuration."""
    size = config.get("size")
    square = isinstance(size, int) or (isinstance(size, Mapping) and "shortest_edge" in size)
    if not square and not (isinstance(size, Mapping) and {"height", "width"} <= set(size)):
        raise HCEPError(f"{name}: images of a fixed size are needed, its processor has size {size!r}")
    cropped = config.get("crop_size") if config.get("do_center_crop") else None
    final = _pair(cropped if cropped is not None else size)
    scaled = config.get("do_rescale", True)
    normalised = config.get("do_normalize", True)
    return Preprocessing(
        size=final,
        resize="shortest" if square else "squash",
        edge=_edge(size, final),
        interpolation=Image.Resampling(config.get("resample") or 3).name.lower(),
        rescale=float(config.get("rescale_factor") or 1 / 255) if scaled else 1.0,
        mean=config["image_mean"] if normalised else (0.0, 0.0, 0.0),
        std=config["image_std"] if normalised else (1.0, 1.0, 1.0),
    )


def _pair(size: Any) -> tuple[int, int]:
    if isinstance(size, int):
        return size, size
    if "shortest_edge" in size:
        return int(size["shortest_edge"]), int(size["shortest_edge"])
    return int(size["height"]), int(size["width"])


def _edge(size: Any, final: tuple[int, int]) -> int | None:
    scaled = _pair(size)
    return None if scaled == final else scaled[0]
