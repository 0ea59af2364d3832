"""ONNX files, run by onnxruntime: ``onnx:models/encoder.onnx``."""

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcep._checks import is_installed, require
from hcep.embeddings.encoders.function import FunctionEncoder, ImageFunction
from hcep.embeddings.encoders.hub import loading
from hcep.embeddings.images import content_hash
from hcep.embeddings.preprocessing import PRESETS, Preprocessing, PreprocessingLike, as_preprocessing, read_json_object
from hcep.errors import HCEPError, near_matches, quoted

_TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
_DEVICES = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
_KEYS = ("preprocessing", "output")
#: A larger file is not searched for its feature map, because it would be in memory twice.
MAX_MAPPED = 1 << 30


def load(
    model: str,
    *,
    device: str | None = None,
    precision: str | None = None,
    preprocessing: PreprocessingLike | None = None,
    output: str | None = None,
    threads: int | None = None,
) -> FunctionEncoder:
    """Load an ONNX file that takes images (n, 3, height, width) and returns vectors (n, n_dims).

    Parameters
    ----------
    model : path of the file. A JSON file of the same name beside it may hold ``{"preprocessing": {...}, "output":
        "..."}``. ``file.onnx#tensor`` uses a tensor inside the network as the vector, such as the one before the last.
    device : {'cpu', 'cuda'}; 'cuda' by default, if the installed onnxruntime supports it
    precision : must be left out; the file determines it
    preprocessing : see `as_preprocessing`; its fields take precedence over those of the JSON file
    output : name of the output that is the vector; by default the first one with two axes
    threads : threads per batch; chosen by onnxruntime by default
    """
    require("onnxruntime", "onnx", "this encoder")
    name = f"onnx:{model}"
    place, _, inner = (model, "", "") if Path(model).is_file() else model.partition("#")
    path = Path(place)
    if not path.is_file():
        raise HCEPError(f"{name}: no such file")
    if precision is not None:
        raise HCEPError(f"{name}: the file determines the precision; leave out precision={precision!r}")
    beside = read_json_object(path.with_suffix(".json")) if path.with_suffix(".json").is_file() else {}
    unknown = next((key for key in beside if key not in _KEYS), None)
    if unknown is not None:
        near = near_matches(unknown, _KEYS)
        raise HCEPError(f"{path.with_suffix('.json')}: unknown key {unknown!r}, expected {quoted(_KEYS)}.{near}")
    if preprocessing is None and "preprocessing" not in beside:
        raise HCEPError(
            f"{name}: the preprocessing of images is unknown; give preprocessing= (a preset: {quoted(PRESETS)}, a JSON "
            f'file or a mapping), or write {path.stem}.json beside it: {{"preprocessing": {{"preset": "clip"}}}}'
        )
    steps = as_preprocessing(preprocessing, as_preprocessing(beside.get("preprocessing")))
    content = with_output(path, inner) if inner else path
    session = open_session(name, content, device, threads)
    source = _image_input(name, session, steps)
    target = _vector_output(name, session, output or inner or beside.get("output"))
    maps = with_map(path, target)
    # Exporters write weights to another file if the first one would exceed 2 GB.
    files = [path, *filter(Path.is_file, (path.with_name(path.name + end) for end in (".data", "_data")))]

    @cache
    def mapping() -> Any:  # a second session, opened when a map is needed
        return open_session(name, maps[0], device, threads) if maps else None

    def vectors(of: Any) -> ImageFunction:
        return lambda batch: _run(of, source, target, batch)

    return FunctionEncoder(
        vectors(session),
        name=name,
        preprocessing=steps,
        fingerprint=f"{hashlib.sha256(' '.join(map(content_hash, files)).encode()).hexdigest()} {target}",
        texts="no text tower",
        maps=(lambda batch: _run(mapping(), source, maps[1], batch)) if maps else None,
        one_core=one_core(session, threads, lambda: vectors(open_session(name, content, device, 1))),
    )


def one_core(
    session: Any, threads: int | None, make: Callable[[], ImageFunction]
) -> Callable[[], ImageFunction] | None:
    """The `one_core` of `FunctionEncoder`, on a CPU and if the number of threads is not given."""
    return make if threads is None and session.get_providers() == [_DEVICES["cpu"]] else None


def open_session(name: str, model: Path | bytes, device: str | None, threads: int | None) -> Any:
    """A session of onnxruntime for a file, or for its content."""
    ort = require("onnxruntime", "onnx", "this encoder")
    providers = ort.get_available_providers()
    chosen = device or ("cuda" if _DEVICES["cuda"] in providers else "cpu")
    if chosen not in _DEVICES:
        raise HCEPError(f"device must be 'cpu' or 'cuda' for ONNX files, got {chosen!r}")
    if _DEVICES[chosen] not in providers:
        raise HCEPError(f"device {chosen!r}: this onnxruntime has {quoted(providers)}; pip install onnxruntime-gpu")
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads or 0  # 0: onnxruntime chooses
    content = model if isinstance(model, bytes) else str(model)
    with loading(name, local=True):
        return ort.InferenceSession(content, options, providers=[_DEVICES[chosen]])


def with_map(path: Path, target: str) -> tuple[bytes, str] | None:
    """The file with the tensor whose mean over positions is `target` as an output, and its name; None without one."""
    if not is_installed("onnx") or path.stat().st_size > MAX_MAPPED:
        return None
    import onnx

    try:
        model = onnx.load_model(path, load_external_data=False)
    except Exception:  # opening the session reports what is wrong with the file
        return None
    makers = {output: node for node in model.graph.node for output in node.output}
    node = makers.get(target)
    while node is not None and node.op_type in ("Flatten", "Squeeze", "Reshape", "Identity"):
        node = makers.get(node.input[0])
    if node is None or not _pools_positions(node, model.graph):
        return None
    tensor = str(node.input[0])
    return _with_output(model, tensor), tensor


def with_output(path: Path, tensor: str) -> bytes:
    """The file with a tensor inside the network as an output."""
    model = require("onnx", "photos", "a tensor inside an ONNX file").load_model(path, load_external_data=False)
    known = [output for node in model.graph.node for output in node.output]
    if tensor not in known:
        raise HCEPError(f"onnx:{path}: it has no tensor {tensor!r}.{near_matches(tensor, known)}")
    return _with_output(model, tensor)


def _with_output(model: Any, tensor: str) -> bytes:
    if tensor not in [output.name for output in model.graph.output]:
        onnx = require("onnx", "photos", "a tensor inside an ONNX file")
        model.graph.output.append(onnx.helper.make_tensor_value_info(tensor, onnx.TensorProto.FLOAT, None))
    content: bytes = model.SerializeToString()
    return content


def _pools_positions(node: Any, graph: Any) -> bool:
    """Whether a node takes the mean over the last two of four axes."""
    if node.op_type == "GlobalAveragePool":
        return True
    if node.op_type != "ReduceMean":
        return False
    from onnx import numpy_helper

    axes = [tuple(a.ints) for a in node.attribute if a.name == "axes"]
    constants = [t for t in graph.initializer if len(node.input) > 1 and t.name == node.input[1]]
    axes += [tuple(numpy_helper.to_array(t).tolist()) for t in constants]
    return bool(axes) and sorted(axis % 4 for axis in axes[0]) == [2, 3]


def _image_input(name: str, session: Any, steps: Preprocessing) -> Any:
    inputs = session.get_inputs()
    if len(inputs) != 1 or len(inputs[0].shape) != 4:
        listed = quoted(f"{i.name} {i.shape}" for i in inputs)
        raise HCEPError(
            f"{name}: expected one input, images (n, 3, height, width), got {listed}; export the image tower alone"
        )
    expected = (3, *steps.size)
    fits = [not isinstance(n, int) or n == m for n, m in zip(inputs[0].shape[1:], expected, strict=True)]
    if not all(fits):
        raise HCEPError(
            f"{name}: its input is {inputs[0].shape}, the preprocessing makes (n, {', '.join(map(str, expected))})"
        )
    if inputs[0].type not in _TYPES:
        raise HCEPError(f"{name}: its input is a {inputs[0].type}, expected floating-point images")
    return inputs[0]


def _vector_output(name: str, session: Any, wanted: str | None) -> str:
    shapes: dict[str, Any] = {output.name: output.shape for output in session.get_outputs()}
    if wanted is not None and wanted not in shapes:
        raise HCEPError(f"{name}: no output {wanted!r}, there are {quoted(shapes)}.{near_matches(wanted, shapes)}")
    if wanted is not None:
        return wanted
    two_axes = [output for output, shape in shapes.items() if len(shape) == 2]
    if not two_axes:
        raise HCEPError(
            f"{name}: no output of two axes (n, n_dims) among {quoted(f'{k} {v}' for k, v in shapes.items())}"
        )
    return two_axes[0]


def _run(session: Any, source: Any, target: str, batch: NDArray[np.float32]) -> NDArray[np.float32]:
    """Run a batch, in pieces if the file fixes the number of images."""
    data = batch.astype(_TYPES[source.type], copy=False)
    n_fixed = source.shape[0]
    if not isinstance(n_fixed, int):
        vectors: NDArray[np.float32] = session.run([target], {source.name: data})[0]
        return vectors
    padded = np.concatenate([data, np.zeros((-len(data) % n_fixed, *data.shape[1:]), dtype=data.dtype)])
    pieces = [padded[start : start + n_fixed] for start in range(0, len(padded), n_fixed)]
    return np.concatenate([session.run([target], {source.name: piece})[0] for piece in pieces])[: len(data)]
