"""Orthogonal matching pursuit over all atoms, the flat baseline."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hcep._checks import require_not_negative, require_positive
from hcep.dictionary import ConceptDictionary
from hcep.dictionary.checks import as_embeddings, check_shape, working_dtype
from hcep.dictionary.path_problem import equal_or_opposite
from hcep.errors import HCEPError
from hcep.hierarchy import Hierarchy
from hcep.pursuit.blocks import for_blocks
from hcep.pursuit.result import FlatResult, codes_of
from hcep.pursuit.tables import Images

#: A Gram matrix of this many atoms takes 3.6 GB in single precision.
MAX_ATOMS = 30_000


def omp(
    X: ArrayLike,
    dictionary: ConceptDictionary | NDArray[np.floating],
    n_nonzero: int | None = None,
    tol: float = 0.0,
    *,
    progress: bool = False,
    n_jobs: int | None = None,
) -> FlatResult:
    """Find a sparse code for every image without using the hierarchy.

    Parameters
    ----------
    X : array of shape (n_images, n_dims)
        Raw embeddings, as for `hb_omp`.
    dictionary : ConceptDictionary or array of shape (n_atoms, n_dims)
        An array holds atoms of your own in its rows; supports then name them "0", "1" and so on.
    n_nonzero : int, optional
        The most atoms to select per image; the depth of the hierarchy by default. An array of atoms needs it.
    tol : float
        Stop when the norm of the residual is below this value. (scikit-learn uses its square.)
    progress : bool
        Show a progress bar.
    n_jobs : int, optional
        The number of threads; all cores by default.

    Returns
    -------
    FlatResult

    Notes
    -----
    This is Algorithm 1 of the paper. It repeatedly selects the atom with the highest ``|cos(r, d)|`` and projects the
    image onto all selected atoms, until no atom correlates with the residual r. Ties go to the lowest atom. Equal and
    opposite atoms, such as those of a two-way split, always tie.

    References
    ----------
    Y. C. Pati, R. Rezaiifar, P. S. Krishnaprasad. Orthogonal matching pursuit: recursive function approximation with
    applications to wavelet decomposition. Asilomar Conference on Signals, Systems and Computers, 1993.

    Examples
    --------
    >>> from hcep import ConceptDictionary, Hierarchy, omp
    >>> h = Hierarchy.from_edges([("thing", "cat"), ("thing", "dog"), ("thing", "car")])
    >>> d = ConceptDictionary.from_leaf_embeddings(h, {"cat": [1.0, 0.0], "dog": [0.8, 0.6], "car": [0.0, 2.0]})
    >>> omp(np.array([[2.0, 1.0]]), d, n_nonzero=2).supports
    [('dog', 'car')]
    >>> omp(np.array([[2.0, 1.0]]), np.eye(2), n_nonzero=1).codes.toarray()
    array([[2., 0.]])
    """
    from hcep.pursuit.flat_kernel import Atoms, search_flat

    if not isinstance(dictionary, ConceptDictionary):
        if n_nonzero is None:
            raise HCEPError("n_nonzero must be given with an array of atoms: the most atoms to select per image")
        dictionary = _flat_dictionary(dictionary)
    rows = check_shape(X, dictionary.n_dims)
    require_positive("n_nonzero", n_nonzero, "the depth of the hierarchy")
    tolerance = require_not_negative("tol", tol)
    if dictionary.n_atoms > MAX_ATOMS:
        raise HCEPError(
            f"omp keeps the products of all pairs of atoms, and {dictionary.n_atoms:,} atoms are more than its limit "
            f"of {MAX_ATOMS:,}; restrict the hierarchy to fewer classes, or use hb_omp"
        )
    n_steps = min(n_nonzero or dictionary.hierarchy.depth, dictionary.n_atoms, dictionary.n_dims)
    dtype = working_dtype(rows)
    norms = np.linalg.norm(dictionary.atoms, axis=1)
    distinct = distinct_directions(dictionary.atoms, norms)
    unit = (dictionary.atoms[distinct] / norms[distinct, None]).astype(dtype)
    atoms = Atoms(unit, unit @ unit.T, float(10 * np.finfo(dtype).eps))
    selected = np.full((len(rows), n_steps), -1, dtype=np.int32)
    coefficients = np.zeros((len(rows), n_steps), dtype=dtype)
    residuals = np.zeros(len(rows))

    def work(block: slice) -> None:
        x = np.ascontiguousarray(dictionary.embed(rows[block], block.start))
        images = Images.of(x, x @ atoms.unit.T)
        search_flat(images, atoms, tolerance, selected[block], coefficients[block], residuals[block])

    for_blocks(len(rows), work, n_jobs, progress, "OMP")
    if len(distinct):
        coefficients = (coefficients / norms[distinct][selected]).astype(dtype)
        selected = np.where(selected >= 0, distinct[selected], -1)
    return FlatResult(dictionary, codes_of(selected, coefficients, dictionary.n_atoms), residuals, selected)


def _flat_dictionary(atoms: ArrayLike) -> ConceptDictionary:
    """Return a dictionary in which every atom is a child of the root."""
    rows = as_embeddings(atoms, name="dictionary")
    names = [str(i) for i in range(len(rows))]
    hierarchy = Hierarchy.from_edges([("atoms", name) for name in names])
    return ConceptDictionary.from_synset_embeddings(hierarchy, dict(zip(names, rows, strict=True)))


def distinct_directions(atoms: NDArray[np.float64], norms: NDArray[np.float64]) -> NDArray[np.int32]:
    """Return the atoms that are not zero and not parallel to an atom before them.

    Only rounding would distinguish parallel atoms, so the choice between them would depend on the machine. After the
    first one, the others explain nothing more.
    """
    candidates = np.flatnonzero(norms > 0)
    unit = atoms[candidates] / norms[candidates, None]
    first = np.arange(len(candidates))
    for u, v, _ in equal_or_opposite(unit, np.zeros(len(unit))):
        first[v] = first[u]
    lowest = np.full(len(candidates), len(candidates))
    np.minimum.at(lowest, first, np.arange(len(candidates)))
    distinct: NDArray[np.int32] = candidates[np.unique(lowest[first])].astype(np.int32)
    return distinct
