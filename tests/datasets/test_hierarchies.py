import pytest

from hcep.datasets import find_hierarchy
from hcep.datasets.hierarchies import cifar10_hierarchy
from hcep.errors import HCEPError


def test_by_name():
    assert find_hierarchy("flat", ["cat"]) is None
    assert find_hierarchy("imagenet").root == "n00001740"
    assert find_hierarchy("cifar10") == cifar10_hierarchy()
    assert len(find_hierarchy("cifar100").leaves) == 100


def test_by_place_with_the_readers_options_and_notes(tmp_path):
    (tmp_path / "animals.nwk").write_text("((cat:1,lion:2)feline,dog)animal;")
    told = []
    found = find_hierarchy(tmp_path / "animals.nwk", root="feline", on_note=told.append)
    assert found.leaves == ("cat", "lion")
    assert any("branch lengths" in note for note in told)


def test_the_folder_of_a_model_has_one(tmp_path):
    cifar10_hierarchy().to_json(tmp_path / "hierarchy.json")
    assert find_hierarchy(tmp_path) == cifar10_hierarchy()


def test_by_the_classes_alone():
    assert find_hierarchy(None, cifar10_hierarchy().leaves) == cifar10_hierarchy()
    assert "n00001740" in find_hierarchy(None, ["n01440764"])


@pytest.mark.parametrize("wanted", [None, "imagenet"])
def test_classes_of_no_named_hierarchy_are_asked_about(wanted):
    with pytest.raises(
        HCEPError, match=r"1 of 2 classes are not in WordNet's hierarchy of ImageNet: 'unicorn'; give a file"
    ):
        find_hierarchy(wanted, ["n01440764", "unicorn"])


def test_names_that_wordnet_knows_bring_up_wordnet():
    with pytest.raises(
        HCEPError, match=r"'tench', 'church'; pass --hierarchy wordnet to find them by name, give a file"
    ):
        find_hierarchy(classes=["tench", "church"])


@pytest.mark.parametrize("wanted", ["wordnet", "everyday"])
def test_classes_may_be_names_in_wordnet(wanted):
    notes = []
    found = find_hierarchy(wanted, ["Tench", "chain_saw", "n03445777"], on_note=notes.append)
    assert {"Tench", "chain_saw", "n03445777"} <= set(found.leaves)
    assert notes == ["matched by name: 'Tench' is 'n01440764', 'chain_saw' is 'n03000684'"]


def test_names_in_wordnet_that_are_not_clear_are_asked_about():
    with pytest.raises(
        HCEPError, match=r"'crane' is the name of 2 synsets; give one of the ids \(n02012849: .*n03126707"
    ):
        find_hierarchy("wordnet", ["crane", "tench"])
    with pytest.raises(HCEPError, match="'tench' and 'Tench' are the same synset of WordNet, n01440764"):
        find_hierarchy("wordnet", ["tench", "Tench"])
