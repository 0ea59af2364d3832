"""Every method by name: the paper's, ours, and those they are compared with."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from hcep.classify.estimators import HCEPClassifier
from hcep.classify.methods.cbm import CBMClassifier
from hcep.classify.methods.greedy import OMPClassifier
from hcep.classify.methods.linear_probe import LinearProbe
from hcep.classify.methods.nearest import HNNClassifier, NNClassifier
from hcep.classify.methods.penalised import BasisPursuitClassifier, SpLiCEClassifier, TreeLassoClassifier
from hcep.errors import HCEPError, near_matches, quoted
from hcep.hierarchy import Hierarchy


@dataclass(frozen=True)
class Method:
    """A named way to classify by concepts.

    Attributes
    ----------
    name : str
        For code and commands.
    label : str
        For tables and figures.
    description : str
    published : bool
        Whether the paper compares it; the others are ours, or added as references.
    make : callable
        ``make(hierarchy, **options)`` gives the estimator, unfitted.
    """

    name: str
    label: str
    description: str
    published: bool
    make: Callable[..., Any]


_EUCLIDEAN: dict[str, Any] = {"shrinkage": None, "anchor": 0.0}
_ON_CODES: dict[str, Any] = {**_EUCLIDEAN, "head": "logistic"}

_ALL = (
    Method("omp", "OMP", "Flat orthogonal matching pursuit over all atoms, linear head.", True, OMPClassifier),
    Method(
        "hier-omp",
        "Hierarchical OMP",
        "The paper's pursuit with a beam of 1, linear head.",
        True,
        partial(HCEPClassifier, beam_width=1, **_ON_CODES),
    ),
    Method(
        "hb-omp",
        "HB-OMP",
        "The paper's hierarchical beam pursuit (beam 8 unless said otherwise), linear head.",
        True,
        partial(HCEPClassifier, beam_width=8, **_ON_CODES),
    ),
    Method(
        "exact",
        "Exact",
        "The best of all rooted paths by the paper's objective, linear head.",
        False,
        partial(HCEPClassifier, beam_width=None, **_ON_CODES),
    ),
    Method(
        "signed",
        "Exact, signed",
        "The same over paths whose new coefficients are positive, linear head.",
        False,
        partial(HCEPClassifier, beam_width=None, signed=True, **_ON_CODES),
    ),
    Method(
        "anchored",
        "Anchored",
        "All rooted paths, coefficients drawn to 1, Euclidean metric; the class is the leaf.",
        False,
        partial(HCEPClassifier, beam_width=None, shrinkage=None, anchor="auto", head="path"),
    ),
    Method(
        "hcep",
        "HCEP (ours)",
        "Anchored, in the whitened metric that the training images choose; the class is the leaf.",
        False,
        HCEPClassifier,
    ),
    Method("cbm", "CBM", "A supervised predictor of every synset on the embeddings, linear head.", True, CBMClassifier),
    Method("nn", "NN", "The nearest class embedding: a black box.", True, NNClassifier),
    Method("hnn", "HNN", "The nearest child, level by level; 0/1 code, linear head.", True, HNNClassifier),
    Method("linear-probe", "Linear probe", "A linear head on the embeddings: a black box.", False, LinearProbe),
    Method(
        "splice",
        "SpLiCE",
        "The lasso with coefficients of at least 0 over all atoms, linear head.",
        False,
        SpLiCEClassifier,
    ),
    Method("basis-pursuit", "Basis pursuit", "The lasso over all atoms, linear head.", False, BasisPursuitClassifier),
    Method(
        "tree-l1",
        "Tree l1",
        "The tree-structured l1 of Jenatton et al., each subtree a group, linear head.",
        False,
        TreeLassoClassifier,
    ),
)

#: Every method by name, in the order of tables.
METHODS: dict[str, Method] = {method.name: method for method in _ALL}


def make_method(
    name: str,
    hierarchy: Hierarchy | None = None,
    *,
    max_steps: int | None = None,
    head: str | None = None,
    beam_width: int | None = None,
    **options: Any,
) -> Any:
    """Make an estimator by the name of its method.

    Parameters
    ----------
    name : str
        A key of `METHODS`.
    hierarchy : Hierarchy, optional
    max_steps : int, optional
        Most atoms a code may use; the depth of the hierarchy by default.
    head : {"path", "logistic", "adamw"}, optional
        The method's own by default. "path" is for rooted paths only, and "nn" has no other.
    beam_width : int, optional
        Of "hb-omp"; methods without a beam to set do not heed it, so that one call makes every row of a table.
    **options
        Anything else the estimator takes, such as ``n_jobs`` or ``mixing``.

    Returns
    -------
    estimator
        Unfitted: ``fit``, ``pursue``, ``predict``, ``predict_proba``, ``score``.

    Raises
    ------
    HCEPError
        An unknown name or option.

    Examples
    --------
    >>> from hcep.classify import make_method
    >>> from hcep.datasets import make_hierarchical_concepts
    >>> data = make_hierarchical_concepts(branching=3, depth=2, dim=10, noise=1e-4)
    >>> model = make_method("omp", data.hierarchy, max_steps=2).fit(data.X, data.y)
    >>> model.pursue(data.X[:1]).codes.shape
    (1, 12)
    """
    if name not in METHODS:
        close = near_matches(name, METHODS)
        raise HCEPError(f"method {name!r} is unknown; the methods are {quoted(METHODS, len(METHODS))}.{close}")
    given = {**options, "max_steps": max_steps}
    if head is not None:
        given["head"] = head
    if beam_width is not None and name == "hb-omp":
        given["beam_width"] = beam_width
    make = METHODS[name].make
    known = [p for p in inspect.signature(make).parameters if p != "hierarchy"]
    unknown = [option for option in given if option not in known]
    if unknown:
        raise HCEPError(
            f"method {name!r} has no option {unknown[0]!r}; it has {quoted(known, len(known))}."
            + near_matches(unknown[0], known)
        )
    return make(hierarchy, **given)
