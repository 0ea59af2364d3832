"""Classes added, moved, renamed and removed in place: the same as a fit to all images in the same metric."""

from __future__ import annotations

import time
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from hcep import ConceptDictionary, HCEPClassifier, Hierarchy, load, save
from hcep.classify.base import class_hierarchy
from hcep.errors import HCEPError, HierarchyError
from tests.conftest import k_shot

DIMS = 6


def draw(n: int, seed: int, at: float = 0.0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.standard_normal(DIMS) * 3 + at + 0.5 * rng.standard_normal((n, DIMS))


def small(pets: Hierarchy, **options: object) -> tuple[HCEPClassifier, dict[str, np.ndarray]]:
    images = {label: draw(8, i) for i, label in enumerate(("cat", "dog", "fox", "car", "bus"))}
    X, y = np.vstack(list(images.values())), np.repeat(list(images), 8)
    return HCEPClassifier(pets, shrinkage=0.5, anchor=0.3, refine=False, **options).fit(X, y), images


def refitted(model: HCEPClassifier, graph: Hierarchy, images: dict[str, np.ndarray]) -> ConceptDictionary:
    """The dictionary of all images at once, in the model's metric."""
    hierarchy = class_hierarchy(graph, np.array(sorted(images)))
    transform = model.dictionary_.transform
    means = {label: transform(X).mean(axis=0) for label, X in images.items()}
    return ConceptDictionary._from_class_embeddings(hierarchy, means, transform, "raise", anchor_unit=1.0)


def assert_same(found: ConceptDictionary, expected: ConceptDictionary, tolerance: float = 1e-6) -> None:
    assert set(found.edges) == set(expected.edges)
    for synset in expected.hierarchy.ids:
        np.testing.assert_allclose(
            found.synset_embedding(synset), expected.synset_embedding(synset), rtol=0, atol=tolerance
        )


class Twin:
    """A model that grows, and all its images and the parent of every concept beside it."""

    def __init__(self, pets: Hierarchy) -> None:
        self.model, self.images = small(pets)
        self.parent = {child: parent for parent, child in pets.edges}
        self.seed = 100

    @property
    def graph(self) -> Hierarchy:
        return Hierarchy.from_edges([(parent, child) for child, parent in self.parent.items()])

    def step(self, number: int) -> None:
        self.seed += 1
        rng = np.random.default_rng(number)
        (self.add, self.remove, self.shift, self.more)[number % 4](rng)

    def add(self, rng: np.random.Generator) -> None:
        parent, name, X = rng.choice(self.graph.ids), f"new {self.seed}", draw(int(rng.integers(1, 5)), self.seed)
        self.model.add_class(name, parent, X)
        self.parent[name], self.images[name] = parent, X

    def remove(self, rng: np.random.Generator) -> None:
        if len(self.images) > 2:
            name = rng.choice(sorted(self.images))
            self.model.remove_class(name)
            del self.images[name]

    def shift(self, rng: np.random.Generator) -> None:
        concept, parent = rng.choice(sorted(self.parent)), rng.choice(self.graph.ids)
        if parent == concept or parent in self.graph.descendants(concept):
            with pytest.raises(HierarchyError, match="cannot be its parent"):
                self.model.move(concept, parent)
            return
        self.model.move(concept, parent)
        self.parent[concept] = parent

    def more(self, rng: np.random.Generator) -> None:
        names = rng.choice(sorted(self.images), 3)
        X = draw(3, self.seed)
        self.model.partial_fit(X, names)
        for name, row in zip(names, X, strict=True):
            self.images[name] = np.vstack([self.images[name], row])


@given(st.lists(st.integers(0, 2**20), min_size=50, max_size=50))
@settings(max_examples=5)
def test_fifty_changes_equal_a_fit_to_all_images_in_the_same_metric(numbers: list[int]) -> None:
    edges = [("thing", "animal"), ("thing", "vehicle"), ("animal", "cat"), ("animal", "dog"), ("animal", "fox"),
             ("vehicle", "car"), ("vehicle", "bus")]  # fmt: skip
    twin = Twin(Hierarchy.from_edges(edges))
    for number in numbers:
        twin.step(number)
    expected = refitted(twin.model, twin.graph, twin.images)
    assert_same(twin.model.dictionary_, expected)
    assert twin.model.classes_.tolist() == sorted(twin.images)
    assert twin.model.images_per_class_.tolist() == [len(twin.images[label]) for label in sorted(twin.images)]
    X = np.vstack(list(twin.images.values()))
    again = deepcopy(twin.model)
    again.dictionary_, again.hierarchy_ = expected, expected.hierarchy
    np.testing.assert_allclose(twin.model.predict_proba(X), again.predict_proba(X), rtol=0, atol=1e-6)


def test_a_class_added_later_is_as_if_it_had_been_there(pets: Hierarchy) -> None:
    model, images = small(pets)
    X = draw(10, 77)
    assert model.add_class("van", "vehicle", X).predict(X).tolist() == ["van"] * 10
    assert model.hierarchy_.parents("van") == ("vehicle",)
    graph = Hierarchy.from_edges([*pets.edges, ("vehicle", "van")])
    assert_same(model.dictionary_, refitted(model, graph, {**images, "van": X}), 1e-12)


def test_a_class_that_gets_one_below_it_stays_a_class(pets: Hierarchy) -> None:
    model, images = small(pets)
    model.add_class("siamese", "cat", draw(10, 78))
    assert model.hierarchy_.leaf_of("cat") == "cat (unspecified)"
    assert (model.predict(images["cat"]) == "cat").mean() > 0.8
    model.remove_class("siamese")
    assert model.hierarchy_.leaf_of("cat") == "cat"


def test_a_class_from_the_root_of_a_model_without_hierarchy() -> None:
    X, y = np.vstack([draw(5, 0), draw(5, 1)]), np.repeat(["a", "b"], 5)
    model = HCEPClassifier().fit(X, y).add_class("c", None, draw(5, 2))
    assert model.predict(draw(5, 2)).tolist() == ["c"] * 5


def test_numbers_stay_numbers() -> None:
    edges = [("all", "few"), ("all", "3"), ("few", "1"), ("few", "2")]
    X, y = np.vstack([draw(5, i) for i in range(3)]), np.repeat([1, 2, 3], 5)
    model = HCEPClassifier(Hierarchy.from_edges(edges)).fit(X, y)
    assert model.add_class(10, "few", draw(5, 9)).classes_.tolist() == [1, 2, 3, 10]
    assert model.classes_.dtype.kind == "i"
    with pytest.raises(HCEPError, match="name must be of the type of the other classes"):
        model.add_class("ten", "few", X)


def test_a_merged_chain_opens_where_a_class_is_added_into_it(tmp_path: Path) -> None:
    edges = [("thing", "feline"), ("feline", "cat"), ("thing", "car"), ("thing", "bus")]
    X, y = np.vstack([draw(5, i) for i in range(3)]), np.repeat(["cat", "car", "bus"], 5)
    model = HCEPClassifier(Hierarchy.from_edges(edges)).fit(X, y)
    model = load(save(model, tmp_path / "model"))
    assert "feline" not in model.hierarchy_
    assert set(model.add_class("lion", "feline", draw(5, 8)).hierarchy_.children("feline")) == {"cat", "lion"}


def test_rename_changes_only_the_display_name(pets: Hierarchy) -> None:
    model, images = small(pets)
    X = np.vstack(list(images.values()))
    model.calibrate(X, np.repeat(list(images), 8))
    before, held_out = model.predict_proba(X), model.held_out_
    model.rename("animal", "beast")
    assert (model.hierarchy_.name("animal"), model.held_out_) == ("beast", held_out)
    np.testing.assert_array_equal(model.predict_proba(X), before)


def test_a_model_with_a_linear_head_and_merged_chains_is_renamed_in_its_own_order(tmp_path: Path) -> None:
    edges = [("thing", "feline"), ("feline", "cat"), ("thing", "road"), ("road", "car"), ("road", "bus")]
    X, y = np.vstack([draw(5, i) for i in range(3)]), np.repeat(["cat", "car", "bus"], 5)
    model = HCEPClassifier(Hierarchy.from_edges(edges), head="logistic").fit(X, y)
    model = load(save(model, tmp_path / "model"))
    before, ids = model.predict_proba(X), model.hierarchy_.ids
    model.rename("feline", "cats at large").rename("road", "on the road")
    assert model.hierarchy_.ids == ids
    assert model.hierarchy_.merged("cat") == (("feline", "cats at large"),)
    assert model.hierarchy_.name("road") == "on the road"
    np.testing.assert_array_equal(model.predict_proba(X), before)


def test_growing_leaves_the_parameters_as_they_were_given(pets: Hierarchy) -> None:
    model, images = small(pets)
    parameters = model.get_params()
    model.add_class("van", "vehicle", draw(5, 77)).move("fox", "vehicle").rename("animal", "beast").remove_class("bus")
    model.partial_fit(images["cat"], ["cat"] * 8)
    assert model.get_params() == parameters
    assert model.hierarchy is pets
    assert clone(model).hierarchy is pets
    assert "van" in model.hierarchy_
    X, y = np.vstack(list(images.values())), np.repeat(list(images), 8)
    again = clone(model).fit(X, y)
    assert again.hierarchy_.parents("fox") == ("animal",)
    assert again.hierarchy_.name("animal") == "animal"


def test_a_new_fit_forgets_what_was_grown(pets: Hierarchy) -> None:
    model, images = small(pets)
    X, y = np.vstack(list(images.values())), np.repeat(list(images), 8)
    model.add_class("van", "vehicle", draw(5, 77)).fit(X, y)
    assert "van" not in model.classes_
    with pytest.raises(HierarchyError, match="'van' is not a concept"):
        model.move("van", "animal")


def test_a_hierarchy_file_is_not_read_again_when_a_model_grows(pets: Hierarchy, tmp_path: Path) -> None:
    file = tmp_path / "pets.json"
    file.write_text(pets.to_json(), encoding="utf-8")
    _, images = small(pets)
    X, y = np.vstack(list(images.values())), np.repeat(list(images), 8)
    model = HCEPClassifier(file).fit(X, y)
    file.unlink()
    assert model.add_class("van", "vehicle", draw(5, 77)).hierarchy == file
    assert "van" in model.classes_


def test_guarantees_end_where_the_model_changes(pets: Hierarchy) -> None:
    model, images = small(pets)
    X, y = np.vstack(list(images.values())), np.repeat(list(images), 8)
    for change in (
        lambda: model.partial_fit(X[:1], y[:1]),
        lambda: model.add_class("van", "vehicle", draw(3, 5)),
        lambda: model.move("fox", "vehicle"),
        lambda: model.remove_class("van"),
    ):
        assert model.calibrate(X, y).held_out_ is not None
        change()
        assert model.held_out_ is None


def test_a_concept_is_removed_and_its_classes_move_up() -> None:
    edges = [("thing", "animal"), ("animal", "fish"), ("fish", "tench"), ("animal", "pet"), ("pet", "cat")]
    tree = Hierarchy.from_edges([*edges, ("pet", "dog"), ("thing", "car")])
    images = {label: draw(8, i) for i, label in enumerate(("tench", "cat", "dog", "car"))}
    model = HCEPClassifier(tree, shrinkage=0.5, anchor=0.3, refine=False)
    model.fit(np.vstack(list(images.values())), np.repeat(list(images), 8))
    assert model.hierarchy_.merged("tench") == (("fish", "fish"),)
    model.remove_concept("fish").remove_concept("pet")
    left = Hierarchy.from_edges(
        [("thing", "animal"), ("thing", "car"), *(("animal", c) for c in ("tench", "cat", "dog"))]
    )
    assert model.hierarchy_.merged("tench") == ()
    assert_same(model.dictionary_, refitted(model, left, images))
    assert "fish" not in model._graph_to_grow()


def test_invalid_changes_are_rejected_and_leave_the_model_unchanged(pets: Hierarchy) -> None:
    model, _images = small(pets)
    before = model.dictionary_
    X = draw(2, 0)
    for match, change in (
        ("'cat' is already a class of the model", lambda: model.add_class("cat", "animal", X)),
        ("'animl'.*animal", lambda: model.add_class("emu", "animl", X)),
        ("'emu' is not a class of the model", lambda: model.remove_class("emu")),
        ("'emu' is not a concept of this hierarchy", lambda: model.remove_concept("emu")),
        ("'thing' is the root and cannot be removed", lambda: model.remove_concept("thing")),
        ("'cat' has no concept below it; remove_class", lambda: model.remove_concept("cat")),
        (
            "y contains labels that are not classes .*: 'emu'.*add_class",
            lambda: model.partial_fit(X, ["cat", "emu"]),
        ),
        ("X has 2 images, but y has 1 labels", lambda: model.partial_fit(X, ["cat"])),
        ("'cat' is below 'animal'", lambda: model.move("animal", "cat")),
        ("is the root and cannot be moved", lambda: model.move("thing", "cat")),
        ("name must be a non-empty string", lambda: model.rename("cat", " ")),
        ("'animal' is a concept above", lambda: model.add_class("animal", "vehicle", X)),
    ):
        with pytest.raises(HCEPError, match=match):
            change()
    with pytest.raises(ValueError, match="NaN"):
        model.add_class("emu", "animal", np.full((2, DIMS), np.nan))
    assert model.dictionary_ is before


def test_a_change_that_the_priors_do_not_fit_leaves_the_model_unchanged(pets: Hierarchy) -> None:
    model, _ = small(pets, priors=[1, 1, 1, 1, 2])
    before, state = model.dictionary_, (model.n_grown_, model.n_unlike_, model.classes_.tolist())
    for change in (lambda: model.remove_class("fox"), lambda: model.add_class("van", "vehicle", draw(3, 5))):
        with pytest.raises(HCEPError, match="priors must be one number per class"):
            change()
    assert model.dictionary_ is before
    assert (model.n_grown_, model.n_unlike_, model.classes_.tolist()) == state


def test_a_model_keeps_two_classes() -> None:
    model = HCEPClassifier().fit(np.vstack([draw(5, 0), draw(5, 1)]), np.repeat(["a", "b"], 5))
    with pytest.raises(HCEPError, match="at least two classes"):
        model.remove_class("a")


def test_a_linear_head_cannot_grow(pets: Hierarchy) -> None:
    model, _ = small(pets, head="logistic")
    with pytest.raises(HCEPError, match="linear head on the codes cannot grow"):
        model.add_class("van", "vehicle", draw(3, 5))


def test_partial_fit_begins_with_a_fit(pets: Hierarchy) -> None:
    model, images = small(pets)
    X, y = np.vstack(list(images.values())), np.repeat(list(images), 8)
    fresh = HCEPClassifier(pets, shrinkage=0.5, anchor=0.3, refine=False).partial_fit(X, y, classes=np.unique(y))
    np.testing.assert_array_equal(fresh.dictionary_.atoms, model.dictionary_.atoms)
    with pytest.raises(HCEPError, match="classes 'emu' have no image"):
        HCEPClassifier(pets).partial_fit(X, y, classes=[*np.unique(y), "emu"])
    with pytest.raises(NotFittedError):
        HCEPClassifier(pets).add_class("van", "vehicle", X)


def test_drift_is_reported_when_images_are_unlike_or_many(pets: Hierarchy) -> None:
    model, images = small(pets)
    assert model.drift() is None
    model.partial_fit(images["cat"], ["cat"] * 8)
    assert model.drift() is None
    changed = deepcopy(model)
    rng = np.random.default_rng(0)
    changed.partial_fit(images["dog"] + 8 * rng.standard_normal((8, DIMS)), ["dog"] * 8)
    assert "unlike the training images of their class: fit again" in str(changed.drift())
    for label, X in images.items():
        model.partial_fit(np.vstack([X] * 2), [label] * 16)
    assert "since the metric was chosen" in str(model.drift())


def test_empirical_priors_follow_the_counts(pets: Hierarchy) -> None:
    model, images = small(pets, priors="empirical")
    model.partial_fit(images["cat"], ["cat"] * 8)
    assert model.priors_ is not None
    assert dict(zip(model.classes_, model.priors_, strict=True))["cat"] == pytest.approx(16 / 48)


# -- labels above the classes --------------------------------------------------------------------------


def test_a_label_above_the_classes_teaches_them_and_never_becomes_a_class(pets: Hierarchy) -> None:
    model, images = small(pets)
    X = np.vstack([images["cat"], images["dog"][:4], images["car"][:1]])
    model.partial_fit(X, ["animal"] * 12 + ["car"])
    assert model.classes_.tolist() == sorted(images)
    assert not model.hierarchy_.own_leaves
    weights = dict(zip(model.classes_.tolist(), model.class_weights_.tolist(), strict=True))
    assert weights == pytest.approx({"bus": 8, "car": 9, "cat": 16, "dog": 12, "fox": 8}, abs=0.5)
    assert dict(zip(model.classes_.tolist(), model.images_per_class_.tolist(), strict=True))["cat"] == 8
    assert model.coarse_counts_["animal"].n_images == 12
    assert dict(model.coarse_counts_["animal"].most()) == pytest.approx({"cat": 8, "dog": 4}, abs=0.5)
    assert model.n_grown_ == 13


def test_images_that_are_certain_count_as_if_they_had_been_labelled_with_their_class(pets: Hierarchy) -> None:
    model, images = small(pets)
    exact = deepcopy(model).partial_fit(images["cat"] + 0.1, ["cat"] * 8)
    coarse = deepcopy(model).partial_fit(images["cat"] + 0.1, ["animal"] * 8)
    assert_same(coarse.dictionary_, exact.dictionary_, 0.02)


def test_a_list_of_concepts_is_a_label_when_a_model_grows(pets: Hierarchy) -> None:
    model, images = small(pets)
    model.partial_fit(images["cat"], [["cat", "car"]] * 8)
    assert dict(model.coarse_counts_["car or cat"].most()) == pytest.approx({"cat": 8.0}, abs=0.2)


@pytest.mark.parametrize(("coarse", "n_added"), [("drop", 1), ("below", 2)])
def test_the_parameter_coarse_decides_when_a_model_grows(pets: Hierarchy, coarse: str, n_added: int) -> None:
    model, images = small(pets, coarse=coarse)
    assert model.partial_fit(images["cat"][:2], ["animal", "cat"]).n_grown_ == n_added


def test_a_model_with_own_classes_for_inner_concepts_rejects_new_ones(pets: Hierarchy) -> None:
    model, images = small(pets, coarse="own")
    with pytest.raises(HCEPError, match=r"'animal'.*add_class.*With coarse='below', images of 'animal' teach"):
        model.partial_fit(images["cat"], ["animal"] * 8)


def test_an_inner_concept_is_not_added_as_a_class_in_silence(pets: Hierarchy) -> None:
    model, images = small(pets)
    with pytest.raises(HCEPError, match=r"'animal' is a concept above .*its images teach the classes.*coarse='own'"):
        model.add_class("animal", "thing", images["cat"])
    assert "animal" in model.set_params(coarse="own").add_class("animal", "thing", images["cat"]).classes_


def test_a_label_above_one_class_is_rejected_unless_the_hierarchy_has_no_other_leaf_there(tmp_path: Path) -> None:
    edges = [("thing", "feline"), ("feline", "cat"), ("feline", "lion"), ("thing", "road"), ("road", "car")]
    edges += [("thing", "water"), ("water", "boat"), ("water", "ship")]
    X, y = np.vstack([draw(5, i) for i in range(4)]), np.repeat(["cat", "car", "boat", "ship"], 5)
    model = HCEPClassifier(Hierarchy.from_edges(edges)).fit(X, y)
    with pytest.raises(HierarchyError, match=r"'feline'.*only class below it is 'cat'.*coarse='own'.*coarse='drop'"):
        model.partial_fit(X[:1], ["feline"])
    assert model.partial_fit(X[5:6], ["road"]).images_per_class_.tolist() == [5, 6, 5, 5]
    loaded = load(save(model, tmp_path / "model"))  # it no longer knows of the lion
    with pytest.raises(HierarchyError, match=r"'feline'.*only class below it is 'cat'"):
        loaded.partial_fit(X[:1], ["feline"])


@pytest.mark.slow
@pytest.mark.alone
def test_twenty_of_two_hundred_classes_in_a_fifteenth_of_a_fit(tiny_imagenet: dict[str, np.ndarray]) -> None:
    X, y = k_shot(tiny_imagenet["X"], tiny_imagenet["y"], 25)
    names = np.unique(y)[::10]
    known, hierarchy = ~np.isin(y, names), tiny_imagenet["hierarchy"]
    model = HCEPClassifier(hierarchy).fit(X[known], y[known])
    start = time.process_time()  # other work may be going on
    full = HCEPClassifier(hierarchy).fit(X, y)
    fit = time.process_time() - start
    start = time.thread_time()  # growing is single-threaded, and idle threads of BLAS spin
    for name in names:
        model.add_class(name, hierarchy.parents(name)[0], X[y == name])
    model.dictionary_.path_problem(model.anchor_)
    grown = time.thread_time() - start
    assert fit > 15 * grown
    assert set(model.hierarchy_.edges) == set(full.hierarchy_.edges)
    X_val, y_val = tiny_imagenet["X_val"], tiny_imagenet["y_val"]
    assert abs(model.score(X_val, y_val) - full.score(X_val, y_val)) < 0.02
