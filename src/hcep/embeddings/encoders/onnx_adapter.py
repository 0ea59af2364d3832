"""ONNX files, run by onnxruntime: ``onnx:models/encoder.onnx``."""

import hashlib
import logging
import mmap
from collections.abc import Callable
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcep._checks import is_installed, require
from hcep.embeddings.encoders.function import FunctionEncoder, ImageFunction, OnnxNetwork
from hcep.embeddings.encoders.hub import loading
from hcep.embeddings.images import content_hash
from hcep.embeddings.preprocessing import PRESETS, Preprocessing, PreprocessingLike, as_preprocessing, read_json_object
from hcep.errors import HCEPError, near_matches, quote, quoted

_TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
_DEVICES = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
_KEYS = ("preprocessing", "output")
#: A larger file is not searched for its feature map, because it would be in memory twice.
MAX_MAPPED = 1 << 30
#: Photos run one at a time if a vector in a batch differs from the vector alone by more than this share of its length.
MAX_DIFFERENCE = 0.01
_log = logging.getLogger(__name__)


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
        raise HCEPError(f"{name}: the file determines the precision; leave out precision={quote(precision)}")
    beside = read_json_object(path.with_suffix(".json")) if path.with_suffix(".json").is_file() else {}
    unknown = next((key for key in beside if key not in _KEYS), None)
    if unknown is not None:
        near = near_matches(unknown, _KEYS)
        raise HCEPError(f"{path.with_suffix('.json')}: unknown key {quote(unknown)}, expected {quoted(_KEYS)}.{near}")
    if preprocessing is None and "preprocessing" not in beside:
        raise HCEPError(
            f"{name}: the preprocessing of images is unknown; give preprocessing= (--preprocessing), which is one of "
            f"{quoted(PRESETS)}, a JSON file or a mapping, or write {path.stem}.json beside it: "
            '{"preprocessing": {"preset": "clip"}}'
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

    lock, batches = Lock(), cache(lambda: _batch_size(name, session, source, target, steps))

    def run(of: Any, tensor: str, batch: NDArray[np.float32]) -> NDArray[np.float32]:
        with lock:  # several threads may encode, but one of them is enough to try
            n_at_once = batches() if len(batch) > 1 or isinstance(source.shape[0], int) else None
        return _run(of, source, tensor, batch, n_at_once)

    def vectors(of: Any) -> ImageFunction:
        return lambda batch: run(of, target, batch)

    return FunctionEncoder(
        vectors(session),
        name=name,
        preprocessing=steps,
        fingerprint=f"{hashlib.sha256(' '.join(map(content_hash, files)).encode()).hexdigest()} {target}"
        + (" precise" if _is_quantised(path) else ""),  # earlier vectors of such files may be wrong
        texts="no text tower",
        maps=(lambda batch: run(mapping(), maps[1], batch)) if maps else None,
        one_core=one_core(session, threads, lambda: vectors(open_session(name, content, device, 1))),
        network=OnnxNetwork(content, target, batches),
    )


def _is_quantised(path: Path) -> bool:
    """Whether the file has operators on 8-bit integers."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return any(content.find(name) >= 0 for name in (b"MatMulInteger", b"ConvInteger", b"QuantizeLinear"))


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
        raise HCEPError(f"device must be 'cpu' or 'cuda' for ONNX files, got {quote(chosen)}")
    if _DEVICES[chosen] not in providers:
        raise HCEPError(
            f"device {quote(chosen)}: this onnxruntime has {quoted(providers)}; pip install onnxruntime-gpu"
        )
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads or 0  # 0: onnxruntime chooses
    # On x86 processors without VNNI, sums of products of 8-bit integers overflow otherwise: quantised networks then
    # return vectors that mean nothing.
    options.add_session_config_entry("session.x64quantprecision", "1")
    options.enable_mem_pattern = False  # it keeps buffers for every size of a batch, and saves no time
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
        raise HCEPError(f"onnx:{path}: it has no tensor {quote(tensor)}.{near_matches(tensor, known)}")
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
        raise HCEPError(f"{name}: no output {quote(wanted)}, there are {quoted(shapes)}.{near_matches(wanted, shapes)}")
    if wanted is not None:
        return wanted
    two_axes = [output for output, shape in shapes.items() if len(shape) == 2]
    if not two_axes:
        raise HCEPError(
            f"{name}: no output of two axes (n, n_dims) among {quoted(f'{k} {v}' for k, v in shapes.items())}"
        )
    return two_axes[0]


def _batch_size(name: str, session: Any, source: Any, target: str, steps: Preprocessing) -> int | None:
    """How many photos to run at once: the number that the file fixes, or 1 if a vector depends on its batch.

    With dynamic quantisation the whole batch determines the scale of the activations, so the vector of a photo would
    depend on the photos beside it. None is any number.
    """
    if isinstance(source.shape[0], int):
        return source.shape[0]
    noise = np.random.default_rng(0).normal(size=(2, 3, *steps.size)).astype(np.float32)
    noise[1] *= 4.0  # a wider range of values than the first photo has
    alone, together = (_run(session, source, target, batch, None)[0] for batch in (noise[:1], noise))
    if np.linalg.norm(alone - together) <= MAX_DIFFERENCE * np.linalg.norm(alone):
        return None
    _log.warning(
        "%s: the vector of a photo depends on its batch (dynamic quantisation), so photos are encoded one at a time",
        name,
    )
    return 1


def _run(
    session: Any, source: Any, target: str, batch: NDArray[np.float32], n_at_once: int | None
) -> NDArray[np.float32]:
    """Run a batch, in pieces of `n_at_once` photos or as a whole; the last piece is filled with blank photos."""
    data = batch.astype(_TYPES[source.type], copy=False)
    n = n_at_once or len(data)
    missing = -len(data) % n
    padded = np.pad(data, [(0, missing), (0, 0), (0, 0), (0, 0)]) if missing else data
    pieces = [padded[start : start + n] for start in range(0, len(padded), n)]
    return np.concatenate([session.run([target], {source.name: piece})[0] for piece in pieces])[: len(data)]
