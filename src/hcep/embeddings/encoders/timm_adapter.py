"""Image models from timm: ``timm:vit_base_patch14_dinov2.lvd142m``, a checkpoint, a folder or a hub repository."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hcep._checks import require
from hcep.embeddings.encoders.function import FunctionEncoder
from hcep.embeddings.encoders.hub import loading
from hcep.embeddings.encoders.torch_runner import FOLDER, TorchRunner, is_place, timm_map, torch_encoder
from hcep.embeddings.preprocessing import Preprocessing, PreprocessingLike, as_preprocessing
from hcep.errors import HCEPError, near_matches, quote, quoted

_EXTRA = "timm"
_RESIZES = {"center": "shortest", "squash": "squash", "border": "longest"}


def load(model: str, runner: TorchRunner, preprocessing: PreprocessingLike | None = None) -> FunctionEncoder:
    """Load a timm model without its classifier; a vector is the classifier's input.

    A model is ``architecture.tag``, ``architecture/path-of-checkpoint``, ``local-dir:folder`` or ``hf-hub:owner/name``.
    """
    network = create(model)
    config = require("timm.data", _EXTRA, "this encoder").resolve_model_data_config(network)
    steps = as_preprocessing(preprocessing, _own_preprocessing(config))
    architecture = network.pretrained_cfg["architecture"]
    return torch_encoder(f"timm:{model}", runner, network, network, steps, architecture, maps=timm_map(network))


def create(model: str, with_classifier: bool = False) -> Any:
    """The network of a name, with or without its last layer."""
    timm = require("timm", _EXTRA, "this encoder")
    architecture, checkpoint = _parts(timm, model)
    options = {} if with_classifier else {"num_classes": 0}
    with loading(f"timm:{model}", local=checkpoint is not None or model.startswith(FOLDER)):
        network = timm.create_model(architecture, pretrained=checkpoint is None, **options)
        if checkpoint is not None:
            # The file may have more weights than the network, such as a classifier, but not fewer.
            missing = getattr(timm.models.load_checkpoint(network, checkpoint, strict=False), "missing_keys", ())
            if missing:
                raise HCEPError(
                    f"timm:{model}: the file lacks {len(missing)} of the model's weights, such as {quoted(missing, 2)}"
                )
    return network


def _parts(timm: Any, model: str) -> tuple[str, str | None]:
    if is_place("timm", model):
        return model, None
    architecture, slash, checkpoint = model.partition("/")
    if architecture.partition(".")[0] not in (known := timm.list_models()):
        raise HCEPError(f"timm has no architecture {quote(architecture)}.{near_matches(architecture, known)}")
    if slash and not Path(checkpoint).is_file():
        raise HCEPError(f"timm:{model}: no checkpoint {quote(checkpoint)}")
    if not slash and not timm.is_model_pretrained(architecture):
        tags = timm.list_pretrained(f"{architecture.partition('.')[0]}.*")
        raise HCEPError(f"timm has no weights {quote(architecture)}.{near_matches(architecture, tags)}")
    return architecture, checkpoint or None


def _own_preprocessing(config: Mapping[str, Any]) -> Preprocessing:
    _, height, width = config["input_size"]
    square = height == width
    return Preprocessing(
        size=(height, width),
        resize=_RESIZES[config["crop_mode"]] if square else "squash",
        edge=math.floor(height / config["crop_pct"]) if square else None,
        interpolation=config["interpolation"],
        mean=config["mean"],
        std=config["std"],
        fill=tuple(round(255 * value) for value in config["mean"]),
    )
