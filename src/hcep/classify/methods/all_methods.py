"""Every method by name: the paper's, ours, and those they are compared with.

To add one: a `ConceptMethod` in a module beside this one, and its row in the table below.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from numpy.typing import NDArray

from hcep.classify.base import class_hierarchy, parameter_names
from hcep.classify.estimators import HCEPClassifier
from hcep.classify.methods import flat
from hcep.classify.methods.cbm import CBMClassifier
from hcep.classify.methods.nearest import HNNClassifier, NNClassifier
from hcep.errors import HCEPError, near_matches, quoted
from hcep.hierarchy import Hierarchy


@dataclass(frozen=True)
class Method:
    """A named way to classify by concepts."""

    name: str  # for code and commands
    label: str  # for tables and figures
    description: str
    published: bool  # whether the paper compares it; the others are ours, or added as references
    make: Callable[..., Any]  # ``make(hierarchy, **options)`` gives the estimator, unfitted


class NoTreeClassifier(HCEPClassifier):
    """Our own estimator without the tree: every class hangs from the root. A control."""

    def _hierarchy_of(self, classes: NDArray[Any]) -> Hierarchy:
        super()._hierarchy_of(classes)  # refuses what it would refuse with the tree
        return class_hierarchy(None, classes)


#: The Euclidean metric of class means, as published.
PLAIN: dict[str, Any] = {"shrinkage": None, "power": 1.0, "refine": False}


def _on_codes(beam_width: int | None, **options: Any) -> Callable[..., Any]:
    """A rooted path in the Euclidean metric, a linear head on its code."""
    return partial(HCEPClassifier, beam_width=beam_width, head="logistic", **PLAIN, anchor=0.0, **options)


_PUBLISHED = ("omp", "hier-omp", "hb-omp", "cbm", "nn", "hnn")
_TABLE = (
    ("omp", "OMP", flat.OMPClassifier, "Flat orthogonal matching pursuit over all atoms, linear head."),
    ("hier-omp", "Hierarchical OMP", _on_codes(1), "The paper's pursuit with a beam of 1, linear head."),
    ("hb-omp", "HB-OMP", _on_codes(8),
     "The paper's hierarchical beam pursuit (beam 8 unless said otherwise), linear head."),
    ("exact", "Exact", _on_codes(None), "The best of all rooted paths by the paper's objective, linear head."),
    ("signed", "Exact, signed", _on_codes(None, signed=True),
     "The same over paths whose new coefficients are positive, linear head."),
    ("anchored", "Anchored", partial(HCEPClassifier, **PLAIN),
     "All rooted paths, coefficients drawn to 1, Euclidean metric; the class is the leaf."),
    ("hcep", "HCEP (ours)", HCEPClassifier,
     "Anchored, in the whitened metric that the training images choose; the class is the leaf."),
    ("no-tree", "HCEP without a tree", NoTreeClassifier, "The same with every class below the root: a control."),
    ("nearest-mean", "Nearest mean in our metric", partial(NNClassifier, shrinkage="auto"),
     "The nearest class mean in the whitened metric that the training images choose: a control."),
    ("cbm", "CBM", CBMClassifier, "A supervised predictor of every synset on the embeddings, linear head."),
    ("nn", "NN", NNClassifier, "The nearest class embedding: a black box."),
    ("hnn", "HNN", HNNClassifier, "The nearest child, level by level; 0/1 code, linear head."),
    ("linear-probe", "Linear probe", flat.LinearProbe, "A linear head on the embeddings: a black box."),
    ("lda", "Shrinkage LDA", flat.LDAClassifier,
     "Linear discriminant analysis on the embeddings, its shrinkage chosen as ours: a black box."),
    ("nn-lasso", "Non-negative lasso", flat.NonNegativeLassoClassifier,
     "The lasso with coefficients of at least 0 over all atoms, linear head."),
    ("basis-pursuit", "Basis pursuit", flat.BasisPursuitClassifier, "The lasso over all atoms, linear head."),
    ("tree-l1", "Tree l1", flat.TreeLassoClassifier,
     "The tree-structured l1 of Jenatton et al., each subtree a group, linear head."),
)  # fmt: skip

#: Every method by name, in the order of tables.
METHODS: dict[str, Method] = {
    name: Method(name, label, text, name in _PUBLISHED, make) for name, label, make, text in _TABLE
}
#: Names of earlier releases.
_RENAMED = {"splice": "nn-lasso"}


def make_method(name: str, hierarchy: Hierarchy | None = None, *, beam_width: int | None = None, **options: Any) -> Any:
    """Make an estimator by the name of its method, unfitted: ``fit``, ``pursue``, ``predict``, ``predict_proba``.

    Parameters
    ----------
    name : a key of `METHODS`
    beam_width : of "hb-omp"; other methods do not heed it, so that one call makes every row of a table
    **options : ``max_steps``, most atoms a code may use, the depth of the hierarchy by default; ``head``, {"path",
        "logistic", "adamw"} or a scikit-learn classifier, the method's own by default ("path" is for rooted paths only;
        "nn", "nearest-mean" and "lda" have none); anything else the estimator takes, such as ``n_jobs`` or ``mixing``
    """
    name = _RENAMED.get(name, name)
    if name not in METHODS:
        close = near_matches(name, METHODS)
        raise HCEPError(f"method {name!r} is unknown; the methods are {quoted(METHODS, len(METHODS))}.{close}")
    given = {key: value for key, value in options.items() if value is not None or key != "head"}
    if beam_width is not None and name == "hb-omp":
        given["beam_width"] = beam_width
    make = METHODS[name].make
    estimator: Any = make.func if isinstance(make, partial) else make
    known = [option for option in parameter_names(estimator) if option != "hierarchy"]
    unknown = [option for option in given if option not in known]
    if unknown:
        raise HCEPError(
            f"method {name!r} has no option {unknown[0]!r}; it has {quoted(known, len(known))}."
            + near_matches(unknown[0], known)
        )
    return make(hierarchy, **given)
