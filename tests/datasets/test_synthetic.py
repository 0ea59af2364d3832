from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from hcep.datasets import make_hierarchical_concepts
from hcep.dictionary.transform import unit_rows
from hcep.errors import HCEPError

laws = settings(max_examples=25, deadline=None)

small_models = st.fixed_dictionaries(
    {
        "branching": st.integers(2, 4),
        "depth": st.integers(1, 3),
        "dim": st.integers(6, 9),
        "half_angle": st.floats(5.0, 85.0),
        "norm": st.floats(0.1, 10.0),
        "reduction": st.floats(0.2, 1.0),
        "orientation": st.sampled_from(["svd", "random"]),
        "random_state": st.integers(0, 2**32 - 1),
        "noise": st.just(0.0),
        "samples_per_leaf": st.just(1),
    }
)


def embedding_along(data, leaf):
    """Embeddings of the synsets on the path to a leaf, the root left out, (depth + 1, dim)."""
    (path,) = data.hierarchy.paths(leaf)
    return np.array([data.dictionary.synset_embedding(synset) for synset in path])


# -- the model at the paper's parameters -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def published():
    return make_hierarchical_concepts()


def test_the_defaults_have_the_papers_numbers(published):
    assert len(published.hierarchy.leaves) == 2187
    assert published.dictionary.n_atoms == 3280
    assert published.dictionary.n_dims == 50
    assert published.X.shape == (10935, 50)
    assert published.y.shape == (10935,)


def test_a_true_support_has_depth_plus_one_synsets(published):
    (path,) = published.hierarchy.paths("0.2.1.0.0.1.2.0")
    assert path[:3] == ("0", "0.2", "0.2.1")
    assert len(path) == 8


def test_the_top_synset_is_an_atom_of_the_given_norm(published):
    assert published.dictionary.edges[0] == ("root", "0")
    assert np.linalg.norm(published.dictionary.atoms[0]) == pytest.approx(0.8)


def test_half_angles_shrink_by_the_reduction(published):
    assert published.half_angles == pytest.approx([85, 34, 13.6, 5.44, 2.176, 0.8704, 0.34816])


def test_noise_is_a_variance(published):
    noise = published.X - np.repeat(published.dictionary.leaf_embeddings, 5, axis=0)
    assert noise.var() == pytest.approx(1e-5, rel=0.01)


def test_images_come_leaf_after_leaf(published):
    assert published.y[:6].tolist() == ["0.0.0.0.0.0.0.0"] * 5 + ["0.0.0.0.0.0.0.1"]
    assert list(dict.fromkeys(published.y.tolist())) == list(published.hierarchy.leaves)


# -- a tree to check by eye --------------------------------------------------------------------------------------------


def test_two_children_sit_opposite_each_other_at_the_half_angle():
    data = make_hierarchical_concepts(branching=2, depth=1, dim=2, half_angle=45, norm=2.0, noise=0.0)
    top, left, right = (data.dictionary.synset_embedding(synset) for synset in ("0", "0.0", "0.1"))
    assert np.linalg.norm(top) == pytest.approx(2.0)
    assert left + right == pytest.approx(2 * top)
    assert np.linalg.norm(left - top) == pytest.approx(2.0)  # tan 45 = 1
    assert left @ right == pytest.approx(0.0, abs=1e-12)


# -- laws --------------------------------------------------------------------------------------------------------------


@laws
@given(small_models)
def test_every_child_is_at_its_levels_half_angle(parameters):
    data = make_hierarchical_concepts(**parameters)
    levels = data.hierarchy.levels[data.hierarchy.child_index[1:]]
    ends = [[data.dictionary.synset_embedding(synset) for synset in edge] for edge in data.hierarchy.edges[1:]]
    parents, children = (unit_rows(np.array(end)) for end in zip(*ends, strict=True))
    angles = np.degrees(np.arccos(np.clip((parents * children).sum(axis=1), -1.0, 1.0)))
    assert angles == pytest.approx(data.half_angles[levels - 2], rel=1e-6)


@laws
@given(small_models)
def test_atoms_are_orthogonal_to_all_ancestors(parameters):
    data = make_hierarchical_concepts(**parameters)
    along = embedding_along(data, data.hierarchy.leaves[-1])
    atoms = np.diff(along, axis=0)
    cosines = (atoms @ along.T) / np.linalg.norm(atoms, axis=1)[:, None] / np.linalg.norm(along, axis=1)
    assert np.tril(cosines) == pytest.approx(np.zeros_like(cosines), abs=1e-9)


@laws
@given(small_models)
def test_the_children_of_a_synset_form_a_regular_simplex(parameters):
    data = make_hierarchical_concepts(**parameters)
    b = parameters["branching"]
    atoms = np.array(
        [data.dictionary.synset_embedding(f"0.{j}") - data.dictionary.synset_embedding("0") for j in range(b)]
    )
    scale = parameters["norm"] * np.tan(np.radians(parameters["half_angle"]))
    regular = np.where(np.eye(b, dtype=bool), 1.0, -1.0 / (b - 1))
    assert atoms @ atoms.T / scale**2 == pytest.approx(regular, abs=1e-9)


@laws
@given(small_models)
def test_noiseless_images_are_the_leaf_embeddings(parameters):
    data = make_hierarchical_concepts(**parameters)
    assert np.array_equal(data.X, data.dictionary.leaf_embeddings)
    assert data.y.tolist() == list(data.hierarchy.leaves)


@pytest.mark.parametrize("orientation", ["svd", "random"])
def test_the_bound_itself_is_enough(orientation):
    data = make_hierarchical_concepts(branching=3, depth=4, dim=6, orientation=orientation)
    assert np.abs(data.dictionary.geometry.orthogonality().cosine).max() < 1e-9
    assert data.dictionary.geometry.dimension_bound().satisfied


def test_svd_orientation_stays_within_one_dimension_of_the_bound():
    data = make_hierarchical_concepts(branching=3, depth=4, dim=30, orientation="svd")
    assert np.linalg.matrix_rank(data.dictionary.atoms, tol=1e-9) == 4 + 3


def test_random_orientation_uses_all_dimensions():
    data = make_hierarchical_concepts(branching=3, depth=4, dim=30, orientation="random")
    assert np.linalg.matrix_rank(data.dictionary.atoms, tol=1e-9) == 30


def test_the_same_seed_gives_the_same_data():
    first, second = (make_hierarchical_concepts(depth=2, orientation="random", random_state=7) for _ in range(2))
    assert np.array_equal(first.X, second.X)


def test_seeds_differ():
    first, second = (make_hierarchical_concepts(depth=2, random_state=seed) for seed in (0, 1))
    assert not np.allclose(first.dictionary.atoms, second.dictionary.atoms)


def test_the_hierarchy_does_not_depend_on_the_noise():
    quiet, loud = (make_hierarchical_concepts(depth=2, orientation="random", noise=noise) for noise in (0.0, 0.1))
    assert np.array_equal(quiet.dictionary.atoms, loud.dictionary.atoms)


def test_chunks_of_parents_do_not_change_the_result(monkeypatch):
    whole = make_hierarchical_concepts(depth=3, dim=60)
    monkeypatch.setattr("hcep.datasets.synthetic.CHUNK", 1)
    assert np.array_equal(make_hierarchical_concepts(depth=3, dim=60).X, whole.X)


def test_deeper_angles_are_smaller():
    data = make_hierarchical_concepts(depth=4, dim=10)
    assert all(lower < upper for upper, lower in pairwise(data.half_angles))


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_too_small_a_dimension_is_refused_with_the_bound():
    with pytest.raises(HCEPError, match=r"dim must be at least depth \+ branching - 1 = 7 \+ 3 - 1 = 9, got 8"):
        make_hierarchical_concepts(dim=8)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"branching": 1}, "branching must be a whole number of at least 2, got 1"),
        ({"depth": 0}, "depth must be a whole number of at least 1, got 0"),
        ({"depth": 2.5}, r"depth must be a whole number of at least 1, got 2\.5"),
        ({"dim": 0}, "dim must be a whole number of at least 1, got 0"),
        ({"samples_per_leaf": 0}, "samples_per_leaf must be a whole number of at least 1, got 0"),
        ({"samples_per_leaf": True}, "samples_per_leaf must be a whole number of at least 1, got True"),
        ({"half_angle": 90}, "half_angle must lie between 0 and 90 degrees, got 90"),
        ({"half_angle": float("nan")}, "half_angle must lie between 0 and 90 degrees, got nan"),
        ({"norm": 0}, "norm must be positive and finite, got 0"),
        ({"reduction": 1.5}, r"reduction must lie in \(0, 1\], got 1\.5"),
        ({"noise": -1.0}, r"noise is a variance: it must be at least 0 and finite, got -1\.0"),
        ({"orientation": "up"}, "orientation must be 'svd', 'eigh' or 'random', got 'up'"),
        ({"branching": 10, "depth": 7}, "make 11,111,111 atoms, more than 1,000,000"),
    ],
)
def test_arguments_out_of_range_are_refused(parameters, message):
    with pytest.raises(HCEPError, match=message):
        make_hierarchical_concepts(**parameters)
