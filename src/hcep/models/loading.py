"""A model's folder -> the classifier as it was fitted. Nothing in the files is executed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import safetensors
from numpy.typing import NDArray

from hcep.classify.calibration import Calibration
from hcep.classify.path_model import PathModel
from hcep.dictionary import ConceptDictionary, EmbeddingTransform
from hcep.errors import HierarchyError, near_matches, quoted
from hcep.hierarchy import Hierarchy
from hcep.models import schema
from hcep.models.folder import ModelFiles
from hcep.models.schema import ATOMS, DOCUMENT, HIERARCHY, TENSORS, FileRecord, ModelError, ModelSummary
from hcep.pursuit import SearchOptions, Stopping

if TYPE_CHECKING:
    from hcep.classify import HCEPClassifier
    from hcep.classify.hedging import HeldOutScores
    from hcep.models.atom_names import AtomNames

#: What an array of the file must be: its types, and its shape, where None is any length.
TensorSpec = tuple[list[str], tuple[int | None, ...]]
#: Read for `SavedModel.classifier` alone: as many booleans as images times tried metrics.
LEFT_OUT = "leave_one_out.correct"
_DTYPES: dict[str, Any] = {"F64": np.float64, "F32": np.float32, "I64": np.int64, "I32": np.int32, "BOOL": np.bool_}


class SavedModel:
    """A model's folder: each file is read, checked and parsed once, when it is first needed.

    Every attribute raises ModelError, as `load_model`. `files` is the content of files by name, instead of what the
    folder holds.
    """

    def __init__(self, folder: str | PathLike[str], files: Mapping[str, bytes] | None = None) -> None:
        self.folder = Path(folder)
        self._files = dict(files or {})
        self._on_disk: ModelFiles | None = None

    @cached_property
    def summary(self) -> ModelSummary:
        """What ``model.json`` says: encoder, training data, metrics, parameters."""
        return schema.parse_document(self.file(DOCUMENT))

    @cached_property
    def hierarchy(self) -> Hierarchy:
        """The fitted hierarchy."""
        return parse_hierarchy(self.file(HIERARCHY))

    @cached_property
    def dictionary(self) -> ConceptDictionary:
        """The concept dictionary."""
        record, arrays = self.summary.transform, self._arrays
        if arrays["synset_embeddings"][0].any():
            raise ModelError(f"{TENSORS}: row 0 of array 'synset_embeddings', the root's, must be zero")
        parts: dict[str, Any] = {n: arrays.get(f"transform.{n}") for n in ("mean", "whitener", "constants")}
        parts |= {name: getattr(record, name) for name in ("unit_norm", "scale", "shrinkage", "power")}
        return ConceptDictionary(self.hierarchy, arrays["synset_embeddings"], EmbeddingTransform(**parts))

    @cached_property
    def path_model(self) -> PathModel:
        """What prediction needs; without a logistic head, scikit-learn is not even imported."""
        given = {n: self.summary.parameters[n] for n in ("beam_width", "max_steps", "tol", "signed", "n_jobs")}
        parts: dict[str, Any] = {"options": SearchOptions(**given, anchor=self.summary.anchor), "head": self._head}
        parts |= {"calibration": self._calibration, "held_out": self._held_out, "stopping": self._stopping}
        parts |= {name: self.summary.per_class(name) for name in ("priors", "explained_floor")}
        return PathModel(classes=self.summary.classes, leaves=self._leaves, dictionary=self.dictionary, **parts)

    @cached_property
    def classifier(self) -> HCEPClassifier:
        """The whole classifier, with the table of its leave-one-out scores."""
        from hcep.classify import HCEPClassifier, LeaveOneOutScore
        from hcep.classify.heads import head_parameter

        summary, head = self.summary, self._head
        given = {n: value for n, value in summary.parameters.items() if n in HCEPClassifier._get_param_names()}
        given["hierarchy"] = None if given["hierarchy"] is None else self.hierarchy
        given["head"] = head_parameter(given["head"], head)
        model = HCEPClassifier(**given)
        model.classes_, model._leaves, model.hierarchy_ = summary.classes, self._leaves, self.hierarchy
        model.anchor_, model.shrinkage_, model.power_ = summary.anchor, summary.shrinkage, summary.transform.power
        model.calibration_, model.held_out_, model.stopping_ = self._calibration, self._held_out, self._stopping
        for name in schema.PER_CLASS:
            setattr(model, f"{name}_", summary.per_class(name))
        counts = [summary.training.images_per_class.get(str(label), 0) for label in summary.classes.tolist()]
        if model.images_per_class_ is None and all(counts):  # of releases that kept them for people alone
            model.images_per_class_ = np.array(counts, dtype=np.int64)
        model.n_grown_, model.n_unlike_ = summary.fitted.n_grown, summary.fitted.n_unlike
        correct = parse_tensors(self.file(TENSORS), self._specs, [LEFT_OUT]).get(LEFT_OUT, ())
        tried = zip(map(msgspec.structs.asdict, summary.leave_one_out), correct, strict=True)
        model.leave_one_out_ = [LeaveOneOutScore(**row, correct=right) for row, right in tried]
        model.dictionary_, model.head_, model.n_features_in_ = self.dictionary, head, summary.n_dims
        model.n_iter_ = 1 if head is None else int(head.n_iter_.max())
        if summary.feature_names is not None:
            model.feature_names_in_ = np.array(summary.feature_names, dtype=object)
        return model

    @cached_property
    def atom_names(self) -> AtomNames | None:
        """Names of the atoms; None where the model has none."""
        from hcep.models.atom_names import parse_names

        return parse_names(self.file(ATOMS), self.hierarchy) if ATOMS in self.summary.files else None

    def file(self, name: str) -> bytes:
        """The content of a file, which is the one that was saved."""
        saved = None if name == DOCUMENT else self.summary.files[name]
        if name not in self._files:
            self._on_disk = self._on_disk or ModelFiles(self.folder)
            if saved is not None:
                _check_size(name, self._on_disk.size(name), saved)
            self._files[name] = self._on_disk.read(name)
        if saved is not None:
            found = schema.file_record(self._files[name])
            _check_size(name, found.bytes, saved)
            if found.sha256 != saved.sha256:
                raise ModelError(
                    f"{name}: its content changed since it was saved: sha256 {found.sha256[:12]}… instead of "
                    f"{saved.sha256[:12]}… (files.{name}.sha256 in {DOCUMENT}); copy or download it again"
                )
        return self._files[name]

    @property
    def _stopping(self) -> Stopping | None:
        rule = self.summary.fitted.stopping
        return None if rule is None else Stopping(*rule)

    @property
    def _calibration(self) -> Calibration:
        fitted = self.summary.fitted
        return Calibration(self.summary.temperature, fitted.exponent, fitted.typical_gap)

    @property
    def _held_out(self) -> HeldOutScores | None:
        """What images that the model was not fitted on got."""
        from hcep.classify.hedging import HeldOutScores

        if not self.summary.fitted.n_held_out:
            return None
        classes, scores = self._arrays["held_out.classes"], self._arrays["held_out.scores"]
        if classes.min() < 0 or classes.max() >= len(self._leaves):
            raise ModelError(f"{TENSORS}: array 'held_out.classes' must be from 0 to {len(self._leaves) - 1:,}")
        return HeldOutScores(classes, scores)

    @cached_property
    def _leaves(self) -> NDArray[np.str_]:
        """The leaf of each class, in the order of the classes; every leaf must be some class's."""
        hierarchy = self.hierarchy
        try:
            leaves = [hierarchy.leaf_of(str(label)) for label in self.summary.classes.tolist()]
        except HierarchyError as error:
            raise ModelError(f"{DOCUMENT}: classes.labels does not fit {HIERARCHY}: {error}") from None
        rest = set(hierarchy.leaves) - set(leaves)
        if rest or len(set(leaves)) < len(leaves):
            raise ModelError(
                f"{HIERARCHY}: {len(hierarchy.leaves):,} leaves for {len(leaves):,} classes in {DOCUMENT}"
                + (f"; no class has the leaf {quoted(sorted(rest))}" if rest else "; two classes share one")
            )
        return np.array(leaves)

    @cached_property
    def _head(self) -> Any:
        """The linear head, or None."""
        record, arrays = self.summary.head, self._arrays
        if record is None:
            return None
        if not np.array_equal(arrays["head.classes"], np.arange(len(self._leaves))):
            raise ModelError(f"{TENSORS}: array 'head.classes' must count the classes from 0")
        coef, intercept, classes = (arrays[f"head.{name}"] for name in ("coef", "intercept", "classes"))
        if isinstance(record, schema.AdamWRecord):
            from hcep.classify.heads import restored_head

            seed = self.summary.parameters.get("random_state", 0)
            return restored_head(coef, intercept, classes, random_state=seed, **msgspec.structs.asdict(record))
        from sklearn.linear_model import LogisticRegression

        head = LogisticRegression(C=np.inf if record.C == "inf" else record.C, max_iter=record.max_iter)
        head.classes_, head.coef_, head.intercept_, head.n_iter_ = classes, coef, intercept, arrays["head.n_iter"]
        head.n_features_in_ = coef.shape[1]
        return head

    @cached_property
    def _arrays(self) -> dict[str, NDArray[Any]]:
        return parse_tensors(self.file(TENSORS), self._specs, [name for name in self._specs if name != LEFT_OUT])

    @cached_property
    def _specs(self) -> dict[str, TensorSpec]:
        """The arrays that the other two files promise."""
        summary, edges = self.summary, self.hierarchy.n_edges
        n_dims, n_classes, n_held, head = summary.n_dims, len(self._leaves), summary.fitted.n_held_out, summary.head
        n_constants, n_tried = summary.transform.n_constants, len(summary.leave_one_out)
        # scikit-learn keeps one row for two classes, the logit of the second.
        n_rows = 1 if n_classes == 2 and not isinstance(head, schema.AdamWRecord) else n_classes
        table = {  # whether it is there, its types and its shape
            "synset_embeddings": (True, "F64", (len(self.hierarchy), n_dims + n_constants)),
            "transform.constants": (n_constants > 0, "F64", (n_constants,)),
            "transform.mean": (summary.transform.mean, "F64", (n_dims,)),
            "transform.whitener": (summary.transform.whitener, "F64", (n_dims, n_dims)),
            "head.coef": (head is not None, "F64 F32", (n_rows, edges)),
            "head.intercept": (head is not None, "F64 F32", (n_rows,)),
            "head.classes": (head is not None, "I64", (n_classes,)),
            "head.n_iter": (head is not None, "I32", (1,)),
            "held_out.classes": (n_held > 0, "I64", (n_held,)),
            "held_out.scores": (n_held > 0, "F64", (n_held, 4)),
            LEFT_OUT: (n_tried > 0, "BOOL", (n_tried, None)),
        }
        return {name: (types.split(), shape) for name, (there, types, shape) in table.items() if there}


def read_model(folder: str | PathLike[str]) -> SavedModel:
    """Open what `save_model` wrote, to read no more of it than is asked for."""
    model = SavedModel(folder)
    _ = model.summary
    return model


def load_model(folder: str | PathLike[str]) -> HCEPClassifier:
    """Load what `save_model` wrote: a classifier that predicts, bit for bit, what the saved one did.

    Its ``hierarchy`` parameter is the fitted hierarchy: the given one restricted to the classes. Raises ModelError: a
    file that is missing, truncated or changed, another format or version, arrays of a wrong type or shape or with NaN,
    a hierarchy that does not fit the classes. The message names the file and the field.
    """
    return SavedModel(folder).classifier


#: The same, as `hcep.load`.
load = load_model


def load_summary(folder: str | PathLike[str]) -> ModelSummary:
    """Read what is known of a saved model from ``model.json`` alone; raises as `load_model`, for this one file."""
    return SavedModel(folder).summary


def _check_size(name: str, n_bytes: int, saved: FileRecord) -> None:
    if n_bytes != saved.bytes:
        told = f"{name}: {n_bytes:,} bytes where {saved.bytes:,} were saved (files.{name}.bytes in {DOCUMENT}); "
        raise ModelError(told + "copy or download it again")


def parse_hierarchy(data: bytes) -> Hierarchy:
    try:
        text = data.decode("utf-8")
        # Anything else would be taken for the path of a file.
        if not text.lstrip().startswith("{"):
            raise ModelError(f"{HIERARCHY}: the file must be a JSON object")
        return Hierarchy.from_json(text)
    except UnicodeDecodeError as error:
        raise ModelError(f"{HIERARCHY}: not UTF-8 text ({error})") from None
    except HierarchyError as error:
        raise ModelError(f"{HIERARCHY}: {error}") from None


def parse_tensors(data: bytes, specs: Mapping[str, TensorSpec], names: Iterable[str]) -> dict[str, NDArray[Any]]:
    """Read arrays from the bytes of a safetensors file that must hold those in `specs`, and nothing else."""
    deserialize: Any = safetensors.deserialize  # it has no types
    try:
        found = dict(deserialize(data))
    except safetensors.SafetensorError as error:
        raise ModelError(f"{TENSORS}: not a readable safetensors file ({error}); copy or download it again") from None
    unknown, missing = [name for name in found if name not in specs], [name for name in specs if name not in found]
    if unknown:
        raise ModelError(f"{TENSORS}: unknown array {unknown[0]!r}.{near_matches(unknown[0], specs)}")
    if missing:
        raise ModelError(f"{TENSORS}: array {quoted(missing)} is missing, which model.json speaks of")
    return {name: _array(name, found[name], specs[name]) for name in names if name in specs}


def _array(name: str, tensor: Mapping[str, Any], spec: TensorSpec) -> NDArray[Any]:
    dtype, shape, (types, wanted_shape) = tensor["dtype"], tuple(tensor["shape"]), spec
    if dtype not in types:
        raise ModelError(f"{TENSORS}: array {name!r} must be of type {' or '.join(types)}, got {dtype}")
    if len(shape) != len(wanted_shape) or any(n not in (None, m) for n, m in zip(wanted_shape, shape, strict=True)):
        wanted = ", ".join("any" if n is None else str(n) for n in wanted_shape)
        raise ModelError(f"{TENSORS}: array {name!r} must have shape ({wanted}), got {shape}")
    # A copy of its own: aligned, writable, and free of the file's other arrays.
    array: NDArray[Any] = np.frombuffer(tensor["data"], dtype=_DTYPES[dtype]).reshape(shape).copy()
    if array.dtype.kind == "b" and array.size and array.view(np.uint8).max() > 1:
        raise ModelError(f"{TENSORS}: array {name!r} must hold only 0 and 1")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        where = np.argwhere(~np.isfinite(array))[0].tolist()
        raise ModelError(f"{TENSORS}: array {name!r} has NaN or infinite values, the first at {where}")
    return array
