import time
import tracemalloc

import pytest

from hcep.hierarchy.names import nearly_same, same_but_for_spelling, singular, spelling_key, with_article


@pytest.mark.parametrize(
    ("plural", "one"),
    [
        ("cats", "cat"),
        ("buses", "bus"),
        ("glasses", "glass"),
        ("dishes", "dish"),
        ("benches", "bench"),
        ("foxes", "fox"),
        ("tomatoes", "tomato"),
        ("shoes", "shoe"),
        ("berries", "berry"),
        ("pies", "pie"),
        ("wolves", "wolf"),
        ("mice", "mouse"),
        ("firemen", "fireman"),
        ("horseshoes", "horseshoe"),
        ("specimen", "specimen"),
        ("specimens", "specimen"),
        ("horses", "horse"),
        ("species", "species"),
        ("walrus", "walrus"),
        ("tennis", "tennis"),
    ],
)
def test_singulars(plural, one):
    assert singular(plural) == one
    assert singular(one) == one


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("Guinea-Pigs", "guinea pig"),
        ("berries", "Berry"),
        ("boxes", "box"),
        ("café", "Cafe"),
        ("ice_cream", "ice cream"),
    ],
)
def test_names_that_differ_only_in_spelling(a, b):
    assert spelling_key(a) == spelling_key(b)
    assert same_but_for_spelling([a, "zebra", b]) == [(a, b)]


@pytest.mark.parametrize(("a", "b"), [("C", "C++"), ("glass", "glas s2"), ("bus", "bu"), ("iris", "iri"), ("+", "-")])
def test_names_that_differ(a, b):
    assert same_but_for_spelling([a, b]) == []


@pytest.mark.parametrize(
    ("a", "b"), [("submarine", "submarin"), ("submarine", "sumbarine"), ("submarine", "submarixe")]
)
def test_one_slip_in_a_long_name(a, b):
    assert nearly_same([a, b]) == [(a, b)]


@pytest.mark.parametrize(("a", "b"), [("bat", "cat"), ("submarine", "sxbmarxne"), ("Boeing 747-400", "Boeing 747-300")])
def test_no_slip(a, b):
    assert nearly_same([a, b]) == []


def test_five_thousand_names_are_not_compared_in_pairs():
    names = [f"{i * 7919 % 20_011:x} of {i * 104_729 % 20_011:x}" for i in range(5_000)]
    start = time.process_time()
    nearly_same(names)
    same_but_for_spelling(names)
    assert time.process_time() - start < 2.5


def test_long_names_with_numbers_are_compared_in_little_time_and_memory():
    names = [f"{'specimen ' * 9}{i}" for i in range(3_000)] + ["golden retriver", "golden retriever"]
    start = time.process_time()
    tracemalloc.start()
    assert nearly_same(names) == [("golden retriver", "golden retriever")]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert time.process_time() - start < 3
    assert peak < 20_000_000


@pytest.mark.parametrize(
    "expected",
    [
        "an ice bear", "a bus", "sunglasses", "food", "an Arctic fox", "a Persian cat", "an Indian cobra",
        "a Granny Smith", "an hourglass", "a European fire salamander", "an umbrella", "a ukulele", "a unicycle",
        "an uninvited guest", "Iris", "Iridaceae", "Bellis perennis", "Rosa canina", "Canis lupus familiaris",
        "n01440764", "class_7", "", "a chest of drawers", "a loaf of bread", "public transport", "cattle", "outerwear",
        "Panthera leo", "Ursus arctos", "Taraxacum officinale", "an Alpine ibex",
    ],
)  # fmt: skip
def test_articles(expected):
    assert with_article(expected.removeprefix("a ").removeprefix("an ")) == expected
