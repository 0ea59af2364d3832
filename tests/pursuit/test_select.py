"""Other rules by which a beam chooses the children to try."""

from typing import Any

import numpy as np
import pytest

from hcep import ConceptDictionary, HCEPError, Hierarchy, hb_omp
from tests.reference.random_problems import Problem, random_problem

pytestmark = pytest.mark.filterwarnings("ignore::hcep.dictionary.DependentAtomsWarning")


def published(gains: Any, shares: Any) -> Any:
    return abs(gains) * shares


def beam_problems(first: int, n: int) -> list[Problem]:
    """Return problems with a finite beam."""
    problems = [random_problem(seed) for seed in range(first, first + 4 * n)]
    return [problem for problem in problems if problem.options["beam_width"] is not None][:n]


@pytest.mark.parametrize("problem", beam_problems(500, 40))
def test_the_published_rule_as_a_function_gives_the_same_answers(problem: Problem) -> None:
    by_name = hb_omp(problem.X, problem.dictionary, **problem.options)
    by_function = hb_omp(problem.X, problem.dictionary, select=published, **problem.options)
    assert by_function.paths == by_name.paths
    np.testing.assert_array_equal(by_function.codes.toarray(), by_name.codes.toarray())


def greedy_path(x: np.ndarray, dictionary: ConceptDictionary) -> tuple[str, ...]:
    """Go down by the child with which least squares leaves the smallest residual."""
    hierarchy, atoms, path = dictionary.hierarchy, list[np.ndarray](), list[str]()
    place, edges = hierarchy.root, {edge: k for k, edge in enumerate(dictionary.edges)}
    while children := hierarchy.children(place):

        def left(child: str, above: str = place) -> float:
            D = np.array([*atoms, dictionary.atoms[edges[above, child]]]).T
            return float(np.linalg.norm(x - D @ np.linalg.lstsq(D, x, rcond=None)[0]))

        best = min(children, key=left)
        atoms.append(dictionary.atoms[edges[place, best]])
        path.append(best)
        place = best
    return tuple(path)


def test_the_gain_picks_the_child_that_leaves_the_smallest_residual() -> None:
    rng = np.random.default_rng(3)
    edges = [("root", f"b{i}") for i in range(4)] + [(f"b{i}", f"b{i}l{j}") for i in range(4) for j in range(4)]
    hierarchy = Hierarchy.from_edges(edges)
    dictionary = ConceptDictionary.from_leaf_embeddings(
        hierarchy, {leaf: rng.standard_normal(12) + 2.0 for leaf in hierarchy.leaves}
    )
    X = rng.standard_normal((60, 12))
    paths = hb_omp(X, dictionary, beam_width=1, select="gain").paths
    assert paths == [greedy_path(x, dictionary) for x in X]
    assert paths != hb_omp(X, dictionary, beam_width=1).paths


def test_a_child_of_key_minus_infinity_is_not_tried(pets_dictionary: ConceptDictionary) -> None:
    hierarchy = pets_dictionary.hierarchy
    tree = hierarchy.path_tree
    cats = np.isin(np.array(hierarchy.ids)[tree.synset], ["cat"])

    def no_cats(gains: Any, shares: Any) -> Any:
        return np.where(cats, -np.inf, published(gains, shares))

    X = pets_dictionary.leaf_embeddings
    assert any("cat" in path for path in hb_omp(X, pets_dictionary).paths)
    assert not any("cat" in path for path in hb_omp(X, pets_dictionary, select=no_cats).paths)


def test_a_rule_may_be_compiled(pets_dictionary: ConceptDictionary) -> None:
    import numba

    rule = numba.vectorize(["float64(float64, float64)"])(lambda gain, share: abs(gain) * share)
    X = pets_dictionary.leaf_embeddings
    assert hb_omp(X, pets_dictionary, select=rule).paths == hb_omp(X, pets_dictionary).paths


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"select": "best"}, "select must be 'cosine', 'gain' or a function of gains and shares; got 'best'"),
        ({"select": "gain", "beam_width": None}, "so it needs a beam_width"),
        ({"select": lambda gains, shares: shares}, "one number for each image and node"),
        ({"select": lambda gains, shares: gains * np.nan}, "with NaN"),
    ],
)
def test_rules_that_make_no_sense_are_rejected(
    pets_dictionary: ConceptDictionary, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(HCEPError, match=message):
        hb_omp(pets_dictionary.leaf_embeddings, pets_dictionary, **options)
