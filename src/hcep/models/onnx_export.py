"""A model as one ONNX file: the encoder if it is an ONNX network, the metric, the paths, classes and concepts.

The tail computes what `PathModel.probabilities` does for an exact search, in double precision: products with the
directions of the path problem, scores of all complete paths, the best path of each class, and the calibration.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hcep
from hcep._checks import require
from hcep._files import write_bytes
from hcep.classify.calibration import Calibration
from hcep.classify.path_model import PathModel
from hcep.classify.right_level import EDGES, ROUNDED
from hcep.dictionary.transform import EmbeddingTransform
from hcep.embeddings.encoders.function import OnnxNetwork
from hcep.errors import HCEPError
from hcep.hierarchy.serial import dumps
from hcep.models.loading import SavedModel
from hcep.models.model_encoder import load_model_encoder

#: Operators and file version of a model without its encoder; otherwise they are those of the encoder's file.
OPSET, IR_VERSION = 18, 9
#: The levels of `sure` whose thresholds are in the metadata.
SURE_LEVELS = (0.8, 0.9, 0.95, 0.99)
#: The most numbers of the table of classes and concepts; ONNX files hold at most 2 GB.
MAX_TABLE = 1 << 30
#: How the names of encoders begin that are ONNX networks; they are loaded, and others are not.
SOURCES = ("onnx:", "efficientnet-lite")
#: Comes before the names of an encoder's tensors.
PREFIX = "encoder/"


def includes_encoder(saved: SavedModel, encoder: str | None = None) -> bool:
    """Whether the ONNX file of a model includes its encoder, or the one of this name."""
    return (encoder or (saved.encoder.name if saved.encoder else "")).startswith(SOURCES)


def export_onnx(saved: SavedModel, target: Path, encoder: str | None = None) -> None:
    """Write a model as an ONNX file.

    Parameters
    ----------
    saved : the saved model
    target : the file to write
    encoder : name of the model's encoder, if the recorded name no longer leads to it. It becomes a part of the file if
        it is an ONNX network.

    Notes
    -----
    The input is a batch of preprocessed images, and ``embedding`` (n, n_dims) an output; without the encoder, it is the
    input. Further outputs are ``probabilities`` (n, n_classes) and ``concepts`` (n, n_synsets), the probability of each
    concept. The metadata has ``labels``, ``concept_ids``, ``hierarchy``, ``thresholds`` (see `thresholds`) and, if they
    are known, ``encoder`` and ``preprocessing``; all but the encoder's name are JSON.
    """
    onnx, model, record = require("onnx", "photos", "the export to ONNX"), saved.path_model, saved.encoder
    _refuse(model)
    adapter = load_model_encoder(record, saved.folder, encoder) if includes_encoder(saved, encoder) else None
    network = getattr(adapter, "network", None)
    metadata = {
        "hcep": hcep.__version__,
        "labels": json.dumps(list(map(str, model.classes.tolist())), ensure_ascii=False),
        "concept_ids": json.dumps(list(model.hierarchy.ids), ensure_ascii=False),
        "hierarchy": dumps(model.hierarchy),
        "thresholds": json.dumps(thresholds(model)),
    }
    known = adapter or record
    if known is not None:
        metadata |= {"encoder": known.name, "preprocessing": json.dumps(known.preprocessing)}
    parts = (None, None) if network is None else (_load(onnx, network), network.output)
    graph = _Graph(onnx, model, *parts)
    graph.add_outputs()
    write_bytes(target, graph.serialised(metadata))


def _refuse(model: PathModel) -> None:
    """Raise HCEPError for a model whose classes do not follow from the scores of all complete paths."""
    if model.head is not None:
        name = type(model.head).__name__
        raise HCEPError(f"ONNX export needs the path head, but the class is predicted by {name}; fit with -P head=path")
    if not model.is_exhaustive():
        raise HCEPError(
            "ONNX export needs an exact search, but the model has a finite beam, a tolerance, a limit on steps or the "
            "signed rule; fit without beam_width, tol, max_steps and signed"
        )
    if len(model.classes) * len(model.hierarchy) > MAX_TABLE:
        raise HCEPError(f"{len(model.classes):,} classes are too many: an ONNX file holds at most 2 GB")


def thresholds(model: PathModel) -> dict[str, Any]:
    """What the probability of a concept must exceed to be an answer, for each level of `sure`.

    ``confidence`` lists lower ends of bins of the likeliest class's probability, and ``sure`` the threshold of each bin
    for each level. The answer is the concept above the likeliest class that exceeds it and has the fewest classes.
    """
    from hcep.classify.hedging import held_out_levels

    ends, held_out = np.array([0.0, *EDGES]), held_out_levels(model, False)
    rules = {
        f"{sure:g}": np.full(len(ends), sure - ROUNDED) if held_out is None else held_out.rule(ends, sure)[0]
        for sure in SURE_LEVELS
    }
    return {"confidence": ends.tolist(), "sure": {sure: rule.tolist() for sure, rule in rules.items()}}


def _load(onnx: Any, network: OnnxNetwork) -> Any:
    """An encoder's network, whose names get a prefix, so that none is equal to a name of the tail.

    If a vector depends on its batch, the input accepts only batches for which it does not.
    """
    read = onnx.load_model_from_string if isinstance(network.content, bytes) else onnx.load_model
    model = onnx.compose.add_prefix(read(network.content), PREFIX, rename_inputs=False)
    n_at_once = network.n_at_once()
    if n_at_once is not None:
        model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = n_at_once
    return model


class _Graph:
    """An ONNX graph that grows node by node, after those of an encoder if there is one."""

    def __init__(self, onnx: Any, model: PathModel, encoder: Any, vector: str | None) -> None:
        self.onnx, self.model, self.encoder, self.vector = onnx, model, encoder, vector
        opsets = {} if encoder is None else {one.domain: one.version for one in encoder.opset_import}
        self.opset = opsets.get("", OPSET)
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, value: Any) -> str:
        """Add an array and return its name."""
        name = f"hcep/constant{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def add(self, kind: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        """Add a node and return the name of its output."""
        output = name or f"hcep/{kind}{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(kind, list(inputs), [output], **attributes))
        return output

    def reduce(self, kind: str, x: str, axis: int = 1, keep: bool = True) -> str:
        """Reduce an axis; newer operators take it as an input, older ones as an attribute."""
        if self.opset < 18:
            return self.add(kind, x, axes=[axis], keepdims=int(keep))
        return self.add(kind, x, self.constant(np.array([axis])), keepdims=int(keep))

    def cast(self, x: str, kind: str, name: str = "") -> str:
        return self.add("Cast", x, name=name, to=getattr(self.onnx.TensorProto, kind))

    def positive_or_one(self, x: str) -> str:
        """The numbers of x, with 1 instead of 0."""
        is_positive = self.add("Greater", x, self.constant(np.float64(0.0)))
        return self.add("Where", is_positive, x, self.constant(np.float64(1.0)))

    def add_outputs(self) -> None:
        """Add everything from the embedding to the probabilities."""
        if self.vector is not None:
            self.cast(PREFIX + self.vector, "FLOAT", name="embedding")
        x = self._prepared(self.cast("embedding", "DOUBLE"), self.model.dictionary.transform)
        scores = self._class_scores(self._path_scores(x))
        self.cast(self._probabilities(scores), "FLOAT", name="probabilities")
        below = self.cast(self.constant(self.model.classes_below.astype(np.uint8).toarray()), "FLOAT")
        # The sum of float32 numbers may exceed 1 by a rounding error.
        total = self.add("MatMul", "probabilities", below)
        self.add("Min", total, self.constant(np.float32(1.0)), name="concepts")

    def _prepared(self, x: str, transform: EmbeddingTransform) -> str:
        """What `EmbeddingTransform.prepared` does."""
        if transform.power != 1.0:
            size = self.add("Pow", self.add("Abs", x), self.constant(np.float64(transform.power)))
            x = self.add("Mul", self.add("Sign", x), size)
        if transform.unit_norm:
            x = self.add("Div", x, self.positive_or_one(self.reduce("ReduceL2", x)))
        return x

    def _path_scores(self, x: str) -> str:
        """The score of every complete path, (n, n_paths), as `PathProblem.scores` sums them level by level."""
        dictionary, tree = self.model.dictionary, self.model.hierarchy.path_tree
        problem = dictionary.path_problem(self.model.options.anchor)
        directions, constant = dictionary.transform.pulled_back(problem.directions)
        # A last column of zeros stands for nodes without a direction, whose column is -1.
        directions = np.vstack([directions, np.zeros_like(directions[:1])])
        products = self.add("MatMul", x, self.constant(directions.T))
        values = self.add("Add", products, self.constant(np.append(problem.offset + constant, 0.0)))
        squares = self.add("Sub", self.add("Mul", values, values), self.constant(np.float64(problem.anchor)))
        column = np.where(problem.sign != 0.0, problem.column, len(directions) - 1).astype(np.int64)
        above, scores = np.array([0]), ""
        levels = []
        for level in range(1, tree.depth + 1):
            nodes = np.flatnonzero(tree.level == level)
            own = self._pick(squares, column[nodes])
            places = np.searchsorted(above, tree.parent[nodes])
            scores = self.add("Add", self._pick(scores, places), own) if scores else own
            levels.append(scores)
            above = nodes
        # The nodes are in the order of their levels; the root is left out.
        return self._pick(self.add("Concat", *levels, axis=1), tree.leaf_nodes - 1)

    def _pick(self, x: str, columns: NDArray[Any]) -> str:
        return self.add("Gather", x, self.constant(columns.astype(np.int64)), axis=1)

    def _class_scores(self, scores: str) -> str:
        """The score of the best path of each class, (n, n_classes)."""
        columns, first = self.model.paths_by_class
        counts = np.diff([*first, len(columns)])
        paths = columns[first[:, None] + np.minimum(np.arange(counts.max()), counts[:, None] - 1)]
        if paths.shape[1] == 1:
            return self._pick(scores, paths[:, 0])
        return self.reduce("ReduceMax", self._pick(scores, paths), axis=2, keep=False)

    def _probabilities(self, scores: str) -> str:
        """What `Calibration.probabilities` does, with scores instead of objectives: those are negative scores."""
        n_classes = len(self.model.classes)
        calibration = self.model.calibration if n_classes > 1 else Calibration(1.0)
        gaps = self.add("Sub", self.reduce("ReduceMax", scores), scores)
        temperature = self.constant(np.float64(calibration.temperature))
        if calibration.exponent != 0.0:
            scale = n_classes / (n_classes - 1) / calibration.typical_gap
            ratio = self.add("Mul", self.reduce("ReduceMean", gaps), self.constant(np.float64(scale)))
            power = self.add("Pow", self.positive_or_one(ratio), self.constant(np.float64(calibration.exponent)))
            temperature = self.add("Mul", power, temperature)
        odds = self.add("Neg", self.add("Div", gaps, temperature))
        if self.model.priors is not None:
            with np.errstate(divide="ignore"):
                odds = self.add("Add", odds, self.constant(np.log(self.model.priors)))
        return self.add("Softmax", odds, axis=1)

    def serialised(self, metadata: Mapping[str, str]) -> bytes:
        """The whole model, checked, as the content of a file."""
        helper, kind = self.onnx.helper, self.onnx.TensorProto.FLOAT
        sizes = self.model.dictionary.n_dims, *self.model.classes_below.shape
        shapes = zip(("embedding", "probabilities", "concepts"), sizes, strict=True)
        values = [helper.make_tensor_value_info(name, kind, ["n", size]) for name, size in shapes]
        if self.encoder is None:
            graph = helper.make_graph(self.nodes, "hcep", values[:1], values[1:], self.constants)
            opsets = [helper.make_opsetid("", self.opset)]
            model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
        else:
            model, graph = self.encoder, self.encoder.graph
            graph.node.extend(self.nodes)
            graph.initializer.extend(self.constants)
            del graph.output[:], graph.value_info[:]
            graph.output.extend(values)
        _drop_unused(model.graph)
        helper.set_model_props(model, dict(metadata))
        self.onnx.checker.check_model(model)
        content: bytes = model.SerializeToString()
        return content


def _drop_unused(graph: Any) -> None:
    """Remove the nodes and arrays that no output needs, such as the last layer of a classifier."""
    if any(attribute.HasField("g") or attribute.graphs for node in graph.node for attribute in node.attribute):
        return  # a graph inside a node may use any tensor
    used = {output.name for output in graph.output}
    for place in range(len(graph.node) - 1, -1, -1):  # nodes come after those whose outputs they use
        node = graph.node[place]
        if used.isdisjoint(node.output):
            del graph.node[place]
        else:
            used.update(node.input)
    for place in range(len(graph.initializer) - 1, -1, -1):
        if graph.initializer[place].name not in used:
            del graph.initializer[place]
