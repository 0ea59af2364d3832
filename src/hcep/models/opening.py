"""Turn the last layer of a classifying network into a model of rooted paths; the built-in model is made this way."""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

import hcep
from hcep._checks import require
from hcep._files import cache_folder
from hcep.embeddings.encoders import DEFAULT as BUILT_IN
from hcep.errors import HCEPError, quote, quoted
from hcep.hierarchy import Hierarchy
from hcep.models.loading import SavedModel, read_model

if TYPE_CHECKING:
    from hcep.classify import HCEPClassifier
    from hcep.embeddings import Encoder

#: Version of the way in which the built-in model is made; a new number replaces the one in the cache.
VERSION = 9
_log = logging.getLogger(__name__)


class LinearHead(NamedTuple):
    """The last layer of a network, ``x @ coef.T + intercept``; in an ONNX file x is the tensor `features`."""

    coef: NDArray[Any]
    intercept: NDArray[Any]
    features: str = ""


def builtin_model() -> SavedModel:
    """ImageNet's classes in WordNet, from the built-in encoder's last layer; built on first use, then cached."""
    from hcep.embeddings import load_encoder
    from hcep.embeddings.encoders.efficientnet_lite import weights_hash
    from hcep.hierarchy.imagenet import everyday_changes

    tree = sha256(everyday_changes().encode()).hexdigest()[:16]
    folder = cache_folder("models", f"imagenet-{weights_hash(BUILT_IN)}-{tree}-{hcep.__version__}-{VERSION}")
    if not (folder / "model.json").exists():
        from hcep.models.saving import save_model  # loads scikit-learn, which explaining a photo does without

        _log.warning("opening the built-in classifier, first run only ...")
        encoder = load_encoder(BUILT_IN)
        model = open_encoder(encoder)
        save_model(
            model, folder, encoder=encoder, data="ImageNet-1k, through the encoder's own last layer", name="imagenet"
        )
    return read_model(folder)


def open_encoder(
    encoder: Encoder | str,
    *,
    head: LinearHead | None = None,
    classes: Sequence[str] | None = None,
    hierarchy: Hierarchy | None = None,
    images: ArrayLike | None = None,
    **options: Any,
) -> HCEPClassifier:
    """Build a classifier from the last layer of an encoder's network.

    Parameters
    ----------
    encoder : an encoder or its name
    head : the layer, if it is not to be read from the encoder
    classes : labels in the layer's order; ImageNet's by default, if there are a thousand
    hierarchy : hierarchy above the classes; `hcep.hierarchy.imagenet.everyday_hierarchy` by default for ImageNet's
    images : embeddings of typical images, which set the scale and choose the anchor; by default those of the bundled
        sample, for the encoder that made it
    **options : options of `hcep.classify.linear_head.open_linear_head`
    """
    from hcep.classify.linear_head import open_linear_head
    from hcep.datasets import load_sample
    from hcep.hierarchy.imagenet import everyday_hierarchy, imagenet_classes

    name = encoder if isinstance(encoder, str) else encoder.name
    layer = head or linear_head(name)
    if classes is None:
        if len(layer.coef) != len(imagenet_classes()):
            raise HCEPError(f"{name}: its last layer has {len(layer.coef):,} classes; name them with classes=")
        classes = imagenet_classes()
        if name == BUILT_IN and "temperature" not in options:
            options["temperature"] = builtin_calibration()["temperature"]
    if hierarchy is None and set(classes) <= set(imagenet_classes()):
        hierarchy = everyday_hierarchy()
    if images is None and name == BUILT_IN:
        images = load_sample().X_train
    return open_linear_head(layer.coef, layer.intercept, classes, hierarchy, images=images, **options)


def builtin_calibration() -> dict[str, Any]:
    """The temperature of the built-in classifier's logits, and the images that it was fitted on."""
    return tomllib.loads(Path(__file__).with_name("builtin.toml").read_text("utf-8"))


def linear_head(name: str) -> LinearHead:
    """The last layer of a built-in or timm encoder, or of an ONNX, .pth or .npz file."""
    from hcep.embeddings.encoders.efficientnet_lite import weights_file

    source, _, model = name.partition(":")
    if source.startswith("efficientnet-lite"):
        return _state_head(weights_file(source))
    if source == "timm":
        return _timm_head(model)
    path = Path(model if source == "onnx" else name)
    readers = {".onnx": _onnx_head, ".npz": _array_head, ".pth": _state_head, ".pt": _state_head}
    if path.suffix in readers and path.is_file():
        return readers[path.suffix](path)
    raise HCEPError(
        f"{quote(name)} has no classifier that can be opened: expected {BUILT_IN!r}, timm:…, an ONNX file or a .pth "
        "state dict that ends in a linear layer, or an .npz file with coef and intercept"
    )


def _timm_head(model: str) -> LinearHead:
    from hcep.embeddings.encoders.timm_adapter import create

    layer = create(model, with_classifier=True).get_classifier()
    if type(layer).__name__ != "Linear":
        raise HCEPError(f"timm:{model}: its classifier is a {type(layer).__name__}, not a linear layer")
    bias = np.zeros(layer.out_features) if layer.bias is None else layer.bias.detach().numpy()
    return LinearHead(layer.weight.detach().numpy(), bias)


def _onnx_head(path: Path) -> LinearHead:
    """The weights of the Gemm, or of the MatMul and Add, that computes an output with two axes."""
    onnx = require("onnx", "photos", "opening an ONNX file")
    graph = onnx.load_model(path).graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    makers = {output: node for node in graph.node for output in node.output}
    for output in graph.output:
        node = makers.get(output.name)
        if node is not None and node.op_type == "Softmax":
            node = makers.get(node.input[0])
        bias = None
        if node is not None and node.op_type == "Add":
            bias = next((name for name in node.input if name in constants), None)
            node = next((makers[name] for name in node.input if name in makers), None)
        if node is None or node.op_type not in ("Gemm", "MatMul") or node.input[1] not in constants:
            continue
        weight = onnx.numpy_helper.to_array(constants[node.input[1]])
        transposed = any(a.name == "transB" and a.i for a in node.attribute)
        bias = node.input[2] if node.op_type == "Gemm" and len(node.input) > 2 else bias
        coef = weight if transposed else weight.T
        offset = np.zeros(len(coef)) if bias not in constants else onnx.numpy_helper.to_array(constants[bias])
        vectors = [o.name for o in graph.output if len(o.type.tensor_type.shape.dim) == 2]
        return LinearHead(coef, offset.reshape(-1), "" if node.input[0] == vectors[0] else str(node.input[0]))
    outputs = quoted(o.name for o in graph.output)
    raise HCEPError(f"{str(path)!r} does not end in a linear layer; its outputs are {outputs}")


def _state_head(path: Path) -> LinearHead:
    """The last linear layer of a state dict, such as those of torchvision's networks."""
    from hcep.embeddings.torch_file import read_torch_file

    state = read_torch_file(path)
    state = next((state[key] for key in ("state_dict", "model") if key in state), state)
    layers = [key.removesuffix(".weight") for key in state if key.endswith(".weight") and np.ndim(state[key]) == 2]
    if not layers:
        raise HCEPError(f"{str(path)!r} is not a state dict that ends in a linear layer")
    coef = state[f"{layers[-1]}.weight"]
    return LinearHead(coef, state.get(f"{layers[-1]}.bias", np.zeros(len(coef))))


def _array_head(path: Path) -> LinearHead:
    with np.load(path, allow_pickle=False) as archive:
        if not {"coef", "intercept"} <= set(archive.files):
            raise HCEPError(f"{str(path)!r} must hold the arrays coef and intercept, it has {quoted(archive.files)}")
        return LinearHead(archive["coef"], archive["intercept"])
