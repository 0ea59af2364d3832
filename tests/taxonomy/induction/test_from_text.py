"""Hearst's patterns: what sentences say, and the tree that a corpus makes."""

import gzip
import tracemalloc

import pytest
from hypothesis import given, settings, strategies as st

from hcep.errors import HCEPError
from hcep.taxonomy.induction import induce_from_text
from hcep.taxonomy.induction.from_text import matches
from tests.hierarchy.cifar10 import CIFAR, CORPUS


def heads(sentence):
    return [(above.head, [phrase.head for phrase in below], pattern) for above, below, pattern in matches(sentence)]


@pytest.mark.parametrize(
    ("sentence", "above", "below", "pattern"),
    [
        ("Animals such as cats, dogs, and frogs.", "animals", ["cats", "dogs", "frogs"], "such as"),
        ("We like large animals, such as the horse or a deer", "animals", ["horse", "deer"], "such as"),
        ("Animals such as cats live in houses.", "animals", ["cats"], "such as"),
        ("He works on such vehicles as ships and trucks.", "vehicles", ["ships", "trucks"], "such … as"),
        ("He saw cats, dogs and other domestic animals there", "animals", ["cats", "dogs"], "and other"),
        ("Ships, trucks, or other vehicles.", "vehicles", ["ships", "trucks"], "or other"),
        ("Vehicles, including fire trucks and cars, are loud.", "vehicles", ["trucks", "cars"], "including"),
        ("Mammals, especially horses, eat grass.", "mammals", ["horses"], "especially"),
        ("A cat is a kind of mammal.", "mammal", ["cat"], "kind of"),
        ("Cars and trucks are types of motor vehicle.", "vehicle", ["cars", "trucks"], "types of"),
    ],
)
def test_each_pattern(sentence, above, below, pattern):
    assert heads(sentence) == [(above, below, pattern)]


@pytest.mark.parametrize(
    "sentence",
    ["", "such as", "and other", "Such is life.", "is a kind of", "Including", "of such as the", "They are kinds"],
)
def test_sentences_without_a_pattern(sentence):
    assert heads(sentence) == []


def test_sentences_end_at_full_stops_and_lines():
    corpus = ["Animals such as cats. Dogs and other pets!", "Vehicles such as\ncars"]
    found = induce_from_text(["cat", "dog", "car"], corpus, min_count=1)
    assert set(found.evidence) == {("animal", "cat"), ("pet", "dog")}


def test_a_tree_from_a_small_corpus():
    found = induce_from_text(CIFAR, CORPUS.splitlines(), min_count=1)
    assert found.complete
    assert set(found.hierarchy.edges) == {
        ("entity", "animal"),
        ("entity", "vehicle"),
        ("animal", "mammal"),
        ("animal", "bird"),
        ("animal", "frog"),
        *(("mammal", name) for name in ("cat", "deer", "dog", "horse")),
        *(("vehicle", name) for name in ("airplane", "automobile", "ship", "truck")),
    }


def test_evidence_of_each_edge():
    found = induce_from_text(CIFAR, CORPUS.splitlines(), min_count=1)
    horse = found.evidence["mammal", "horse"]
    assert horse.count == 2
    assert horse.patterns == ("such as", "kind of")
    assert horse.example == "Mammals such as cats, dogs and horses are kept in houses."
    assert set(found.evidence) == {edge for edge in found.hierarchy.edges if edge[0] != "entity"}


def test_classes_without_enough_evidence_are_children_of_the_root():
    found = induce_from_text(CIFAR, CORPUS.splitlines(), min_count=2)
    assert not found.complete
    assert found.missing == ("deer",)
    assert found.hierarchy.parents("deer") == ("entity",)
    assert "not placed, left under the root: 'deer'" in found.summary()


def test_a_text_that_says_nothing_leaves_all_under_the_root():
    found = induce_from_text(["cat", "dog"], ["Nothing here."])
    assert found.missing == ("cat", "dog")
    assert found.problems[0].kind == "empty"
    assert found.hierarchy.depth == 1


def test_cycles_are_broken_at_the_weakest_evidence():
    strong = ["Pets such as mammals and cats."] * 3 + ["Mammals such as cats and dogs."] * 2
    weak = ["Mammals such as pets."]
    found = induce_from_text(["cat", "dog"], [*weak, *strong], min_count=1)
    assert ("pet", "mammal") in found.hierarchy.edges
    assert ("mammal", "pet") not in found.hierarchy.edges


def test_a_class_is_never_a_parent():
    found = induce_from_text(["cat", "lion", "dog"], ["Cats such as lions and dogs."], min_count=1)
    assert sorted(found.hierarchy.leaves) == ["cat", "dog", "lion"]


def test_all_parents_make_a_dag_without_shortcuts():
    corpus = ["Pets such as cats.", "Felines such as cats.", "Animals such as cats, felines and pets."]
    dag = induce_from_text(["cat", "dog"], corpus, min_count=1, max_parents=None).hierarchy
    assert set(dag.parents("cat")) == {"feline", "pet"}
    tree = induce_from_text(["cat", "dog"], corpus, min_count=1).hierarchy
    assert tree.parents("cat") == ("feline",)  # as strong as "pet", and first by name


def test_a_vocabulary_names_the_inner_synsets():
    corpus = ["Motor vehicles such as cars and fire trucks.", "Motor vehicles are a kind of machine."]
    found = induce_from_text(["car", "fire truck"], corpus, vocabulary=["Motor Vehicle"], min_count=1)
    assert found.hierarchy.children("Motor Vehicle") == ("car", "fire truck")
    assert found.hierarchy.parents("Motor Vehicle") == ("entity",)
    anything = induce_from_text(["car", "fire truck"], corpus, min_count=1)
    assert anything.hierarchy.parents("vehicle") == ("machine",)


def test_files_plain_and_compressed_are_the_same_as_lines(tmp_path):
    plain, packed = tmp_path / "corpus.txt", tmp_path / "corpus.txt.gz"
    plain.write_text(CORPUS, encoding="utf-8")
    packed.write_bytes(gzip.compress(CORPUS.encode()))
    wanted = induce_from_text(CIFAR, CORPUS.splitlines()).hierarchy
    assert induce_from_text(CIFAR, plain).hierarchy == wanted
    assert induce_from_text(CIFAR, str(packed)).hierarchy == wanted


def test_a_long_corpus_streams_in_little_memory():
    def lines():
        for i in range(1_000):
            yield f"Number {i} says: animals such as cats and dogs, and birds number {i}. " + "padding " * 20

    tracemalloc.start()
    found = induce_from_text(["cat", "dog", "ship"], lines())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.evidence["animal", "cat"].count == 1_000
    assert peak < 150_000  # the text has 0.23 MB; a few pairs and an example of each are kept


WORDS = ("cats", "dogs", "pets", "mammals", "animals", ",", "and", "other", "such", "as", "including", "is a kind of")


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.sampled_from(WORDS))))
def test_any_text_gives_a_valid_hierarchy_and_the_same_one_again(words):
    corpus = [" ".join(line) for line in words]
    first = induce_from_text(["cat", "dog"], corpus, min_count=1, max_parents=None)
    again = induce_from_text(["cat", "dog"], corpus, min_count=1, max_parents=None)
    assert sorted(first.hierarchy.leaves) == ["cat", "dog"]
    assert first.hierarchy == again.hierarchy
    assert all(evidence.count >= 1 for evidence in first.evidence.values())


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"min_count": 0}, "min_count must be a positive integer"),
        ({"max_parents": 0}, "max_parents must be None or"),
        ({"lines": [b"bytes"]}, "got a bytes in it"),
        ({"lines": "no/such/file.txt"}, "cannot read the corpus 'no/such/file.txt': No such file"),
    ],
)
def test_options_out_of_range(options, match):
    with pytest.raises(HCEPError, match=match):
        induce_from_text(**{"leaves": ["cat", "dog"], "lines": [], **options})


CUT = gzip.compress(b"Animals such as cats. " * 999)[:-12]


@pytest.mark.parametrize("data", [b"not gzip", CUT], ids=["other", "cut"])
def test_a_damaged_archive_is_named(data, tmp_path):
    path = tmp_path / "corpus.gz"
    path.write_bytes(data)
    with pytest.raises(HCEPError, match=r"cannot read the corpus .*corpus\.gz"):
        induce_from_text(["cat", "dog"], path)


@pytest.mark.parametrize(
    ("corpus", "message"),
    [
        ([], "the corpus is empty"),
        (["\n", "  "], "the corpus is empty"),
        (["Nothing."], "lower min_count (-P min_count"),
    ],
)
def test_an_empty_corpus_is_reported(corpus, message):
    (problem,) = induce_from_text(["cat", "dog"], corpus).problems
    assert message in problem.message
