"""Every method of the tables by name: the package's own, and those that only the paper's comparisons need.

To add one: subclass `hcep.classify.methods.ConceptMethod`, and add a row to the table below.
"""

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.baselines.cbm import CBMClassifier
from experiments.baselines.penalised import Lasso, PenalisedSolver, TreeLasso, require_fraction, require_share
from experiments.baselines.words import IPOMPClassifier, SpLiCEClassifier
from hcep import HCEPClassifier, HCEPError, Hierarchy
from hcep.classify import METHODS as OF_THE_PACKAGE
from hcep.classify.methods import ConceptMethod
from hcep.classify.methods.all_methods import Method
from hcep.errors import near_matches, quoted
from hcep.pursuit import FlatResult


class PenalisedMethod(ConceptMethod):
    """Base of the penalised methods, whose penalty is the same share of each image's largest useful one.

    Parameters
    ----------
    hierarchy, tree, collapse, unit_norm, center, max_steps, head, n_jobs : as in `ConceptMethod`
    alpha : penalty, as in `experiments.baselines.penalised.lasso`; by default the one at which training images use
        `max_steps` atoms on average. It is stored as ``alpha_``
    """

    alpha_: float

    def __init__(self, hierarchy: Any = None, *, alpha: float | None = None, **shared: Any) -> None:
        super().__init__(hierarchy, **shared)
        self.alpha = alpha

    def _solver(self) -> PenalisedSolver:
        """Return the penalised problem over the fitted dictionary."""
        raise NotImplementedError

    def fit_method(self, images: NDArray[Any], index: NDArray[np.intp]) -> None:
        if self.alpha is not None:
            require_fraction("alpha", self.alpha)
        self.alpha_ = float(self.alpha or self._solver().alpha(images, self._n_atoms_kept, self.n_jobs))

    def code(self, images: NDArray[Any]) -> FlatResult:
        return self._solver().codes(images, self._n_atoms_kept, self.alpha_, self.n_jobs)


class BasisPursuitClassifier(PenalisedMethod):
    """Basis pursuit denoising (the lasso with any sign) over all atoms, then a linear head."""

    def _solver(self) -> PenalisedSolver:
        return Lasso(self.dictionary_, positive=False)


class NonNegativeLassoClassifier(PenalisedMethod):
    """The lasso with coefficients of at least 0 over the atoms of the hierarchy, then a linear head.

    `experiments.baselines.words.SpLiCEClassifier` solves the same program over the words of a vocabulary.
    """

    def _solver(self) -> PenalisedSolver:
        return Lasso(self.dictionary_, positive=True)


class TreeLassoClassifier(PenalisedMethod):
    """The tree-structured l1 of Jenatton et al., then a linear head.

    `mixing` 0 is the flat lasso, and 1 penalises whole subtrees only. Other parameters are those of `PenalisedMethod`.
    """

    def __init__(self, hierarchy: Any = None, *, mixing: float = 0.5, **shared: Any) -> None:
        super().__init__(hierarchy, **shared)
        self.mixing = mixing

    def _solver(self) -> PenalisedSolver:
        require_share("mixing", self.mixing)
        return TreeLasso(self.dictionary_, self.mixing)


class NoTreeClassifier(HCEPClassifier):
    """Our own estimator without the tree: every class hangs from the root. A control."""

    def _hierarchy_of(self, classes: NDArray[Any]) -> Hierarchy:
        super()._hierarchy_of(classes)  # raises the same errors as with the tree
        return HCEPClassifier()._hierarchy_of(classes)


#: The Euclidean metric of class means, as published.
PLAIN: dict[str, Any] = {"shrinkage": None, "power": 1.0, "refine": False}
_ON_CODES = partial(HCEPClassifier, head="logistic", **PLAIN, anchor=0.0)
_OWN = (
    ("hier-omp", "Hierarchical OMP", partial(_ON_CODES, beam_width=1)),
    ("exact", "Exact", partial(_ON_CODES, beam_width=None)),
    ("signed", "Exact, signed", partial(_ON_CODES, beam_width=None, signed=True)),
    ("anchored", "Anchored", partial(HCEPClassifier, **PLAIN)),
    ("no-tree", "HCEP without a tree", NoTreeClassifier),
    ("cbm", "CBM", CBMClassifier),
    ("nn-lasso", "Non-negative lasso", NonNegativeLassoClassifier),
    ("basis-pursuit", "Basis pursuit", BasisPursuitClassifier),
    ("tree-l1", "Tree l1", TreeLassoClassifier),
    ("splice", "SpLiCE", SpLiCEClassifier),
    ("ip-omp", "IP-OMP", IPOMPClassifier),
)
_ALL = OF_THE_PACKAGE | {name: Method(name, label, make) for name, label, make in _OWN}
_ORDER = """
omp hier-omp hb-omp exact signed anchored hcep no-tree nearest-mean cbm nn hnn linear-probe lda nn-lasso basis-pursuit
tree-l1 splice ip-omp
"""
#: Every method by name, in the order of tables.
METHODS: dict[str, Method] = {name: _ALL[name] for name in _ORDER.split()}


def make_method(name: str, hierarchy: Hierarchy | None = None, *, beam_width: int | None = None, **options: Any) -> Any:
    """Make an unfitted estimator by the name of its method.

    Parameters
    ----------
    name : a key of `METHODS`
    beam_width : beam of "hb-omp"; other methods ignore it, so that one call makes every row of a table
    **options : parameters of the estimator; a `head` of None is ignored
    """
    if name not in METHODS:
        close = near_matches(name, METHODS)
        raise HCEPError(f"method {name!r} is unknown; the methods are {quoted(METHODS, len(METHODS))}.{close}")
    settings = {key: value for key, value in options.items() if value is not None or key != "head"}
    if beam_width is not None and name == "hb-omp":
        settings["beam_width"] = beam_width
    return METHODS[name].estimator(hierarchy, **settings)
