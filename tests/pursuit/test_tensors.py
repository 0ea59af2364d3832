"""The search on tensors gives the results of the compiled search."""

from __future__ import annotations

from typing import Any

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
    """Return the images whose answer is not a near tie, on paths whose atoms are far from dependent."""
    plain = [reference_hb_omp(x, problem.dictionary, **problem.options) for x in problem.X]
    independent = [np.linalg.cond(problem.dictionary.atoms[p.code != 0]) < 100 if p.code.any() else True for p in plain]
    return [i for i, p in enumerate(plain) if p.margin > margin and independent[i]]


def compare(problem: Problem, dtype: str, margin: float, device: str = "cpu") -> int:
    """Assert that both searches agree to 1e-5 except near ties; return the number of compared images."""
    X = problem.X.astype(dtype)
    compiled = hb_omp(X, problem.dictionary, n_best=N_BEST, **problem.options)
    result = hb_omp(torch.from_numpy(X).to(device), problem.dictionary, n_best=N_BEST, **problem.options)
    assert {t.device.type for t in (result.nodes, result.codes, result.residual_norms, result.n_best_nodes)} == {device}
    own, clear = result.numpy(), clear_images(problem, margin)
    assert own.codes.dtype == compiled.codes.dtype == np.dtype(dtype)
    assert (own.nodes[clear] == compiled.nodes[clear]).all()
    scale = 1.0 + np.abs(compiled.codes.toarray()[clear])
    assert (np.abs(own.codes.toarray() - compiled.codes.toarray())[clear] <= 1e-5 * scale).all()
    assert np.allclose(own.residual_norms[clear], compiled.residual_norms[clear], atol=1e-5)
    np.testing.assert_array_equal(result.codes.to_dense().cpu().numpy(), own.codes.toarray())
    return len(clear)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("dtype", "margin"), [("float64", 1e-8), ("float32", 1e-4)])
def test_tensors_agree_with_the_compiled_search(device: str, dtype: str, margin: float) -> None:
    n_compared = sum(compare(random_problem(seed), dtype, margin, device) for seed in range(20_000, 20_100))
    assert n_compared > 0.7 * 3 * 100


@given(st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=60)
def test_tensors_agree_with_the_compiled_search_on_drawn_problems(seed: int) -> None:
    compare(random_problem(seed, n_images=2), "float64", 1e-8)


@pytest.mark.parametrize("options", [{"beam_width": None}, {"beam_width": 2}, {"beam_width": 8, "signed": True}])
def test_n_best_agrees_with_the_compiled_search(pets_dictionary: ConceptDictionary, options: dict[str, object]) -> None:
    X = np.random.default_rng(0).standard_normal((200, 4))
    compiled = hb_omp(X, pets_dictionary, n_best=4, **options)
    result = hb_omp(torch.from_numpy(X), pets_dictionary, n_best=4, **options)
    np.testing.assert_array_equal(result.n_best_nodes.numpy(), compiled.n_best_nodes)
    np.testing.assert_allclose(result.n_best_residual_norms.numpy(), compiled.n_best_residual_norms, atol=1e-7)
    assert result.hypotheses(0)[0].path == compiled.hypotheses(0)[0].path
    assert result.paths == compiled.paths
    assert result.leaves.tolist() == compiled.leaves.tolist()
    assert result.coefficients(3).numpy() == pytest.approx(compiled.coefficients(3))


@pytest.mark.parametrize("beam_width", [None, 1, 4])
def test_a_tie_goes_to_the_lowest_node(beam_width: int | None) -> None:
    # Without the signed rule, the two children of a two-way split tie exactly.
    tree = Hierarchy.from_edges([("r", "a"), ("r", "b"), ("a", "a1"), ("a", "a2"), ("b", "b1"), ("b", "b2")])
    leaves = dict(zip(tree.leaves, np.random.default_rng(0).standard_normal((4, 6)), strict=True))
    dictionary = ConceptDictionary.from_leaf_embeddings(tree, leaves)
    X = np.random.default_rng(1).standard_normal((50, 6))
    compiled, result = (hb_omp(x, dictionary, beam_width=beam_width, n_best=4) for x in (X, torch.from_numpy(X)))
    np.testing.assert_array_equal(result.n_best_nodes.numpy(), compiled.n_best_nodes)


@pytest.mark.parametrize("power", [1.0, 0.5])
def test_tensors_go_through_the_transform(power: float) -> None:
    rng = np.random.default_rng(0)
    tree = Hierarchy.from_edges([("r", "a"), ("r", "b"), ("a", "a1"), ("a", "a2"), ("a", "a3")])
    X = rng.standard_normal((200, 5)) + np.repeat(rng.standard_normal((4, 5)), 50, axis=0)
    y = np.repeat(["b", "a1", "a2", "a3"], 50)
    options = {"unit_norm": True, "center": True, "shrinkage": 0.3, "rescale": True, "power": power}
    dictionary = ConceptDictionary.from_images(tree, X, y, **options)
    compiled, result = (hb_omp(x, dictionary, anchor=0.03) for x in (X, torch.from_numpy(X)))
    np.testing.assert_array_equal(result.nodes.numpy(), compiled.nodes)
    np.testing.assert_allclose(result.residual_norms.numpy(), compiled.residual_norms, atol=1e-9)


def test_the_gradient_of_a_power_is_finite_at_zero() -> None:
    tree = Hierarchy.from_edges([("r", "a"), ("r", "b")])
    images, labels = np.array([[4.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 4.0]]), np.array(["a", "a", "b", "b"])
    dictionary = ConceptDictionary.from_images(tree, images, labels, power=0.5)
    X = torch.tensor([[1.0, 0.0]], requires_grad=True)
    hb_omp(X, dictionary, anchor=0.1).coefficients_along.sum().backward()
    assert torch.isfinite(X.grad).all()


@pytest.mark.parametrize("device", DEVICES)
def test_bfloat16_rounds_factors_but_not_sums(device: str) -> None:
    tree = Hierarchy.from_edges([("r", c) for c in "abc"])
    # The entries of the directions, 1/32, are exact in bfloat16; the sum for the first image, 32.125, is not.
    leaves = {c: np.roll(np.repeat([1.0, 0.0, 0.0], 1024), 1024 * k) for k, c in enumerate("abc")}
    dictionary = ConceptDictionary.from_leaf_embeddings(tree, leaves)
    X = torch.ones((1, 3072), dtype=torch.bfloat16, device=device)
    X[0, :512] = 1.0078125  # the next bfloat16 above 1
    result = hb_omp(X, dictionary)
    assert result.paths == [("a",)]
    assert result.coefficients_along.dtype == torch.float32
    assert float(result.coefficients(0)[0]) == 1.00390625


def test_coefficients_have_a_gradient(pets_dictionary: ConceptDictionary) -> None:
    X = torch.tensor([[3.0, 1.2, 0.1, 0.0]], dtype=torch.float64, requires_grad=True)
    result = hb_omp(X, pets_dictionary, anchor=0.1)
    assert result.paths == [("animal", "cat")]
    result.coefficients_along[0, 1].backward()
    # Coefficients are affine in the image, so their change equals the gradient.
    step = np.array([[0.0, 1e-3, 2e-3, 0.0]])
    before, after = (
        hb_omp(x, pets_dictionary, anchor=0.1).coefficients(0)[1]
        for x in (X.detach().numpy(), X.detach().numpy() + step)
    )
    assert float((X.grad.numpy() * step).sum()) == pytest.approx(after - before, abs=1e-10)


def test_no_images_give_an_empty_result(pets_dictionary: ConceptDictionary) -> None:
    result = hb_omp(torch.zeros((0, 4)), pets_dictionary)
    assert result.codes.shape == (0, pets_dictionary.n_atoms)
    assert result.paths == []


@pytest.mark.parametrize("seed", range(21_000, 21_030))
def test_traces_of_tensors_are_those_of_arrays(seed: int) -> None:
    problem = random_problem(seed)
    clear = clear_images(problem, 1e-8)
    compiled = hb_omp(problem.X, problem.dictionary, trace=True, **problem.options).trace
    trace = hb_omp(torch.from_numpy(problem.X), problem.dictionary, trace=True, **problem.options).trace
    assert compiled is not None
    np.testing.assert_array_equal(trace.nodes[clear], compiled.nodes[clear])
    np.testing.assert_allclose(trace.residual_norms[clear], compiled.residual_norms[clear], atol=1e-7)


@pytest.mark.parametrize("select", ["gain", lambda gains, shares: abs(gains) * shares**0.5])
def test_tensors_follow_the_rule_of_selection(select: Any) -> None:
    n_compared = 0
    for seed in range(22_000, 22_040):
        problem = random_problem(seed)
        if problem.options["beam_width"] is None:
            continue
        clear = clear_images(problem, 1e-8)
        compiled = hb_omp(problem.X, problem.dictionary, select=select, **problem.options)
        result = hb_omp(torch.from_numpy(problem.X), problem.dictionary, select=select, **problem.options)
        assert (result.numpy().nodes[clear] == compiled.nodes[clear]).all()
        n_compared += len(clear)
    assert n_compared > 30


def test_invalid_tensors_are_rejected(pets_dictionary: ConceptDictionary) -> None:
    with pytest.raises(DictionaryError, match="3 dimensions, but the dictionary has 4"):
        hb_omp(torch.zeros(2, 3), pets_dictionary)
    with pytest.raises(DictionaryError, match="NaN or infinite"):
        hb_omp(torch.full((2, 4), float("nan")), pets_dictionary)
    with pytest.raises(HCEPError, match="n_best must be a positive integer"):
        hb_omp(torch.zeros(2, 4), pets_dictionary, n_best=0)


@pytest.mark.parametrize("scale", [1e-3, 10.0, 1000.0])
def test_an_anchor_does_not_depend_on_the_scale_of_tensors(pets_dictionary: ConceptDictionary, scale: float) -> None:
    X = torch.randn((20, pets_dictionary.n_dims), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    scaled = ConceptDictionary(pets_dictionary.hierarchy, scale * pets_dictionary.synset_embeddings)
    before = hb_omp(X, pets_dictionary, beam_width=None, anchor=0.03)
    after = hb_omp(scale * X, scaled, beam_width=None, anchor=0.03)
    assert after.paths == before.paths == hb_omp(scale * X.numpy(), scaled, beam_width=None, anchor=0.03).paths
    torch.testing.assert_close(after.coefficients_along, before.coefficients_along)
    torch.testing.assert_close(after.residual_norms / scale, before.residual_norms)


def test_residuals_of_tensors_are_in_double_precision_at_any_anchor(pets_dictionary: ConceptDictionary) -> None:
    X = np.random.default_rng(0).standard_normal((20, pets_dictionary.n_dims))
    arrays = hb_omp(X, pets_dictionary, anchor=500.1)
    tensors = hb_omp(torch.from_numpy(X), pets_dictionary, anchor=500.1)
    np.testing.assert_allclose(tensors.residual_norms.numpy(), arrays.residual_norms, rtol=1e-10)
