"""A few images are searched without the compiled kernels and get the same answers, including ties."""

import subprocess
import sys
from importlib import import_module

import numpy as np
import pytest

from hcep.pursuit.search import SearchOptions, path_objectives, search
from tests.reference.random_problems import random_problem

pytestmark = pytest.mark.filterwarnings("ignore::hcep.dictionary.DependentAtomsWarning")

WITHOUT_KERNELS = """
import sys
import numpy as np
from hcep import ConceptDictionary, Hierarchy, hb_omp
from hcep.pursuit.search import FEW
h = Hierarchy.from_edges([("thing", "animal"), ("animal", "cat"), ("animal", "dog"), ("thing", "car")])
d = ConceptDictionary.from_leaf_embeddings(h, {"cat": [2.0, 1, 0], "dog": [2.0, -1, 0], "car": [0.0, 0, 3]})
X = np.array([[2.0, 1.2, 0.0]])
print(hb_omp(X, d, beam_width=None).paths, "numba" in sys.modules)
print(hb_omp(np.repeat(X, FEW, axis=0), d, beam_width=None).paths[0], "numba" in sys.modules)
print(hb_omp(np.repeat(X, FEW + 1, axis=0), d, beam_width=None).paths[0], "numba" in sys.modules)
"""


def compiled_and_few(monkeypatch, search_once):
    """Return the result with the kernels and the result without them."""
    answers = []
    for few in (0, 10_000):
        monkeypatch.setattr(import_module("hcep.pursuit.search"), "FEW", few)
        answers.append(search_once())
    return answers


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "options", [{}, {"anchor": 0.3}, {"anchor": 1e4}, {"signed": True}, {"signed": True, "anchor": 0.1, "max_steps": 2}]
)
@pytest.mark.parametrize("seed", range(6))
def test_a_few_images_get_the_same_answers_as_from_the_kernels(monkeypatch, seed, options, dtype):
    rng = np.random.default_rng(seed)
    dictionary = random_problem(seed).dictionary
    leaves = dictionary.synset_embeddings[dictionary.hierarchy.leaf_index]
    # Near classes, exactly at them (where residuals cancel), midway between two (ties), at zero, and anywhere.
    X = np.vstack(
        [leaves[:2] + 0.1, leaves[:2], leaves[:2].mean(axis=0), 0 * leaves[0], rng.normal(size=leaves[0].shape)]
    )
    chosen = SearchOptions(**{"beam_width": None, **options})
    compiled, few = compiled_and_few(
        monkeypatch, lambda: search(X.astype(dtype), dictionary, chosen, n_best=5, explained=True)
    )
    assert few.codes.dtype == compiled.codes.dtype
    np.testing.assert_array_equal(few.n_best_nodes, compiled.n_best_nodes)
    np.testing.assert_allclose(few.codes.toarray(), compiled.codes.toarray(), rtol=1e-12)
    np.testing.assert_allclose(few.n_best_residual_norms, compiled.n_best_residual_norms, atol=1e-6)
    np.testing.assert_allclose(few.explained_shares, compiled.explained_shares, atol=1e-9)
    np.testing.assert_allclose(few.own_shares, compiled.own_shares, atol=1e-9)


@pytest.mark.parametrize("signed", [False, True])
def test_objectives_are_bitwise_equal(monkeypatch, signed):
    rng = np.random.default_rng(0)
    dictionary = random_problem(1).dictionary
    X = rng.normal(size=(3, dictionary.n_dims)).astype(np.float32)
    compiled, few = compiled_and_few(monkeypatch, lambda: path_objectives(X, dictionary, signed=signed, anchor=0.05))
    np.testing.assert_array_equal(few, compiled)


def test_a_few_images_do_not_load_numba():
    output = subprocess.run([sys.executable, "-c", WITHOUT_KERNELS], capture_output=True, text=True, check=True).stdout
    assert output.splitlines() == [
        "[('animal', 'cat')] False",
        "('animal', 'cat') False",
        "('animal', 'cat') True",
    ]


def test_only_the_number_of_images_decides_between_arrays_and_kernels(monkeypatch):
    kernels = import_module("hcep.pursuit.search_kernel")  # numba is already loaded
    search_module, called = import_module("hcep.pursuit.search"), []
    monkeypatch.setattr(kernels, "search_all", lambda *arguments: called.append("compiled"))
    dictionary = random_problem(0).dictionary
    options = SearchOptions(beam_width=None, signed=True)
    for n in (search_module.FEW, search_module.FEW + 1):
        search(np.ones((n, dictionary.n_dims)), dictionary, options)
        called.append(n)
    assert called == [search_module.FEW, "compiled", search_module.FEW + 1]


def test_explaining_a_photo_does_not_load_numba():
    code = "import sys, hcep.classify.hedging, hcep.explain.photos, hcep.models.loading; print('numba' in sys.modules)"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.split() == ["False"]
