"""Edge lists and JSON files, there and back."""

import pytest

from hcep import Hierarchy, HierarchyError
from hcep.hierarchy import read_hierarchy, write_hierarchy


@pytest.mark.parametrize("name", ["h.json", "h.csv", "h.tsv"])
def test_round_trip(tmp_path, diamond, name):
    write_hierarchy(diamond, tmp_path / name)
    assert read_hierarchy(tmp_path / name) == diamond


def test_names_survive_an_edge_list(tmp_path):
    named = Hierarchy.from_edges([("r", "n1"), ("r", "n2")], names={"n1": "cat, the", "n2": "dog"})
    write_hierarchy(named, tmp_path / "h.csv")
    assert read_hierarchy(tmp_path / "h.csv").name("n1") == "cat, the"


def test_header_comments_and_blank_lines_are_passed_over(tmp_path):
    file = tmp_path / "h.csv"
    file.write_text("Parent,Child\n# pets\n\nr, a\nr,b,Bee\n", encoding="utf-8-sig")
    assert read_hierarchy(file) == Hierarchy.from_edges([("r", "a"), ("r", "b")], names={"b": "Bee"})


def test_header_may_swap_the_columns(tmp_path):
    (tmp_path / "h.csv").write_text("child,parent,name\na,r\nb,r,Bee\n")
    assert read_hierarchy(tmp_path / "h.csv") == Hierarchy.from_edges([("r", "a"), ("r", "b")], names={"b": "Bee"})


def test_unknown_extension(tmp_path, pets):
    with pytest.raises(HierarchyError, match=r"expected a file ending in \.json, \.csv or \.tsv"):
        read_hierarchy(tmp_path / "h.txt")
    with pytest.raises(HierarchyError, match=r"expected a file ending in \.json, \.csv or \.tsv"):
        write_hierarchy(pets, tmp_path / "h.txt")


def test_absent_file(tmp_path):
    with pytest.raises(HierarchyError, match=r"cannot read .*No such file"):
        read_hierarchy(tmp_path / "h.csv")


def test_row_with_too_many_cells_names_the_line(tmp_path):
    (tmp_path / "h.tsv").write_text("r\ta\nr\tb\tBee\tx\n")
    with pytest.raises(HierarchyError, match=r"h\.tsv, line 2: expected parent, child"):
        read_hierarchy(tmp_path / "h.tsv")


def test_binary_file_is_refused(tmp_path):
    (tmp_path / "h.csv").write_bytes(b"\xff\xfe\x00r,a")
    with pytest.raises(HierarchyError, match="is not text in UTF-8"):
        read_hierarchy(tmp_path / "h.csv")
