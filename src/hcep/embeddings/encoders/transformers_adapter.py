"""CLIP and SigLIP from transformers: ``transformers:google/siglip-base-patch16-224`` or a folder."""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from hcep.embeddings.encoders.function import FunctionEncoder
from hcep.embeddings.encoders.hub import loading
from hcep.embeddings.encoders.torch_runner import Forward, TorchRunner, text_tower, tokens_map, torch_encoder
from hcep.embeddings.preprocessing import Preprocessing, PreprocessingLike, as_preprocessing
from hcep.errors import HCEPError, quote

# Configuration of either tower that determines a vector, besides the weights.
_FACTS = ("model_type", "hidden_act", "layer_norm_eps", "num_attention_heads", "patch_size")


def load(
    model: str, runner: TorchRunner, preprocessing: PreprocessingLike | None = None, *, revision: str | None = None
) -> FunctionEncoder:
    """Load a model with image embeddings (CLIP, SigLIP and similar ones); vectors are not normalised.

    `model` is a folder, or ``owner/model`` on the hub, of which `revision` is a branch, tag or commit.
    """
    transformers: Any = import_module("transformers")
    name = f"transformers:{model}"
    folder = Path(model).is_dir()
    # Code of a repository never runs; without the last option, transformers would ask on the terminal whether it may.
    where = {"local_files_only": folder, "revision": revision or "main", "trust_remote_code": False}
    with loading(name, local=folder):
        config = transformers.AutoConfig.from_pretrained(model, **where)
        network = transformers.AutoModel.from_pretrained(model, config=config, **where)
        steps = _own_preprocessing(name, transformers.AutoImageProcessor.from_pretrained(model, **where).to_dict())
    if not hasattr(network, "get_image_features"):
        raise HCEPError(f"{name} is a {type(network).__name__}, which gives no image embeddings; try timm: or onnx:")
    length = network.config.text_config.max_position_embeddings if hasattr(network, "get_text_features") else None

    def images(pixels: Any) -> Any:
        return _vectors(network.get_image_features(pixel_values=pixels))

    def encode(tokenizer: Any, texts: list[str]) -> NDArray[np.float32]:
        # SigLIP was trained on texts padded to full length, without a mask; CLIP gives the same either way.
        tokens = tokenizer(texts, padding="max_length", truncation=True, max_length=length, return_tensors="pt")
        names = [key for key in ("input_ids", "attention_mask") if key in tokens]

        def forward(*arrays: Any) -> Any:
            return _vectors(network.get_text_features(**dict(zip(names, arrays, strict=True))))

        return runner.run(forward, *(tokens[key] for key in names))

    towers = {tower: getattr(config, f"{tower}_config", None) for tower in ("text", "vision")}
    facts = {f"{name}.{key}": getattr(tower, key, None) for name, tower in towers.items() for key in _FACTS}
    texts = text_tower(model, folder, lambda: transformers.AutoTokenizer.from_pretrained(model, **where), encode)
    steps = as_preprocessing(preprocessing, steps)
    return torch_encoder(name, runner, network, images, steps, facts, texts, _maps(network))


def _maps(network: Any) -> Forward | None:
    """Feature maps of CLIP, which projects its class token, and of SigLIP, which pools by attention."""
    tower: Any = getattr(network, "vision_model", None)
    pooling: Any = getattr(tower, "head", None)
    projection: Any = getattr(network, "visual_projection", None)
    if pooling is not None and projection is None:
        return lambda pixels: tokens_map(tower(pixel_values=pixels).last_hidden_state, pixels, pooling)
    if projection is None or not hasattr(tower, "post_layernorm"):
        return None

    def head(alone: Any) -> Any:
        return projection(tower.post_layernorm(alone[:, 0]))

    return lambda pixels: tokens_map(tower(pixel_values=pixels).last_hidden_state[:, 1:], pixels, head)


def _vectors(output: Any) -> Any:
    """The embeddings: transformers 4 returns them, transformers 5 wraps them in an output object."""
    return getattr(output, "pooler_output", output)


def _own_preprocessing(name: str, config: Mapping[str, Any]) -> Preprocessing:
    size = config.get("size")
    square = isinstance(size, int) or (isinstance(size, Mapping) and "shortest_edge" in size)
    if not square and not (isinstance(size, Mapping) and {"height", "width"} <= set(size)):
        raise HCEPError(f"{name}: its processor must make images of a fixed size, got size {quote(size)}")
    cropped = config.get("crop_size") if config.get("do_center_crop") else None
    final = _pair(cropped if cropped is not None else size)
    scaled = config.get("do_rescale", True)
    normalised = config.get("do_normalize", True)
    return Preprocessing(
        size=final,
        resize="shortest" if square else "squash",
        edge=None if _pair(size) == final else _pair(size)[0],
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
