"""A model's folder -> the classifier as it was fitted. Nothing in the files is executed."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hcep.classify.path_model import PathModel
from hcep.dictionary import ConceptDictionary, EmbeddingTransform
from hcep.errors import HierarchyError, quoted
from hcep.hierarchy import Hierarchy
from hcep.models.fields import ModelError
from hcep.models.folder import read_file
from hcep.models.records import FileRecord, ModelSummary
from hcep.models.schema import (
    DOCUMENT,
    HIERARCHY,
    SEALED,
    TENSORS,
    file_record,
    parse_document,
)
from hcep.models.tensors import TensorSpec, parse_tensors

if TYPE_CHECKING:
    from sklearn.linear_model import LogisticRegression

    from hcep.classify import HCEPClassifier, LeaveOneOutScore
    from hcep.classify.heads import AdamWHead

Arrays = dict[str, NDArray[Any]]


def load_model(folder: str | PathLike[str]) -> HCEPClassifier:
    """Load what `save_model` wrote.

    Parameters
    ----------
    folder : path

    Returns
    -------
    HCEPClassifier
        Fitted; it predicts, bit for bit, what the saved one did. Its ``hierarchy`` parameter is the fitted hierarchy:
        the given one restricted to the classes.

    Raises
    ------
    ModelError
        A file that is missing, truncated or changed, another format or version, arrays of a wrong type or shape or
        with NaN, a hierarchy that does not fit the classes. The message names the file and the field.

    Examples
    --------
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
    """
    return unpack(_read(folder))


#: The same, as `hcep.load`.
load = load_model


def load_path_model(folder: str | PathLike[str]) -> PathModel:
    """Load what prediction needs of a saved model; without a logistic head, scikit-learn is not even imported.

    Raises
    ------
    ModelError
        As `load_model`.
    """
    summary, hierarchy, leaves, arrays = _parts(_read(folder))
    if summary.head is not None:
        return _classifier(summary, hierarchy, leaves, arrays).path_model()
    options = {name: summary.parameters[name] for name in ("beam_width", "max_steps", "tol", "signed", "n_jobs")}
    return PathModel(
        classes=summary.classes,
        leaves=leaves,
        dictionary=_dictionary(summary, hierarchy, arrays),
        anchor=summary.anchor,
        temperature=summary.temperature,
        head=None,
        **options,
    )


def _read(folder: str | PathLike[str]) -> dict[str, bytes]:
    return {name: read_file(Path(folder), name) for name in (DOCUMENT, *SEALED)}


def load_summary(folder: str | PathLike[str]) -> ModelSummary:
    """Read what is known of a saved model (encoder, training data, metrics, parameters) from ``model.json`` alone.

    Raises
    ------
    ModelError
        As `load_model`, for this one file.
    """
    return parse_document(read_file(Path(folder), DOCUMENT))


def unpack(files: Mapping[str, bytes]) -> HCEPClassifier:
    """The classifier in the files' bytes, given by name."""
    return _classifier(*_parts(files))


def _parts(files: Mapping[str, bytes]) -> tuple[ModelSummary, Hierarchy, NDArray[np.str_], Arrays]:
    """What the files say, every part checked."""
    summary = parse_document(files[DOCUMENT])
    for name in SEALED:
        check_content(name, file_record(files[name]), summary.files[name])
    hierarchy = parse_hierarchy(files[HIERARCHY])
    leaves = _leaves(hierarchy, summary)
    return summary, hierarchy, leaves, parse_tensors(files[TENSORS], tensor_specs(summary, hierarchy))


def check_content(name: str, found: FileRecord, saved: FileRecord) -> None:
    """Raise when a file is not the one whose size and hash the document keeps."""
    if found.bytes != saved.bytes:
        raise ModelError(
            f"{name}: {found.bytes:,} bytes where {saved.bytes:,} were saved (files.{name}.bytes in {DOCUMENT}); "
            "copy or download it again"
        )
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


def _leaves(hierarchy: Hierarchy, summary: ModelSummary) -> NDArray[np.str_]:
    """The leaf of each class, in the order of the classes; every leaf must be some class's."""
    try:
        leaves = [hierarchy.leaf_of(str(label)) for label in summary.classes.tolist()]
    except HierarchyError as error:
        raise ModelError(f"{DOCUMENT}: classes.labels does not fit {HIERARCHY}: {error}") from None
    rest = set(hierarchy.leaves) - set(leaves)
    if rest or len(set(leaves)) < len(leaves):
        raise ModelError(
            f"{HIERARCHY}: {len(hierarchy.leaves):,} leaves for {len(leaves):,} classes in {DOCUMENT}"
            + (f"; no class has the leaf {quoted(sorted(rest))}" if rest else "; two classes share one")
        )
    return np.array(leaves)


def tensor_specs(summary: ModelSummary, hierarchy: Hierarchy) -> dict[str, TensorSpec]:
    """The arrays that the other two files promise."""
    n_dims, n_classes = summary.n_dims, len(summary.classes)
    specs = {"synset_embeddings": TensorSpec(("F64",), (len(hierarchy), n_dims))}
    if summary.transform.mean:
        specs["transform.mean"] = TensorSpec(("F64",), (n_dims,))
    if summary.transform.whitener:
        specs["transform.whitener"] = TensorSpec(("F64",), (n_dims, n_dims))
    if summary.head is not None:
        # scikit-learn keeps one row for two classes, the logit of the second.
        n_rows = 1 if n_classes == 2 and summary.head.kind == "logistic" else n_classes
        specs["head.coef"] = TensorSpec(("F64", "F32"), (n_rows, hierarchy.n_edges))
        specs["head.intercept"] = TensorSpec(("F64", "F32"), (n_rows,))
        specs["head.classes"] = TensorSpec(("I64",), (n_classes,))
        specs["head.n_iter"] = TensorSpec(("I32",), (1,))
    if summary.leave_one_out:
        specs["leave_one_out.correct"] = TensorSpec(("BOOL",), (len(summary.leave_one_out), None))
    return specs


def _classifier(
    summary: ModelSummary, hierarchy: Hierarchy, leaves: NDArray[np.str_], arrays: Arrays
) -> HCEPClassifier:
    from hcep.classify import HCEPClassifier

    given = None if summary.parameters["hierarchy"] is None else hierarchy
    model = HCEPClassifier(**{**summary.parameters, "hierarchy": given})
    model.classes_ = summary.classes
    model.hierarchy_ = hierarchy
    model._leaves = leaves
    model.anchor_, model.shrinkage_, model.temperature_ = summary.anchor, summary.shrinkage, summary.temperature
    model.leave_one_out_ = _scores(summary, arrays)
    model.dictionary_ = _dictionary(summary, hierarchy, arrays)
    model.head_ = _head(summary, arrays)
    model.n_iter_ = 1 if model.head_ is None else int(model.head_.n_iter_.max())
    model.n_features_in_ = summary.n_dims
    if summary.feature_names is not None:
        model.feature_names_in_ = np.array(summary.feature_names, dtype=object)
    return model


def _dictionary(summary: ModelSummary, hierarchy: Hierarchy, arrays: Arrays) -> ConceptDictionary:
    record, embeddings = summary.transform, arrays["synset_embeddings"]
    if embeddings[0].any():
        raise ModelError(f"{TENSORS}: row 0 of array 'synset_embeddings', the root's, must be zero")
    transform = EmbeddingTransform(
        unit_norm=record.unit_norm,
        mean=arrays.get("transform.mean"),
        whitener=arrays.get("transform.whitener"),
        scale=record.scale,
        shrinkage=record.shrinkage,
    )
    return ConceptDictionary(hierarchy, embeddings, transform)


def _head(summary: ModelSummary, arrays: Arrays) -> LogisticRegression | AdamWHead | None:
    if summary.head is None:
        return None
    if not np.array_equal(arrays["head.classes"], np.arange(len(summary.classes))):
        raise ModelError(f"{TENSORS}: array 'head.classes' must count the classes from 0")
    fit = _adamw_head if summary.head.kind == "adamw" else _logistic_head
    return fit(summary.head.settings, arrays)


def _adamw_head(settings: dict[str, Any], arrays: Arrays) -> AdamWHead:
    from hcep.classify.heads import AdamWHead

    return AdamWHead(arrays["head.coef"], arrays["head.intercept"], arrays["head.classes"], **settings)


def _logistic_head(settings: dict[str, Any], arrays: Arrays) -> LogisticRegression:
    from sklearn.linear_model import LogisticRegression

    head = LogisticRegression(**settings)
    head.classes_ = arrays["head.classes"]
    head.coef_ = arrays["head.coef"]
    head.intercept_ = arrays["head.intercept"]
    head.n_iter_ = arrays["head.n_iter"]
    head.n_features_in_ = arrays["head.coef"].shape[1]
    return head


def _scores(summary: ModelSummary, arrays: Arrays) -> list[LeaveOneOutScore]:
    from hcep.classify import LeaveOneOutScore

    return [
        LeaveOneOutScore(
            row.shrinkage, row.anchor, row.accuracy, row.log_loss, row.temperature, arrays["leave_one_out.correct"][i]
        )
        for i, row in enumerate(summary.leave_one_out)
    ]
