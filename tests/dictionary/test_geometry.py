import json
import os
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from hcep import ConceptDictionary, Hierarchy
from hcep.datasets import make_hierarchical_concepts
from hcep.dictionary import DependentAtomsWarning
from hcep.errors import DictionaryError, HierarchyError, MissingExtraError

laws = settings(max_examples=20, deadline=None)

nan = np.nan
seeds = st.integers(0, 2**32 - 1)


# -- naive implementations of the definitions --------------------------------------------------------------------------


def edge_position(dictionary):
    return {edge: k for k, edge in enumerate(dictionary.edges)}


def path_edges(dictionary, path):
    position = edge_position(dictionary)
    return [position[edge] for edge in zip((dictionary.hierarchy.root, *path), path, strict=False)]


def restricted_edges(dictionary, path, level):
    """Return T_l, the atoms of the path and those below its synset at `level`."""
    top = (dictionary.hierarchy.root, *path)[level]
    inside = {top, *dictionary.hierarchy.descendants(top)}
    below = {k for (parent, _), k in edge_position(dictionary).items() if parent in inside}
    return sorted(below | set(path_edges(dictionary, path)))


def naive_coefficient(dictionary, path, level):
    """Compute ERC(S | T_l) with one pseudo-inverse and one product per atom."""
    atoms = dictionary.atoms / np.linalg.norm(dictionary.atoms, axis=1, keepdims=True)
    own = path_edges(dictionary, path)
    inverse = np.linalg.pinv(atoms[own].T)
    outside = set(restricted_edges(dictionary, path, level)) - set(own)
    return max([np.abs(inverse @ atoms[j]).sum() for j in outside], default=0.0)


def naive_omp(dictionary, allowed, x, n_steps):
    """Run OMP over the `allowed` atoms."""
    atoms = dictionary.atoms[allowed]
    unit = atoms / np.linalg.norm(atoms, axis=1, keepdims=True)
    support = []
    residual = x
    for _ in range(n_steps):
        support.append(int(np.argmax(np.abs(unit @ residual))))
        chosen = atoms[support].T
        residual = x - chosen @ np.linalg.lstsq(chosen, x, rcond=None)[0]
    return {allowed[k] for k in support}


def naive_beam_one(dictionary, x):
    """Return the path that Algorithm 2 finds with a beam of 1 and no tolerance."""
    position = edge_position(dictionary)
    path, used, residual, current = [], [], x, dictionary.hierarchy.root
    while not dictionary.hierarchy.is_leaf(current):
        children = dictionary.hierarchy.children(current)
        atoms = dictionary.atoms[[position[current, child] for child in children]]
        current, parent = children[int(np.argmax(np.abs(atoms @ residual) / np.linalg.norm(atoms, axis=1)))], current
        path.append(current)
        used.append(position[parent, current])
        chosen = dictionary.atoms[used].T
        residual = x - chosen @ np.linalg.lstsq(chosen, x, rcond=None)[0]
    return tuple(path)


def random_dictionary(seed, n_dims=40):
    """Return a random DAG of up to 12 synsets with random embeddings."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 13))
    edges = [
        (f"s{p}", f"s{c}")
        for c in range(1, n)
        for p in rng.choice(c, size=min(c, int(rng.integers(1, 3))), replace=False)
    ]
    hierarchy = Hierarchy.from_edges(edges, root="s0")
    return ConceptDictionary.from_synset_embeddings(
        hierarchy, {synset: rng.standard_normal(n_dims) for synset in hierarchy.ids[1:]}
    )


def build(edges, embeddings):
    return ConceptDictionary.from_synset_embeddings(Hierarchy.from_edges(edges, root="root"), embeddings)


# -- trees to check by eye ---------------------------------------------------------------------------------------------


@pytest.fixture
def fork():
    """root ─ a (2,0,0) ─ a0 (2,2,0), a1 (2,-2,0); root ─ b (0,0,3). Index order: root, a, b, a0, a1."""
    return build(
        [("root", "a"), ("root", "b"), ("a", "a0"), ("a", "a1")],
        {"a": [2.0, 0, 0], "b": [0.0, 0, 3], "a0": [2.0, 2, 0], "a1": [2.0, -2, 0]},
    )


@pytest.fixture
def crowded():
    """The fork with b at (2,0,1): 26.565 degrees from a, inside a's cone of 45."""
    return build(
        [("root", "a"), ("root", "b"), ("a", "a0"), ("a", "a1")],
        {"a": [2.0, 0, 0], "b": [2.0, 0, 1], "a0": [2.0, 2, 0], "a1": [2.0, -2, 0]},
    )


@pytest.fixture
def flat():
    return build([("root", "a"), ("root", "b")], {"a": [1.0, 0], "b": [0.0, 1]})


@pytest.fixture
def detour():
    """OMP finds a → x because it starts with the largest atom; a beam of 1 goes to s at the first step."""
    return build(
        [("root", "a"), ("root", "s"), ("a", "x"), ("a", "y")],
        {"a": [0.1, 0, 0, 0], "s": [0.3, 0.5, np.sqrt(0.66), 0], "x": [0.1, 1, 0, 0], "y": [0.1, 0, 0, 1]},
    )


@pytest.fixture
def chain():
    """A single-child chain as averaging makes it: p equals c, so the atom between them is zero."""
    return build([("root", "p"), ("p", "c"), ("root", "q")], {"p": [1.0, 0, 0], "c": [1.0, 0, 0], "q": [0.0, 1, 1]})


def test_half_angles(fork):
    assert fork.geometry.half_angles == pytest.approx([nan, 45, 0, 0, 0], nan_ok=True)


def test_a_zero_embedding_is_orthogonal_to_everything():
    dictionary = build([("root", "a"), ("a", "a0"), ("a", "a1")], {"a": [0.0, 0], "a0": [1.0, 0], "a1": [1.0, 1]})
    assert dictionary.geometry.half_angles[1] == 90


def test_containment_in_observed_cones(fork):
    containment = fork.geometry.containment()
    assert containment.half_angles == pytest.approx([45, 22.5])
    assert containment.fraction == pytest.approx([nan, 0, nan, nan, nan], nan_ok=True)
    assert containment.satisfied


def test_containment_in_narrower_cones(fork):
    containment = fork.geometry.containment([30, 0])
    assert containment.fraction[1] == 1.0
    assert containment.mean_violation[1] == pytest.approx(15.0)
    assert not containment.satisfied


def test_disjointness_of_well_separated_synsets(fork):
    disjointness = fork.geometry.disjointness()
    assert disjointness.n_compared.tolist() == [0, 1, 3, 2, 2]
    assert disjointness.fraction == pytest.approx([nan, 0, 0, 0, 0], nan_ok=True)
    assert disjointness.mean_violation == pytest.approx([nan, 0, 0, 0, 0], nan_ok=True)


def test_disjointness_counts_synsets_inside_a_cone(crowded):
    disjointness = crowded.geometry.disjointness()
    assert disjointness.fraction == pytest.approx([nan, 1, 0, 0, 0], nan_ok=True)
    assert disjointness.mean_violation[1] == pytest.approx(45 - np.degrees(np.arctan(0.5)))


def test_ancestors_are_counted_separately(chain):
    disjointness = chain.geometry.disjointness()
    place = chain.hierarchy.index("c")
    assert disjointness.ancestor_fraction[place] == 1.0
    assert disjointness.fraction[place] == 0.0


def test_disjoint_sibling_cones(fork):
    siblings = fork.geometry.sibling_cones()
    assert siblings.n_compared.tolist() == [1, 1, 0, 0, 0]
    assert siblings.fraction == pytest.approx([0, 0, nan, nan, nan], nan_ok=True)
    assert siblings.satisfied


def test_intersecting_sibling_cones(crowded):
    siblings = crowded.geometry.sibling_cones()
    assert siblings.fraction == pytest.approx([1, 0, nan, nan, nan], nan_ok=True)
    assert siblings.mean_violation[0] == pytest.approx(45 - np.degrees(np.arctan(0.5)))
    assert not siblings.satisfied


def test_equal_siblings_intersect_despite_rounding():
    v = np.full(3, 1 / 3)
    dictionary = build([("root", "a"), ("root", "b")], {"a": v, "b": 0.1 * v})
    assert dictionary.geometry.sibling_cones().fraction[0] == 1.0


def test_half_angle_schedule(fork):
    schedule = fork.geometry.half_angle_schedule()
    assert schedule.largest == pytest.approx([45, 0])
    assert schedule.bound == 0.5
    assert schedule.satisfied.tolist() == [True, True]


def test_half_angle_schedule_that_shrinks_too_slowly():
    data = make_hierarchical_concepts(depth=3, dim=9, half_angle=20, reduction=0.9)
    schedule = data.dictionary.geometry.half_angle_schedule(reduction=0.4)
    assert schedule.bound == pytest.approx(1 / 3)
    assert schedule.satisfied.tolist() == [True, False, False, True]


def test_orthogonality(fork):
    orthogonality = fork.geometry.orthogonality()
    assert orthogonality.atom.tolist() == [2, 3]
    assert orthogonality.cosine == pytest.approx([0, 0], abs=1e-15)
    assert np.isnan(orthogonality.random_cosine).all()  # a is the only parent


def test_random_pairs_use_another_parent():
    dictionary = build(
        [("root", "a"), ("root", "b"), ("a", "a0"), ("b", "b0")],
        {"a": [1.0, 0], "b": [0.0, 1], "a0": [1.0, 1], "b0": [1.0, 2]},
    )
    orthogonality = dictionary.geometry.orthogonality(random_state=3)
    assert orthogonality.cosine == pytest.approx([0, np.sqrt(0.5)])  # (0,1) to a, (1,1) to b
    assert orthogonality.random_cosine == pytest.approx([1, np.sqrt(0.5)])  # (0,1) to b, (1,1) to a


def test_zero_atoms_are_not_compared(chain):
    assert chain.geometry.orthogonality().atom.tolist() == []


def test_an_irregular_simplex():
    dictionary = build(
        [("root", "a"), ("root", "b"), ("root", "c")], {"a": [1.0, 0, 1], "b": [-1.0, 0, 1], "c": [0.0, 0, 1]}
    )
    simplex = dictionary.geometry.simplex()  # cosines -1, 0, 0 against -1/2; norms 1, 1, 0
    assert simplex.parent.tolist() == [0]
    assert simplex.mean_deviation == pytest.approx([0.5])
    assert simplex.norm_spread == pytest.approx([np.sqrt(2 / 9) / (2 / 3)])


def test_equal_children_have_no_norm_spread():
    dictionary = build([("root", "a"), ("root", "b")], {"a": [1.0, 1], "b": [1.0, 1]})
    simplex = dictionary.geometry.simplex()
    assert simplex.mean_deviation == pytest.approx([1.0])
    assert np.isnan(simplex.norm_spread).all()


def test_dimension_bound(fork):
    bound = fork.geometry.dimension_bound()
    assert (fork.hierarchy.depth, fork.hierarchy.max_branching, bound.n_dims) == (2, 2, 3)
    assert bound.required == 3
    assert bound.required_by_parents == 2  # a takes one dimension, the line of its children another
    assert bound.satisfied


def test_recovery_coefficients_by_hand(fork):
    recovery = fork.geometry.recovery()
    assert recovery.leaves == ("b", "a0", "a1")
    assert recovery.paths == (("b",), ("a", "a0"), ("a", "a1"))
    # b is orthogonal to the rest; the atoms of a0 and a1 are opposite, until T_2 leaves a1 out
    assert recovery.nested == pytest.approx(np.array([[0, 0, nan], [1, 1, 0], [1, 1, 0]]), nan_ok=True)
    assert recovery.certified.tolist() == [True, False, False]
    assert recovery.certified_from.tolist() == [0, 2, 2]


def test_greedy_radius_by_hand(fork):
    recovery = fork.geometry.recovery()
    # b = (0,0,3) is 3/sqrt(2) from where a would win; a0 and a1 tie everywhere
    assert recovery.radius == pytest.approx([3 / np.sqrt(2), 0, 0])
    assert recovery.greedily_recovered.tolist() == [True, False, False]


@pytest.mark.parametrize(("share_of_radius", "first"), [(0.999, "b"), (1.001, "a")])
def test_greedy_radius_is_exact(fork, share_of_radius, first):
    towards_a = np.array([1.0, 0, -1]) / np.sqrt(2)
    x = fork.synset_embedding("b") + share_of_radius * fork.geometry.recovery(["b"]).radius[0] * towards_a
    assert naive_beam_one(fork, x)[0] == first


def test_recovery_of_some_leaves(fork):
    recovery = fork.geometry.recovery(["a1", "b", "a1"])
    assert recovery.leaves == ("a1", "b")
    assert recovery.coefficient == pytest.approx([1, 0])
    assert recovery.radius == pytest.approx([0, 3 / np.sqrt(2)])


def test_recovery_of_no_leaves(fork):
    recovery = fork.geometry.recovery([])
    assert recovery.paths == ()
    assert recovery.coefficient.shape == recovery.radius.shape == (0,)


def test_a_coefficient_below_one_does_not_certify_a_beam_of_one(detour):
    recovery = detour.geometry.recovery(["x"])
    assert recovery.coefficient == pytest.approx([0.8])
    assert recovery.certified.all()
    x = detour.synset_embedding("x")
    assert naive_omp(detour, [0, 1, 2, 3], x, 2) == set(path_edges(detour, ("a", "x")))
    assert naive_beam_one(detour, x)[0] == "s"
    assert not recovery.greedily_recovered.any()


def test_recovery_reports_the_best_path_of_each_leaf():
    dictionary = build(
        [("root", "p"), ("root", "q"), ("p", "c"), ("q", "c"), ("p", "d"), ("q", "e")],
        {"p": [4.0, 0, 0, 0], "q": [0.0, 1, 0, 0], "c": [4.0, 0, 1, 0], "d": [4.0, 0, 0, 1], "e": [0.0, 1, 0, -2]},
    )
    recovery = dictionary.geometry.recovery(["c"])
    assert set(recovery.paths) == {("p", "c"), ("q", "c")}
    assert recovery.coefficient == recovery.path_nested[:, 0].min()
    assert recovery.radius == recovery.path_radius.max()
    assert recovery.paths[recovery.best_path[0]] == ("p", "c")


def test_a_path_with_a_zero_atom_is_never_certified(chain):
    with pytest.warns(DependentAtomsWarning, match="1 of 3 atoms"):
        recovery = chain.geometry.recovery(["c", "q"])
    assert recovery.nested == pytest.approx(np.array([[np.inf, np.inf, np.inf], [0, 0, nan]]), nan_ok=True)
    assert recovery.certified.tolist() == [False, True]
    assert recovery.certified_from.tolist() == [-1, 0]
    assert recovery.radius[0] == 0


def test_summary_is_a_plain_dict_of_floats(fork):
    summary = fork.geometry.summary()
    assert {type(value) for value in summary.values()} == {float}
    assert summary["sibling_cones_fraction_intersecting"] == 0.0
    assert summary["recovery_certified"] == pytest.approx(1 / 3)


def test_summary_of_a_hierarchy_without_inner_synsets(flat):
    summary = flat.geometry.summary()
    assert np.isnan(summary["containment_fraction_outside"])
    assert summary["recovery_certified"] == 1.0


def test_summary_as_text(fork):
    lines = fork.geometry.format_summary().splitlines()
    assert len(lines) == len(fork.geometry.summary())
    assert lines[0].split() == ["containment", "fraction", "outside", "0"]


def test_geometry_is_built_once_and_has_a_short_repr(fork):
    assert fork.geometry is fork.geometry
    assert repr(fork.geometry) == "Geometry(5 synsets, 4 atoms, 3 dimensions)"


# -- the synthetic model meets its conditions --------------------------------------------------------------------------


@pytest.mark.parametrize("orientation", ["svd", "random"])
def test_the_synthetic_model_is_orthogonal_and_regular(orientation):
    geometry = make_hierarchical_concepts(depth=3, dim=12, orientation=orientation).dictionary.geometry
    assert np.abs(geometry.orthogonality().cosine).max() < 1e-12
    assert geometry.simplex().mean_deviation[1:] == pytest.approx(0, abs=1e-9)
    assert geometry.simplex().norm_spread[1:] == pytest.approx(0, abs=1e-9)
    assert np.abs(geometry.orthogonality().random_cosine).mean() > 1e-3


def test_synthetic_half_angles_have_their_closed_form():
    data = make_hierarchical_concepts(branching=2, depth=3, dim=8, half_angle=40, reduction=0.5)
    expected = np.degrees(np.arccos(np.cumprod(np.cos(np.radians(data.half_angles[::-1])))[::-1]))
    schedule = data.dictionary.geometry.half_angle_schedule()
    assert schedule.largest == pytest.approx([*expected, 0], abs=1e-6)


# -- laws --------------------------------------------------------------------------------------------------------------


@laws
@given(seeds)
def test_coefficients_equal_those_of_a_pseudo_inverse(seed):
    dictionary = random_dictionary(seed)
    recovery = dictionary.geometry.recovery()
    expected = np.full_like(recovery.path_nested, nan)
    for row, path in enumerate(recovery.paths):
        expected[row, : len(path) + 1] = [naive_coefficient(dictionary, path, at) for at in range(len(path) + 1)]
    assert recovery.path_nested == pytest.approx(expected, rel=1e-7, nan_ok=True)


@laws
@given(seeds)
def test_coefficients_never_grow_with_the_level(seed):
    nested = random_dictionary(seed, n_dims=14).geometry.recovery().path_nested
    assert not np.any(np.diff(nested, axis=1) > 0)


@laws
@given(seeds)
def test_a_certified_path_is_recovered_by_omp_from_any_coefficients(seed):
    dictionary = random_dictionary(seed)
    recovery = dictionary.geometry.recovery()
    rng = np.random.default_rng(seed)
    for row, level in zip(recovery.best_path, recovery.certified_from, strict=True):
        path = recovery.paths[row]
        own = path_edges(dictionary, path)
        x = rng.choice([-1, 1], len(own)) * rng.uniform(0.5, 2.0, len(own)) @ dictionary.atoms[own]
        assert naive_omp(dictionary, restricted_edges(dictionary, path, level), x, len(own)) == set(own)


@laws
@given(seeds)
def test_greedily_recovered_agrees_with_a_beam_of_one(seed):
    dictionary = random_dictionary(seed)
    recovery = dictionary.geometry.recovery()
    found = [naive_beam_one(dictionary, dictionary.synset_embedding(leaf))[-1] == leaf for leaf in recovery.leaves]
    assert recovery.greedily_recovered.tolist() == found


@laws
@given(seeds)
def test_images_within_the_radius_are_recovered(seed):
    dictionary = random_dictionary(seed, n_dims=14)
    recovery = dictionary.geometry.recovery()
    rng = np.random.default_rng(seed)
    for row in np.flatnonzero(recovery.path_radius > 0):
        noise = rng.standard_normal(14)
        noise *= 0.999 * min(recovery.path_radius[row], 1e3) / np.linalg.norm(noise)
        x = dictionary.synset_embedding(recovery.paths[row][-1]) + noise
        assert naive_beam_one(dictionary, x) == recovery.paths[row]


@laws
@given(seeds)
def test_half_angles_and_disjointness_equal_their_definitions(seed):
    dictionary = random_dictionary(seed, n_dims=3)
    h, geometry = dictionary.hierarchy, dictionary.geometry
    unit = dictionary.synset_embeddings[1:] / np.linalg.norm(dictionary.synset_embeddings[1:], axis=1, keepdims=True)
    angle = np.degrees(np.arccos(np.clip(unit @ unit.T, -1, 1)))
    for i, synset in enumerate(h.ids[1:]):
        below = [h.index(s) - 1 for s in h.descendants(synset)]
        related = {i, *below, *(h.index(s) - 1 for s in h.ancestors(synset))}
        others = [j for j in range(len(unit)) if j not in related]
        cone = max(angle[i, below], default=0.0)
        inside = np.maximum(cone - angle[i, others], 0)
        assert geometry.half_angles[i + 1] == pytest.approx(cone)
        assert geometry.disjointness().fraction[i + 1] == pytest.approx(sum(inside > 0) / max(len(others), 1))
        assert geometry.disjointness().mean_violation[i + 1] == pytest.approx(inside.sum() / max(len(others), 1))


@laws
@given(seeds)
def test_results_do_not_depend_on_rotation_or_scale(seed):
    dictionary = random_dictionary(seed, n_dims=14)
    rotation = np.linalg.qr(np.random.default_rng(seed).standard_normal((14, 14)))[0]
    turned = ConceptDictionary(dictionary.hierarchy, 3.0 * dictionary.synset_embeddings @ rotation)
    before, after = dictionary.geometry, turned.geometry
    assert after.half_angles == pytest.approx(before.half_angles, nan_ok=True, abs=1e-5)
    assert after.recovery().coefficient == pytest.approx(before.recovery().coefficient, rel=1e-6)
    assert after.recovery().radius == pytest.approx(3.0 * before.recovery().radius, rel=1e-6)


def test_blocks_do_not_change_the_results(monkeypatch):
    dictionary = random_dictionary(5, n_dims=14)
    whole = dictionary.geometry.summary()
    monkeypatch.setattr("hcep.dictionary.checks.BLOCK", 1)
    again = ConceptDictionary(dictionary.hierarchy, dictionary.synset_embeddings).geometry.summary()
    assert again == pytest.approx(whole, nan_ok=True)


# -- invalid arguments -------------------------------------------------------------------------------------------------


def test_a_schedule_of_the_wrong_length_is_rejected(fork):
    with pytest.raises(DictionaryError, match=r"one angle for each of the 2 levels below the root, got shape \(3,\)"):
        fork.geometry.containment([1, 2, 3])


def test_a_schedule_out_of_range_is_rejected(fork):
    with pytest.raises(DictionaryError, match=r"between 0 and 180 degrees, got \[45\.0, nan\]"):
        fork.geometry.containment([45, nan])


@pytest.mark.parametrize("reduction", [0.0, 0.6])
def test_a_reduction_out_of_range_is_rejected(fork, reduction):
    with pytest.raises(DictionaryError, match=r"reduction must be a number in \(0, 1/2\], got 0\."):
        fork.geometry.half_angle_schedule(reduction)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("disjointness", "every synset with every other, and 5 x 5 pairs are more than 3; restrict the hierarchy"),
        ("sibling_cones", "children of one synset, and 2 x 2 pairs are more than 3"),
        ("simplex", "children of one synset, and 2 x 2 pairs are more than 3"),
        ("recovery", r"every rooted path with every atom, and 3 x 4 pairs are more than 3; .* pass leaves=\[\.\.\.\]"),
    ],
)
def test_too_many_comparisons_are_rejected(fork, monkeypatch, method, message):
    monkeypatch.setattr("hcep.dictionary.geometry.conditions.MAX_PAIRS", 3)
    with pytest.raises(DictionaryError, match=message):
        getattr(fork.geometry, method)()


def test_an_unknown_leaf_is_rejected(fork):
    with pytest.raises(HierarchyError, match="'a00' is not a concept of this hierarchy"):
        fork.geometry.recovery(["a00"])


def test_an_inner_synset_is_rejected_as_a_leaf(fork):
    with pytest.raises(HierarchyError, match="class 'a' is an inner concept"):
        fork.geometry.recovery(["a"])


# -- ImageNet ----------------------------------------------------------------------------------------------------------

SHARED = Path(os.environ.get("HCEP_SHARED", Path(__file__).parents[2].parent / "shared"))
DAG = SHARED / "data" / "imagenet1k_wordnet_dag.json"


@pytest.mark.slow
@pytest.mark.skipif(not DAG.exists(), reason=f"no {DAG.name} under HCEP_SHARED")
def test_imagenet_takes_less_than_a_minute():
    nodes = json.loads(DAG.read_text(encoding="utf-8"))["nodes"]
    hierarchy = Hierarchy.from_edges([(p, c) for c, node in nodes.items() for p in node["hypernyms"]])
    rng = np.random.default_rng(0)
    dictionary = ConceptDictionary.from_leaf_embeddings(
        hierarchy, {leaf: rng.standard_normal(768) for leaf in hierarchy.leaves}
    )
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DependentAtomsWarning)  # single-child chains: not collapsed, to keep all 1,860
        summary = dictionary.geometry.summary()
    assert time.perf_counter() - start < 60
    assert len(hierarchy) == 1860
    assert len(dictionary.geometry.recovery().paths) == 1343
    assert summary["dimension_available"] == 768


# -- plots -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def axes():
    from matplotlib.figure import Figure

    return Figure().subplots()


@pytest.mark.parametrize(
    ("method", "xlabel"),
    [
        ("containment", "share of comparisons that violate the condition"),
        ("disjointness", "share of comparisons that violate the condition"),
        ("sibling_cones", "share of comparisons that violate the condition"),
        ("half_angle_schedule", "level"),
        ("orthogonality", "cosine of atom and parent"),
        ("simplex", "deviation from a regular simplex"),
        ("dimension_bound", "dimensions"),
        ("recovery", "exact recovery coefficient"),
    ],
)
def test_every_diagnostic_plots_itself(fork, axes, method, xlabel):
    assert getattr(fork.geometry, method)().plot(axes) is axes
    assert axes.get_xlabel() == xlabel
    assert axes.has_data()


def test_a_histogram_counts_all_finite_values(fork, axes):
    fork.geometry.recovery().plot(axes)  # three leaves, with coefficients 0, 1 and 1
    heights = [bar.get_height() for bar in axes.patches]
    assert (heights[0], heights[-1], sum(heights)) == (1, 2, 3)


def test_nothing_to_compare_gives_an_empty_plot(flat, axes):
    flat.geometry.orthogonality().plot(axes)
    assert sum(bar.get_height() for bar in axes.patches) == 0


def test_all_diagnostics_in_one_figure(fork, monkeypatch):
    import matplotlib.pyplot as plt

    plt.switch_backend("Agg")
    axes = fork.geometry.plot()
    plt.close("all")
    assert [ax.get_title() for ax in axes][-2:] == ["orthogonality", "recovery"]
    assert len({ax.figure for ax in axes}) == 1


def test_plots_need_matplotlib(fork, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(MissingExtraError, match="plotting needs matplotlib, which is not installed: pip install"):
        fork.geometry.recovery().plot()
