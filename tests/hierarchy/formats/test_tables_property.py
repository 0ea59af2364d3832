"""Any tree, written as people write tables: read back as it was, or refused; never as another tree."""

import csv
import io
from pathlib import Path

from hypothesis import given, settings, strategies as st

from hcep import HierarchyError
from hcep.hierarchy.files import read_described

HEADERS = {
    "ranks": ["Kingdom", "Class", "Order", "Family", "Species"],
    "numbers": ["Level 1", "Level 2", "Level 3", "Level 4", "Level 5"],
    "words": ["Department", "Section", "Group", "Kind", "Item"],
    "unknown": ["Alpha", "Beta", "Gamma", "Delta", "Epsilon"],
    "none": None,
}


@st.composite
def trees(draw):
    """Paths of one length, their labels told apart by the level and a number, some of them shared."""
    n_levels = draw(st.integers(2, 4))
    shared = draw(st.booleans())
    paths = [()]
    for level in range(n_levels):
        longer = []
        for path in paths:
            # One class of one name in every group is the same table as one group of all of them, turned round.
            least = 2 if shared and level == n_levels - 1 else 1
            for i in range(draw(st.integers(least, 3))):
                label = f"{'abcd'[level]}{len(longer)}" if not shared or level < n_levels - 1 else f"leaf{i}"
                longer.append((*path, label))
        paths = longer
    return paths


def written(paths, header, delimiter, merged, extra, lowest_first, encoding):
    rows, above = [], ()
    for number, path in enumerate(paths):
        n_same = next((i for i, (a, b) in enumerate(zip(path, above, strict=False)) if a != b), 0) if merged else 0
        cells = ["" if i < n_same else label for i, label in enumerate(path)]
        above = path
        rows.append([*(cells[::-1] if lowest_first else cells), *([f"{number},5"] if extra else [])])
    names = HEADERS[header]
    if names is not None:
        top = names[-len(paths[0]) :]
        rows.insert(0, [*(top[::-1] if lowest_first else top), *(["Weight"] if extra else [])])
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter).writerows(rows)
    return text.getvalue().encode(encoding)


@settings(max_examples=40, deadline=None)
@given(
    trees(),
    st.sampled_from(list(HEADERS)),
    st.sampled_from([",", ";", "\t"]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
)
def test_level_columns_are_never_read_as_another_tree(
    tmp_path_factory, paths, header, delimiter, merged, extra, lowest_first, encoding
):
    file = tmp_path_factory.mktemp("tables") / "h.csv"
    lowest_first = lowest_first and header != "none"  # without a header, the order is that of the documentation
    # Cells are merged towards the left; lowest first, blanks would stand for the row below.
    file.write_bytes(written(paths, header, delimiter, merged and not lowest_first, extra, lowest_first, encoding))
    assert outcome(file, set(paths)) in ("the same", "refused")


@settings(max_examples=40, deadline=None)
@given(trees(), st.sampled_from([("parent", "child"), ("Oben", "Unten"), ("id", "parent_id"), None]), st.randoms())
def test_edge_lists_are_never_read_as_another_tree(tmp_path_factory, paths, header, random):
    unique = [(*path[:-1], f"{path[-1]}-{i}") for i, path in enumerate(paths)]
    edges = sorted({pair for path in unique for pair in zip(("top", *path), path, strict=False)})
    random.shuffle(edges)
    child_first = header == ("id", "parent_id")
    rows = [*([",".join(header)] if header else []), *(",".join(e[::-1] if child_first else e) for e in edges)]
    file = tmp_path_factory.mktemp("tables") / "h.csv"
    file.write_text("\n".join(rows))
    assert outcome(file, {("top", *path) for path in unique}) in ("the same", "refused")


FILES = [
    file for folder in ("tables", "published") for file in sorted((Path(__file__).parent / folder).iterdir())
    if file.suffix in (".csv", ".tsv", ".txt", ".tre", ".nex")
]  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(FILES), st.lists(st.tuples(st.floats(0, 1), st.binary(max_size=3), st.integers(0, 20)), min_size=1)
)
def test_a_damaged_file_is_read_or_refused_by_name(tmp_path_factory, file, edits):
    data = file.read_bytes()
    for place, put, n_cut in edits:
        at = int(place * len(data))
        data = data[:at] + put + data[at + n_cut :]
    copy = tmp_path_factory.mktemp("damaged") / f"h{file.suffix}"
    copy.write_bytes(data)
    assert outcome(copy, set()).startswith(("refused", "the same", "h."))
    assert "without the name" not in outcome(copy, set())


def outcome(file, expected):
    """What came of reading a table: the same paths to the classes, a refusal, or what is different."""
    try:
        hierarchy, told = read_described(file)
    except HierarchyError as error:
        return "refused" if str(error).startswith("h.") else f"refused without the name of the file: {error}"
    top = () if hierarchy.root == "(root)" else (hierarchy.name(hierarchy.root),)
    found = {(*top, *map(hierarchy.name, path)) for leaf in hierarchy.leaves for path in hierarchy.paths(leaf)}
    return "the same" if found == expected else f"{told}: {sorted(found)} instead of {sorted(expected)}"


def test_the_usual_ways_are_not_refused(tmp_path):
    paths = [("a", "b", "x"), ("a", "b", "y"), ("a", "c", "z"), ("d", "e", "w"), ("d", "e", "v")]
    for header in HEADERS:
        for delimiter in ",;\t":
            (tmp_path / "h.csv").write_bytes(written(paths, header, delimiter, False, False, False, "utf-8"))
            assert outcome(tmp_path / "h.csv", set(paths)) == "the same", (header, delimiter)
