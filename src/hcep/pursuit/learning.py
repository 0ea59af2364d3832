"""Dictionary learning on the hierarchy: alternate the pursuit of rooted paths and a closed-form update of the atoms."""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg, sparse

from hcep._checks import require_not_negative, require_positive
from hcep.dictionary import ConceptDictionary
from hcep.dictionary.checks import CHUNK, check_shape
from hcep.dictionary.concept_dictionary import leaf_shares
from hcep.errors import HCEPError
from hcep.hierarchy import Hierarchy
from hcep.pursuit.limits import PathLimits
from hcep.pursuit.result import PathResult
from hcep.pursuit.search import SearchOptions, search

Floats = NDArray[np.float64]
#: The most unknown vectors; their normal equations take 0.8 GB.
MAX_UNKNOWN = 10_000
#: Stop when an iteration lowers the objective by less than this share.
STALLED = 1e-5


def learn_atoms(
    X: ArrayLike,
    dictionary: ConceptDictionary,
    y: ArrayLike | None = None,
    *,
    anchor: float = 0.3,
    ridge: float = 1.0,
    keep_means: bool = True,
    n_iter: int = 20,
    sample_weight: ArrayLike | None = None,
    n_jobs: int | None = None,
) -> tuple[ConceptDictionary, Floats]:
    """Learn the atoms that explain images best along rooted paths, starting from a dictionary.

    Parameters
    ----------
    X : array of shape (n_images, n_dims)
        Raw embeddings, which go through the dictionary's transform.
    dictionary : ConceptDictionary
        The atoms to start from. The hierarchy, the transform and the unit of the anchor stay.
    y : array of str of shape (n_images,), optional
        The class of each image, whose rooted paths it may take. Without it, an image may take any path.
    anchor : float
        Weight of the prior that coefficients are 1, as in `hb_omp`.
    ridge : float
        Weight of the prior that atoms stay where they are, in images. Images of a path determine the sum of its atoms.
        Far below 1, the atoms of a path grow against each other, because the anchor then charges less.
    keep_means : bool
        Move only the leaves, and every inner synset as the mean of its children moves: means of children stay means.
        Otherwise each atom is learned on its own, and the embedding of a synset is the sum of the atoms on its path.
    n_iter : int
        The most updates; it ends before if the objective hardly falls.
    sample_weight : array of shape (n_images,), optional
        How much each image counts.
    n_jobs : int, optional
        The number of threads of the pursuit; all cores by default.

    Returns
    -------
    dictionary : ConceptDictionary
    objectives : array of shape (n_updates + 1,)
        The objective after each pursuit, of which the first is that of the given dictionary. It never increases, up to
        rounding.

    Notes
    -----
    The objective, over atoms D and over codes z whose support is a complete rooted path, is::

        sum_i w_i (||x_i - D^T z_i||**2 + lambda ||z_i - 1||**2) + ridge ||T - T_0||**2

    where T are the leaves with `keep_means`, and the atoms without. The exact search minimises it over the codes, and
    a ridge regression over T, because D is a linear function of T. The objective therefore never increases.

    References
    ----------
    R. Jenatton, J. Mairal, G. Obozinski, F. Bach. Proximal methods for hierarchical sparse coding. JMLR, 2011.

    Examples
    --------
    >>> from hcep import ConceptDictionary, Hierarchy
    >>> from hcep.pursuit import learn_atoms
    >>> h = Hierarchy.from_edges([("thing", "cat"), ("thing", "car")])
    >>> start = ConceptDictionary.from_leaf_embeddings(h, {"cat": [2.0, 0.5], "car": [0.0, 3.0]})
    >>> learned, objectives = learn_atoms([[2.0, 0.0]] * 50, start)
    >>> learned.synset_embedding("cat").round(1)
    array([2., 0.])
    """
    rows, hierarchy = check_shape(X, dictionary.n_dims), dictionary.hierarchy
    require_not_negative("ridge", ridge, 1e-9)
    require_positive("n_iter", n_iter)
    weights = np.ones(len(rows)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    if weights.shape != (len(rows),):
        raise HCEPError(f"sample_weight must have one number per image, {len(rows):,}; got shape {weights.shape}")
    options, limits = SearchOptions(beam_width=None, anchor=anchor, n_jobs=n_jobs), _paths_of(hierarchy, y, len(rows))
    design = _means_design(hierarchy) if keep_means else sparse.eye_array(dictionary.n_atoms, format="csr")
    if design.shape[1] > MAX_UNKNOWN:
        raise HCEPError(
            f"learn_atoms solves for {design.shape[1]:,} vectors at once, and its limit is {MAX_UNKNOWN:,}; "
            "restrict the hierarchy to fewer classes"
        )

    def pursued(learned: ConceptDictionary, shifts: Floats) -> tuple[PathResult, float]:
        result = search(rows.astype(np.float64, copy=False), learned, options, limits=limits)
        deviations = result.codes.copy()
        deviations.data = (deviations.data - 1.0) ** 2
        prior = learned.path_problem(anchor).anchor * deviations.sum(axis=1)
        value = weights @ (result.residual_norms**2 + prior) + ridge * np.vdot(shifts, shifts)
        return result, float(value)

    moved = _mover(dictionary, keep_means)
    learned = dictionary
    result, value = pursued(dictionary, np.zeros((1, 1)))
    objectives = [value]
    for _ in range(n_iter):
        shifts = _update(rows, dictionary, result.codes, design, weights, ridge)
        learned = moved(shifts)
        result, value = pursued(learned, shifts)
        objectives.append(value)
        if objectives[-2] - value <= STALLED * objectives[0]:
            break
    return learned, np.array(objectives)


def _update(
    rows: NDArray[np.floating],
    start: ConceptDictionary,
    codes: sparse.csr_array,
    design: sparse.csr_array,
    weights: Floats,
    ridge: float,
) -> Floats:
    """Return the shifts, shape (n_unknown, n_columns), that lower the objective most for these codes."""
    own = (codes @ design).tocsr()
    weighted = sparse.csr_array(own * weights[:, None])
    normal = (weighted.T @ own).toarray()
    normal[np.diag_indices(len(normal))] += ridge
    towards = np.zeros((len(normal), start.synset_embeddings.shape[1]))
    for first in range(0, len(rows), CHUNK):
        block = slice(first, first + CHUNK)
        x = start.embed(rows[block].astype(np.float64), first)
        towards += weighted[block].T @ (x - codes[block] @ start.atoms)
    return np.asarray(linalg.solve(normal, towards, assume_a="pos"))


def _mover(start: ConceptDictionary, keep_means: bool) -> Callable[[Floats], ConceptDictionary]:
    """Return the function from shifts to the dictionary that they give."""
    hierarchy, transform, unit = start.hierarchy, start.transform, start.anchor_unit
    if not keep_means:
        return lambda shifts: ConceptDictionary.from_atoms(hierarchy, start.atoms + shifts, transform, unit)
    shares, synsets = leaf_shares(hierarchy, hierarchy.leaves), start.synset_embeddings
    return lambda shifts: ConceptDictionary(hierarchy, synsets + shares @ shifts, transform, unit)


def _means_design(hierarchy: Hierarchy) -> sparse.csr_array:
    """Return how each atom follows the leaves, shape (n_atoms, n_leaves), if inner synsets are means of children."""
    shares = leaf_shares(hierarchy, hierarchy.leaves)
    parents = np.repeat(np.arange(len(hierarchy)), np.diff(hierarchy.child_pointer))
    return sparse.csr_array(shares[hierarchy.child_index] - shares[parents])


def _paths_of(hierarchy: Hierarchy, y: ArrayLike | None, n_images: int) -> PathLimits | None:
    """Return the limits that keep each image on the paths of its class; None if it may take any."""
    if y is None:
        return None
    labels = np.asarray(y)
    if labels.shape != (n_images,):
        raise HCEPError(f"y must have one label per image, {n_images:,}; got shape {labels.shape}")
    classes, rows = np.unique(labels.astype(str), return_inverse=True)
    ends = [hierarchy.index(hierarchy.leaf_of(str(label))) for label in classes.tolist()]
    return PathLimits.through(hierarchy, [np.flatnonzero(hierarchy.path_tree.synset == end) for end in ends], rows)
