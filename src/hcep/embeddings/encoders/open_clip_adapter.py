"""CLIP and SigLIP from open_clip: ``open_clip:ViT-L-14/openai``, a checkpoint, a folder or a hub repository."""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from hcep.embeddings.encoders import torch_runner
from hcep.embeddings.encoders.function import FunctionEncoder
from hcep.embeddings.encoders.hub import loading, quiet_root_logger
from hcep.embeddings.preprocessing import Preprocessing, PreprocessingLike, as_preprocessing
from hcep.errors import HCEPError, near_matches, quote, quoted


def load(
    model: str, runner: torch_runner.TorchRunner, preprocessing: PreprocessingLike | None = None
) -> FunctionEncoder:
    """Load an open_clip model; vectors are its image and text embeddings, which are not normalised.

    A model is ``architecture/tag``, ``architecture/path-of-checkpoint``, ``local-dir:folder`` or ``hf-hub:owner/name``.
    """
    open_clip: Any = import_module("open_clip")
    name = f"open_clip:{model}"
    architecture, weights = _parts(open_clip, model)
    quick_gelu = _trained_with_quick_gelu(open_clip, architecture, weights)
    in_folder = model.startswith(torch_runner.FOLDER)
    with quiet_root_logger():
        with loading(name, local=in_folder or (weights is not None and Path(weights).is_file())):
            network = open_clip.create_model(
                architecture, weights, force_quick_gelu=quick_gelu, require_pretrained=True, weights_only=True
            )
            config = {**open_clip.get_model_config(architecture), **({"quick_gelu": True} if quick_gelu else {})}
        texts = torch_runner.text_tower(
            architecture,
            in_folder,
            lambda: open_clip.get_tokenizer(architecture),
            lambda tokenizer, few: runner.run(network.encode_text, tokenizer(few)),
        )
    steps = as_preprocessing(preprocessing, _own_preprocessing(network.visual.preprocess_cfg))
    maps = _maps(network.visual)
    return torch_runner.torch_encoder(name, runner, network, network.encode_image, steps, config, texts, maps)


def _maps(tower: Any) -> torch_runner.Forward | None:
    """Feature maps of an image tower, if it is a timm network or open_clip's own transformer."""
    if hasattr(tower, "trunk"):
        return torch_runner.timm_map(tower.trunk, tower.head)
    if not hasattr(tower, "transformer"):
        return None

    def head(alone: Any) -> Any:
        pooled, _ = tower._pool(alone)
        return pooled if tower.proj is None else pooled @ tower.proj

    def forward(pixels: Any) -> Any:
        last = tower.forward_intermediates(pixels, indices=1, intermediates_only=True)["image_intermediates"][-1]
        return torch_runner.tokens_map(last.flatten(2).mT, pixels, head, 1)

    return forward


def _parts(open_clip: Any, model: str) -> tuple[str, str | None]:
    """The arguments ``model_name`` and ``pretrained`` of open_clip."""
    if torch_runner.is_place("open_clip", model):
        return model, None
    architecture, _, weights = model.partition("/")
    known = open_clip.list_models()
    if architecture not in known:
        raise HCEPError(f"open_clip has no architecture {quote(architecture)}.{near_matches(architecture, known)}")
    tags = open_clip.list_pretrained_tags_by_model(architecture)
    if weights not in tags and not Path(weights).is_file():
        raise HCEPError(
            f"open_clip:{architecture} needs one of its tags ({quoted(tags, limit=8) or 'it has none'}) or the path of "
            f"a checkpoint after the slash, got {quote(weights)}.{near_matches(weights, tags)}"
        )
    return architecture, weights


def _trained_with_quick_gelu(open_clip: Any, architecture: str, weights: str | None) -> bool:
    """Whether the tag's weights need the activation of OpenAI's models.

    open_clip builds its ``ViT-L-14`` without it; for the tag ``openai`` it only warns that the two do not match.
    """
    return weights is not None and bool(open_clip.get_pretrained_cfg(architecture, weights).get("quick_gelu", False))


def _own_preprocessing(config: Mapping[str, Any]) -> Preprocessing:
    # 'random' is for training; open_clip itself uses bicubic for inference.
    bilinear = config["interpolation"] == "bilinear"
    return Preprocessing(
        size=config["size"],
        resize=config["resize_mode"],
        interpolation="bilinear" if bilinear else "bicubic",
        mean=config["mean"],
        std=config["std"],
        fill=config["fill_color"],
    )
