"""The bundled WordNet DAG is the shared one, and names find their synsets."""

import json
import tomllib
from importlib.resources import files

import numpy as np
import pytest

from hcep.datasets import find_hierarchy
from hcep.errors import DatasetError
from hcep.hierarchy.imagenet import (
    everyday_hierarchy,
    imagenet_classes,
    imagenet_hierarchy,
    imagenet_wnid,
    synset_gloss,
    synset_lemmas,
)
from tests.conftest import shared_file


def test_hierarchy_is_the_shared_one(wordnet_dag):
    assert imagenet_hierarchy() == wordnet_dag


def test_classes_and_glosses_are_the_shared_ones():
    shared = json.loads(shared_file("data/imagenet1k_wordnet_dag.json").read_text(encoding="utf-8"))
    assert list(imagenet_classes()) == shared["leaf_wnids"]
    assert {wnid: synset_gloss(wnid) for wnid in shared["nodes"]} == {w: n["gloss"] for w, n in shared["nodes"].items()}


def test_lemmas_start_with_the_display_name():
    assert synset_lemmas("n03445777") == synset_lemmas("golf_ball") == ("golf ball",)
    h = imagenet_hierarchy()
    assert all(synset_lemmas(wnid)[0] == h.name(wnid) for wnid in h.ids)
    with pytest.raises(DatasetError, match="'unicorn' is neither a WordNet id nor a name"):
        synset_lemmas("unicorn")


def test_classes_are_the_leaves_in_order():
    assert sorted(imagenet_hierarchy().leaves) == list(imagenet_classes())


def test_restricted_to_imagenette(wordnet_dag):
    names = (
        "tench, English springer, cassette player, chain saw, church, French horn, garbage truck, gas pump, golf ball"
    )
    h = imagenet_hierarchy([*names.split(", "), "n03888257"])
    assert len(h.leaves) == 10
    assert h.collapse().depth == 4
    assert h == wordnet_dag.restrict(h.leaves)


def test_tiny_imagenet_needs_no_further_file():
    wnids = np.load(shared_file("data/tinyimagenet200_efficientnet_lite2.npz"), allow_pickle=False)["wnids"].tolist()
    assert set(imagenet_hierarchy(wnids).leaves) == set(wnids)


def test_names_are_first_lemmas():
    assert imagenet_hierarchy().name("n03000684") == "chain saw"


def test_inner_synsets_may_be_classes():
    assert imagenet_hierarchy(["dog", "tench"]).leaves == ("n02084071", "n01440764")
    assert imagenet_hierarchy(["dog", "beagle"]).leaf_of("n02084071") == "n02084071 (unspecified)"


@pytest.mark.parametrize(
    ("name", "wnid"),
    [
        ("tench", "n01440764"),
        ("Tinca tinca", "n01440764"),
        ("golf_ball", "n03445777"),
        ("GOLF-BALL", "n03445777"),
        ("dog", "n02084071"),
        ("monitor", "n03782006"),  # the class, not the lizards above one
        ("missile", "n03773504"),  # first lemma of one, second of another
        ("n00001740", "n00001740"),
    ],
)
def test_names_find_their_synset(name, wnid):
    assert imagenet_wnid(name) == wnid


@pytest.mark.parametrize("name", ["crane", "maillot", "Cardigan"])
def test_ambiguous_names_are_refused(name):
    with pytest.raises(DatasetError, match=rf"'{name}' is the name of 2 synsets; .*\(n\d{{8}}: .*; n\d{{8}}: "):
        imagenet_wnid(name)


def test_every_other_class_has_a_name():
    h, shared = imagenet_hierarchy(), ("crane", "maillot", "cardigan")
    by_name = {c: h.name(c) for c in imagenet_classes() if h.name(c).casefold() not in shared}
    assert len(by_name) == 1000 - 6
    assert all(imagenet_wnid(name) == c for c, name in by_name.items())


def test_unknown_name():
    with pytest.raises(DatasetError, match=r"'tenchh' is neither a WordNet id nor a name .* Near matches: 'tench'"):
        imagenet_wnid("tenchh")
    with pytest.raises(DatasetError, match=r"'n99999999' is neither"):
        imagenet_hierarchy(["n99999999"])


def test_no_classes():
    with pytest.raises(DatasetError, match=r"classes is empty; give WordNet ids or names, or leave it out"):
        imagenet_hierarchy([])


def test_it_is_small_and_has_its_licence():
    folder = files("hcep.hierarchy") / "wordnet"
    assert len((folder / "imagenet1k.json.gz").read_bytes()) < 200_000
    assert "Princeton University" in (folder / "WORDNET_LICENSE").read_text(encoding="utf-8")


def test_the_everyday_hierarchy_starts_with_words_that_people_use():
    everyday, wordnet = everyday_hierarchy(), imagenet_hierarchy()
    assert set(everyday.leaves) == set(wordnet.leaves)
    tops = {everyday.name(s) for s in everyday.children(everyday.root)}
    assert {"animal", "person", "food", "vehicle", "structure", "clothing", "device", "container"} <= tops
    names = set(map(everyday.name, everyday))
    assert not names & {"physical entity", "object", "whole", "artifact", "matter", "abstraction", "instrumentality"}
    assert [everyday.name(s) for s in everyday.paths("n01440764")[0]][:3] == ["animal", "chordate", "vertebrate"]


@pytest.mark.parametrize("name", ["palace", "castle", "bell cote", "church", "dome", "yurt"])
def test_what_people_call_a_building_is_below_building(name):
    h = everyday_hierarchy()
    building = next(s for s in h if h.name(s) == "building")
    assert all(building in path for path in h.paths(imagenet_wnid(name)))


def test_the_everyday_hierarchy_has_no_shortcut_past_a_concept():
    h = everyday_hierarchy()
    for synset in h:
        above = h.parents(synset)
        assert not [p for p in above if any(p in h.ancestors(other) for other in above)]


def test_every_concept_that_is_left_out_has_its_name_and_a_reason():
    text = (files("hcep.hierarchy") / "wordnet" / "everyday.toml").read_text("utf-8")
    wordnet = imagenet_hierarchy()
    for wnid, reason in tomllib.loads(text)["skipped"].items():
        name, colon, why = reason.partition(": ")
        assert (wordnet.name(wnid), colon) == (name, ": ")
        assert why
        assert wnid not in imagenet_classes()


def test_the_everyday_hierarchy_above_some_classes():
    h = everyday_hierarchy(["tench", "garbage truck", "n03028079"]).collapse()
    assert {h.name(s) for s in h.children(h.root)} == {"tench", "garbage truck", "church"}
    assert find_hierarchy("everyday") == everyday_hierarchy()
    assert find_hierarchy("wordnet") == imagenet_hierarchy()
