"""CLIP and SigLIP by open_clip: ``open_clip:ViT-L-14/openai``, a checkpoint, a folder, a hub repository."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcep.embeddings.encoders.extras import require
from hcep.embeddings.encoders.function import FunctionEncoder, TextFunction
from hcep.embeddings.encoders.hub import loading, quiet_root_logger
from hcep.embeddings.encoders.torch_runner import TorchRunner, weights_hash
from hcep.embeddings.preprocessing import Preprocessing, PreprocessingLike, as_preprocessing
from hcep.errors import HCEPError, near_matches, quoted

_log = logging.getLogger(__name__)
_EXTRA = "open-clip"
_FOLDER, _HUB = "local-dir:", "hf-hub:"


def load(
    model: str,
    *,
    device: str | None = None,
    precision: str | None = None,
    preprocessing: PreprocessingLike | None = None,
) -> FunctionEncoder:
    """Load an open_clip model; vectors are its image and text embeddings, not normalised.

    Parameters
    ----------
    model : str
        ``architecture/tag``, ``architecture/path-of-checkpoint``, ``local-dir:folder`` or ``hf-hub:owner/model``.
    device, precision : str, optional
        See `TorchRunner.choose`.
    preprocessing : Preprocessing, mapping, str or path-like, optional
        What differs from the model's own.

    Raises
    ------
    HCEPError
        When there is no such model, or it cannot be loaded.
    HubUnreachableError
        When it would have to be fetched and cannot be.
    MissingExtraError
        When open_clip is not installed.
    """
    open_clip = require("open_clip", _EXTRA)
    runner = TorchRunner.choose(device, precision, _EXTRA)
    name = f"open_clip:{model}"
    architecture, weights = _parts(open_clip, model)
    quick_gelu = _trained_with_quick_gelu(open_clip, architecture, weights)
    with loading(name, local=_is_local(model, weights)), quiet_root_logger():
        network = open_clip.create_model(
            architecture, weights, force_quick_gelu=quick_gelu, require_pretrained=True, weights_only=True
        )
        config = {**open_clip.get_model_config(architecture), **({"quick_gelu": True} if quick_gelu else {})}
    network = runner.settle(network)

    def images(batch: NDArray[np.float32]) -> NDArray[np.float32]:
        return runner.run(network.encode_image, batch)

    texts, problem = _text_function(open_clip, architecture, network, runner)
    return FunctionEncoder(
        images,
        name=name,
        preprocessing=as_preprocessing(preprocessing, _own_preprocessing(network.visual.preprocess_cfg)),
        fingerprint=weights_hash(network, config),
        texts=texts,
        no_texts_because=problem,
    )


def _parts(open_clip: Any, model: str) -> tuple[str, str | None]:
    """What open_clip calls the model's name, and its ``pretrained``."""
    if model.startswith(_FOLDER) and not Path(model.removeprefix(_FOLDER)).is_dir():
        raise HCEPError(f"open_clip:{model}: no such folder")
    if model.startswith((_FOLDER, _HUB)):
        return model, None
    architecture, _, weights = model.partition("/")
    known = open_clip.list_models()
    if architecture not in known:
        raise HCEPError(f"open_clip has no architecture {architecture!r}.{near_matches(architecture, known)}")
    tags = open_clip.list_pretrained_tags_by_model(architecture)
    if weights not in tags and not Path(weights).is_file():
        raise HCEPError(
            f"open_clip:{architecture} needs one of its tags ({quoted(tags, limit=8) or 'it has none'}) or the path of "
            f"a checkpoint after the slash, got {weights!r}.{near_matches(weights, tags)}"
        )
    return architecture, weights


def _is_local(model: str, weights: str | None) -> bool:
    return model.startswith(_FOLDER) or (weights is not None and Path(weights).is_file())


def _trained_with_quick_gelu(open_clip: Any, architecture: str, weights: str | None) -> bool:
    """Whether the tag's weights need the activation of OpenAI's models.

    open_clip builds its ``ViT-L-14`` without it; for the tag ``openai`` it only warns that the two do not match.
    """
    return weights is not None and bool(open_clip.get_pretrained_cfg(architecture, weights).get("quick_gelu", False))


def _text_function(
    open_clip: Any, architecture: str, network: Any, runner: TorchRunner
) -> tuple[TextFunction | None, str]:
    """The text tower, or why there is none: a tokenizer may sit on a hub of its own."""
    try:
        with loading(f"the tokenizer of {architecture}", local=architecture.startswith(_FOLDER)), quiet_root_logger():
            tokenizer = open_clip.get_tokenizer(architecture)
    except HCEPError as error:
        _log.warning("texts cannot be encoded: %s", error)
        return None, str(error)

    def texts(few: Sequence[str]) -> NDArray[np.float32]:
        return runner.run(network.encode_text, tokenizer(list(few)))

    return texts, ""


def _own_preprocessing(config: Mapping[str, Any]) -> Preprocessing:
    # 'random' is a choice for training; open_clip itself takes bicubic for inference.
    bilinear = config["interpolation"] == "bilinear"
    return Preprocessing(
        size=config["size"],
        resize=config["resize_mode"],
        interpolation="bilinear" if bilinear else "bicubic",
        mean=config["mean"],
        std=config["std"],
        fill=config["fill_color"],
    )
