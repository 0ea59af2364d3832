"""The paper's synthetic data: a hierarchy of concept embeddings that satisfies its geometric conditions."""

from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import helmert
from sklearn.utils import Bunch

from hcep.dictionary import ConceptDictionary
from hcep.errors import HCEPError, quote
from hcep.hierarchy import Hierarchy

Orientation = Literal["svd", "eigh", "random"]
Floats = NDArray[np.float64]

ROOT = "root"
TOP = "0"
#: More atoms than this are surely a mistake: their number grows exponentially with the depth.
MAX_ATOMS = 1_000_000
#: Numbers in memory at a time in the decompositions, which need dim x dim for each parent.
CHUNK = 4_000_000


def make_hierarchical_concepts(
    branching: int = 3,
    depth: int = 7,
    dim: int = 50,
    *,
    half_angle: float = 85.0,
    norm: float = 0.8,
    reduction: float = 0.4,
    noise: float = 1e-5,
    samples_per_leaf: int = 5,
    orientation: Orientation = "svd",
    random_state: int | np.random.Generator | None = 0,
) -> Bunch:
    """Draw images from a hierarchy whose embeddings satisfy the paper's conditions exactly.

    Parameters
    ----------
    branching : children b of every inner synset, at least 2
    depth : levels L below the top synset, at least 1
    dim : dimension d of the embeddings, at least ``depth + branching - 1``
    half_angle : angle theta_0 between the top synset and its children, in degrees, between 0 and 90
    norm : norm of the top synset's embedding. Its direction is random.
    reduction : factor in (0, 1] by which the angle shrinks from one level to the next
    noise : *variance* sigma^2 of the Gaussian noise in each coordinate of an image
    samples_per_leaf : images of every leaf
    orientation : {"svd", "eigh", "random"}; which directions of the feasible subspace the children of a synset take:
        the first left singular vectors beyond the span of its ancestors, as published; those of an eigendecomposition
        of the projector onto the same subspace; or a random rotation for every parent. In the first case the atoms of
        cousins are nearly collinear, and flat sparse coding fails only there. The paper's text determines the subspace,
        but not its basis.
    random_state : seed of the top direction, the rotations and the noise, in this order, so that the same seed gives
        the same hierarchy at every noise level

    Returns
    -------
    sklearn.utils.Bunch
        ``hierarchy`` : Hierarchy, ids like ``"0.2.1"``, the top synset ``"0"`` hanging from the zero root ``"root"``.
        ``dictionary`` : ConceptDictionary with the exact embeddings.
        ``X`` : (n_leaves * samples_per_leaf, dim) float64, the images, leaf after leaf; ``y`` : str, their leaves.
        ``half_angles`` : (depth,) float64, theta_l in degrees for the children of a synset l levels below the top.

    Notes
    -----
    The b children of a synset p with ancestors A (p and all above it but the root) sit at the vertices v_j of a regular
    simplex, in b - 1 orthonormal directions U that are orthogonal to A::

        a(j) = a(p) + ||a(p)|| tan(theta_l) U v_j,      <v_j, v_j> = 1,   <v_j, v_k> = -1 / (b - 1)

    The paper writes the vertices as ``e_j - 1/b``, which have squared norm ``1 - 1/b`` and b coordinates; they are
    normalised here and mapped isometrically to b - 1 coordinates, so that the angle is theta_l exactly. The top
    synset is itself an atom: at the defaults there are 3,280 atoms, and a true support has ``depth + 1`` of them.

    With ``orientation="svd"`` all atoms together span only ``depth + branching`` dimensions, whatever `dim`, and a path
    spans ``depth + 1`` of them. With ``"random"`` they span all of `dim`.

    >>> from hcep.datasets import make_hierarchical_concepts
    >>> data = make_hierarchical_concepts(branching=2, depth=2, dim=3, noise=0.0, samples_per_leaf=1)
    >>> data.X.shape, data.y.tolist()
    ((4, 3), ['0.0.0', '0.0.1', '0.1.0', '0.1.1'])
    """
    shape = {"branching": branching, "depth": depth, "dim": dim, "samples_per_leaf": samples_per_leaf}
    _check(shape, half_angle, norm, reduction, noise, orientation)
    rng = np.random.default_rng(random_state)
    angles = half_angle * reduction ** np.arange(depth)
    edges, level = [(ROOT, TOP)], [TOP]
    for _ in range(depth):
        edges += [(parent, f"{parent}.{j}") for parent in level for j in range(branching)]
        level = [child for _, child in edges[-branching * len(level) :]]
    hierarchy = Hierarchy.from_edges(edges, root=ROOT)
    embeddings = _embed_tree(branching, dim, norm, np.radians(angles), orientation, rng)
    dictionary = ConceptDictionary.from_synset_embeddings(
        hierarchy, dict(zip(hierarchy.ids[1:], embeddings, strict=True))
    )
    y = np.repeat(np.array(hierarchy.leaves), samples_per_leaf)
    X = np.repeat(dictionary.leaf_embeddings, samples_per_leaf, axis=0)
    X += np.sqrt(noise) * rng.standard_normal(X.shape)
    return Bunch(hierarchy=hierarchy, dictionary=dictionary, X=X, y=y, half_angles=angles)


def _embed_tree(
    branching: int, dim: int, norm: float, half_angles: Floats, orientation: Orientation, rng: np.random.Generator
) -> Floats:
    # Vertices of the regular simplex of unit radius centred at 0, (branching, branching - 1): the rows of Helmert's
    # matrix are an orthonormal basis of the vectors that sum to zero, so its columns are the e_j - 1/b in that basis.
    vertices = helmert(branching).T / np.sqrt(1.0 - 1.0 / branching)
    direction = rng.standard_normal(dim)
    top = norm * direction / np.linalg.norm(direction)
    ancestors = top[None, None, :]  # (n_parents, ancestors of the parent and itself, dim)
    levels = [top[None, :]]
    for half_angle in half_angles:
        parents = levels[-1]
        frames = _frames(ancestors, branching - 1, orientation, rng)
        scale = np.linalg.norm(parents, axis=1) * np.tan(half_angle)
        atoms = scale[:, None, None] * np.einsum("pdk,jk->pjd", frames, vertices)
        children = (parents[:, None, :] + atoms).reshape(-1, dim)
        ancestors = np.concatenate([np.repeat(ancestors, branching, axis=0), children[:, None, :]], axis=1)
        levels.append(children)
    return np.concatenate(levels)


def _frames(ancestors: Floats, n_directions: int, orientation: Orientation, rng: np.random.Generator) -> Floats:
    """For each parent, orthonormal directions orthogonal to its ancestors, (n_parents, dim, n_directions)."""
    n_parents, n_above, dim = ancestors.shape
    frames = np.empty((n_parents, dim, n_directions))
    step = max(1, CHUNK // dim**2)
    for start in range(0, n_parents, step):
        above = ancestors[start : start + step].transpose(0, 2, 1)
        feasible = np.linalg.svd(above, full_matrices=True)[0][:, :, n_above:]
        if orientation == "eigh":
            feasible = np.linalg.eigh(feasible @ feasible.transpose(0, 2, 1))[1][:, :, n_above:]
        if orientation == "random":
            q, r = np.linalg.qr(rng.standard_normal((len(feasible), dim - n_above, n_directions)))
            # LAPACK chooses the signs of R's diagonal; without this correction the frames would not be uniform.
            feasible = feasible @ (q * np.sign(np.diagonal(r, axis1=1, axis2=2))[:, None, :])
        elif feasible.shape[2] > n_directions:
            # The paper's e_j - 1/b use the first b columns, in which they span the hyperplane of sum 0.
            feasible = feasible[:, :, : n_directions + 1] @ helmert(n_directions + 1).T
        frames[start : start + step] = feasible[:, :, :n_directions]
    return frames


def _check(shape: dict[str, Any], half_angle: float, norm: float, reduction: float, noise: float, how: str) -> None:
    for name, value in shape.items():
        least = 2 if name == "branching" else 1
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise HCEPError(f"{name} must be a whole number of at least {least}, got {quote(value)}")
    branching, depth, dim, _ = shape.values()
    required = depth + branching - 1
    if dim < required:
        raise HCEPError(
            f"dim must be at least depth + branching - 1 = {depth} + {branching} - 1 = {required}, got {dim}: "
            f"a synset {depth - 1} levels below the top leaves {max(dim - depth, 0)} dimensions orthogonal to itself "
            f"and its ancestors, its {branching} children need {branching - 1}; raise dim or lower depth or branching"
        )
    n_atoms = sum(int(branching) ** level for level in range(int(depth) + 1))
    if n_atoms > MAX_ATOMS:
        raise HCEPError(f"branching={branching} and depth={depth} make {n_atoms:,} atoms, more than {MAX_ATOMS:,}")
    for holds, what, value in (
        (0.0 < half_angle < 90.0, "half_angle must lie between 0 and 90 degrees", half_angle),
        (0.0 < norm < np.inf, "norm must be positive and finite", norm),
        (0.0 < reduction <= 1.0, "reduction must lie in (0, 1]", reduction),
        (0.0 <= noise < np.inf, "noise is a variance: it must be at least 0 and finite", noise),
        (how in get_args(Orientation), "orientation must be 'svd', 'eigh' or 'random'", how),
    ):
        if not holds:
            raise HCEPError(f"{what}, got {quote(value)}")
