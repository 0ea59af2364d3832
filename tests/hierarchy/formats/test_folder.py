"""A directory tree as a hierarchy."""

import pytest

from hcep import HierarchyError
from hcep.hierarchy import read_hierarchy
from tests.hierarchy.formats.reading import read_with_notes


@pytest.fixture
def things(tmp_path):
    """things/{animal/{cat,dog},vehicle/car} with images, a hidden directory and a file beside."""
    for place in ("animal/cat", "animal/dog", "vehicle/car", ".cache/cat", "animal/.thumbnails"):
        (tmp_path / "things" / place).mkdir(parents=True)
    (tmp_path / "things/animal/cat/1.jpg").touch()
    (tmp_path / "things/README").touch()
    return tmp_path / "things"


def test_directories_are_synsets(things):
    assert read_hierarchy(things).edges == (
        ("things", "animal"),
        ("things", "vehicle"),
        ("animal", "cat"),
        ("animal", "dog"),
        ("vehicle", "car"),
    )


def test_by_address_and_by_name(things, monkeypatch):
    monkeypatch.chdir(things)
    assert read_hierarchy(things.as_uri()) == read_hierarchy(".") == read_hierarchy(things, format="folder")


def test_a_link_to_a_directory_above_is_skipped(things):
    (things / "vehicle/car/everything").symlink_to(things)
    (things / "animal/self").symlink_to(things / "animal")
    h, notes = read_with_notes(things)
    assert len(h) == 6
    assert notes == ("skipped: 2 links to a directory above",)


def test_links_that_form_a_loop(things):
    (things / "animal/cat/to-dog").symlink_to(things / "animal/dog")
    (things / "animal/dog/to-cat").symlink_to(things / "animal/cat")
    h, notes = read_with_notes(things)
    assert len(h.edges) == 6
    assert len(notes) == 1


def test_a_linked_directory_is_one_synset_with_two_parents(things):
    (things / "pet").mkdir()
    (things / "pet/cat").symlink_to(things / "animal/cat")
    assert read_hierarchy(things).parents("cat") == ("animal", "pet")


def test_a_dangling_link_is_skipped(things):
    (things / "animal/ghost").symlink_to(things / "nowhere")
    assert len(read_hierarchy(things)) == 6


def test_directories_of_one_name(things):
    (things / "vehicle/cat").mkdir()
    with pytest.raises(
        HierarchyError, match=r"things: 'cat' appears below 'vehicle' and below 'animal'; pass repeated="
    ):
        read_hierarchy(things)
    assert "vehicle/cat" in read_hierarchy(things, repeated="qualify")


def test_no_directories_inside_and_no_directory(things):
    with pytest.raises(HierarchyError, match=r"cat: has a single concept, 'cat'"):
        read_hierarchy(things / "animal/cat")
    with pytest.raises(HierarchyError, match=r"README' is not a directory, which format 'folder' needs"):
        read_hierarchy(things / "README", format="folder")


def test_too_many_directories(things, monkeypatch):
    monkeypatch.setattr("hcep.hierarchy.formats.draft.MAX_DIRECTORIES", 3)
    with pytest.raises(HierarchyError, match="things: has more than 3 directories"):
        read_hierarchy(things)
