"""Classifiers with a dictionary of one's own, and dictionaries from atoms."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hcep import ConceptDictionary, HCEPClassifier, HCEPError, Hierarchy, hb_omp
from hcep.datasets import make_hierarchical_concepts
from hcep.errors import DictionaryError
from hcep.models.loading import load_model
from hcep.models.saving import save_model


@pytest.fixture(scope="module")
def data() -> Any:
    return make_hierarchical_concepts(branching=3, depth=3, dim=16, noise=0.05, random_state=3)


@pytest.fixture(scope="module")
def dictionary(data: Any) -> ConceptDictionary:
    return ConceptDictionary.from_images(data.hierarchy.collapse(), data.X, data.y)


def test_atoms_of_a_tree_give_the_dictionary_back(dictionary: ConceptDictionary) -> None:
    again = ConceptDictionary.from_atoms(dictionary.hierarchy, dictionary.atoms)
    np.testing.assert_allclose(again.atoms, dictionary.atoms, atol=1e-12)
    np.testing.assert_allclose(again.synset_embeddings, dictionary.synset_embeddings, atol=1e-12)


def test_atoms_that_make_no_dictionary_are_rejected(dictionary: ConceptDictionary) -> None:
    tree = dictionary.hierarchy
    with pytest.raises(DictionaryError, match="one row for each of the"):
        ConceptDictionary.from_atoms(tree, dictionary.atoms[1:])
    with pytest.raises(DictionaryError, match="atoms"):
        ConceptDictionary.from_atoms(tree, dictionary.atoms * np.nan)


@pytest.mark.parametrize("options", [{}, {"anchor": 0.2}, {"head": "logistic"}, {"beam_width": 4}])
def test_the_dictionary_is_used_as_it_is(
    data: Any, dictionary: ConceptDictionary, tmp_path: Path, options: dict[str, Any]
) -> None:
    model = HCEPClassifier(data.hierarchy, dictionary=dictionary, **options).fit(data.X, data.y)
    assert model.dictionary_ is dictionary
    assert model.score(data.X, data.y) > 0.9
    np.testing.assert_allclose(model.predict_proba(data.X).sum(axis=1), 1.0)
    if "head" not in options:
        save_model(model, tmp_path / "model")
        again = load_model(tmp_path / "model")
        np.testing.assert_array_equal(again.predict_proba(data.X), model.predict_proba(data.X))


def test_probabilities_are_calibrated_on_the_images(data: Any, dictionary: ConceptDictionary) -> None:
    rng = np.random.default_rng(0)
    X = data.X + 0.6 * np.abs(data.X).mean() * rng.standard_normal(data.X.shape)
    model = HCEPClassifier(dictionary=dictionary).fit(X, data.y)
    sure = model.predict_proba(X).max(axis=1).mean()
    assert abs(sure - model.score(X, data.y)) < 0.1


def test_labels_that_the_dictionary_does_not_have_are_rejected(data: Any, dictionary: ConceptDictionary) -> None:
    with pytest.raises(HCEPError, match="not classes of the model: 'unicorn'"):
        HCEPClassifier(dictionary=dictionary).fit(data.X[:2], [data.y[0], "unicorn"])
    with pytest.raises(HCEPError, match="texts cannot be combined"):
        HCEPClassifier(dictionary=dictionary).fit(data.X, data.y, texts={})


def test_an_anchor_means_the_same_on_raw_vectors_as_in_the_classifier(data: Any) -> None:
    plain: dict[str, Any] = {"shrinkage": None, "power": 1.0, "refine": False, "prior": None}
    model = HCEPClassifier(data.hierarchy, anchor=0.03, **plain).fit(data.X, data.y)
    raw = ConceptDictionary.from_images(model.hierarchy_, 1000 * data.X, data.y)
    by_classifier, by_function = model.pursue(data.X), hb_omp(1000 * data.X, raw, beam_width=None, anchor=0.03)
    assert by_function.paths == by_classifier.paths
    np.testing.assert_allclose(by_function.codes.toarray(), by_classifier.codes.toarray(), rtol=1e-6, atol=1e-9)
    paths = hb_omp(data.X, model.dictionary_, beam_width=None, anchor=model.anchor_).paths
    assert paths == by_classifier.paths


def test_a_saved_model_keeps_the_unit_of_its_anchor(data: Any, tmp_path: Path) -> None:
    dictionary = ConceptDictionary.from_images(data.hierarchy.collapse(), 1000 * data.X, data.y)
    model = HCEPClassifier(data.hierarchy, dictionary=dictionary, anchor=0.2).fit(1000 * data.X, data.y)
    expected = hb_omp(1000 * data.X, dictionary, beam_width=None, anchor=0.2)
    save_model(model, tmp_path / "model")
    again = load_model(tmp_path / "model")
    assert again.anchor_ == 0.2
    assert again.dictionary_.anchor_unit == dictionary.anchor_unit
    for one in (model, again):
        np.testing.assert_array_equal(one.pursue(1000 * data.X).codes.toarray(), expected.codes.toarray())
    np.testing.assert_array_equal(again.predict_proba(1000 * data.X), model.predict_proba(1000 * data.X))


def test_models_of_a_fit_are_saved_without_a_unit(data: Any, tmp_path: Path) -> None:
    for anchor in (0.0, 0.3):
        save_model(HCEPClassifier(data.hierarchy, anchor=anchor).fit(data.X, data.y), tmp_path / str(anchor))
        assert "anchor_unit" not in (tmp_path / str(anchor) / "model.json").read_text()


@pytest.fixture
def free_atoms() -> ConceptDictionary:
    """Return a DAG with five atoms that are not differences: the two paths to c end in different places."""
    dag = Hierarchy.from_edges([("r", "a"), ("r", "b"), ("a", "c"), ("b", "c"), ("b", "d")])
    return ConceptDictionary.from_atoms(dag, np.random.default_rng(0).standard_normal((5, 6)))


def test_atoms_of_a_dag_need_not_be_differences(free_atoms: ConceptDictionary) -> None:
    edges = {edge: k for k, edge in enumerate(free_atoms.edges)}
    paths = [("a", "c"), ("b", "c"), ("b", "d")]
    rows = [[edges["r", first], edges[first, last]] for first, last in paths]
    X = np.array([free_atoms.atoms[row].sum(axis=0) for row in rows])
    result = hb_omp(X, free_atoms, beam_width=None)
    assert result.paths == paths
    np.testing.assert_allclose(result.residual_norms, 0.0, atol=1e-6)
    np.testing.assert_allclose([result.coefficients(i) for i in range(3)], 1.0)
    np.testing.assert_allclose(free_atoms.synset_embedding("c"), X[:2].mean(axis=0))


def test_atoms_of_a_dag_that_are_differences_give_the_dictionary_back(free_atoms: ConceptDictionary) -> None:
    plain = ConceptDictionary(free_atoms.hierarchy, free_atoms.synset_embeddings)
    again = ConceptDictionary.from_atoms(plain.hierarchy, plain.atoms)
    assert free_atoms.has_free_atoms
    assert not again.has_free_atoms
    np.testing.assert_allclose(again.synset_embeddings, plain.synset_embeddings, atol=1e-12)


def test_a_model_with_atoms_of_a_dag_is_saved_with_its_atoms(free_atoms: ConceptDictionary, tmp_path: Path) -> None:
    X = np.random.default_rng(1).standard_normal((40, 6))
    model = HCEPClassifier(dictionary=free_atoms, anchor=0.1).fit(X, ["c", "d"] * 20)
    save_model(model.rename("c", "see"), tmp_path / "model")
    again = load_model(tmp_path / "model")
    assert again.hierarchy_.name("c") == "see"
    np.testing.assert_array_equal(again.dictionary_.atoms, free_atoms.atoms)
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


def test_atoms_that_embeddings_do_not_determine_are_never_lost(free_atoms: ConceptDictionary) -> None:
    X = np.random.default_rng(1).standard_normal((40, 6))
    model = HCEPClassifier(dictionary=free_atoms, anchor=0.1).fit(X, ["c", "d"] * 20)
    for change in (
        lambda: free_atoms.moved({"d": np.ones(6)}),
        lambda: free_atoms.with_words({"c": np.ones(6), "d": np.ones(6)}, 1.0, 1.0),
        lambda: model.add_class("e", "a", X[:3]),
    ):
        with pytest.raises(DictionaryError, match="atoms are not differences of embeddings cannot be"):
            change()


def test_integer_labels_come_back_as_integers() -> None:
    rng, y = np.random.default_rng(0), np.repeat([1, 2, 3, 14], 10)
    tree = Hierarchy.from_edges([("r", "a"), ("r", "b"), ("a", "1"), ("a", "2"), ("b", "3"), ("b", "14")])
    X = 4.0 * rng.normal(size=(15, 8))[y] + rng.normal(size=(40, 8))
    model = HCEPClassifier(tree).fit(X, y)
    own = HCEPClassifier(tree, dictionary=model.dictionary_).fit(X, y)
    assert own.classes_.tolist() == [1, 2, 3, 14]
    assert own.score(X, y) == 1.0
    assert all((model.predict(X, decode=rule) == y).mean() > 0.9 for rule in ("class", "distance", "f1", "sure"))
