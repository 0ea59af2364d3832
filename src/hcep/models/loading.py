"""Saved models, read back: each file is checked, and nothing in it is executed."""

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
from hcep.classify.coarse_counts import CoarseCount, CoarseCounts, concept_names
from hcep.classify.path_model import PathModel
from hcep.dictionary import ConceptDictionary
from hcep.dictionary.transform import EmbeddingTransform
from hcep.embeddings.protocol import EncoderRecord
from hcep.errors import HierarchyError, near_matches, quote, quoted
from hcep.hierarchy import Hierarchy
from hcep.models import schema
from hcep.models.folder import ModelFiles
from hcep.models.schema import ATOMS, DOCUMENT, HIERARCHY, TENSORS, Document, FileRecord, ModelError, Training
from hcep.pursuit import SearchOptions, Stopping

if TYPE_CHECKING:
    from hcep.classify import HCEPClassifier
    from hcep.classify.hedging import HeldOutScores
    from hcep.models.atom_names import AtomNames

#: Types and shape that an array of the file must have; None stands for any length.
TensorSpec = tuple[list[str], tuple[int | None, ...]]
#: Read for `SavedModel.classifier` only: one boolean per image and metric that was tried.
LEFT_OUT = "leave_one_out.correct"
_DTYPES: dict[str, Any] = {"F64": np.float64, "F32": np.float32, "I64": np.int64, "I32": np.int32, "BOOL": np.bool_}


class SavedModel:
    """A saved model. Each file is read, checked and parsed once, when it is first needed.

    Attributes raise ModelError if a file is damaged, as `load_model` does.

    Parameters
    ----------
    folder : the model's folder
    files : contents of files by name, used instead of those in the folder
    """

    def __init__(self, folder: str | PathLike[str], files: Mapping[str, bytes] | None = None) -> None:
        self.folder = Path(folder)
        self._files = dict(files or {})
        self._on_disk: ModelFiles | None = None

    @cached_property
    def document(self) -> Document:
        """The content of ``model.json``."""
        return schema.parse_document(self.file(DOCUMENT))

    @property
    def encoder(self) -> EncoderRecord | None:
        """Name, fingerprint and preprocessing of the encoder, if recorded."""
        return self.document.encoder

    @property
    def training(self) -> Training:
        """The training data, metrics, and changes since the fit, as far as they were recorded."""
        return self.document.training

    @cached_property
    def classes(self) -> NDArray[Any]:
        """(n_classes,) labels."""
        return self.document.class_record.array()

    @cached_property
    def hierarchy(self) -> Hierarchy:
        """The fitted hierarchy."""
        return parse_hierarchy(self.file(HIERARCHY))

    @cached_property
    def dictionary(self) -> ConceptDictionary:
        """The concept dictionary."""
        record, arrays = self.document.transform, self._arrays
        if arrays["synset_embeddings"][0].any():
            raise ModelError(f"{TENSORS}: row 0 of array 'synset_embeddings', the root's, must be zero")
        parts: dict[str, Any] = {n: arrays.get(f"transform.{n}") for n in ("mean", "whitener", "constants")}
        parts |= {name: getattr(record, name) for name in ("unit_norm", "scale", "shrinkage", "power", "words")}
        fitted = self.document.fitted
        unit = fitted.anchor_unit if fitted.anchor > 0.0 else None
        if fitted.free_atoms:
            return ConceptDictionary.from_atoms(self.hierarchy, arrays["atoms"], EmbeddingTransform(**parts), unit)
        return ConceptDictionary(self.hierarchy, arrays["synset_embeddings"], EmbeddingTransform(**parts), unit)

    @cached_property
    def path_model(self) -> PathModel:
        """The part that predicts; it imports scikit-learn for a logistic head only."""
        names = ("beam_width", "max_steps", "tol", "signed", "n_jobs")
        search = {name: self.document.parameters[name] for name in names}
        options = SearchOptions(**search, anchor=self.document.fitted.anchor)
        parts: dict[str, Any] = {"options": options, "head": self._head, "stopping": self._stopping}
        parts |= {"calibration": self._calibration, "held_out": self._held_out, "typical": self._arrays.get("typical")}
        parts |= {name: self.document.per_class(name) for name in ("priors", "explained_floor")}
        return PathModel(classes=self.classes, leaves=self._leaves, dictionary=self.dictionary, **parts)

    @cached_property
    def classifier(self) -> HCEPClassifier:
        """The fitted classifier, with its leave-one-out table."""
        from hcep.classify import HCEPClassifier
        from hcep.classify.choosing import LeaveOneOutScore
        from hcep.classify.heads import head_parameter
        from hcep.classify.tree_prior import Variances
        from hcep.classify.words import Words

        document, head = self.document, self._head
        names = HCEPClassifier._get_param_names()
        parameters = {name: value for name, value in document.parameters.items() if name in names}
        parameters["hierarchy"] = None if parameters["hierarchy"] is None else self.hierarchy
        parameters["head"] = head_parameter(parameters["head"], head)
        if document.parameters.get("exact_where"):
            parameters["power"] = 1.0
        model = HCEPClassifier(**parameters)
        model.classes_, model._leaves, model.hierarchy_ = self.classes, self._leaves, self.hierarchy
        fitted = document.fitted
        model.anchor_, model.shrinkage_, model.power_ = fitted.anchor, fitted.shrinkage, document.transform.power
        model.calibration_, model.held_out_, model.stopping_ = self._calibration, self._held_out, self._stopping
        for name in schema.PER_CLASS:
            setattr(model, f"{name}_", document.per_class(name))
        counts = [self.training.images_per_class.get(str(label), 0) for label in self.classes.tolist()]
        if model.images_per_class_ is None and all(counts):  # early releases recorded them as information only
            model.images_per_class_ = np.array(counts, dtype=np.int64)
        model.n_grown_, model.n_unlike_, model.coarse_counts_ = fitted.n_grown, fitted.n_unlike, self.coarse_counts
        model.prior_ = None if fitted.prior is None else Variances(*fitted.prior)
        model.typical_ = self._arrays.get("typical")
        model.words_ = None if fitted.words is None else Words(*fitted.words)
        model.class_means_, model.unseen_odds_ = self._arrays.get("class_means"), fitted.unseen_odds
        correct = parse_tensors(self.file(TENSORS), self._specs, [LEFT_OUT]).get(LEFT_OUT, ())
        tried = zip(map(msgspec.structs.asdict, document.leave_one_out), correct, strict=True)
        model.leave_one_out_ = [LeaveOneOutScore(**row, correct=right) for row, right in tried]
        model.dictionary_, model.head_, model.n_features_in_ = self.dictionary, head, document.n_dims
        model.n_iter_ = 1 if head is None else int(head.n_iter_.max())
        if document.feature_names is not None:
            model.feature_names_in_ = np.array(document.feature_names, dtype=object)
        return model

    @cached_property
    def coarse_counts(self) -> CoarseCounts | None:
        """Images with labels above the classes, and the classes that learned from them; None if there are none."""
        records = self.document.fitted.coarse_counts or {}
        return {name: CoarseCount(one.n_images, one.classes) for name, one in records.items()} or None

    @cached_property
    def atom_names(self) -> AtomNames | None:
        """Names of the atoms, or None."""
        from hcep.models.atom_names import parse_names

        return parse_names(self.file(ATOMS), self.hierarchy) if ATOMS in self.document.files else None

    def images_by_label(self) -> dict[str, str]:
        """For each label above the classes, the images of the concept and what became of them, in words."""
        names, hierarchy = self._names, self.hierarchy
        return {
            names.get(label, label): self.images_of(label) if label in hierarchy else f"coarse {count.text(names)}"
            for label, count in (self.coarse_counts or {}).items()
        }

    @cached_property
    def _names(self) -> dict[str, str]:
        return concept_names(self.hierarchy)

    def images_of(self, synset: str) -> str:
        """How many training images a concept has: "exact 12, coarse 48 (they went to: versicolor 31, pseudacorus 17)".

        Exact images are labelled with a class below the concept, coarse ones with the concept itself. For a class the
        number of coarse images that it learned from follows instead. Empty if the model does not record any of them.
        """
        hierarchy, known = self.hierarchy, self.coarse_counts or {}
        by_class = self.document.per_class("images_per_class")
        if by_class is None:
            return ""
        below = {synset, *hierarchy.descendants(synset)}
        exact = sum(int(n) for n, leaf in zip(by_class, self._leaves.tolist(), strict=True) if leaf in below)
        names = [synset, *(name for name, _ in hierarchy.merged(synset))]
        words = [f"exact {exact:,}", *(f"coarse {known[name].text(self._names)}" for name in names if name in known)]
        if hierarchy.is_leaf(synset):
            taught = sum(count.classes.get(hierarchy.class_of(synset), 0.0) for count in known.values())
            words += [f"from coarse labels {taught:,.0f}"] if taught >= 0.5 else []
        return ", ".join(words)

    def facts(self) -> dict[str, Any]:
        """A summary of the model, as ``hcep info MODEL --json`` prints it."""
        document = self.document
        moves, counts = document.per_class("leaf_moves"), document.per_class("images_per_class")
        return {
            "kind": "model",
            "saved_by": f"hcep {document.hcep_version}",
            "classes": len(self.classes),
            "dimensions": document.n_dims,
            "encoder": self.encoder.name if self.encoder else "not recorded",
            "anchor": document.fitted.anchor,
            "shrinkage": document.fitted.shrinkage,
            "power": document.transform.power,
            "refined": "no" if moves is None else f"class embeddings moved by {moves.mean():.2g} on average",
            "head": document.parameters["head"],
            **({} if document.fitted.words is None else {"words": f"{document.fitted.words[0]:.0%} of the evidence"}),
            "trained_on": self.training.data or "not recorded",
            "images": self.training.n_images or (0 if counts is None else int(counts.sum())),
            **({"labels_above_classes": self.images_by_label()} if self.coarse_counts else {}),
            **self.training.metrics,
            "changes": {str(i): f"{change.when}  {change.what}" for i, change in enumerate(self.training.history, 1)},
        }

    def file(self, name: str) -> bytes:
        """The content of a file, checked against the size and hash in ``model.json``."""
        saved = None if name == DOCUMENT else self.document.files[name]
        if name not in self._files:
            self._on_disk = self._on_disk or ModelFiles(self.folder)
            if saved is not None:
                _check_size(name, self._on_disk.size(name), saved)
            self._files[name] = self._on_disk.read(name)
        if saved is not None:
            record = schema.file_record(self._files[name])
            _check_size(name, record.bytes, saved)
            if record.sha256 != saved.sha256:
                raise ModelError(
                    f"{name}: its content changed since it was saved: sha256 {record.sha256[:12]}… instead of "
                    f"{saved.sha256[:12]}… (files.{name}.sha256 in {DOCUMENT}); copy or download it again"
                )
        return self._files[name]

    @property
    def _stopping(self) -> Stopping | None:
        rule = self.document.fitted.stopping
        return None if rule is None else Stopping(*rule)

    @property
    def _calibration(self) -> Calibration:
        fitted = self.document.fitted
        temperature = float("nan") if fitted.temperature is None else fitted.temperature
        return Calibration(temperature, fitted.exponent, fitted.typical_gap)

    @property
    def _held_out(self) -> HeldOutScores | None:
        """Scores of images that the model was not fitted on."""
        from hcep.classify.hedging import N_EARLIER, SCORES, HeldOutScores

        if not self.document.fitted.n_held_out:
            return None
        classes, scores = self._arrays["held_out.classes"], self._arrays["held_out.scores"]
        if classes.min() < 0 or classes.max() >= len(self._leaves):
            raise ModelError(f"{TENSORS}: array 'held_out.classes' must be from 0 to {len(self._leaves) - 1:,}")
        if scores.shape[1] not in (N_EARLIER, len(SCORES)):
            raise ModelError(f"{TENSORS}: array 'held_out.scores' must have {len(SCORES)} columns")
        only = tuple(self.document.fitted.held_out_only)
        for concept in only:
            if concept not in self.hierarchy:
                raise ModelError(f"{DOCUMENT}: fitted.held_out_only: {quote(concept)} is not a concept of {HIERARCHY}")
        return HeldOutScores(classes, scores, only, self.document.fitted.held_out_by_group)

    @cached_property
    def _leaves(self) -> NDArray[np.str_]:
        """The leaf of each class, in the order of the classes; each leaf belongs to one class."""
        hierarchy = self.hierarchy
        try:
            leaves = [hierarchy.leaf_of(str(label)) for label in self.classes.tolist()]
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
        record, arrays = self.document.head, self._arrays
        if record is None:
            return None
        if not np.array_equal(arrays["head.classes"], np.arange(len(self._leaves))):
            raise ModelError(f"{TENSORS}: array 'head.classes' must count the classes from 0")
        coef, intercept, classes = (arrays[f"head.{name}"] for name in ("coef", "intercept", "classes"))
        if isinstance(record, schema.AdamWRecord):
            from hcep.classify.heads import restored_head

            seed = self.document.parameters.get("random_state", 0)
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
        """The arrays that must be in the file, according to the other two files."""
        document, edges = self.document, self.hierarchy.n_edges
        n_dims, n_classes, n_held, head = document.n_dims, len(self._leaves), document.fitted.n_held_out, document.head
        n_constants, n_tried = document.transform.n_constants, len(document.leave_one_out)
        n_blocks = (document.transform.scale > 0.0) + (document.transform.words > 0.0)
        # scikit-learn keeps one row for two classes, the logit of the second.
        n_rows = 1 if n_classes == 2 and not isinstance(head, schema.AdamWRecord) else n_classes
        table = {  # whether it must be there, its types and its shape
            "synset_embeddings": (True, "F64", (len(self.hierarchy), n_blocks * n_dims + n_constants)),
            "atoms": (document.fitted.free_atoms, "F64", (edges, n_blocks * n_dims + n_constants)),
            "class_means": (document.fitted.prior is not None, "F64", (n_classes, n_dims + n_constants)),
            "typical": (document.fitted.typical, "F64", (n_dims,)),
            "transform.constants": (n_constants > 0, "F64", (n_constants,)),
            "transform.mean": (document.transform.mean, "F64", (n_dims,)),
            "transform.whitener": (document.transform.whitener, "F64", (n_dims, n_dims)),
            "head.coef": (head is not None, "F64 F32", (n_rows, edges)),
            "head.intercept": (head is not None, "F64 F32", (n_rows,)),
            "head.classes": (head is not None, "I64", (n_classes,)),
            "head.n_iter": (head is not None, "I32", (1,)),
            "held_out.classes": (n_held > 0, "I64", (n_held,)),
            "held_out.scores": (n_held > 0, "F64", (n_held, None)),
            LEFT_OUT: (n_tried > 0, "BOOL", (n_tried, None)),
        }
        return {name: (types.split(), shape) for name, (there, types, shape) in table.items() if there}


def read_model(folder: str | PathLike[str]) -> SavedModel:
    """Open a saved model; files other than ``model.json`` are read when they are needed."""
    model = SavedModel(folder)
    _ = model.document  # an error now, not at the first use
    return model


def load_model(folder: str | PathLike[str]) -> HCEPClassifier:
    """Load a saved classifier, which predicts bit for bit what the saved one did.

    Its ``hierarchy`` parameter is the fitted hierarchy: the original one, restricted to the classes.

    Raises
    ------
    ModelError
        If a file is missing, truncated or changed, of another format or version, has arrays of a wrong type or shape or
        with NaN, or a hierarchy that does not fit the classes. The message names the file and the field.
    """
    return SavedModel(folder).classifier


#: The same, as `hcep.load`.
load = load_model


def _check_size(name: str, n_bytes: int, saved: FileRecord) -> None:
    if n_bytes != saved.bytes:
        raise ModelError(
            f"{name}: {n_bytes:,} bytes where {saved.bytes:,} were saved (files.{name}.bytes in {DOCUMENT}); "
            "copy or download it again"
        )


def parse_hierarchy(data: bytes) -> Hierarchy:
    try:
        text = data.decode("utf-8")
        # Anything else would be read as the path of a file.
        if not text.lstrip().startswith("{"):
            raise ModelError(f"{HIERARCHY}: the file must be a JSON object")
        return Hierarchy.from_json(text)
    except UnicodeDecodeError as error:
        raise ModelError(f"{HIERARCHY}: not UTF-8 text ({error})") from None
    except HierarchyError as error:
        raise ModelError(f"{HIERARCHY}: {error}") from None


def parse_tensors(data: bytes, specs: Mapping[str, TensorSpec], names: Iterable[str]) -> dict[str, NDArray[Any]]:
    """Read the named arrays of a safetensors file, which must hold those in `specs` and no others."""
    deserialize: Any = safetensors.deserialize  # it has no types
    try:
        tensors = dict(deserialize(data))
    except safetensors.SafetensorError as error:
        raise ModelError(f"{TENSORS}: not a readable safetensors file ({error}); copy or download it again") from None
    unknown, missing = [name for name in tensors if name not in specs], [n for n in specs if n not in tensors]
    if unknown:
        raise ModelError(f"{TENSORS}: unknown array {quote(unknown[0])}.{near_matches(unknown[0], specs)}")
    if missing:
        raise ModelError(f"{TENSORS}: array {quoted(missing)} is missing, but {DOCUMENT} mentions it")
    return {name: _array(name, tensors[name], specs[name]) for name in names if name in specs}


def _array(name: str, tensor: Mapping[str, Any], spec: TensorSpec) -> NDArray[Any]:
    dtype, shape, (types, wanted_shape) = tensor["dtype"], tuple(tensor["shape"]), spec
    if dtype not in types:
        raise ModelError(f"{TENSORS}: array {quote(name)} must be of type {' or '.join(types)}, got {dtype}")
    if len(shape) != len(wanted_shape) or any(n not in (None, m) for n, m in zip(wanted_shape, shape, strict=True)):
        wanted = ", ".join("any" if n is None else str(n) for n in wanted_shape)
        raise ModelError(f"{TENSORS}: array {quote(name)} must have shape ({wanted}), got {shape}")
    # A copy: aligned, writable, and independent of the file's other arrays.
    array: NDArray[Any] = np.frombuffer(tensor["data"], dtype=_DTYPES[dtype]).reshape(shape).copy()
    if array.dtype.kind == "b" and array.size and array.view(np.uint8).max() > 1:
        raise ModelError(f"{TENSORS}: array {quote(name)} must hold only 0 and 1")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        where = np.argwhere(~np.isfinite(array))[0].tolist()
        raise ModelError(f"{TENSORS}: array {quote(name)} has NaN or infinite values, the first at {where}")
    return array
