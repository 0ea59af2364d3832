"""Reading and writing by a file's ending or the format's name, and what happens to the file."""

import logging

import pytest

from hcep import Hierarchy, HierarchyError
from hcep.hierarchy import read_hierarchy, write_hierarchy


@pytest.mark.parametrize("name", ["h.json", "h.csv", "h.tsv", "H.CSV", "h.json.gz"])
def test_round_trip(tmp_path, diamond, name):
    write_hierarchy(diamond, tmp_path / name)
    assert read_hierarchy(tmp_path / name) == diamond


def test_names_survive_an_edge_list(tmp_path):
    named = Hierarchy.from_edges([("r", "n1"), ("r", "n2")], names={"r": "Root", "n1": "cat, the", "n2": "dog"})
    write_hierarchy(named, tmp_path / "h.csv")
    assert read_hierarchy(tmp_path / "h.csv") == named


def test_header_comments_and_blank_lines_are_skipped(tmp_path):
    file = tmp_path / "h.csv"
    file.write_text("Parent,Child\n# pets\n\nr, a\nr,b,Bee\n", encoding="utf-8-sig")
    assert read_hierarchy(file) == Hierarchy.from_edges([("r", "a"), ("r", "b")], names={"b": "Bee"})


def test_header_may_swap_the_columns(tmp_path):
    (tmp_path / "h.csv").write_text("child,parent,name\na,r\nb,r,Bee\n")
    assert read_hierarchy(tmp_path / "h.csv") == Hierarchy.from_edges([("r", "a"), ("r", "b")], names={"b": "Bee"})


@pytest.mark.parametrize(
    "header", ["source,target", "Superclass,Class", "superclass,subclass", "superclass,class,name", "parent,child"]
)
def test_headers_that_edge_lists_have_elsewhere(tmp_path, header):
    columns = header.split(",")
    wanted = Hierarchy.from_edges([("r", "a"), ("r", "b")])
    (tmp_path / "h.csv").write_text(f"{header}\nr,a\nr,b\n")
    assert read_hierarchy(tmp_path / "h.csv") == wanted
    (tmp_path / "swapped.tsv").write_text(f"{columns[1]}\t{columns[0]}\na\tr\nb\tr\n")
    assert read_hierarchy(tmp_path / "swapped.tsv") == wanted


def test_a_format_by_name(tmp_path, pets):
    write_hierarchy(pets, tmp_path / "h.data", format="newick")
    assert read_hierarchy(tmp_path / "h.data", format="newick").leaves == pets.leaves


def test_a_file_address(tmp_path, pets):
    write_hierarchy(pets, tmp_path / "with blank.json")
    assert read_hierarchy((tmp_path / "with blank.json").as_uri()) == pets
    with pytest.raises(HierarchyError, match=r"'file://elsewhere/h\.json': a file address must be on this machine"):
        read_hierarchy("file://elsewhere/h.json")
    with pytest.raises(HierarchyError, match=r"'ftp://x/h\.json': expected a path, or an address that starts with"):
        read_hierarchy("ftp://x/h.json")


def test_unknown_ending(tmp_path, pets):
    with pytest.raises(
        HierarchyError, match=r"'h\.xls': its ending does not name a format .* expected a file ending in \.json"
    ):
        read_hierarchy(tmp_path / "h.xls")
    with pytest.raises(HierarchyError, match=r"'h\.xls': its ending does not name a format that can be written"):
        write_hierarchy(pets, tmp_path / "h.xls")
    assert list(tmp_path.iterdir()) == []


def test_unknown_name_and_the_wrong_direction(tmp_path, pets):
    with pytest.raises(HierarchyError, match=r"format 'newik' is unknown; .* Near matches: 'newick'"):
        read_hierarchy(tmp_path / "h", format="newik")
    with pytest.raises(HierarchyError, match=r"format 'obo' cannot be written; these can: json, csv"):
        write_hierarchy(pets, tmp_path / "h.obo")


def test_unknown_option(tmp_path, pets):
    write_hierarchy(pets, tmp_path / "h.txt")
    with pytest.raises(
        HierarchyError, match=r"'outline' does not have the option 'repeat'; .*\. Near matches: 'repeated'"
    ):
        read_hierarchy(tmp_path / "h.txt", repeat="merge")
    with pytest.raises(HierarchyError, match=r"repeated must be 'raise', 'merge' or 'qualify', got 'merg'"):
        read_hierarchy(tmp_path / "h.txt", repeated="merg")


def test_one_branch(tmp_path, diamond):
    write_hierarchy(diamond, tmp_path / "h.csv")
    below = read_hierarchy(tmp_path / "h.csv", root="feline")
    assert below == Hierarchy.from_edges([("feline", "cat"), ("feline", "lion")])
    with pytest.raises(HierarchyError, match=r"h\.csv: root: 'felin' is not a concept .* Near.*'feline'"):
        read_hierarchy(tmp_path / "h.csv", root="felin")
    with pytest.raises(HierarchyError, match=r"h\.csv: root 'lion' has no concepts below it"):
        read_hierarchy(tmp_path / "h.csv", root="lion")


def test_one_branch_by_name(tmp_path):
    (tmp_path / "h.csv").write_text("r,1,crane\nr,2,crane\n1,3,grus\n1,4\n")
    assert read_hierarchy(tmp_path / "h.csv", root="1").leaves == ("3", "4")
    with pytest.raises(HierarchyError, match=r"root: 'crane' is the name of 2 concepts; give one of the ids '1', '2'"):
        read_hierarchy(tmp_path / "h.csv", root="crane")


def test_notes_are_logged(tmp_path, caplog):
    (tmp_path / "h.nwk").write_text("(a:1,b:2)c;")
    with caplog.at_level(logging.INFO, logger="hcep.hierarchy.files"):
        read_hierarchy(tmp_path / "h.nwk")
    assert "skipped: 2 branch lengths" in caplog.text


@pytest.mark.parametrize("name", ["h.json", "h.csv", "h.tsv", "h.nested.json", "h.nwk"])
def test_a_failure_leaves_what_was_there(tmp_path, name):
    (tmp_path / name).write_text("precious")
    unwritable = Hierarchy.from_edges([("r", "\ud800"), ("r", "nul\0")])
    with pytest.raises(HierarchyError, match="rename"):
        write_hierarchy(unwritable, tmp_path / name)
    assert [p.name for p in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "precious"


def test_a_place_that_cannot_be_written(tmp_path, pets):
    (tmp_path / "file").touch()
    with pytest.raises(HierarchyError, match=r"cannot write '.*h\.json': (File exists|Not a directory)"):
        write_hierarchy(pets, tmp_path / "file" / "h.json")
    (tmp_path / "taken.json").mkdir()
    with pytest.raises(HierarchyError, match=r"cannot write '.*taken\.json': Is a directory"):
        write_hierarchy(pets, tmp_path / "taken.json")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "taken.json"]


def test_folders_above_are_made(tmp_path, pets):
    write_hierarchy(pets, tmp_path / "new" / "h.json")
    assert read_hierarchy(tmp_path / "new" / "h.json") == pets


def test_the_mode_is_that_of_a_new_file_and_stays(tmp_path, pets):
    (tmp_path / "plain").touch()
    write_hierarchy(pets, tmp_path / "h.json")
    assert (tmp_path / "h.json").stat().st_mode == (tmp_path / "plain").stat().st_mode
    (tmp_path / "h.json").chmod(0o640)
    write_hierarchy(pets, tmp_path / "h.json")
    assert (tmp_path / "h.json").stat().st_mode & 0o777 == 0o640
