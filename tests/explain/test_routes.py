"""The other paths to a class that has several parents, against least squares on each path."""

from itertools import pairwise, product

import numpy as np
import pytest

from hcep import ConceptDictionary, HCEPClassifier, Hierarchy, explain_images
from hcep.explain.answer import Route
from hcep.explain.evidence import Evidence
from tests.explain.test_paths import model_of


def least_squares(x, dictionary, path, anchor):
    """Coefficients and objective of one path: the plain problem with rows that pull the coefficients to 1."""
    atom = dict(zip(dictionary.edges, dictionary.atoms, strict=True))
    atoms = np.stack([atom[edge] for edge in pairwise([dictionary.hierarchy.root, *path])], axis=1)
    A = np.vstack([atoms, np.sqrt(anchor) * np.eye(len(path))])
    b = np.r_[x, np.full(len(path), np.sqrt(anchor))]
    a = np.linalg.lstsq(A, b, rcond=None)[0]
    explained = 1.0 - np.sum((atoms @ a - x) ** 2) / (x @ x)
    return a, float(np.sum((A @ a - b) ** 2)), explained


@pytest.fixture(scope="module")
def layers():
    """Two layers of two concepts, each below both of the layer above, and three classes below both of the last."""
    layers = [["r"], ["a", "b"], ["c", "d"], ["x", "y", "z"]]
    edges = [pair for upper, lower in pairwise(layers) for pair in product(upper, lower)]
    h = Hierarchy.from_edges([*edges, ("r", "w")])
    rng = np.random.default_rng(0)
    return ConceptDictionary.from_synset_embeddings(h, {s: rng.normal(size=9) for s in h.ids[1:]})


@pytest.mark.parametrize(("anchor", "signed"), [(0.0, False), (0.3, False), (0.3, True)])
def test_routes_are_least_squares_on_every_other_path(layers, anchor, signed):
    X = np.random.default_rng(1).normal(size=(20, 9)) + layers.synset_embedding("x")
    model = model_of(layers, beam_width=None, anchor=anchor, signed=signed)
    answers, anchor = explain_images(X, model), Evidence(model).problem.anchor
    assert {one.n_routes for one in answers} >= {4}
    for x, one in [pair for pair in zip(X, answers, strict=True) if pair[1].leaf]:
        paths = set(layers.hierarchy.paths(one.leaf)) - {tuple(step.synset for step in one.path)}
        assert one.n_routes == len(paths) + 1
        solved = {path: least_squares(x, layers, path, anchor) for path in paths}
        allowed = {path for path in paths if not signed or not has_barred_step(x, layers, path, anchor)}
        assert {route.path for route in one.routes} == allowed
        assert [route.objective for route in one.routes] == sorted(route.objective for route in one.routes)
        for route in one.routes:
            a, objective, explained = solved[route.path]
            np.testing.assert_allclose(route.coefficients, a, atol=1e-9)
            assert route.objective == pytest.approx(objective)
            assert route.explained == pytest.approx(explained)


def has_barred_step(x, dictionary, path, anchor):
    """Whether a concept of the path has a coefficient that is not positive when the path ends with it."""
    return any(least_squares(x, dictionary, path[:n], anchor)[0][-1] <= 0 for n in range(1, len(path) + 1))


def test_the_path_of_the_answer_has_the_lowest_objective(layers):
    X, model = np.random.default_rng(2).normal(size=(20, 9)), model_of(layers, beam_width=None, anchor=0.2)
    for x, one in zip(X, explain_images(X, model), strict=True):
        own = least_squares(x, layers, [step.synset for step in one.path], Evidence(model).problem.anchor)[1]
        assert all(own <= route.objective + 1e-9 for route in one.routes)


def test_at_most_five_routes_are_listed_and_the_others_counted():
    """Eight paths lead to the class."""
    layers = [["r"], ["a", "b"], ["c", "d"], ["e", "f"], ["x", "y"]]
    h = Hierarchy.from_edges(pair for upper, lower in pairwise(layers) for pair in product(upper, lower))
    rng = np.random.default_rng(0)
    dictionary = ConceptDictionary.from_synset_embeddings(h, {s: rng.normal(size=9) for s in h.ids[1:]})
    x = dictionary.synset_embedding("x") + rng.normal(size=9)
    model = model_of(dictionary, anchor=0.1)
    one, anchor = explain_images(x[None], model, force="x")[0], Evidence(model).problem.anchor
    assert (len(one.routes), one.n_routes) == (5, 8)
    assert one.other_routes()[-1] == "2 more, which explain less or are not allowed here"
    own = tuple(step.synset for step in one.path)
    objectives = sorted(least_squares(x, dictionary, path, anchor)[1] for path in h.paths("x") if path != own)
    np.testing.assert_allclose([route.objective for route in one.routes], objectives[:5])


def test_a_route_through_a_forbidden_concept_is_not_valid(layers):
    x = layers.synset_embedding("x")[None]
    model = model_of(layers, beam_width=None, anchor=0.1)
    one = explain_images(x, model, force="x", forbid="a")[0]
    assert {route.path for route in one.routes} == {("b", "c", "x"), ("b", "d", "x")} - {
        tuple(step.synset for step in one.path)
    }
    assert one.n_routes == 4


def test_a_tree_has_no_other_routes(pets_dictionary):
    one = explain_images(np.array([[3.0, 1.5, 0.5, 0.2]]), model_of(pets_dictionary))[0]
    assert (one.routes, one.n_routes, one.other_routes()) == ((), 1, [])


def test_routes_of_a_fitted_model_are_in_its_json_and_report(diamond):
    means = {"cat": [3.0, 3.0, 0.0, 0.0], "hamster": [3.0, 0.0, 1.0, 0.0], "lion": [0.0, 3.0, 0.0, 1.0]}
    y = np.repeat(list(means), 6)
    X = np.array([means[label] for label in y]) + 0.1 * np.random.default_rng(0).normal(size=(18, 4))
    one = explain_images(X[:1], HCEPClassifier(diamond, anchor=0.1).fit(X, y))[0]
    (route,) = one.routes
    assert isinstance(route, Route)
    assert {route.path, tuple(step.synset for step in one.path)} == {("pet", "cat"), ("feline", "cat")}
    record = one.to_dict()
    assert record["n_routes"] == 2
    assert record["routes"][0]["coefficients"] == route.coefficients
    first, last = route.coefficients
    assert one.other_routes()[0].startswith(f"{route.names[0]} {first:.2f} → cat {last:.2f}, which explains ")
    assert f"also by <span class=soft>{route.names[0]} " in one._repr_html_()
