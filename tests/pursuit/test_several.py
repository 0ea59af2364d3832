from itertools import combinations, pairwise

import numpy as np
import pytest

from hcep import ConceptDictionary, HCEPError, Hierarchy, hb_omp
from hcep.pursuit import SearchOptions, Stopping, search_several


def joint_by_least_squares(x, dictionary, nodes, anchor):
    """Solve for the objective, shares and code of a sum of paths as one least-squares problem.

    The unknowns are z on the atoms of the paths, and w minus its mean.
    """
    tree, k, n = dictionary.hierarchy.path_tree, len(nodes), dictionary.n_atoms
    through = np.zeros((n, k))
    for j, node in enumerate(nodes):
        while node > 0:
            through[tree.edge[node], j] = 1.0
            node = tree.parent[node]
    on = np.flatnonzero(through.any(axis=1))
    centre = np.eye(k) - 1.0 / k
    lam = np.sqrt(anchor)
    design = np.block(
        [
            [dictionary.atoms[on].T, np.zeros((len(x), k))],
            [lam * np.eye(len(on)), -lam * through[on] @ centre],
            [np.zeros((k, len(on))), lam * np.eye(k)],
        ]
    )
    target = np.concatenate([x, lam * through[on].sum(axis=1) / k, np.zeros(k)])
    solution, *_ = np.linalg.lstsq(design, target, rcond=None)
    code = np.zeros(n)
    code[on] = solution[: len(on)]
    return float(((design @ solution - target) ** 2).sum()), 1.0 / k + centre @ solution[len(on) :], code


def best_by_exhaustive_search(x, dictionary, n_paths, anchor):
    tree = dictionary.hierarchy.path_tree
    sums = []
    for nodes in combinations(tree.leaf_nodes.tolist(), n_paths):
        if len({tree.synset[node] for node in nodes}) == n_paths:
            objective, shares, code = joint_by_least_squares(x, dictionary, nodes, anchor)
            if shares.min() >= 0.05:
                sums.append((objective, nodes, shares, code))
    return min(sums, key=lambda each: each[0])


@pytest.fixture(params=["tree", "dag"])
def dictionary(request, pets, diamond):
    hierarchy = {"tree": pets, "dag": diamond}[request.param]
    rng = np.random.default_rng(4)
    return ConceptDictionary.from_leaf_embeddings(hierarchy, {leaf: rng.normal(size=12) for leaf in hierarchy.leaves})


@pytest.mark.parametrize("n_paths", [2, 3])
def test_a_wide_beam_finds_the_best_sum(dictionary, n_paths):
    rng, leaves = np.random.default_rng(1), dictionary.leaf_embeddings
    for _ in range(5):
        chosen = rng.choice(len(leaves), n_paths, replace=False)
        x = leaves[chosen].mean(axis=0) + 0.1 * rng.normal(size=12)
        objective, nodes, shares, code = best_by_exhaustive_search(x, dictionary, n_paths, 0.3 * dictionary.anchor_unit)
        result = search_several(x[None], dictionary, SearchOptions(beam_width=50, anchor=0.3), n_paths)
        assert result.objectives[0, n_paths - 1] == pytest.approx(objective)
        assert set(result.nodes[0].tolist()) == set(nodes)
        assert sorted(result.shares[0]) == pytest.approx(sorted(shares))
        np.testing.assert_allclose(result.codes.toarray()[0], code, atol=1e-9)
        np.testing.assert_allclose(result.residual_norms[0], np.linalg.norm(x - code @ dictionary.atoms))


def test_one_path_agrees_with_the_exact_search(dictionary):
    X = np.random.default_rng(2).normal(size=(30, 12))
    one = search_several(X, dictionary, SearchOptions(anchor=0.3), 1)
    plain = hb_omp(X, dictionary, anchor=0.3, beam_width=None)
    assert [paths[0] for paths in one.paths] == plain.paths
    np.testing.assert_allclose(one.codes.toarray(), plain.codes.toarray(), atol=1e-9)
    assert np.all(one.shares == 1.0)


def test_the_mean_of_two_leaves_has_two_paths_and_a_leaf_has_one(pets_dictionary):
    cat, bus = (pets_dictionary.synset_embedding(name) for name in ("cat", "bus"))
    result = search_several(np.array([0.6 * cat + 0.4 * bus, cat]), pets_dictionary, SearchOptions(anchor=0.1), "auto")
    assert result.paths == [[("animal", "cat"), ("vehicle", "bus")], [("animal", "cat")]]
    assert result.n_paths.tolist() == [2, 1]
    np.testing.assert_allclose(result.shares[0], [0.6, 0.4, 0.0, 0.0], atol=0.05)
    np.testing.assert_allclose(result.shares.sum(axis=1), 1.0)
    assert result.leaves[0] == ("cat", "bus")
    assert np.isnan(result.objectives[1, 1])


def test_a_path_without_a_share_is_not_added(pets_dictionary):
    result = search_several(pets_dictionary.leaf_embeddings, pets_dictionary, SearchOptions(anchor=0.001), 3)
    assert result.shares[result.nodes >= 0].min() >= 0.05
    assert not result.shares[result.nodes < 0].any()


def test_a_stricter_rule_never_adds_a_path(pets_dictionary):
    X = np.abs(np.random.default_rng(0).normal(size=(40, 4))) * 2
    options = SearchOptions(anchor=0.1)
    counts = [
        search_several(X, pets_dictionary, options, "auto", stopping=Stopping(bar)).n_paths
        for bar in (-1.0, 0.0, 0.2, 0.9)
    ]
    assert all((later <= earlier).all() for earlier, later in pairwise(counts))
    assert counts[0].max() > 1
    assert (counts[-1] == 1).mean() > 0.5


def test_results_do_not_depend_on_threads_or_other_images(pets_dictionary):
    X = np.random.default_rng(3).normal(size=(300, 4))
    one, two = (search_several(X, pets_dictionary, SearchOptions(anchor=0.3, n_jobs=n), 2) for n in (1, 2))
    assert np.array_equal(one.nodes, two.nodes)
    alone = search_several(X[17:18], pets_dictionary, SearchOptions(anchor=0.3), 2)
    assert np.array_equal(alone.nodes[0], one.nodes[17])


def test_there_are_no_more_paths_than_classes():
    h = Hierarchy.from_edges([("thing", "cat"), ("thing", "dog")])
    d = ConceptDictionary.from_leaf_embeddings(h, {"cat": [1.0, 0.0], "dog": [0.0, 1.0]})
    assert search_several([[0.5, 0.5]], d, SearchOptions(anchor=0.3), 7).leaves == [("cat", "dog")]


def test_a_zero_image_gives_finite_results(pets_dictionary):
    result = search_several(np.zeros((1, 4)), pets_dictionary, SearchOptions(anchor=0.3), "auto")
    assert np.isfinite(result.residual_norms).all()
    assert result.shares.sum() == pytest.approx(1.0)


def test_classes_with_equal_embeddings_are_not_two_objects():
    h = Hierarchy.from_edges([("thing", "cat"), ("thing", "tabby"), ("thing", "dog")])
    d = ConceptDictionary.from_leaf_embeddings(h, {"cat": [1.0, 0.0], "tabby": [1.0, 0.0], "dog": [0.0, 1.0]})
    assert search_several([[0.5, 0.5]], d, SearchOptions(anchor=0.3), 2).leaves == [("cat", "dog")]


@pytest.mark.parametrize(
    ("options", "n_paths", "message"),
    [
        ({"anchor": 0.0}, 2, "n_paths needs an anchor above 0"),
        ({"anchor": 0.3}, 0, "n_paths"),
        ({"anchor": 0.3}, "many", "n_paths must be 'auto' or a positive number"),
        ({"anchor": 0.3, "signed": True}, 2, "cannot be combined with signed"),
        ({"anchor": 0.3, "select": "gain"}, 2, "cannot be combined with signed, tol, max_steps or select"),
    ],
)
def test_unsupported_options_are_rejected(pets_dictionary, options, n_paths, message):
    with pytest.raises(HCEPError, match=message):
        search_several([[1.0, 0.0, 0.0, 0.0]], pets_dictionary, SearchOptions(**options), n_paths)


def test_auto_is_rejected_for_a_model_from_a_linear_head():
    from hcep import HCEPClassifier

    model = HCEPClassifier.from_linear_head(np.eye(3), np.zeros(3), ["a", "b", "c"])
    with pytest.raises(HCEPError, match="needs a model that was fitted on images"):
        model.pursue(np.eye(3), n_paths="auto")
    assert model.pursue(np.eye(3), n_paths=2).nodes.shape == (3, 2)


def test_nan_is_rejected(pets_dictionary):
    with pytest.raises(HCEPError, match="NaN or infinite"):
        search_several([[np.nan, 0.0, 0.0, 0.0]], pets_dictionary, SearchOptions(anchor=0.3), 2)
