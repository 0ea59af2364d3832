"""A few images are searched without a compiler: the same answers as the kernels', ties included."""

import subprocess
import sys
from importlib import import_module

import numpy as np
import pytest

from hcep.pursuit.search import SearchOptions, path_objectives, search
from tests.reference.random_problems import random_problem

pytestmark = pytest.mark.filterwarnings("ignore::hcep.dictionary.DependentAtomsWarning")

WITHOUT_COMPILER = """
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


def both(monkeypatch, ask):
    """An answer of the kernels and one without them."""
    answers = []
    for few in (0, 10_000):
        monkeypatch.setattr(import_module("hcep.pursuit.search"), "FEW", few)
        answers.append(ask())
    return answers


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "options", [{}, {"anchor": 0.3}, {"anchor": 1e4}, {"signed": True}, {"signed": True, "anchor": 0.1, "max_steps": 2}]
)
@pytest.mark.parametrize("seed", range(6))
def test_the_same_as_the_kernels(monkeypatch, seed, options, dtype):
    rng = np.random.default_rng(seed)
    dictionary = random_problem(seed).dictionary
    leaves = dictionary.synset_embeddings[dictionary.hierarchy.leaf_index]
    # Near classes, exactly at them (where residuals cancel), midway between two (ties), at nothing, anywhere.
    X = np.vstack(
        [leaves[:2] + 0.1, leaves[:2], leaves[:2].mean(axis=0), 0 * leaves[0], rng.normal(size=leaves[0].shape)]
    )
    chosen = SearchOptions(**{"beam_width": None, **options})
    compiled, few = both(monkeypatch, lambda: search(X.astype(dtype), dictionary, chosen, n_best=5, explained=True))
    assert few.codes.dtype == compiled.codes.dtype
    np.testing.assert_array_equal(few.n_best_nodes, compiled.n_best_nodes)
    np.testing.assert_allclose(few.codes.toarray(), compiled.codes.toarray(), rtol=1e-12)
    np.testing.assert_allclose(few.n_best_residual_norms, compiled.n_best_residual_norms, atol=1e-6)
    np.testing.assert_allclose(few.explained_shares, compiled.explained_shares, atol=1e-9)
    np.testing.assert_allclose(few.own_shares, compiled.own_shares, atol=1e-9)


@pytest.mark.parametrize("signed", [False, True])
def test_objectives_are_the_same_to_the_bit(monkeypatch, signed):
    rng = np.random.default_rng(0)
    dictionary = random_problem(1).dictionary
    X = rng.normal(size=(3, dictionary.n_dims)).astype(np.float32)
    compiled, few = both(monkeypatch, lambda: path_objectives(X, dictionary, signed=signed, anchor=0.05))
    np.testing.assert_array_equal(few, compiled)


def test_no_compiler_is_loaded_for_a_few_images():
    told = subprocess.run([sys.executable, "-c", WITHOUT_COMPILER], capture_output=True, text=True, check=True).stdout
    assert told.splitlines() == [
        "[('animal', 'cat')] False",
        "('animal', 'cat') False",
        "('animal', 'cat') True",
    ]


def test_the_choice_depends_on_the_number_of_images_alone(monkeypatch):
    kernels = import_module("hcep.pursuit.search_kernel")  # the compiler is loaded
    search_module, called = import_module("hcep.pursuit.search"), []
    monkeypatch.setattr(kernels, "search_all", lambda *arguments: called.append("compiled"))
    dictionary = random_problem(0).dictionary
    options = SearchOptions(beam_width=None, signed=True)
    for n in (search_module.FEW, search_module.FEW + 1):
        search(np.ones((n, dictionary.n_dims)), dictionary, options)
        called.append(n)
    assert called == [search_module.FEW, "compiled", search_module.FEW + 1]


def test_what_explains_a_photo_loads_no_compiler():
    code = "import sys, hcep.classify.hedging, hcep.explain.photos, hcep.models.loading; print('numba' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.split() == ["False"]
