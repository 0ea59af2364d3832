"""Reading what language models write: every style of outline, chatter around it, and text that is none."""

import json

import pytest
from hypothesis import given, settings, strategies as st

from hcep import Hierarchy
from hcep.taxonomy.induction import read_answer
from hcep.taxonomy.induction.induced import normal_form

LEAVES = ("cat", "dog", "bird", "car", "fire truck")
EDGES = {
    ("entity", "animal"),
    ("entity", "vehicle"),
    ("animal", "pet"),
    ("animal", "bird"),
    ("pet", "cat"),
    ("pet", "dog"),
    ("vehicle", "car"),
    ("vehicle", "fire truck"),
}

NUMBERED = """\
1. animal
1.1 pet
1.1.1 cat
1.1.2 dog
1.2 bird
2. vehicle
2.1 car
2.2 fire truck"""
STYLES = {
    "numbered": NUMBERED,
    "numbered, with the root": "1. entity\n"
    + "\n".join(f"1.{line.replace('. ', ' ')}" for line in NUMBERED.splitlines()),
    "numbered and indented": "1. animal\n   1.1. pet\n      1.1.1. cat\n      1.1.2. dog\n   1.2. bird\n2. vehicle\n"
    "   2.1. car\n   2.2. fire truck",
    "numbers by indentation": "1. animal\n   1. pet\n      1. cat\n      2. dog\n   2. bird\n2. vehicle\n   1. car\n"
    "   2. fire truck",
    "one line": NUMBERED.replace("\n", " "),
    "bulleted": "- animal\n  - pet\n    - cat\n    - dog\n  - bird\n- vehicle\n  - car\n  - fire truck",
    "bulleted with tabs": "* animal\n\t* pet\n\t\t* cat\n\t\t* dog\n\t* bird\n* vehicle\n\t* car\n\t* fire truck",
    "numbers and bullets": "1. animal\n1.1 pet\n- cat\n- dog\n1.2 bird\n2. vehicle\n   - car\n   - fire truck",
    "letters": "1. animal\n   a) pet\n      i. cat\n      ii. dog\n   b) bird\n2. vehicle\n   a) car\n   b) fire truck",
    "indented": "entity\n  animal\n    pet\n      cat\n      dog\n    bird\n  vehicle\n    car\n    fire truck",
    "headings": "# animal\n## pet\n- cat\n- dog\n## bird\n# vehicle\n- car\n- fire truck",
    "numbered headings": "# 1. animal\n## 1.1 pet\n### cat\n### dog\n## 1.2 bird\n# 2. vehicle\n## car\n## fire truck",
    "drawn": "entity\n├── animal\n│   ├── pet\n│   │   ├── cat\n│   │   └── dog\n│   └── bird\n└── vehicle\n"
    "    ├── car\n    └── fire truck",
    "drawn in ASCII": "entity\n|-- animal\n|   |-- pet\n|   |   |-- cat\n|   |   `-- dog\n|   `-- bird\n`-- vehicle\n"
    "    |-- car\n    `-- fire truck",
    "lists on a line": "- animal\n  - pet: cat, dog\n  - bird\n- vehicle: car; fire truck",
    "emphasis": '**1. animal**\n**1.1 pet**\n1.1.1 *cat*\n1.1.2 `dog`\n1.2 __bird__\n2. **vehicle:**\n2.1 "car"\n'
    "2.2 'fire truck'",
    "explanations": "1. animal: living things\n1.1 pet\n1.1.1 cat - a small feline\n1.1.2 dog (canine)\n"
    "1.2 bird: has feathers\n2. vehicle\n2.1 car → four wheels\n2.2 fire truck [red]",
    "chatter": f"Sure! Here is the taxonomy you asked for:\n\n{NUMBERED}\n\nLet me know if you need more. I am done!",
    "fenced": f"Here you are:\n\n```markdown\n{NUMBERED}\n```\n\nAll leaves are there.",
    "fence never closed": f"```\n{NUMBERED}",
    "thinking": f"<think>\n1. cat\n2. dog\nHmm, 3. bird\n</think>\n{NUMBERED}",
    "JSON": '{"entity": {"animal": {"pet": ["cat", "dog"], "bird": {}}, "vehicle": ["car", "fire truck"]}}',
    "JSON of nodes": json.dumps(
        {
            "name": "entity",
            "children": [
                {"name": "animal", "children": [{"name": "pet", "children": ["cat", "dog"]}, {"name": "bird"}]},
                {"label": "vehicle", "items": [{"title": "car"}, "fire truck"]},
            ],
        }
    ),
    "JSON in a fence": 'So:\n```json\n[{"animal": [{"pet": ["cat", "dog"]}, "bird"]}, '
    '{"vehicle": ["car", "fire truck"]}]\n```',
    "JSON with odd values": '{"animal": {"pet": {"cat": "", "dog": null}, "bird": []}, '
    '"vehicle": {"car": {}, "fire truck": 1}}',
}


@pytest.mark.parametrize("style", STYLES)
def test_every_style_gives_the_same_tree(style):
    found = read_answer(STYLES[style], LEAVES)
    assert set(found.hierarchy.edges) == EDGES
    assert found.complete
    assert found.problems == ()


@pytest.mark.parametrize(
    "leaf",
    ["3.5 inch disk", "2. Bundesliga", "- dash", "x: y", "a (b)", "1 - 2", "C.", "#5", "a, b", "[x]", "é ü", '"q"'],
)
def test_leaves_that_look_like_outline_marks(leaf):
    found = read_answer(f"1. odd\n1.1 {leaf}\n1.2 cat\n2. dog", [leaf, "cat", "dog"])
    assert found.hierarchy.parents(leaf) == ("odd",)
    assert found.complete


def test_exact_spelling_wins_over_a_near_one():
    found = read_answer("1. big\n1.1 Apple\n2. small\n2.1 apple\n2.2 apples", ["Apple", "apple", "apples"])
    assert found.hierarchy.parents("Apple") == ("big",)
    assert found.hierarchy.parents("apple") == ("small",)
    assert found.problems == ()


def test_names_that_mean_two_leaves_are_not_guessed():
    found = read_answer("1. fruit\n1.1 APPLE\n1.2 pear", ["Apple", "apple", "pear"])
    assert found.missing == ("Apple", "apple")


def test_nesting_without_end_is_cut():
    deep = "\n".join(" " * i + f"- level {i}" for i in range(400)) + "\n" + " " * 400 + "- cat"
    found = read_answer(deep, ["cat", "dog"])
    assert found.hierarchy.depth <= 52
    assert found.missing == ("dog",)
    nested = "[" * 300 + '"cat"' + "]" * 300
    assert read_answer(nested, ["cat", "dog"]).missing == ("cat", "dog")


TEXT = st.text(
    alphabet=st.one_of(st.characters(codec="utf-8"), st.sampled_from("\n\t -*#.:123{}[]\"'`│├└─<>(),catdogbird")),
    max_size=300,
)


@settings(max_examples=120, deadline=None)
@given(TEXT)
def test_no_text_breaks_the_reader_and_every_leaf_is_there(text):
    found = read_answer(text, LEAVES)
    assert sorted(found.hierarchy.leaves) == sorted(LEAVES)
    assert found.hierarchy.root == "entity"
    assert found.complete is (not found.missing and found.hierarchy.depth > 1)
    assert found.complete or found.summary()


@st.composite
def trees(draw):
    """A random tree of groups g0, g1, ... with leaves x0, x1, ... below every group."""
    n_groups = draw(st.integers(1, 8))
    parents = [-1, *(draw(st.integers(-1, i - 1)) for i in range(1, n_groups))]
    homes = [*range(n_groups), *(draw(st.integers(0, n_groups - 1)) for _ in range(draw(st.integers(1, 6))))]
    edges = [("entity" if p < 0 else f"group g{p}", f"group g{i}") for i, p in enumerate(parents)]
    return Hierarchy.from_edges([*edges, *((f"group g{home}", f"leaf x{i}") for i, home in enumerate(homes))])


def outline(hierarchy, line):
    """The lines of a depth-first walk; `line` makes one of the numbers from the top and the name."""

    def walk(synset, numbers):
        for i, child in enumerate(hierarchy.children(synset), start=1):
            yield line((*numbers, i), child)
            yield from walk(child, (*numbers, i))

    return "\n".join(walk(hierarchy.root, ()))


WRITERS = {
    "numbered": lambda numbers, name: f"{'.'.join(map(str, numbers))}{'.' * (len(numbers) == 1)} {name}",
    "bulleted": lambda numbers, name: f"{'  ' * (len(numbers) - 1)}- {name}",
    "indented": lambda numbers, name: f"{'   ' * (len(numbers) - 1)}{name}",
    "headings and bold": lambda numbers, name: f"{'    ' * (len(numbers) - 1)}{numbers[-1]}) **{name}**",
}


@pytest.mark.parametrize("style", WRITERS)
@given(hierarchy=trees())
@settings(max_examples=40, deadline=None)
def test_a_written_tree_is_read_back(style, hierarchy):
    found = read_answer(outline(hierarchy, WRITERS[style]), hierarchy.leaves)
    assert set(found.hierarchy.edges) == set(hierarchy.edges)
    assert found.problems == ()


@given(hierarchy=trees())
@settings(max_examples=40, deadline=None)
def test_a_drawn_tree_and_its_json_are_read_back(hierarchy):
    def nested(synset):
        return {child: nested(child) for child in hierarchy.children(synset)}

    for text in (hierarchy.format_tree(), json.dumps(nested("entity"))):
        assert set(read_answer(text, hierarchy.leaves).hierarchy.edges) == set(hierarchy.edges)


def test_normal_form_sets_aside_case_spacing_punctuation_and_number():
    assert normal_form(" Fire_Trucks!") == normal_form("fire-truck") == "fire truck"
    assert normal_form("!?") == ""
