import numpy as np
import pytest

from hcep import ConceptDictionary, Hierarchy, hb_omp
from hcep.explain import PathMaps
from hcep.pursuit import path_objectives

SETTINGS = [
    {},
    {"center": True},
    {"shrinkage": 0.3, "rescale": True},
    {"unit_norm": True, "center": True, "shrinkage": 0.5, "rescale": True},
    {"power": 0.5, "center": True, "shrinkage": 0.5, "rescale": True},
]


@pytest.fixture(params=range(4), ids=str)
def seed(request):
    return request.param


def labelled(rng, hierarchy, n_dims):
    y = np.repeat(hierarchy.leaves, 4)
    means = dict(zip(hierarchy.leaves, rng.normal(size=(len(hierarchy.leaves), n_dims)), strict=True))
    return np.stack([means[c] for c in y]) + 0.3 * rng.normal(size=(len(y), n_dims)), y


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("anchor", [0.0, 0.1, 100.0])
def test_shares_and_constant_add_up_to_every_coefficient(pets, settings, anchor, seed):
    rng = np.random.default_rng(seed)
    X, y = labelled(rng, pets, 12)
    dictionary = ConceptDictionary.from_images(pets, X, y, **settings)
    features = rng.normal(size=(12, 3, 5)) + X[0][:, None, None]
    found = hb_omp(features.mean(axis=(1, 2))[None], dictionary, beam_width=None, anchor=anchor)
    maps = PathMaps(dictionary, anchor).maps(found.nodes[0], (), features)
    assert [m.total for m in maps] == pytest.approx(found.coefficients(0), abs=1e-8)
    assert all(m.shares.shape == (3, 5) for m in maps)
    assert {m.exact for m in maps} == {"power" not in settings}


def test_a_change_at_one_position_changes_that_share_alone(pets):
    rng = np.random.default_rng(0)
    X, y = labelled(rng, pets, 12)
    dictionary = ConceptDictionary.from_images(pets, X, y, shrinkage=0.3, rescale=True)
    features = rng.normal(size=(12, 2, 2))
    found = hb_omp(features.mean(axis=(1, 2))[None], dictionary, beam_width=None, anchor=0.1)
    before = PathMaps(dictionary, 0.1).maps(found.nodes[0], (), features)
    changed = features.copy()
    changed[:, 1, 0] += 1.0
    after = PathMaps(dictionary, 0.1).maps(found.nodes[0], (), changed)
    for a, b in zip(before, after, strict=True):
        moved = a.shares != b.shares
        assert moved.tolist() == [[False, False], [True, False]]
        assert a.constant == b.constant


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("anchor", [0.0, 0.1])
def test_a_margin_adds_up_to_the_difference_of_objectives(pets, settings, anchor, seed):
    rng = np.random.default_rng(seed)
    X, y = labelled(rng, pets, 12)
    dictionary = ConceptDictionary.from_images(pets, X, y, **settings)
    features = rng.normal(size=(12, 3, 3)) + X[5][:, None, None]
    x = features.mean(axis=(1, 2))[None]
    objectives = path_objectives(x, dictionary, anchor=anchor)[0]
    first, second = np.argsort(objectives)[:2]
    node, other = pets.path_tree.leaf_nodes[[first, second]].tolist()
    found = PathMaps(dictionary, anchor).maps(node, [other], features)[-1]
    assert found.total == pytest.approx(objectives[second] - objectives[first], abs=1e-8)


@pytest.mark.filterwarnings("ignore::hcep.dictionary.DependentAtomsWarning")
def test_a_dependent_atom_has_no_map():
    chain = Hierarchy.from_edges([("r", "a"), ("r", "b"), ("a", "x")])  # a is the mean of x alone: its atom is zero
    dictionary = ConceptDictionary.from_leaf_embeddings(chain, {"x": np.ones(4), "b": np.eye(4)[0]})
    maps = PathMaps(dictionary, 0.0).maps(chain.path_tree.leaf_nodes[-1], (), np.ones((4, 2, 2)))
    assert maps[0].shares.any()
    assert maps[1].total == 0.0
    assert not maps[1].shares.any()
