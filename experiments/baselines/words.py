"""Sparse codes over the words of a vocabulary, in a space that images and texts share: SpLiCE and IP-OMP."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from experiments.baselines.penalised import Lasso, sparse_codes
from hcep import ConceptDictionary, HCEPError, Hierarchy
from hcep.classify.methods import ConceptMethod
from hcep.dictionary.transform import unit_rows
from hcep.pursuit import FlatResult

Floats = NDArray[np.float64]
#: Images that IP-OMP codes at a time.
BLOCK = 256
#: An atom whose squared norm outside the chosen atoms is below this adds nothing to them but rounding.
DEPENDENT = 1e-9


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Words with text embeddings, (n_words, n_dims).

    If each word names a synset, `words` are ids of the hierarchy and `are_synsets` is true; only then does a code have
    a support that can be scored.
    """

    name: str
    words: tuple[str, ...]
    vectors: NDArray[Any]
    are_synsets: bool = False

    def within(self, hierarchy: Hierarchy) -> "Vocabulary":
        """Return the vocabulary without synsets that a hierarchy does not have; all words that are no synsets stay."""
        rows = [i for i, word in enumerate(self.words) if not self.are_synsets or word in hierarchy]
        return replace(self, words=tuple(self.words[i] for i in rows), vectors=self.vectors[rows])

    def dictionary(self) -> ConceptDictionary:
        """Return a flat dictionary with one atom per word: unit text embeddings minus their mean, at norm 1."""
        texts = unit_rows(self.vectors.astype(np.float64))
        flat = Hierarchy.from_edges([("(any word)", word) for word in self.words])
        atoms = dict(zip(self.words, unit_rows(texts - texts.mean(axis=0)), strict=True))
        return ConceptDictionary.from_leaf_embeddings(flat, atoms)


def ip_omp(X: ArrayLike, dictionary: ConceptDictionary, n_nonzero: int) -> FlatResult:
    """Find a sparse code of every image by orthogonal matching pursuit with the normalised rule (IP-OMP).

    Each step takes the atom that reduces the residual r most: with the part ``e`` of an atom outside the span of the
    chosen atoms, the one with the largest ``|<r, e>| / ||e||``. OMP divides by the norm of the whole atom instead.

    Parameters
    ----------
    X : (n_images, n_dims) array of raw embeddings
    n_nonzero : number of atoms in a code

    References
    ----------
    Chattopadhyay, Pilgrim, Vidal. Information maximization perspective of orthogonal matching pursuit with applications
    to explainable AI. NeurIPS 2023.

    Examples
    --------
    >>> h = Hierarchy.from_edges([("thing", "cat"), ("thing", "dog"), ("thing", "car")])
    >>> d = ConceptDictionary.from_leaf_embeddings(h, {"cat": [1.0, 0.0], "dog": [0.8, 0.6], "car": [0.0, 2.0]})
    >>> ip_omp(np.array([[2.0, 1.0]]), d, 2).supports
    [('dog', 'cat')]
    """
    x, atoms = dictionary.embed(np.asarray(X)).astype(np.float64), dictionary.atoms
    n_steps = min(n_nonzero, *atoms.shape)
    parts = [_pursue_block(x[i : i + BLOCK], atoms, n_steps) for i in range(0, len(x), BLOCK)]
    selected = np.concatenate([np.empty((0, n_steps), np.int32), *(chosen for chosen, _ in parts)])
    coefficients = np.concatenate([np.empty((0, n_steps)), *(values for _, values in parts)])
    codes = sparse_codes(selected, coefficients, len(atoms))
    return FlatResult(dictionary, codes, np.linalg.norm(x - codes @ atoms, axis=1), selected)


def _pursue_block(x: Floats, atoms: Floats, n_steps: int) -> tuple[NDArray[np.int32], Floats]:
    """Return the atoms of every image in the order of selection, -1 for none, and their least-squares coefficients."""
    rows = np.arange(len(x))
    selected = np.full((len(x), n_steps), -1, dtype=np.int32)
    basis = np.zeros((len(x), n_steps, x.shape[1]))
    products, squares = x @ atoms.T, np.tile(np.sum(atoms**2, axis=1), (len(x), 1))
    for step in range(n_steps):
        gains = np.where(squares > DEPENDENT, products**2 / np.maximum(squares, DEPENDENT), 0.0)
        best = np.argmax(gains, axis=1)
        alive = gains[rows, best] > DEPENDENT * np.sum(x**2, axis=1)
        selected[alive, step] = best[alive]
        direction = atoms[best]
        for _ in range(2):  # once more, against the rounding errors of the first time
            direction = direction - np.einsum("nkd,nk->nd", basis, np.einsum("nkd,nd->nk", basis, direction))
        basis[:, step] = unit_rows(direction) * alive[:, None]
        along = basis[:, step] @ atoms.T
        products -= np.sum(basis[:, step] * x, axis=1)[:, None] * along
        squares -= along**2
    used = selected >= 0
    chosen = atoms[selected] * used[:, :, None]
    gram = chosen @ chosen.transpose(0, 2, 1) + np.eye(n_steps) * ~used[:, :, None]
    return selected, np.linalg.solve(gram, np.einsum("nkd,nd->nk", chosen, x)[:, :, None])[:, :, 0]


class WordMethod(ConceptMethod):
    """Base of the methods that describe images by words, with a linear head on the code.

    The mean of the training images is subtracted from images, and the mean of the texts from texts, because CLIP puts
    the two kinds far apart. All vectors are then scaled to norm 1.

    Parameters
    ----------
    hierarchy, tree, collapse, unit_norm, center, head, n_jobs : as in `hcep.classify.methods.ConceptMethod`
    vocabulary : Vocabulary
    max_steps : number of words in a code; the depth of the hierarchy by default
    """

    words_: ConceptDictionary
    mean_: Floats

    def __init__(self, hierarchy: Any = None, *, vocabulary: Vocabulary | None = None, **shared: Any) -> None:
        super().__init__(hierarchy, **shared)
        self.vocabulary = vocabulary

    def fit_method(self, images: NDArray[Any], index: NDArray[np.intp]) -> None:
        if self.vocabulary is None:
            raise HCEPError("vocabulary is missing: pass the words and their text embeddings as a Vocabulary")
        self.words_ = self.vocabulary.dictionary()
        self.mean_ = unit_rows(images.astype(np.float64)).mean(axis=0)

    def _aligned(self, images: NDArray[Any]) -> Floats:
        """Return images without their mean, at norm 1."""
        return unit_rows(unit_rows(images.astype(np.float64)) - self.mean_)

    def _describe(self, aligned: Floats) -> FlatResult:
        """Return the codes of aligned images over the words."""
        raise NotImplementedError

    def code(self, images: NDArray[Any]) -> FlatResult:
        result = self._describe(self._aligned(images))
        assert self.vocabulary is not None
        if self.vocabulary.are_synsets:
            return result
        unscored = np.zeros((len(images), 0), dtype=np.int32)
        return FlatResult(result.dictionary, result.codes, result.residual_norms, unscored)


class SpLiCEClassifier(WordMethod):
    """SpLiCE: a sparse code with coefficients of at least 0 over words, by an l1 penalty, then a linear head.

    The penalty is the same share of each image's largest useful one, chosen so that training images use `max_steps`
    words on average; a code keeps all words that it has, as published.

    References
    ----------
    Bhalla, Oesterling, Srinivas, Calmon, Lakkaraju. Interpreting CLIP with sparse linear concept embeddings (SpLiCE).
    NeurIPS 2024.
    """

    alpha_: float

    def fit_method(self, images: NDArray[Any], index: NDArray[np.intp]) -> None:
        super().fit_method(images, index)
        self.alpha_ = Lasso(self.words_, positive=True).alpha(self._aligned(images), self._n_atoms_kept)

    def _describe(self, aligned: Floats) -> FlatResult:
        return Lasso(self.words_, positive=True).codes(aligned, alpha=self.alpha_)


class IPOMPClassifier(WordMethod):
    """IP-OMP: orthogonal matching pursuit over words with the normalised rule (see `ip_omp`), then a linear head."""

    def _describe(self, aligned: Floats) -> FlatResult:
        return ip_omp(aligned, self.words_, self._n_atoms_kept)
