"""Outlines as people and language models write them."""

import pytest

from hcep import Hierarchy, HierarchyError, read_hierarchy
from hcep.hierarchy import write_hierarchy

EDGES = (("animal", "feline"), ("animal", "dog"), ("feline", "cat"), ("feline", "lion"))
OUTLINES = {
    "blanks": "animal\n  feline\n    cat\n    lion\n  dog\n",
    "tabs": "animal\n\tfeline\n\t\tcat\n\t\tlion\n\tdog",
    "CRLF and a mark": "\ufeffanimal\r\n  feline\r\n    cat\r\n    lion\r\n  dog\r\n",
    "bullets": "- animal\n  * feline\n    + cat\n    • lion\n  - dog\n",
    "uneven steps": "   animal\n    feline\n         cat\n         lion\n    dog\n",
    "numbers": "1. animal\n1.1 feline\n1.1.1 cat\n1.1.2. lion\n1.2) dog\n",
    "numbers below a title": "animal\n\n1. feline\n  1.1 cat\n  1.2 lion\n2. dog\n",
    "ordered lists": "1. animal\n   1. feline\n      1. cat\n      2. lion\n   2. dog\n",
    "headings": "# animal\n\n## feline\n\n- cat\n- lion\n\n## dog\n",
    "a fence and emphasis": "```markdown\n- **animal**\n  - `feline`\n    - __cat__\n    - lion\n  - dog\n```\n",
    "a drawn tree": "animal\n├── feline\n│   ├── cat\n│   └── lion\n└── dog\n",
    "a drawn tree in ASCII": "animal\n|-- feline\n|   |-- cat\n|   `-- lion\n`-- dog\n",
}


@pytest.mark.parametrize("text", OUTLINES.values(), ids=OUTLINES)
@pytest.mark.parametrize("ending", ["txt", "md"])
def test_outlines(text, ending, tmp_path):
    file = tmp_path / f"h.{ending}"
    file.write_text(text, encoding="utf-8", newline="")
    assert read_hierarchy(file) == Hierarchy.from_edges(EDGES)


def test_numbers_give_the_parent_in_any_order(tmp_path):
    (tmp_path / "h.txt").write_text("1. a\n2. b\n1.1 c\n2.1 d\n1.2 e\n")
    h = read_hierarchy(tmp_path / "h.txt")
    assert h.children("a") == ("c", "e")
    assert h.children("b") == ("d",)


def test_a_drawn_tree_can_be_read_back(tmp_path, pets):
    (tmp_path / "h.txt").write_text(pets.format_tree(), encoding="utf-8")
    assert read_hierarchy(tmp_path / "h.txt") == pets


def test_several_parents(tmp_path, diamond):
    assert write_hierarchy(diamond, tmp_path / "h.md") == ()
    assert (tmp_path / "h.md").read_text() == (
        "- root\n  - pet\n    - cat\n    - hamster\n  - feline\n    - cat\n    - lion\n"
    )
    with pytest.raises(HierarchyError, match=r"line 6: 'cat' appears below 'feline' and below 'pet' \(line 3\); pass"):
        read_hierarchy(tmp_path / "h.md")
    assert read_hierarchy(tmp_path / "h.md", repeated="merge") == diamond


def test_what_is_below_a_synset_is_written_once(tmp_path):
    h = Hierarchy.from_edges([("r", "a"), ("r", "b"), ("a", "x"), ("b", "x"), ("x", "y"), ("x", "z")])
    write_hierarchy(h, tmp_path / "h.txt")
    assert (tmp_path / "h.txt").read_text() == "- r\n  - a\n    - x\n      - y\n      - z\n  - b\n    - x\n"
    assert read_hierarchy(tmp_path / "h.txt", repeated="merge") == h


def test_synsets_of_one_name_carry_their_ids(tmp_path):
    h = Hierarchy.from_edges([("r", "n1", "crane"), ("r", "n2", "crane"), ("r", "crane (n1)")])
    lost = write_hierarchy(h, tmp_path / "h.txt")
    assert lost == (
        "outline: names kept, ids lost (2 concepts); a name that several concepts share is followed by the id",
    )
    assert read_hierarchy(tmp_path / "h.txt").leaves == ("crane (n1)'", "crane (n2)", "crane (n1)")


def test_labels_that_look_like_marks_are_quoted(tmp_path):
    odd = ["- a", "1. b", "1.1 c", "**d**", '"e"', "line\nbreak", " f"]
    h = Hierarchy.from_edges([("# r", label) for label in odd])
    write_hierarchy(h, tmp_path / "h.txt")
    assert '- - a\n  - 1. b\n  - 1.1 c\n  - "**d**"\n' in (tmp_path / "h.txt").read_text()
    assert read_hierarchy(tmp_path / "h.txt") == h


@pytest.mark.parametrize(
    ("text", "leaves"),
    [
        ("Species\nlion\ntiger\n", ("lion", "tiger")),
        ("city\ncountry\ncontinent\n", ("city", "country", "continent")),
        ("Species\n  lion\n  tiger\n", ("lion", "tiger")),
    ],
)
def test_the_title_of_a_list_is_not_a_class(text, leaves, tmp_path):
    (tmp_path / "h.csv").write_text(text, encoding="utf-8")
    assert read_hierarchy(tmp_path / "h.csv", "outline").leaves == leaves
    assert read_hierarchy(tmp_path / "h.csv", "outline", header="no").depth == 1
