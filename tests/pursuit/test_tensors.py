"""The search on tensors against the compiled one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from hcep import ConceptDictionary, HCEPError, Hierarchy, hb_omp
from hcep.errors import DictionaryError
from tests.reference.paper import reference_hb_omp
from tests.reference.random_problems import Problem, random_problem

torch = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = pytest.mark.filterwarnings("ignore::hcep.dictionary.DependentAtomsWarning")

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")),
]
N_BEST = 3


def clear_images(problem: Problem, margin: float) -> list[int]:
    """Images whose answer was decided by more than rounding, on paths whose atoms are far from dependent."""
    plain = [reference_hb_omp(x, problem.dictionary, **problem.options) for x in problem.X]
    independent = [np.linalg.cond(problem.dictionary.atoms[p.code != 0]) < 100 if p.code.any() else True for p in plain]
    return [i for i, p in enumerate(plain) if p.margin > margin and independent[i]]


def compare(problem: Problem, dtype: str, margin: float, device: str = "cpu") -> int:
    """Assert that both searches agree to 1e-5 away from ties; return the number of images compared."""
    X = problem.X.astype(dtype)
    compiled = hb_omp(X, problem.dictionary, n_best=N_BEST, **problem.options)
    found = hb_omp(torch.from_numpy(X).to(device), problem.dictionary, n_best=N_BEST, **problem.options)
    assert {t.device.type for t in (found.nodes, found.codes, found.residual_norms, found.n_best_nodes)} == {device}
    own, clear = found.numpy(), clear_images(problem, margin)
    assert own.codes.dtype == compiled.codes.dtype == np.dtype(dtype)
    assert (own.nodes[clear] == compiled.nodes[clear]).all()
    scale = 1.0 + np.abs(compiled.codes.toarray()[clear])
    assert (np.abs(own.codes.toarray() - compiled.codes.toarray())[clear] <= 1e-5 * scale).all()
    assert np.allclose(own.residual_norms[clear], compiled.residual_norms[clear], atol=1e-5)
    np.testing.assert_array_equal(found.codes.to_dense().cpu().numpy(), own.codes.toarray())
    return len(clear)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("dtype", "margin"), [("float64", 1e-8), ("float32", 1e-4)])
def test_equal_to_the_compiled_search_on_random_trees_and_dags(device: str, dtype: str, margin: float) -> None:
    n_compared = sum(compare(random_problem(seed), dtype, margin, device) for seed in range(20_000, 20_100))
    assert n_compared > 0.7 * 3 * 100


@given(st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=60)
def test_equal_to_the_compiled_search_on_what_hypothesis_draws(seed: int) -> None:
    compare(random_problem(seed, n_images=2), "float64", 1e-8)


@pytest.mark.parametrize("options", [{"beam_width": None}, {"beam_width": 2}, {"beam_width": 8, "signed": True}])
def test_the_best_hypotheses_are_the_same_and_in_the_same_order(
    pets_dictionary: ConceptDictionary, options: dict[str, object]
) -> None:
    X = np.random.default_rng(0).standard_normal((200, 4))
    compiled = hb_omp(X, pets_dictionary, n_best=4, **options)
    found = hb_omp(torch.from_numpy(X), pets_dictionary, n_best=4, **options)
    np.testing.assert_array_equal(found.n_best_nodes.numpy(), compiled.n_best_nodes)
    np.testing.assert_allclose(found.n_best_residual_norms.numpy(), compiled.n_best_residual_norms, atol=1e-7)
    assert found.hypotheses(0)[0].path == compiled.hypotheses(0)[0].path
    assert found.paths == compiled.paths
    assert found.leaves.tolist() == compiled.leaves.tolist()
    assert found.coefficients(3).numpy() == pytest.approx(compiled.coefficients(3))


@pytest.mark.parametrize("beam_width", [None, 1, 4])
def test_a_tie_goes_to_the_lowest_node(beam_width: int | None) -> None:
    # Two-way splits: without signs the two children tie exactly.
    tree = Hierarchy.from_edges([("r", "a"), ("r", "b"), ("a", "a1"), ("a", "a2"), ("b", "b1"), ("b", "b2")])
    leaves = dict(zip(tree.leaves, np.random.default_rng(0).standard_normal((4, 6)), strict=True))
    dictionary = ConceptDictionary.from_leaf_embeddings(tree, leaves)
    X = np.random.default_rng(1).standard_normal((50, 6))
    compiled, found = (hb_omp(x, dictionary, beam_width=beam_width, n_best=4) for x in (X, torch.from_numpy(X)))
    np.testing.assert_array_equal(found.n_best_nodes.numpy(), compiled.n_best_nodes)


@pytest.mark.parametrize("power", [1.0, 0.5])
def test_goes_through_the_dictionarys_transform(power: float) -> None:
    rng = np.random.default_rng(0)
    tree = Hierarchy.from_edges([("r", "a"), ("r", "b"), ("a", "a1"), ("a", "a2"), ("a", "a3")])
    X = rng.standard_normal((200, 5)) + np.repeat(rng.standard_normal((4, 5)), 50, axis=0)
    y = np.repeat(["b", "a1", "a2", "a3"], 50)
    options = {"unit_norm": True, "center": True, "shrinkage": 0.3, "rescale": True, "power": power}
    dictionary = ConceptDictionary.from_images(tree, X, y, **options)
    compiled, found = (hb_omp(x, dictionary, anchor=0.03) for x in (X, torch.from_numpy(X)))
    np.testing.assert_array_equal(found.nodes.numpy(), compiled.nodes)
    np.testing.assert_allclose(found.residual_norms.numpy(), compiled.residual_norms, atol=1e-9)


def test_the_gradient_of_a_power_is_finite_at_zero() -> None:
    tree = Hierarchy.from_edges([("r", "a"), ("r", "b")])
    images, labels = np.array([[4.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 4.0]]), np.array(["a", "a", "b", "b"])
    dictionary = ConceptDictionary.from_images(tree, images, labels, power=0.5)
    X = torch.tensor([[1.0, 0.0]], requires_grad=True)
    hb_omp(X, dictionary, anchor=0.1).coefficients_along.sum().backward()
    assert torch.isfinite(X.grad).all()


@pytest.mark.parametrize("device", DEVICES)
def test_bfloat16_rounds_factors_and_not_sums(device: str) -> None:
    tree = Hierarchy.from_edges([("r", c) for c in "abc"])
    # Directions of 1024 times 1/32, exact in bfloat16; the sum of the first, 32.125, is not.
    leaves = {c: np.roll(np.repeat([1.0, 0.0, 0.0], 1024), 1024 * k) for k, c in enumerate("abc")}
    dictionary = ConceptDictionary.from_leaf_embeddings(tree, leaves)
    X = torch.ones((1, 3072), dtype=torch.bfloat16, device=device)
    X[0, :512] = 1.0078125  # the next bfloat16 above 1
    found = hb_omp(X, dictionary)
    assert found.paths == [("a",)]
    assert found.coefficients_along.dtype == torch.float32
    assert float(found.coefficients(0)[0]) == 1.00390625


def test_coefficients_have_a_gradient(pets_dictionary: ConceptDictionary) -> None:
    X = torch.tensor([[3.0, 1.2, 0.1, 0.0]], dtype=torch.float64, requires_grad=True)
    found = hb_omp(X, pets_dictionary, anchor=0.1)
    assert found.paths == [("animal", "cat")]
    found.coefficients_along[0, 1].backward()
    # Coefficients are affine in the image: the gradient is their change.
    step = np.array([[0.0, 1e-3, 2e-3, 0.0]])
    before, after = (
        hb_omp(x, pets_dictionary, anchor=0.1).coefficients(0)[1]
        for x in (X.detach().numpy(), X.detach().numpy() + step)
    )
    assert float((X.grad.numpy() * step).sum()) == pytest.approx(after - before, abs=1e-10)


def test_no_image(pets_dictionary: ConceptDictionary) -> None:
    found = hb_omp(torch.zeros((0, 4)), pets_dictionary)
    assert found.codes.shape == (0, pets_dictionary.n_atoms)
    assert found.paths == []


def test_what_is_not_for_tensors(pets_dictionary: ConceptDictionary) -> None:
    with pytest.raises(HCEPError, match=r"trace=True is not for tensors: pass X\.cpu\(\)\.numpy\(\)"):
        hb_omp(torch.zeros(1, 4), pets_dictionary, trace=True)


def test_images_that_do_not_fit(pets_dictionary: ConceptDictionary) -> None:
    with pytest.raises(DictionaryError, match="3 dimensions, but the dictionary has 4"):
        hb_omp(torch.zeros(2, 3), pets_dictionary)
    with pytest.raises(DictionaryError, match="NaN or infinite"):
        hb_omp(torch.full((2, 4), float("nan")), pets_dictionary)
    with pytest.raises(HCEPError, match="n_best must be a positive integer"):
        hb_omp(torch.zeros(2, 4), pets_dictionary, n_best=0)
