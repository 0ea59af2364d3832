"""Dictionary learning on the hierarchy."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from hcep import ConceptDictionary, HCEPClassifier, HCEPError, Hierarchy, hb_omp
from hcep.datasets import make_hierarchical_concepts
from hcep.dictionary.concept_dictionary import average_upwards
from hcep.errors import HierarchyError
from hcep.models.loading import load_model
from hcep.models.saving import save_model
from hcep.pursuit import learn_atoms, path_objectives
from tests.reference.random_problems import random_problem

pytestmark = pytest.mark.filterwarnings("ignore::hcep.dictionary.DependentAtomsWarning")


@given(st.integers(0, 2**32 - 1), st.booleans(), st.booleans(), st.sampled_from([0.0, 0.03, 1.0]))
@settings(max_examples=10, deadline=None)
def test_the_objective_never_increases(seed: int, keep_means: bool, labelled: bool, anchor: float) -> None:
    problem, rng = random_problem(seed, n_images=12), np.random.default_rng(seed)
    y = rng.choice(problem.dictionary.hierarchy.leaves, 12) if labelled else None
    options: dict[str, Any] = {"anchor": anchor, "keep_means": keep_means, "n_iter": 5, "ridge": 0.1}
    learned, objectives = learn_atoms(problem.X, problem.dictionary, y, **options)
    assert (np.diff(objectives) <= 1e-12 * np.sum(problem.X**2)).all()
    assert len(objectives) > 1
    assert learned.anchor_unit == problem.dictionary.anchor_unit


def test_the_objective_is_that_of_the_paths_and_of_the_shifts() -> None:
    problem = random_problem(7, n_images=12)
    learned, objectives = learn_atoms(problem.X, problem.dictionary, anchor=0.3, ridge=0.5, keep_means=False)
    images = path_objectives(problem.X, learned, anchor=0.3).min(axis=1).sum()
    assert objectives[-1] == pytest.approx(images + 0.5 * np.sum((learned.atoms - problem.dictionary.atoms) ** 2))
    assert objectives[0] == pytest.approx(path_objectives(problem.X, problem.dictionary, anchor=0.3).min(axis=1).sum())


def test_an_update_is_the_ridge_regression_of_its_codes() -> None:
    problem = random_problem(11, n_images=12)
    start = problem.dictionary
    codes = hb_omp(problem.X, start, beam_width=None, anchor=0.3).codes.toarray()
    learned, _ = learn_atoms(problem.X, start, anchor=0.3, ridge=0.5, keep_means=False, n_iter=1)
    left = codes.T @ codes + 0.5 * np.eye(start.n_atoms)
    np.testing.assert_allclose(learned.atoms, np.linalg.solve(left, codes.T @ problem.X + 0.5 * start.atoms), atol=1e-9)


@pytest.fixture(scope="module")
def planted() -> Any:
    return make_hierarchical_concepts(branching=3, depth=3, dim=16, noise=1e-4, samples_per_leaf=20, random_state=0)


def noisy(dictionary: ConceptDictionary, share: float, keep_means: bool) -> ConceptDictionary:
    """Return a dictionary with random errors, relative to the norm of each atom or leaf."""
    rng = np.random.default_rng(1)
    if not keep_means:
        error = rng.standard_normal(dictionary.atoms.shape)
        error *= (
            share * np.linalg.norm(dictionary.atoms, axis=1, keepdims=True) / np.linalg.norm(error, axis=1)[:, None]
        )
        return ConceptDictionary.from_atoms(dictionary.hierarchy, dictionary.atoms + error)
    size = np.linalg.norm(dictionary.atoms, axis=1).mean() * share / 4.0
    leaves = dict(zip(dictionary.hierarchy.leaves, dictionary.leaf_embeddings, strict=True))
    return ConceptDictionary.from_leaf_embeddings(
        dictionary.hierarchy, {leaf: vector + size * rng.standard_normal(16) for leaf, vector in leaves.items()}
    )


def errors(dictionary: ConceptDictionary, truth: ConceptDictionary) -> float:
    """Return the largest relative error of any atom."""
    norms = np.linalg.norm(truth.atoms, axis=1)
    return float((np.linalg.norm(dictionary.atoms - truth.atoms, axis=1)[norms > 0] / norms[norms > 0]).max())


@pytest.mark.parametrize("labelled", [True, False])
def test_planted_leaves_are_recovered(planted: Any, labelled: bool) -> None:
    start = noisy(planted.dictionary, 0.5, keep_means=True)
    y = planted.y if labelled else None
    learned, _ = learn_atoms(planted.X, start, y, anchor=1.0, ridge=0.01)
    truth = ConceptDictionary.from_leaf_embeddings(
        planted.hierarchy, dict(zip(planted.hierarchy.leaves, planted.dictionary.leaf_embeddings, strict=True))
    )
    assert errors(start, truth) > 0.2
    assert errors(learned, truth) < 0.02


def test_sums_of_planted_atoms_are_recovered() -> None:
    # Images of a path determine the sum of its atoms; how it is divided among them depends on the start.
    rng = np.random.default_rng(0)
    tree = Hierarchy.from_edges([("r", "a"), ("r", "b"), *[(p, f"{p}{k}") for p in "ab" for k in range(3)]])
    truth = ConceptDictionary.from_atoms(tree, rng.standard_normal((tree.n_edges, 12)))
    codes = hb_omp(truth.leaf_embeddings.repeat(60, axis=0), truth, beam_width=None, anchor=1.0).codes
    codes.data = 1.0 + 0.1 * rng.standard_normal(len(codes.data))
    X = codes @ truth.atoms + 0.01 * rng.standard_normal((codes.shape[0], 12))
    start = noisy(truth, 0.3, keep_means=False)
    learned, _ = learn_atoms(X, start, anchor=1.0, keep_means=False)
    assert errors(start, truth) == pytest.approx(0.3)
    assert errors(learned, truth) < 0.25
    sizes = np.linalg.norm(truth.leaf_embeddings, axis=1)
    assert (np.linalg.norm(start.leaf_embeddings - truth.leaf_embeddings, axis=1) / sizes).min() > 0.1
    assert (np.linalg.norm(learned.leaf_embeddings - truth.leaf_embeddings, axis=1) / sizes).max() < 0.03


@pytest.mark.parametrize("seed", [3, 8])
def test_means_of_children_stay_means(seed: int) -> None:
    problem, rng = random_problem(seed, n_images=12), np.random.default_rng(seed)
    hierarchy = problem.dictionary.hierarchy
    leaves = {leaf: rng.standard_normal(problem.dictionary.n_dims) for leaf in hierarchy.leaves}
    start = ConceptDictionary.from_leaf_embeddings(hierarchy, leaves)
    learned, _ = learn_atoms(problem.X, start, ridge=0.1)
    again = average_upwards(hierarchy, dict(zip(hierarchy.leaves, learned.leaf_embeddings, strict=True)))
    np.testing.assert_allclose(learned.synset_embeddings, again, atol=1e-12)
    assert np.abs(learned.atoms - start.atoms).max() > 1e-3


def test_weights_count_as_repetitions() -> None:
    problem = random_problem(5, n_images=6)
    weighted, _ = learn_atoms(problem.X, problem.dictionary, sample_weight=[2, 1, 1, 0, 1, 1])
    repeated, _ = learn_atoms(problem.X[[0, 0, 1, 2, 4, 5]], problem.dictionary)
    np.testing.assert_allclose(weighted.atoms, repeated.atoms, atol=1e-9)


def test_atoms_of_a_transformed_space_are_learned_there(planted: Any) -> None:
    start = ConceptDictionary.from_images(
        planted.hierarchy.collapse(), planted.X, planted.y, shrinkage=0.5, rescale=True
    )
    inside = start.without_transform()
    learned, objectives = learn_atoms(planted.X, start, planted.y)
    again, same = learn_atoms(start.embed(planted.X), inside, planted.y)
    np.testing.assert_allclose(objectives, same)
    np.testing.assert_allclose(learned.atoms, again.atoms, atol=1e-9)


def test_a_classifier_can_learn_its_atoms(planted: Any, tmp_path: Any) -> None:
    rng = np.random.default_rng(0)
    X = planted.X + 0.2 * np.abs(planted.X).mean() * rng.standard_normal(planted.X.shape)
    options: dict[str, Any] = {"shrinkage": None, "power": 1.0, "anchor": 0.03, "prior": None}
    plain = HCEPClassifier(planted.hierarchy, refine=False, **options).fit(X, planted.y)
    model = HCEPClassifier(planted.hierarchy, refine="atoms", **options).fit(X, planted.y)
    expected, objectives = learn_atoms(X, plain.dictionary_, planted.y, anchor=0.03)
    assert objectives[-1] < objectives[0]
    np.testing.assert_allclose(model.dictionary_.atoms, expected.atoms, atol=1e-9)
    assert model.leaf_moves_ is not None
    assert model.leaf_moves_.max() > 0.0
    save_model(model, tmp_path / "model")
    again = load_model(tmp_path / "model")
    assert again.refine == "atoms"
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ridge": 0.0}, "ridge must be a finite number of at least 1e-09, got 0.0"),
        ({"n_iter": 0}, "n_iter must be a positive integer"),
        ({"sample_weight": [1.0]}, r"sample_weight must have one number per image, 3; got shape \(1,\)"),
        ({"y": ["cat"]}, r"y must have one label per image, 3; got shape \(1,\)"),
    ],
)
def test_invalid_arguments_are_rejected(
    pets_dictionary: ConceptDictionary, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(HCEPError, match=message):
        learn_atoms(pets_dictionary.leaf_embeddings[:3], pets_dictionary, **options)


def test_labels_that_are_not_classes_are_rejected(pets_dictionary: ConceptDictionary) -> None:
    with pytest.raises(HierarchyError, match="unicorn"):
        learn_atoms(pets_dictionary.leaf_embeddings[:1], pets_dictionary, ["unicorn"])


def test_too_many_unknown_vectors_are_rejected(
    pets_dictionary: ConceptDictionary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hcep.pursuit.learning.MAX_UNKNOWN", 3)
    with pytest.raises(HCEPError, match="solves for 5 vectors at once, and its limit is 3"):
        learn_atoms(pets_dictionary.leaf_embeddings, pets_dictionary)
