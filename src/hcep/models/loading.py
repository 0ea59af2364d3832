"""A model's folder -> the classifier as it was fitted. Nothing in the files is executed."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from hcep.classify.calibration import Calibration
from hcep.classify.path_model import PathModel
from hcep.dictionary import ConceptDictionary, EmbeddingTransform
from hcep.errors import HierarchyError, quoted
from hcep.hierarchy import Hierarchy
from hcep.models.folder import ModelFiles
from hcep.models.schema import (
    ATOMS,
    DOCUMENT,
    HIERARCHY,
    PER_CLASS,
    TENSORS,
    AdamWRecord,
    FileRecord,
    ModelError,
    ModelSummary,
    file_record,
    parse_document,
)
from hcep.models.tensors import TensorSpec, parse_tensors
from hcep.pursuit import SearchOptions, Stopping

if TYPE_CHECKING:
    from hcep.classify import HCEPClassifier
    from hcep.classify.hedging import HeldOut
    from hcep.models.atom_names import AtomNames

#: Read for `SavedModel.classifier` alone: as many booleans as images times tried metrics.
LEFT_OUT = "leave_one_out.correct"


class SavedModel:
    """A model's folder: each file is read and parsed once, when it is first needed.

    Raises ModelError: by every attribute, as `load_model`.

    Parameters
    ----------
    folder : path
    files : mapping of str to bytes; content of files by name, instead of what the folder holds
    """

    def __init__(self, folder: str | PathLike[str], files: Mapping[str, bytes] | None = None) -> None:
        self.folder = Path(folder)
        self._files = dict(files or {})

    @cached_property
    def summary(self) -> ModelSummary:
        """What ``model.json`` says: encoder, training data, metrics, parameters."""
        return parse_document(self.file(DOCUMENT))

    @cached_property
    def hierarchy(self) -> Hierarchy:
        """The fitted hierarchy."""
        return parse_hierarchy(self.file(HIERARCHY))

    @cached_property
    def dictionary(self) -> ConceptDictionary:
        """The concept dictionary."""
        record, embeddings = self.summary.transform, self._arrays["synset_embeddings"]
        if embeddings[0].any():
            raise ModelError(f"{TENSORS}: row 0 of array 'synset_embeddings', the root's, must be zero")
        transform = EmbeddingTransform(
            unit_norm=record.unit_norm,
            mean=self._arrays.get("transform.mean"),
            whitener=self._arrays.get("transform.whitener"),
            scale=record.scale,
            shrinkage=record.shrinkage,
            constants=self._arrays.get("transform.constants"),
            power=record.power,
        )
        return ConceptDictionary(self.hierarchy, embeddings, transform)

    @cached_property
    def path_model(self) -> PathModel:
        """What prediction needs; without a logistic head, scikit-learn is not even imported."""
        given = {n: self.summary.parameters[n] for n in ("beam_width", "max_steps", "tol", "signed", "n_jobs")}
        return PathModel(
            classes=self.summary.classes,
            leaves=self._leaves,
            dictionary=self.dictionary,
            options=SearchOptions(**given, anchor=self.summary.anchor),
            calibration=self._calibration,
            priors=self.summary.per_class("priors"),
            head=self._head,
            explained_floor=self.summary.per_class("explained_floor"),
            held_out=self._held_out,
            stopping=self._stopping,
        )

    @property
    def _stopping(self) -> Stopping | None:
        rule = self.summary.fitted.stopping
        return None if rule is None else Stopping(*rule)

    @property
    def _calibration(self) -> Calibration:
        fitted = self.summary.fitted
        return Calibration(self.summary.temperature, fitted.exponent, fitted.typical_gap)

    @cached_property
    def classifier(self) -> HCEPClassifier:
        """The whole classifier, with the table of its leave-one-out scores."""
        from hcep.classify import HCEPClassifier, LeaveOneOutScore
        from hcep.classify.heads import head_parameter

        summary = self.summary
        known = HCEPClassifier._get_param_names()
        given = {name: value for name, value in summary.parameters.items() if name in known}
        given["hierarchy"] = None if given["hierarchy"] is None else self.hierarchy
        given["head"] = head_parameter(given["head"], self._head)
        model = HCEPClassifier(**given)
        model.classes_ = summary.classes
        model.hierarchy_ = self.hierarchy
        model._leaves = self._leaves
        model.anchor_, model.shrinkage_, model.power_ = summary.anchor, summary.shrinkage, summary.transform.power
        model.calibration_ = self._calibration
        for name in PER_CLASS:
            setattr(model, f"{name}_", summary.per_class(name))
        counts = [summary.training.images_per_class.get(str(label), 0) for label in summary.classes.tolist()]
        if model.images_per_class_ is None and all(counts):  # of releases that kept them for people alone
            model.images_per_class_ = np.array(counts, dtype=np.int64)
        model.n_grown_, model.n_unlike_ = summary.fitted.n_grown, summary.fitted.n_unlike
        model.held_out_, model.stopping_ = self._held_out, self._stopping
        correct = self._tensors([LEFT_OUT]).get(LEFT_OUT, ())
        model.leave_one_out_ = [
            LeaveOneOutScore(**msgspec.structs.asdict(row), correct=right)
            for row, right in zip(summary.leave_one_out, correct, strict=True)
        ]
        model.dictionary_ = self.dictionary
        model.head_ = self._head
        model.n_iter_ = 1 if model.head_ is None else int(model.head_.n_iter_.max())
        model.n_features_in_ = summary.n_dims
        if summary.feature_names is not None:
            model.feature_names_in_ = np.array(summary.feature_names, dtype=object)
        return model

    @property
    def _held_out(self) -> HeldOut | None:
        """What images that the model was not fitted on got."""
        from hcep.classify.hedging import HeldOut

        if not self.summary.fitted.n_held_out:
            return None
        classes, scores = self._arrays["held_out.classes"], self._arrays["held_out.scores"]
        if classes.min() < 0 or classes.max() >= len(self._leaves):
            raise ModelError(f"{TENSORS}: array 'held_out.classes' must be from 0 to {len(self._leaves) - 1:,}")
        return HeldOut(classes, *scores.T)

    @cached_property
    def atom_names(self) -> AtomNames | None:
        """Names of the atoms; None where the model has none."""
        from hcep.models.atoms_file import parse_names

        return parse_names(self.file(ATOMS), self.hierarchy) if ATOMS in self.summary.files else None

    def file(self, name: str) -> bytes:
        """The content of a file, which is the one that was saved."""
        if name not in self._files:
            if name != DOCUMENT:
                check_size(name, self._on_disk.size(name), self.summary.files[name])
            self._files[name] = self._on_disk.read(name)
        if name != DOCUMENT:
            check_content(name, file_record(self._files[name]), self.summary.files[name])
        return self._files[name]

    @cached_property
    def _on_disk(self) -> ModelFiles:
        return ModelFiles(self.folder)

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
    def _arrays(self) -> dict[str, NDArray[Any]]:
        return self._tensors([name for name in self._specs if name != LEFT_OUT])

    def _tensors(self, names: list[str]) -> dict[str, NDArray[Any]]:
        return parse_tensors(self.file(TENSORS), self._specs, names)

    @cached_property
    def _specs(self) -> dict[str, TensorSpec]:
        """The arrays that the other two files promise."""
        summary, n_dims, n_classes = self.summary, self.summary.n_dims, len(self._leaves)
        n_constants = summary.transform.n_constants
        specs = {"synset_embeddings": TensorSpec(("F64",), (len(self.hierarchy), n_dims + n_constants))}
        if n_constants:
            specs["transform.constants"] = TensorSpec(("F64",), (n_constants,))
        if summary.transform.mean:
            specs["transform.mean"] = TensorSpec(("F64",), (n_dims,))
        if summary.transform.whitener:
            specs["transform.whitener"] = TensorSpec(("F64",), (n_dims, n_dims))
        if summary.head is not None:
            # scikit-learn keeps one row for two classes, the logit of the second.
            n_rows = 1 if n_classes == 2 and not isinstance(summary.head, AdamWRecord) else n_classes
            specs["head.coef"] = TensorSpec(("F64", "F32"), (n_rows, self.hierarchy.n_edges))
            specs["head.intercept"] = TensorSpec(("F64", "F32"), (n_rows,))
            specs["head.classes"] = TensorSpec(("I64",), (n_classes,))
            specs["head.n_iter"] = TensorSpec(("I32",), (1,))
        if summary.fitted.n_held_out:
            specs["held_out.classes"] = TensorSpec(("I64",), (summary.fitted.n_held_out,))
            specs["held_out.scores"] = TensorSpec(("F64",), (summary.fitted.n_held_out, 4))
        if summary.leave_one_out:
            specs[LEFT_OUT] = TensorSpec(("BOOL",), (len(summary.leave_one_out), None))
        return specs

    @cached_property
    def _head(self) -> Any:
        """The linear head, or None."""
        record, arrays = self.summary.head, self._arrays
        if record is None:
            return None
        if not np.array_equal(arrays["head.classes"], np.arange(len(self._leaves))):
            raise ModelError(f"{TENSORS}: array 'head.classes' must count the classes from 0")
        coef, intercept, classes = (arrays[f"head.{name}"] for name in ("coef", "intercept", "classes"))
        if isinstance(record, AdamWRecord):
            from hcep.classify.heads import restored_head

            seed = self.summary.parameters.get("random_state", 0)
            return restored_head(coef, intercept, classes, random_state=seed, **msgspec.structs.asdict(record))
        from sklearn.linear_model import LogisticRegression

        head = LogisticRegression(C=np.inf if record.C == "inf" else record.C, max_iter=record.max_iter)
        head.classes_, head.coef_, head.intercept_, head.n_iter_ = classes, coef, intercept, arrays["head.n_iter"]
        head.n_features_in_ = coef.shape[1]
        return head


def read_model(folder: str | PathLike[str]) -> SavedModel:
    """Open what `save_model` wrote, to read no more of it than is asked for.

    Raises ModelError: when there is no model, or ``model.json`` is damaged; the attributes raise it for their files.

    Returns
    -------
    SavedModel
        With ``summary``, ``hierarchy``, ``dictionary``, ``path_model``, ``classifier`` and ``atom_names``, each read,
        checked and kept when it is first used.
    """
    model = SavedModel(folder)
    _ = model.summary
    return model


def load_model(folder: str | PathLike[str]) -> HCEPClassifier:
    """Load what `save_model` wrote.

    Raises ModelError: a file that is missing, truncated or changed, another format or version, arrays of a wrong type
    or shape or with NaN, a hierarchy that does not fit the classes. The message names the file and the field.

    >>> import tempfile
    >>> from hcep import HCEPClassifier
    >>> from hcep.datasets import make_hierarchical_concepts
    >>> from hcep.models import load_model, save_model
    >>> data = make_hierarchical_concepts(branching=3, depth=2, dim=10, noise=1e-3)
    >>> model = HCEPClassifier(data.hierarchy).fit(data.X, data.y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     loaded = load_model(save_model(model, folder))
    >>> bool((loaded.predict(data.X) == model.predict(data.X)).all())
    True

    Returns
    -------
    HCEPClassifier
        Fitted; it predicts, bit for bit, what the saved one did. Its ``hierarchy`` parameter is the fitted hierarchy:
        the given one restricted to the classes.
    """
    return SavedModel(folder).classifier


#: The same, as `hcep.load`.
load = load_model


def load_path_model(folder: str | PathLike[str]) -> PathModel:
    """Load what prediction needs of a saved model (see `SavedModel.path_model`); raises as `load_model`."""
    return SavedModel(folder).path_model


def load_summary(folder: str | PathLike[str]) -> ModelSummary:
    """Read what is known of a saved model from ``model.json`` alone; raises as `load_model`, for this one file."""
    return SavedModel(folder).summary


def check_size(name: str, n_bytes: int, saved: FileRecord) -> None:
    """Raise when a file is not as large as the document says; before it is read."""
    if n_bytes != saved.bytes:
        raise ModelError(
            f"{name}: {n_bytes:,} bytes where {saved.bytes:,} were saved (files.{name}.bytes in {DOCUMENT}); "
            "copy or download it again"
        )


def check_content(name: str, found: FileRecord, saved: FileRecord) -> None:
    """Raise when a file is not the one whose size and hash the document keeps."""
    check_size(name, found.bytes, saved)
    if found.sha256 != saved.sha256:
        raise ModelError(
            f"{name}: its content changed since it was saved: sha256 {found.sha256[:12]}… instead of "
            f"{saved.sha256[:12]}… (files.{name}.sha256 in {DOCUMENT}); copy or download it again"
        )


def parse_hierarchy(data: bytes) -> Hierarchy:
    """Read ``hierarchy.json``."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ModelError(f"{HIERARCHY}: not UTF-8 text ({error})") from None
    # Anything else would be taken for the path of a file.
    if not text.lstrip().startswith("{"):
        raise ModelError(f"{HIERARCHY}: the file must be a JSON object")
    try:
        return Hierarchy.from_json(text)
    except HierarchyError as error:
        raise ModelError(f"{HIERARCHY}: {error}") from None
