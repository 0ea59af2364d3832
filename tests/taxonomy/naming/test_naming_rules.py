"""What passes as a summary and what does not."""

import pytest
from hypothesis import given, strategies as st

from hcep import Hierarchy
from hcep.taxonomy.naming.language_model import cleaned, uses_name, violation, without_marker
from hcep.taxonomy.naming.phrases import names_of

NAMES = ("polar bear", "bear")

VIOLATIONS = {
    "": "is empty",
    " \n ": "is empty",
    "thick white fur\nsmall round ears": "has several lines",
    "white fur": "has 2 words, but 3 to 10 were asked for",
    "a b c d e f g h i j k": "has 11 words, but 3 to 10 were asked for",
    "white fur of a bear": "uses the name 'bear'",
    "White BEARS in the snow": "uses the name 'bear'",
    "a bear’s thick white coat": "uses the name 'bear'",
    "the polar-bear look of snow": "uses the name 'polar bear'",
    "polarbears on thin ice": "uses the name 'polar bear'",
    '"thick white winter fur"': "has quotation marks or markup",
    "'thick white winter fur'": "has quotation marks or markup",
    "“thick white winter fur”": "has quotation marks or markup",
    "**thick** white winter fur": "has quotation marks or markup",
    "thick `white` winter fur": "has quotation marks or markup",
    "<b>thick white winter fur</b>": "has quotation marks or markup",
    "see https://example.org for white fur": "has quotation marks or markup",
    "- thick white winter fur": "is an item of a list and not a bare phrase",
    "1. thick white winter fur": "is an item of a list and not a bare phrase",
    "Sure, thick white winter fur": "speaks to the reader and is not a bare phrase",
    "I cannot describe this picture": "speaks to the reader and is not a bare phrase",
    "Answer: thick white fur": "has a label or several parts, with a colon or semicolon",
    "thick white fur. It has ears": "is one or more sentences, not a phrase",
    "what thick white fur!": "is one or more sentences, not a phrase",
    "white fur of this category": "speaks of the task ('category') and not of what can be seen",
    "thick white\x1b[31m winter fur": "has a control character, '\\x1b'",
    "thick white \u202efur dnuor": "has a control character, '\\u202e'",
    "thick " + "w" * 200 + " fur": "has 210 characters, but the limit is 160",
}


@pytest.mark.parametrize(("answer", "reason"), VIOLATIONS.items())
def test_a_violation_is_named(answer, reason):
    assert violation(cleaned(answer), NAMES) == reason


@pytest.mark.parametrize(
    "answer",
    [
        "thick matte white fur blending with snow.",
        "open-top woven or perforated sides with handles",
        "  round, bright orange, pebbled rind \n",
        "bearded faces with small ears",
        "I-shaped steel beam with rivets",
        "dichtes weißes Fell, kleine Ohren",
        "lion's mane around the face",
    ],
)
def test_good_phrases_pass(answer):
    assert violation(cleaned(answer), NAMES) is None


@pytest.mark.parametrize(
    ("phrase", "name"),
    [
        ("two wolves howling", "wolf"),
        ("grey mice on cheese", "mouse"),
        ("ponies in a field", "pony"),
        ("red buses at night", "bus"),
        ("a wolf", "wolves"),
        ("rows of lumber mills", "lumbermill"),
        ("a lumbermill", "lumber mill"),
        ("three firemen outside", "fireman"),
        ("churches with spires", "church"),
        ("a cassette_player", "cassette player"),
        ("Straßenbahnen", "STRASSENBAHN" + "EN"),
    ],
)
def test_names_are_found_in_plural_and_other_spellings(phrase, name):
    assert uses_name(phrase, name)


@pytest.mark.parametrize(
    ("phrase", "name"),
    [("as a rule", "ass"), ("a catalogue", "cat"), ("polar ice and a bearskin", "polar bear"), ("anything", "!!")],
)
def test_other_words_are_not_names(phrase, name):
    assert not uses_name(phrase, name)


@given(st.text(max_size=80))
def test_any_text_is_judged_and_what_passes_is_one_clean_line(text):
    phrase = cleaned(text)
    passed = violation(phrase, NAMES) is None
    assert not passed or (len(phrase.split()) >= 3 and phrase == " ".join(phrase.splitlines()) and "bear" not in phrase)


def test_markers_of_lists_are_taken_off():
    lines = ["- white fur", "2) white fur", "• white fur", "(3) white fur", "white fur", "c. white fur"]
    assert {without_marker(line) for line in lines} == {"white fur"}


def test_merged_chains_own_leaves_and_aliases_are_names_too():
    tree = Hierarchy.from_edges(
        [("thing", "feline"), ("feline", "cat"), ("cat", "lynx"), ("cat", "puma"), ("thing", "car")],
        names={"lynx": "wild lynx"},
    ).with_classes(["cat", "lynx", "puma", "car"])
    own = tree.leaf_of("cat")
    assert "cat" in names_of(tree, [own], {})
    assert set(names_of(tree.collapse(), ["cat"], {})) == {"cat", "feline"}
    assert names_of(tree, ["lynx"], {"lynx": ["catamount"]}) == ("wild lynx", "catamount")
