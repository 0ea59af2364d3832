"""What people are told of an image: never more than is known, never a rival of the same class."""

import re

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

import hcep
from hcep import HCEPClassifier, Hierarchy, explain_images
from hcep.cli.console import path_tree, verdict
from hcep.errors import HCEPError
from hcep.explain.answer import NOTHING, UNCLEAR, UNLIKE, Answer, Rival, Step, percent
from hcep.explain.report import photo_report
from tests.taxonomy.naming.bear_space import BEARS, LEAVES, bear_images

PATH = (Step("bear", "bear", (), 0.9, 0.5, None, 0.4),)


def image(probability=0.95, unlike=False, **more):
    """An answer that is the class if it is 90 % likely, and nothing otherwise."""
    sure = {"answer": "bear", "answer_name": "bear", "answer_probability": probability} if probability >= 0.9 else {}
    fields = {"label": "bear", "name": "bear", "probability": probability, "unlike": unlike, **sure, **more}
    return Answer(file="a/b.jpg", path=PATH, **fields)


@pytest.fixture(scope="module")
def bears():
    X, y = bear_images(24)
    return HCEPClassifier(BEARS, shrinkage=None, anchor=0.1).fit(X, y)


@pytest.mark.parametrize(
    ("probability", "unlike", "doubt"),
    [(0.99, True, UNLIKE), (0.5, True, UNLIKE), (0.5, False, NOTHING), (0.79, None, NOTHING), (0.99, None, "")],
)
def test_nothing_doubtful_is_green(probability, unlike, doubt):
    one = image(probability, unlike, truth="bear")
    assert one.doubt == doubt
    assert not one.is_sure
    assert "green" not in verdict(one)
    page = photo_report([one])
    body = page[page.index("<body") :]
    assert "good" not in body[: body.index("<script")]
    assert (UNLIKE in one.line()) == (UNLIKE in verdict(one)) == bool(unlike)
    assert (f"{UNLIKE}<span" in body or f"{UNLIKE}</span>" in body) == bool(unlike)


def test_the_answer_is_in_words():
    rivals = (
        Rival("wolf", "wolf", 0.3, ("animal", "wolf"), ("animal", "wolf")),
        Rival("bus", "bus", 0.2, ("vehicle", "bus"), ("vehicle", "bus")),
        Rival("ant", "ant", 0.04, ("animal", "ant"), ("animal", "ant")),
    )
    above = {"answer": "animal", "answer_name": "animal", "answer_probability": 0.93}
    assert image().headline() == "a bear, 95 %"
    assert image(0.45, **above, rivals=rivals).headline() == "an animal, 93 % (perhaps a bear, 45 %; wolf, 30 %)"
    promised = {"answer_probability": 0.9, "answer_estimate": 0.75, "promise": "At least 90 % ...", "rivals": rivals}
    bounded = image(0.45, **above | promised)
    assert bounded.headline() == "an animal, at least 90 % (perhaps a bear, 45 %; wolf, 30 %)"
    assert bounded.replaced(answer_probability=0.93).headline().startswith("an animal, 93 %")
    guesses = "perhaps a bear, 45 %; wolf, 30 %; bus, 20 %"
    assert image(0.45, rivals=rivals).headline() == f"{guesses} (nothing is sure enough)"
    assert image(0.45, True, rivals=rivals).headline() == f"unlike anything in training ({guesses})"
    assert image(0.95, True).line().startswith("a bear, 95 %, unlike anything in training")
    assert image(0.45, **above).doubt == UNCLEAR
    latin = {"name": "Iris versicolor", "answer": "i", "answer_name": "Iridaceae", "answer_probability": 0.92}
    assert image(0.41, **latin).headline() == "Iridaceae, 92 % (perhaps Iris versicolor, 41 %)"
    assert image(0.45, **above).line().endswith("(perhaps a bear, 45 %): " + image().names())
    assert "unsure" not in image(0.45).line()


def test_an_answer_above_the_class_of_the_folder_is_right(bears):
    X, y = bear_images(24)
    answers = [one.replaced(truth=str(label)) for one, label in zip(explain_images(X, bears), y, strict=True)]
    model = bears.path_model()
    for one in answers:
        expected = one.answer in (one.truth, *model.hierarchy.ancestors(one.truth))
        assert one.correct == (expected if one.answer is not None else None)


def test_a_class_that_is_an_inner_concept_is_never_called_itself():
    tree = Hierarchy.from_edges([("r", "Iris"), ("Iris", "Iris pumila"), ("Iris", "Iris sibirica"), ("r", "Rosa")])
    rng = np.random.default_rng(0)
    y = np.repeat(["Iris", "Iris pumila", "Iris sibirica", "Rosa"], 8)
    X = np.repeat(3 * np.eye(4, 6), 8, axis=0) + 0.1 * rng.normal(size=(32, 6))
    model = HCEPClassifier(tree, coarse="own", shrinkage=None, anchor=0.1).fit(X, y)
    answers = explain_images(X, model)
    assert (answers[0].answer, answers[0].name) == ("Iris", "Iris")
    assert model.predict_concept(X[:1]).tolist() == ["Iris"]
    texts = [one.line() for one in answers]
    assert not any("itself" in text for text in texts)
    assert "(unspecified)" not in photo_report(answers[:1]).partition("<script")[0]


def test_a_sure_answer_is_green():
    assert image().is_sure
    assert "green" in verdict(image())
    assert '<h2 class="good">' in photo_report([image()])


def test_an_answer_that_differs_from_its_folder_is_marked_as_wrong():
    page = photo_report([image(truth="bus")])
    assert '<h2 class="bad">✗ a bear' in page
    assert "The folder says bus." in page


def test_novel_images_are_unlike_training_and_training_images_are_not(bears):
    X, _ = bear_images(24, seed=1)
    assert np.mean([one.unlike for one in explain_images(X, bears)]) < 0.2
    novel = np.array([[3.0, 0.0, -2.0, -2.0, 3.0, 3.0]])
    assert explain_images(novel, bears)[0].doubt == UNLIKE
    bears_of_old = HCEPClassifier(BEARS, shrinkage=None, anchor=0.1).fit(*bear_images(24))
    bears_of_old.explained_floor_ = None
    assert explain_images(novel, bears_of_old)[0].unlike is None


def test_runners_up_are_other_classes_however_many_routes_there_are(diamond):
    """cat hangs from pet and from feline: its second route is no rival."""
    means = {"cat": [3.0, 3.0, 0.0, 0.0], "hamster": [3.0, 0.0, 1.0, 0.0], "lion": [0.0, 3.0, 0.0, 1.0]}
    y = np.repeat(list(means), 6)
    X = np.array([means[label] for label in y]) + 0.1 * np.random.default_rng(0).normal(size=(18, 4))
    model = HCEPClassifier(diamond, shrinkage=None, anchor=0.1).fit(X, y)
    expected = model.predict_proba(X)
    for one, odds in zip(explain_images(X, model, n_best=3), expected, strict=True):
        classes = [one.label, *(rival.label for rival in one.rivals)]
        assert len(set(classes)) == 3
        found = [one.probability, *(rival.probability for rival in one.rivals)]
        assert found == pytest.approx(sorted(odds, reverse=True))
        assert all(rival.path[-1] == rival.label for rival in one.rivals)
        assert [len(one.siblings(i)) for i in range(len(one.path))] == [1] * len(one.path)


def test_a_sibling_gets_no_probability_from_a_shared_class(diamond):
    means = {"cat": [3.0, 3.0, 0.0], "hamster": [3.0, 0.0, 1.0], "lion": [0.0, 3.0, 0.0]}
    y = np.repeat(list(means), 6)
    X = np.array([means[label] for label in y]) + 0.05 * np.random.default_rng(0).normal(size=(18, 3))
    one = explain_images(X[:1], HCEPClassifier(diamond, shrinkage=None, anchor=0.1).fit(X, y))[0]
    assert one.label == "cat"
    assert one.concept_probability(one.path[0].synset) > 0.9
    assert one.siblings(0)[0][1] < 0.1


def test_probabilities_of_siblings_add_up(bears):
    X, _ = bear_images(24)
    for one in explain_images(X + 0.4, bears):
        first, last = (one.concept_probability(step.synset) for step in (one.path[0], one.path[-1]))
        assert first + sum(p for _, p in one.siblings(0)) == pytest.approx(1.0, abs=0.02)
        assert last == pytest.approx(one.probability, abs=1e-3)


def test_shares_are_never_negative_even_if_the_explained_share_falls():
    tree = Hierarchy.from_edges([("r", "a"), ("a", "b"), ("a", "c"), ("r", "d")])
    rng = np.random.default_rng(3)
    y = np.repeat(["b", "c", "d"], 5)
    X = np.repeat(rng.normal(size=(3, 6)), 5, axis=0) + 0.5 * rng.normal(size=(15, 6))
    model = HCEPClassifier(tree, shrinkage=None, anchor=0.05).fit(X, y)
    found = explain_images(3 * rng.normal(size=(200, 6)), model)
    steps = [step for one in found for step in one.path]
    assert min(step.explained for step in steps) < 0
    assert min(step.share for step in steps) >= 0
    console = Console(width=200, record=True, quiet=True)
    for one in found:
        console.print(path_tree(one))
        assert sum(step.share for step in one.path) <= 1 + 1e-9
    assert not re.search(r"-\d+ ?%", console.export_text())
    page = photo_report(found)
    assert not re.search(r"-\d+ ?%", page[page.index("<body") :])


def test_percentages_never_say_zero_or_a_hundred():
    assert [percent(p) for p in (0.0, 0.0099, 0.01, 0.314, 0.99, 0.991, 1.0)] == [
        "<1 %", "<1 %", "1 %", "31 %", "99 %", ">99 %", ">99 %"
    ]  # fmt: skip


def test_a_folder_named_after_a_class_is_the_truth(bears, tmp_path):
    for folder in ("polar_bear", "Polar Bear", "holiday"):
        (tmp_path / folder).mkdir()
        Image.new("RGB", (32, 32), "red").save(tmp_path / folder / "x.png")
    encoder = "function:tests.taxonomy.naming.bear_space:colour_vectors"
    found = explain_images(tmp_path, bears, encoder=encoder)
    assert {one.file.split("/")[-2]: one.truth for one in found} == {
        "polar_bear": "polar_bear", "Polar Bear": "polar_bear", "holiday": None
    }  # fmt: skip
    assert [one.correct for one in found] == [True, None, True]
    assert "2 of 2</b> right" in photo_report(found)


def test_missing_maps_and_pictures_are_errors(bears):
    one = explain_images(np.array([LEAVES["car"]]), bears)[0]
    with pytest.raises(HCEPError, match=r"explain_images\(..., where=True\) makes them for photos"):
        one.where("car")
    with pytest.raises(HCEPError, match="an embedding has no picture to show"):
        one.photo()
    with pytest.raises(HCEPError, match="embeddings have no positions"):
        explain_images(np.array([LEAVES["car"]]), bears, where=True)
    with pytest.raises(HCEPError, match="n_best must be"):
        explain_images(np.array([LEAVES["car"]]), bears, n_best=0)


def test_the_classifier_explains_embeddings(bears):
    X, _ = bear_images(2)
    assert [one.label for one in explain_images(X, bears)] == bears.predict(X).tolist()
    assert hcep.explain_images(X, bears, n_best=1)[0].rivals == ()


def test_results_have_short_texts_and_html_for_notebooks(bears):
    X, _ = bear_images(24)
    found = explain_images(X, bears)
    paths = bears.pursue(X)
    shown = [
        found, found[0], paths, bears.hierarchy_, bears.dictionary_.geometry
    ]  # fmt: skip
    for thing in shown:
        assert "<" in thing._repr_html_()
        assert len(repr(thing)) < 2000
    assert repr(found[0]) == f"<0: {found[0].line()}>"
    assert "and 86 more" in repr(found)
    assert paths._repr_html_().count("<tr>") == 11
    assert "├── " in bears.hierarchy_._repr_html_()
    assert "orthogonality mean abs cosine" in bears.dictionary_.geometry._repr_html_()
