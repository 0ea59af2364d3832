"""Support, prefix and path metrics against a slow reimplementation, and by hand."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from hcep import Hierarchy, HierarchyError, hb_omp, support_scores
from hcep.evaluate.support import SUPPORT_COLUMNS, is_rooted_path, path_columns as columns_of_truths
from hcep.evaluate.truths import Truths
from tests.evaluate.slow_scores import acceptable_scores, is_one_path, prefix_row
from tests.reference.random_problems import random_hierarchy, random_problem


def path_columns(supports, labels, hierarchy):
    return columns_of_truths(supports, Truths(labels, hierarchy).concepts, hierarchy)


quick = settings(deadline=None, max_examples=40)


@st.composite
def supports_of_classes(draw):
    """A random tree or DAG, and a few supports with a class each: sets of any synsets, paths and near paths."""
    h = random_hierarchy(np.random.default_rng(draw(st.integers(0, 2**32 - 1))), draw(st.booleans()))
    paths = [path for synset in h.ids[1:] for path in h.paths(synset)]
    sets = st.sets(st.sampled_from(h.ids), max_size=6).map(tuple)
    near = st.tuples(st.sampled_from(paths), sets).map(lambda pair: (*pair[0], *pair[1]))
    one = st.tuples(st.one_of(sets, st.sampled_from(paths), near), st.sampled_from(h.leaves))
    return h, draw(st.lists(one, min_size=1, max_size=5))


@given(supports_of_classes())
@quick
def test_support_and_prefix_metrics_equal_the_slow_definition(drawn):
    h, images = drawn
    columns = path_columns([support for support, _ in images], [label for _, label in images], h)
    for i, (support, label) in enumerate(images):
        accepted = acceptable_scores(h.edges, h.root, support, label)
        prefixes = [columns[f"prefix_{level}"][i] for level in range(1, h.depth + 1)]
        assert [None if np.isnan(p) else p for p in prefixes] in [prefix_row(one, h.depth) for one in accepted]
        assert columns["support_precision"][i] == pytest.approx(float(accepted[0]["precision"]))
        assert columns["support_recall"][i] == pytest.approx(float(accepted[0]["recall"]))
        assert columns["support_f1"][i] == pytest.approx(float(accepted[0]["f1"]))
        assert columns["one_path"][i] == is_one_path(h.edges, h.root, set(support) - {h.root})


@given(supports_of_classes())
@quick
def test_they_agree_with_support_scores(drawn):
    h, images = drawn
    supports, labels = [support for support, _ in images], [label for _, label in images]
    columns, known = path_columns(supports, labels, h), support_scores(supports, labels, h)
    np.testing.assert_array_equal(columns["support_precision"], known.precision)
    np.testing.assert_array_equal(columns["support_recall"], known.recall)
    np.testing.assert_allclose(columns["support_f1"], known.f1)


@given(supports_of_classes())
@quick
def test_bounds(drawn):
    h, images = drawn
    columns = path_columns([support for support, _ in images], [label for _, label in images], h)
    table = np.array(list(columns.values()))
    assert np.nanmin(table) >= 0.0
    assert np.nanmax(table) <= 1.0
    assert (columns["complete_path"] <= columns["one_path"]).all()
    prefixes = np.array([columns[f"prefix_{level}"] for level in range(1, h.depth + 1)])
    assert (np.diff(np.nan_to_num(prefixes), axis=0) <= 0).all()  # what is followed to level l is followed above it


@given(st.integers(0, 2**32 - 1), st.booleans())
@quick
def test_a_perfect_path_scores_one_everywhere(seed, several_parents):
    h = random_hierarchy(np.random.default_rng(seed), several_parents)
    paths = [path for leaf in h.leaves for path in h.paths(leaf)]
    columns = path_columns(paths, [path[-1] for path in paths], h)
    assert all((columns[name] == 1.0).all() for name in SUPPORT_COLUMNS)
    for level in range(1, h.depth + 1):
        expected = [1.0 if len(path) >= level else np.nan for path in paths]
        np.testing.assert_array_equal(columns[f"prefix_{level}"], expected)


@pytest.mark.filterwarnings("ignore::hcep.dictionary.DependentAtomsWarning")
@given(st.integers(0, 2**32 - 1))
@quick
def test_on_rooted_paths_the_prefix_is_the_synset_at_that_level(seed):
    problem = random_problem(seed, n_images=4)
    h = problem.dictionary.hierarchy
    result = hb_omp(problem.X, problem.dictionary, **problem.options)
    label = h.leaves[seed % len(h.leaves)]
    columns = path_columns(result.paths, [label] * 4, h)
    for i, path in enumerate(result.paths):
        lengths = [len(valid) for valid in h.paths(label)]
        row = [columns[f"prefix_{level}"][i] for level in range(1, h.depth + 1)]
        closest = [valid for valid in h.paths(label) if len(valid) == np.sum(~np.isnan(row))]
        at_level = [[float(path[k : k + 1] == valid[k : k + 1]) for k in range(len(valid))] for valid in closest]
        assert [value for value in row if not np.isnan(value)] in at_level
        assert np.sum(~np.isnan(row)) in lengths


@pytest.mark.parametrize(
    ("support", "prefixes", "one_path", "complete"),
    [
        (("animal", "cat"), [1, 1], 1, 1),
        (("animal",), [1, 0], 1, 0),
        (("animal", "dog"), [1, 0], 1, 1),
        (("vehicle", "car"), [0, 0], 1, 1),
        (("cat",), [0, 0], 0, 0),
        (("animal", "cat", "car"), [1, 1], 0, 0),
        ((), [0, 0], 0, 0),
        (("thing", "animal"), [1, 0], 1, 0),
    ],
)
def test_by_hand(pets, support, prefixes, one_path, complete):
    columns = path_columns([support], ["cat"], pets)
    assert [columns["prefix_1"][0], columns["prefix_2"][0]] == prefixes
    assert (columns["one_path"][0], columns["complete_path"][0]) == (one_path, complete)


def test_levels_below_the_true_path_are_not_defined():
    h = Hierarchy.from_edges([("r", "a"), ("a", "b"), ("a", "c"), ("r", "d")])
    columns = path_columns([("d",), ("a", "b")], ["d", "d"], h)
    np.testing.assert_array_equal(columns["prefix_1"], [1.0, 0.0])
    np.testing.assert_array_equal(columns["prefix_2"], [np.nan, np.nan])


def test_ties_go_to_the_path_that_is_followed_further():
    h = Hierarchy.from_edges([("r", "b"), ("b", "x"), ("x", "cat"), ("r", "pet"), ("pet", "a"), ("a", "cat")])
    assert path_columns([("pet", "x")], ["cat"], h)["prefix_1"].tolist() == [1.0]


def test_a_shortcut_is_a_path_of_its_own(diamond):
    h = Hierarchy.from_edges([("r", "a"), ("a", "b"), ("r", "b"), ("b", "x")])
    supports = [("a", "b", "x"), ("b", "x"), ("a", "x"), ("a", "b")]
    assert [is_rooted_path(frozenset(s), h) for s in supports] == [True, True, False, True]
    assert not is_rooted_path(frozenset({"pet", "feline", "cat"}), diamond)


def test_no_images(pets):
    columns = path_columns([], [], pets)
    assert list(columns) == [*SUPPORT_COLUMNS, "prefix_1", "prefix_2"]
    assert all(len(column) == 0 for column in columns.values())


def test_unknown_synsets(pets):
    with pytest.raises(HierarchyError, match="'cats' is not a concept"):
        path_columns([("cats",)], ["cat"], pets)
