"""Laws of the hierarchy on random DAGs, each checked against a plain definition on the list of edges."""

import pickle
from itertools import pairwise

from hypothesis import given, settings, strategies as st

from hcep import Hierarchy

laws = settings(max_examples=50, deadline=None)


@st.composite
def edge_lists(draw):
    """Draw the edges of a random DAG on 2 to 12 synsets, which may have several roots, chains and shortcuts."""
    n = draw(st.integers(2, 12))
    ids = draw(st.lists(st.text(min_size=1, max_size=3), min_size=n, max_size=n, unique=True))
    parents = [draw(st.sets(st.integers(0, i - 1), min_size=i == 1, max_size=3)) for i in range(1, n)]
    edges = [(ids[p], ids[i]) for i, above in enumerate(parents, start=1) for p in sorted(above)]
    return draw(st.permutations(edges))


@st.composite
def hierarchies(draw):
    """Draw a random hierarchy with names, in which some inner synsets are also classes."""
    edges = draw(edge_lists())
    known = sorted({synset for edge in edges for synset in edge})
    names = draw(st.dictionaries(st.sampled_from(known), st.text(max_size=5)))
    h = Hierarchy.from_edges(edges, names)
    return h.with_classes(draw(st.sets(st.sampled_from(h.ids[1:]))))


@st.composite
def with_leaves(draw):
    """Draw a random hierarchy and some of its classes."""
    h = draw(hierarchies())
    classes = [h.class_of(leaf) for leaf in h.leaves]
    return h, draw(st.lists(st.sampled_from(classes), min_size=1, unique=True))


def all_paths(edges, root):
    """Return every rooted path by its definition: the empty path, and each path extended by a child of its end."""
    paths, new = set(), {()}
    while new:
        paths |= new
        new = {(*path, child) for path in new for parent, child in edges if parent == (path or (root,))[-1]}
    return paths


@laws
@given(edge_lists())
def test_the_graph_has_exactly_the_edges(edges):
    h = Hierarchy.from_edges(edges)
    assert {edge for edge in h.edges if edge[0] != "(root)"} == set(edges)
    assert all((h.root, child) in h.edges for parent, child in h.edges if parent == h.root)
    assert len(h.edges) == len(set(h.edges)) == h.n_edges


@laws
@given(hierarchies())
def test_json_and_pickle_round_trips_are_exact(h):
    assert Hierarchy.from_json(h.to_json()) == h
    assert pickle.loads(pickle.dumps(h)) == h
    assert Hierarchy.from_json(h.collapse().to_json()) == h.collapse()


@laws
@given(hierarchies())
def test_parents_come_before_children_and_levels_are_the_longest_paths(h):
    assert all(h.index(parent) < h.index(child) for parent, child in h.edges)
    assert h.levels.tolist() == sorted(h.levels.tolist())
    assert [h.level(synset) for synset in h] == [max(map(len, h.paths(synset))) for synset in h]
    assert h.depth == max(h.levels)


@laws
@given(hierarchies())
def test_children_and_parents_are_two_views_of_the_edges(h):
    assert {(p, c) for p in h for c in h.children(p)} == set(h.edges) == {(p, c) for c in h for p in h.parents(c)}
    assert {(a, s) for s in h for a in h.ancestors(s)} == {(a, s) for a in h for s in h.descendants(a)}
    assert set(h.leaves) == {synset for synset in h if h.is_leaf(synset)} == set(h) - {p for p, _ in h.edges}


@laws
@given(hierarchies())
def test_paths_are_valid_and_complete(h):
    expected = all_paths(h.edges, h.root)
    paths = [path for synset in h for path in h.paths(synset)]
    assert set(paths) == expected
    assert len(paths) == len(expected)
    assert all(edge in h.edges for path in paths for edge in pairwise((h.root, *path)))


@laws
@given(hierarchies())
def test_the_path_tree_is_the_set_of_rooted_paths(h):
    tree = h.path_tree
    paths = [tuple(h.ids[tree.synset[v]] for v in row[row >= 0]) for row in tree.ancestors()]
    assert len(paths) == len(set(paths)) == tree.n_nodes
    assert set(paths) == all_paths(h.edges, h.root)
    assert [len(path) for path in paths] == tree.level.tolist() == sorted(tree.level.tolist())
    assert [h.edges[e] for e in tree.edge[1:]] == [((h.root, *path)[-2], path[-1]) for path in paths[1:]]
    assert {h.ids[s] for s in tree.synset[tree.leaf_nodes]} == set(h.leaves)


@laws
@given(hierarchies())
def test_the_path_trees_siblings_are_contiguous(h):
    tree = h.path_tree
    below = [range(first, first + n) for first, n in zip(tree.first_child, tree.n_children, strict=True)]
    assert [v for siblings in below for v in siblings] == list(range(1, tree.n_nodes))
    assert all(tree.parent[v] == parent for parent, siblings in enumerate(below) for v in siblings)


@laws
@given(with_leaves())
def test_restrict_keeps_the_chosen_leaves_and_their_ancestors(case):
    h, wanted = case
    small = h.restrict(wanted)
    kept = {h.leaf_of(c) for c in wanted}
    assert set(small.leaves) == kept
    assert {small.class_of(leaf) for leaf in small.leaves} == set(wanted)
    assert set(small) == kept.union(*(h.ancestors(leaf) for leaf in kept))
    assert [small.paths(leaf) for leaf in small.leaves] == [h.paths(leaf) for leaf in small.leaves]
    assert small.restrict(wanted) == small


@laws
@given(hierarchies(), st.data())
def test_restrict_makes_every_chosen_synset_a_class(h, data):
    wanted = data.draw(st.lists(st.sampled_from(h.ids[1:]), min_size=1, unique=True))
    small = h.restrict(wanted)
    assert {small.leaf_of(c) for c in wanted} == set(small.leaves)


@laws
@given(hierarchies())
def test_collapse_leaves_no_chain_and_keeps_the_leaves(h):
    short = h.collapse()
    branching = [len(short.children(synset)) for synset in short]
    assert 1 not in branching[1:]
    assert branching[0] > 1 or short.is_leaf(short.ids[1])
    assert set(short.leaves) == set(h.leaves)
    assert short.own_leaves == h.own_leaves
    assert short.collapse() == short


@laws
@given(hierarchies())
def test_collapse_keeps_all_names_and_the_order_of_ancestors(h):
    short = h.collapse()
    merged = [synset for kept in short for synset, _ in short.merged(kept)]
    assert sorted([*merged, *short]) == sorted(h)
    assert all(set(short.ancestors(s)) <= set(h.ancestors(s)) for s in short)
    assert all(set(h.ancestors(s)) & set(short) <= set(short.ancestors(s)) for s in short)


@laws
@given(hierarchies(), st.sampled_from(["first", "shortest", "longest"]))
def test_as_tree_has_one_parent_per_synset_and_keeps_the_leaves(h, policy):
    tree = h.as_tree(policy)
    assert tree.is_tree
    assert {len(tree.parents(synset)) for synset in tree.ids[1:]} == {1}
    assert set(tree.leaves) == set(h.leaves)
    assert set(tree.edges) <= set(h.edges)
    assert tree.as_tree(policy) == tree


@laws
@given(hierarchies())
def test_policies_choose_paths_of_the_stated_length(h):
    lengths = {leaf: [len(path) for path in h.paths(leaf)] for leaf in h.leaves}
    shortest, longest = h.as_tree("shortest"), h.as_tree("longest")
    assert {leaf: shortest.level(leaf) for leaf in h.leaves} == {leaf: min(n) for leaf, n in lengths.items()}
    assert {leaf: longest.level(leaf) for leaf in h.leaves} == {leaf: max(n) for leaf, n in lengths.items()}


@laws
@given(hierarchies(), st.data())
def test_no_common_ancestor_is_below_the_lowest_one(h, data):
    a, b = data.draw(st.sampled_from(h.ids)), data.draw(st.sampled_from(h.ids))
    common = {a, *h.ancestors(a)} & {b, *h.ancestors(b)}
    lowest = h.lca(a, b)
    assert lowest == h.lca(b, a)
    assert lowest in common
    assert h.level(lowest) == max(map(h.level, common))
    assert not common & set(h.descendants(lowest))


@laws
@given(hierarchies())
def test_a_drawing_shows_every_synset(h):
    plain = Hierarchy.from_edges((f"n{h.index(a)}.", f"n{h.index(b)}.") for a, b in h.edges)
    drawn = plain.format_tree()
    assert all(synset in drawn for synset in plain)
    assert len(drawn.splitlines()) == plain.n_edges + 1
