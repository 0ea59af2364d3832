"""Codes over words: SpLiCE against scikit-learn's lasso, and IP-OMP against the rule written as least squares."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import Lasso as SklearnLasso

from experiments.baselines.methods import make_method
from experiments.baselines.words import Vocabulary, ip_omp
from hcep import HCEPError, support_scores
from tests.classify.method_contract import ANIMALS, X, Y

pytest.importorskip("skglm", reason="SpLiCE's lasso is skglm's")

RNG = np.random.default_rng(3)
MEANS = np.array([X[leaf == Y].mean(axis=0) for leaf in ANIMALS.leaves])
#: Texts that name the classes, far away from the images; and words that name nothing.
CLASSES = Vocabulary("class names", tuple(ANIMALS.leaves), MEANS / 5 + 7.0, are_synsets=True)
OTHERS = Vocabulary("words", tuple("abcdefghijkl"), RNG.standard_normal((12, 8)) + 7.0)


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def plain_ip_omp(x: np.ndarray, atoms: np.ndarray, n_steps: int) -> list[int]:
    """The rule, step by step: the atom after which the residual of least squares is smallest."""
    chosen: list[int] = []
    for _ in range(n_steps):
        residuals = {}
        for k in (k for k in range(len(atoms)) if k not in chosen):
            span = atoms[[*chosen, k]].T
            residuals[k] = np.linalg.norm(x - span @ np.linalg.lstsq(span, x, rcond=None)[0])
        chosen.append(min(residuals, key=lambda k: residuals[k]))
    return chosen


def test_ip_omp_takes_the_atom_that_reduces_the_residual_most() -> None:
    dictionary = OTHERS.dictionary()
    result = ip_omp(X[::5], dictionary, 4)
    expected = [plain_ip_omp(x, dictionary.atoms, 4) for x in X[::5]]
    assert result.selected.tolist() == expected
    for x, chosen, norm in zip(X[::5], expected, result.residual_norms, strict=True):
        span = dictionary.atoms[chosen].T
        assert np.linalg.norm(x - span @ np.linalg.lstsq(span, x, rcond=None)[0]) == pytest.approx(norm)


def test_ip_omp_stops_at_an_image_that_is_explained() -> None:
    dictionary = OTHERS.dictionary()
    result = ip_omp(2.0 * dictionary.atoms[[3]], dictionary, 3)
    assert result.supports == [("d",)]
    assert result.codes.toarray()[0, 3] == pytest.approx(2.0)


def test_both_means_are_removed() -> None:
    model = make_method("splice", ANIMALS, vocabulary=OTHERS).fit(X, Y)
    texts = unit(unit(OTHERS.vectors) - unit(OTHERS.vectors).mean(axis=0))
    assert model.words_.atoms == pytest.approx(texts)
    images = unit(unit(X) - unit(X).mean(axis=0))
    assert model._aligned(X) == pytest.approx(images)


def test_splice_is_the_non_negative_lasso_over_words() -> None:
    model = make_method("splice", ANIMALS, vocabulary=OTHERS, max_steps=3).fit(X, Y)
    codes, words = model.pursue(X[:5]).codes.toarray(), model.words_.atoms
    for x, code in zip(model._aligned(X[:5]), codes, strict=True):
        penalty = model.alpha_ * (words @ x).max()
        reference = SklearnLasso(penalty / len(x), positive=True, fit_intercept=False, tol=1e-10).fit(words.T, x)
        assert code == pytest.approx(reference.coef_, abs=2e-3)
    assert (codes >= 0).all()


@pytest.mark.parametrize("name", ["splice", "ip-omp"])
def test_class_names_classify_and_have_a_support_that_can_be_scored(name: str) -> None:
    model = make_method(name, ANIMALS, vocabulary=CLASSES, max_steps=1).fit(X, Y)
    assert model.score(X, Y) > 0.8
    scores = support_scores(model.pursue(X), Y, ANIMALS)
    assert scores.recall.mean() > 0.3  # a class is one of the two concepts on its path


@pytest.mark.parametrize("name", ["splice", "ip-omp"])
def test_words_outside_the_hierarchy_have_no_support(name: str) -> None:
    model = make_method(name, ANIMALS, vocabulary=OTHERS).fit(X, Y)
    assert model.pursue(X).selected.shape == (len(X), 0)
    assert model.pursue(X).codes.nnz > 0


def test_a_missing_vocabulary_is_an_error() -> None:
    with pytest.raises(HCEPError, match="vocabulary is missing: pass the words"):
        make_method("splice", ANIMALS).fit(X, Y)


def test_a_vocabulary_of_synsets_is_restricted_to_a_hierarchy() -> None:
    few = ANIMALS.restrict(["cat", "fox"])
    assert CLASSES.within(few).words == ("cat", "fox")
    assert CLASSES.within(few).vectors.tolist() == CLASSES.vectors[[0, 2]].tolist()
    assert OTHERS.within(few).words == OTHERS.words
