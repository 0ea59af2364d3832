"""The scikit-learn estimators."""

from __future__ import annotations

import gc
import pickle
import weakref
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import check_sample_weight_equivalence_on_dense_data, parametrize_with_checks

from hcep import (
    HCEPClassifier,
    HCEPError,
    HCEPTransformer,
    Hierarchy,
    HierarchyError,
    explain_images,
    hb_omp,
    load,
    save,
)
from hcep.classify import nn
from hcep.classify.choosing import ANCHOR, ANCHORS, FALLBACK_RATE, FALLBACK_SHRINKAGE, FEW_ANCHOR, POWERS, SHRINKAGES
from hcep.classify.heads import AdamWHead
from hcep.datasets import make_hierarchical_concepts
from hcep.errors import DictionaryError
from hcep.models import ModelError
from hcep.pursuit.folded import Fold

search_module = import_module("hcep.pursuit.search")


#: Checks of scikit-learn that cannot hold, and why.
EXPECTED_FAILURES = {
    "check_sample_weight_equivalence_on_dense_data": "leave-one-out leaves out an image with all its weight, but only "
    "one copy of a repeated image, so that metric and temperature may differ"
}


@parametrize_with_checks([HCEPClassifier(), HCEPTransformer()], expected_failed_checks=lambda _: EXPECTED_FAILURES)
def test_the_contract_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


def test_weights_equal_repetitions_where_nothing_is_left_out() -> None:
    fixed = HCEPTransformer(shrinkage=0.5, anchor=0.3, power=1.0, refine=False)
    check_sample_weight_equivalence_on_dense_data("HCEPTransformer", fixed)


@pytest.fixture
def animals() -> Hierarchy:
    """Two-way and three-way splits: root -> (pet -> (cat, dog), wild -> (fox, wolf, bear))."""
    edges = [("root", "pet"), ("root", "wild"), ("pet", "cat"), ("pet", "dog")]
    return Hierarchy.from_edges([*edges, ("wild", "fox"), ("wild", "wolf"), ("wild", "bear")])


@pytest.fixture
def training(animals: Hierarchy) -> tuple[np.ndarray, np.ndarray]:
    """Eight images of each of five classes, in six dimensions, overlapping a little."""
    return draw(animals.leaves, 8)


def draw(classes: Any, n: int, spread: float = 0.6, n_dims: int = 6) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    means = 2.0 * rng.standard_normal((len(classes), n_dims))
    y = np.repeat(np.array(classes), n)
    return np.repeat(means, n, axis=0) + spread * rng.standard_normal((len(y), n_dims)), y


CONFIGURATIONS = [
    {},
    {"beam_width": 2},
    {"signed": True},
    {"signed": True, "anchor": 0.0, "shrinkage": None, "beam_width": 2},
    {"anchor": 0.0, "shrinkage": None},
    {"anchor": 0.0},
    {"shrinkage": None},
    {"max_steps": 1},
    {"max_steps": 1, "beam_width": 1, "anchor": 0.0, "shrinkage": None},
    {"tol": 1.0},
    {"unit_norm": True},
    {"center": True},
    {"collapse": False},
    {"head": "logistic"},
    {"head": "logistic", "beam_width": 2, "anchor": 0.0},
]


# -- predictions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("options", CONFIGURATIONS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_probabilities_sum_to_1_and_the_largest_is_the_prediction(
    animals: Hierarchy, training: tuple[np.ndarray, np.ndarray], options: dict[str, Any], dtype: type
) -> None:
    X, y = training[0].astype(dtype), training[1]
    model = HCEPClassifier(animals, **options).fit(X, y)
    new = np.vstack([X, np.random.default_rng(1).standard_normal((100, 6)), np.zeros((1, 6))]).astype(dtype)
    probabilities = model.predict_proba(new)
    assert probabilities.shape == (141, 5)
    assert (probabilities >= 0).all()
    assert probabilities.sum(axis=1) == pytest.approx(np.ones(141))
    assert model.classes_[probabilities.argmax(axis=1)].tolist() == model.predict(new).tolist()


def test_a_tie_goes_where_the_search_puts_it() -> None:
    # Opposite atoms below both synsets: without a sign every image ties between two classes, and an image that a
    # path explains exactly has an objective of 0, where the next number up makes no difference to a softmax.
    edges = [("root", "b"), ("root", "a"), ("b", "b2"), ("b", "b1"), ("a", "a2"), ("a", "a1")]
    hierarchy = Hierarchy.from_edges(edges)
    X, y = draw(hierarchy.leaves, 5, spread=0.1, n_dims=5)
    model = HCEPClassifier(hierarchy, anchor=0.0, shrinkage=None).fit(X, y)
    new = np.vstack([X, model.dictionary_.leaf_embeddings])
    predicted = model.predict(new)
    assert model.classes_[model.predict_proba(new).argmax(axis=1)].tolist() == predicted.tolist()
    assert set(predicted) == {"b2", "a2"}


@pytest.mark.parametrize(
    "options", [{}, {"anchor": 0.0, "shrinkage": 0.5}, {"anchor": 0.0, "shrinkage": None, "signed": True}]
)
def test_probabilities_do_not_depend_on_the_unit_of_the_embeddings(animals: Hierarchy, options: dict[str, Any]) -> None:
    X, y = draw(animals.leaves, 8, spread=1.5)
    small, large = (HCEPClassifier(animals, **options).fit(s * X, y).predict_proba(s * X) for s in (0.01, 100.0))
    assert small == pytest.approx(large, abs=1e-6)
    assert 0.3 < small.max(axis=1).mean() < 0.999


def test_the_temperature_survives_paths_longer_than_the_dimension(animals: Hierarchy) -> None:
    X, y = draw(animals.leaves, 8, n_dims=1)
    with pytest.warns(UserWarning, match="lie in the span"):
        model = HCEPClassifier(animals, anchor=0.0, shrinkage=None).fit(X, y)
    assert len(model.predict(X)) == 40
    assert 0.0 < model.temperature_ < 100.0


def test_the_default_separates_what_is_separable(animals: Hierarchy) -> None:
    X, y = draw(animals.leaves, 8, spread=0.2)
    model = HCEPClassifier(animals).fit(X, y)
    assert model.score(X, y) == 1.0
    assert model.pursue(X).leaves.tolist() == y.tolist()


@pytest.mark.parametrize(
    "options",
    [
        {"max_steps": 1},
        {"max_steps": 1, "beam_width": 2},
        {"max_steps": 1, "signed": True},
        {"tol": 100.0},
        {"signed": True, "anchor": 0.0, "shrinkage": None},
    ],
)
def test_a_path_that_ends_early_predicts_the_nearest_class_below_its_end(
    animals: Hierarchy, training: tuple[np.ndarray, np.ndarray], options: dict[str, Any]
) -> None:
    X, y = training
    model = HCEPClassifier(animals, **options).fit(X, y)
    found, predicted = model.pursue(X), model.predict(X)
    early = [i for i, leaf in enumerate(found.leaves) if leaf not in animals.leaves]
    below = [[*animals.descendants(found.leaves[i])] for i in early]
    embedded, synset = model.dictionary_.embed(X), model.dictionary_.synset_embedding
    distances = [
        {leaf: float(np.linalg.norm(embedded[i] - synset(leaf))) for leaf in set(model.classes_) & set(candidates)}
        for i, candidates in zip(early, below, strict=True)
    ]
    assert [predicted[i] for i in early] == [min(d, key=d.__getitem__) for d in distances]


def test_an_empty_path_predicts_the_nearest_class(animals: Hierarchy, training: tuple[np.ndarray, np.ndarray]) -> None:
    model = HCEPClassifier(animals, tol=1e6, anchor=1.0, shrinkage=0.5).fit(*training)
    assert model.pursue(training[0]).paths == [()] * 40
    assert model.predict(training[0]).tolist() == nn(training[0], model.dictionary_).leaves.tolist()


def test_transform_gives_the_codes(animals: Hierarchy, training: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = training
    classifier, transformer = HCEPClassifier(animals).fit(X, y), HCEPTransformer(animals).fit(X, y)
    assert (classifier.transform(X) != transformer.transform(X)).nnz == 0
    assert transformer.transform(X).shape == (40, 7)
    assert (transformer.transform(X) != transformer.pursue(X).codes).nnz == 0
    names = transformer.get_feature_names_out()
    assert names.tolist() == [f"{p}→{c}" for p, c in transformer.dictionary_.edges]


def test_pursue_is_hb_omp_with_the_fitted_dictionary(
    animals: Hierarchy,
    training: tuple[np.ndarray, np.ndarray],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal: elsewhere nothing is drawn
    X, y = training
    model = HCEPClassifier(animals, beam_width=3, signed=True).fit(X, y)
    found = model.pursue(X, n_best=2, trace=True, progress=True)
    assert "40/40" in capsys.readouterr().err
    expected = hb_omp(X, model.dictionary_, beam_width=3, signed=True, anchor=model.anchor_, n_best=2)
    assert found.n_best_nodes.tolist() == expected.n_best_nodes.tolist()
    assert found.trace is not None


@pytest.mark.parametrize("options", CONFIGURATIONS)
def test_infer_agrees_with_predict_and_pursue(
    animals: Hierarchy, training: tuple[np.ndarray, np.ndarray], options: dict[str, Any]
) -> None:
    X, y = training
    model = HCEPClassifier(animals, **options).fit(X, y)
    found, paths = model.infer(X, n_best=3, explained=True), model.pursue(X, n_best=3)
    assert found.labels.tolist() == model.predict(X).tolist()
    assert found.probabilities == pytest.approx(model.predict_proba(X))
    assert found.n_best_nodes.tolist() == paths.n_best_nodes.tolist()
    assert found.n_best_residual_norms == pytest.approx(paths.n_best_residual_norms, nan_ok=True)
    assert (found.codes != paths.codes).nnz == 0
    assert found.explained_shares.shape == (40, model.hierarchy_.depth)


@pytest.mark.parametrize("head", [RandomForestClassifier(5, random_state=0), make_pipeline(LogisticRegression(C=10))])
def test_any_classifier_may_be_the_head(
    animals: Hierarchy, training: tuple[np.ndarray, np.ndarray], head: Any, tmp_path: Path
) -> None:
    X, y = training
    model = HCEPClassifier(animals, head=head).fit(X, y)
    assert model.head is head
    assert not hasattr(head, "classes_")
    assert model.score(X, y) > 0.9
    index = np.searchsorted(model.classes_, y)
    expected = clone(head).fit(model.transform(X), index).predict_proba(model.transform(X))
    assert model.predict_proba(X) == pytest.approx(expected)
    with pytest.raises(ModelError, match=r"cannot save a head of type (RandomForestClassifier|Pipeline)"):
        save(model, tmp_path / "model")


def test_a_head_without_probabilities(animals: Hierarchy, training: tuple[np.ndarray, np.ndarray]) -> None:
    model = HCEPClassifier(animals, head=LinearSVC()).fit(*training)
    assert model.score(*training) > 0.9
    with pytest.raises(HCEPError, match="the head, a LinearSVC, gives no probabilities"):
        model.predict_proba(training[0])


# -- how often an image is projected ---------------------------------------------------------------


@pytest.fixture
def projected(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Images in every product with the directions, as they are made."""
    counts: list[int] = []
    project = search_module.project

    def counted(rows: Any, block: slice, *rest: Any) -> Any:
        counts.append(block.stop - block.start)
        return project(rows, block, *rest)

    def folded(fold: Fold, rows: Any, first_row: int) -> Any:
        counts.append(len(rows))
        return products(fold, rows, first_row)

    products = Fold.products
    monkeypatch.setattr(search_module, "project", counted)
    monkeypatch.setattr(Fold, "products", folded)
    return counts


@pytest.mark.parametrize(
    ("make", "at_fit"),
    [
        (HCEPClassifier, 0),
        (lambda h: HCEPClassifier(h, beam_width=2), 0),
        (lambda h: HCEPClassifier(h, head="logistic"), 40),
        (HCEPClassifier.paper, 40),
    ],
)
def test_every_image_is_projected_once(
    make: Any, at_fit: int, animals: Hierarchy, training: tuple[np.ndarray, np.ndarray], projected: list[int]
) -> None:
    model = make(animals).fit(*training)
    assert sum(projected) == at_fit
    for call in (model.predict, model.predict_proba, model.pursue, model.infer, model.transform):
        projected.clear()
        call(training[0])
        assert sum(projected) == 40


# -- classes and hierarchies -----------------------------------------------------------------------


@pytest.mark.parametrize("classes", [[3, 7, 11], [1.0, 2.0, 5.0], ["x", "y", "z"], [True, False]])
def test_without_a_hierarchy_labels_may_be_anything(classes: list[Any]) -> None:
    X, y = draw(classes, 6, spread=0.1)
    model = HCEPClassifier().fit(X, y)
    assert model.hierarchy_.depth == 1
    assert model.predict(X).dtype == y.dtype
    assert model.predict(X).tolist() == y.tolist()


def test_a_class_may_have_the_name_of_the_virtual_root() -> None:
    X, y = draw(["(root)", "((root))", "c"], 5, spread=0.1)
    assert HCEPClassifier().fit(X, y).predict(X).tolist() == y.tolist()


def test_a_class_that_is_an_ancestor_of_another(animals: Hierarchy) -> None:
    X, y = draw(["pet", "cat", "dog", "fox"], 6, spread=0.1)
    model = HCEPClassifier(animals, coarse="own").fit(X, y)
    assert model.predict(X).tolist() == y.tolist()
    assert model.pursue(X[:1]).paths == [("pet", "pet (unspecified)")]
    assert model.hierarchy_.leaf_of("pet") == "pet (unspecified)"
    probabilities = model.predict_proba(X)
    assert model.classes_[probabilities.argmax(axis=1)].tolist() == y.tolist()


def test_a_class_with_two_paths(diamond: Hierarchy) -> None:
    X, y = draw(["cat", "hamster", "lion"], 6, spread=0.1)
    model = HCEPClassifier(diamond).fit(X, y)
    assert model.predict(X).tolist() == y.tolist()
    assert model.predict_proba(X).sum(axis=1) == pytest.approx(np.ones(18))


def test_the_hierarchy_is_restricted_and_collapsed(animals: Hierarchy) -> None:
    X, y = draw(["cat", "fox", "bear"], 5, spread=0.1)
    collapsed = HCEPClassifier(animals).fit(X, y).hierarchy_
    assert set(collapsed.ids) == {"root", "cat", "wild", "fox", "bear"}
    assert "pet" in HCEPClassifier(animals, collapse=False, anchor=0.1).fit(X, y).hierarchy_
    assert len(animals) == 8


@pytest.mark.parametrize("head", ["path", "logistic"])
def test_one_class_is_always_predicted(animals: Hierarchy, head: str) -> None:
    X, y = draw(["cat"], 5)
    model = HCEPClassifier(animals, head=head).fit(X, y)
    assert model.predict(X).tolist() == y.tolist()
    assert model.predict_proba(X).tolist() == [[1.0]] * 5


# -- metric and anchor -----------------------------------------------------------------------------


def test_auto_tries_powers_then_metrics(animals: Hierarchy, training: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = np.abs(training[0]), training[1]
    model = HCEPClassifier(animals).fit(X, y)
    tried = [(s.power, s.shrinkage, s.anchor) for s in model.leave_one_out_]
    assert tried[:3] == [(p, SHRINKAGES[0], ANCHOR) for p in POWERS]
    assert tried[3:] == [(model.power_, s, ANCHOR) for s in SHRINKAGES[1:]]
    assert (model.power_, model.shrinkage_, model.anchor_) in tried
    given = HCEPClassifier(animals, shrinkage=None).fit(*training)
    assert {(s.power, s.shrinkage) for s in given.leave_one_out_} == {(1.0, None)}
    assert {s.anchor for s in given.leave_one_out_} == set(ANCHORS)
    assert given.shrinkage_ is None
    assert HCEPClassifier(animals, shrinkage=0.3, anchor=0.2).fit(*training).leave_one_out_ == []


def test_anchor_0_with_a_chosen_metric(animals: Hierarchy, training: tuple[np.ndarray, np.ndarray]) -> None:
    model = HCEPClassifier(animals, anchor=0.0).fit(*training)
    assert model.anchor_ == 0.0
    assert model.shrinkage_ in SHRINKAGES


def test_one_image_of_many_classes_is_no_regression() -> None:
    X, y = draw([f"class{i}" for i in range(30)], 1)
    assert HCEPClassifier(prior=None).fit(X, y).predict(X).tolist() == y.tolist()
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        HCEPClassifier().fit(X, X[:, 0])


def test_classes_of_one_image_take_the_fallback(animals: Hierarchy) -> None:
    X, y = draw(animals.leaves, 1, spread=0.1)
    model = HCEPClassifier(animals, prior=None).fit(X, y)
    assert (model.shrinkage_, model.anchor_) == (FALLBACK_SHRINKAGE, FEW_ANCHOR)
    with_prior = HCEPClassifier(animals).fit(X, y)
    assert with_prior.shrinkage_ == 1 / (1 + FALLBACK_RATE * len(X) / X.shape[1])
    assert with_prior.prior_ is not None
    assert with_prior.temperature_ > 0
    assert model.leave_one_out_ == []
    assert model.leaf_moves_ is None
    assert model.predict(X).tolist() == y.tolist()
    assert model.temperature_ > 0


@pytest.mark.parametrize("n", [1, 2, 4])
@pytest.mark.parametrize("unit_norm", [True, False])
def test_images_that_are_all_equal_leave_the_metric_euclidean(n: int, unit_norm: bool) -> None:
    X, y = np.repeat(4.0 * np.eye(3), n, axis=0), np.repeat(list("abc"), n)
    model = HCEPClassifier(unit_norm=unit_norm).fit(X, y)
    assert model.predict(X).tolist() == y.tolist()
    same = HCEPClassifier(unit_norm=unit_norm).fit(np.ones((4, 3)), list("aabb"))
    assert same.shrinkage_ is None


def test_scaled_copies_are_equal_after_unit_norm() -> None:
    X = np.repeat(np.eye(3), 4, axis=0) * np.tile([1.0, 2.0, 3.0, 4.0], 3)[:, None]
    model = HCEPClassifier(unit_norm=True).fit(X, np.repeat(list("abc"), 4))
    assert model.shrinkage_ is None
    assert model.predict(5.0 * np.eye(3)).tolist() == ["a", "b", "c"]


def test_a_given_shrinkage_without_any_spread_is_rejected() -> None:
    with pytest.raises(DictionaryError, match="no within-class covariance to whiten by"):
        HCEPClassifier(shrinkage=0.5, anchor=0.1).fit(np.repeat(np.eye(3), 3, axis=0), np.repeat(list("abc"), 3))


def test_paper_is_the_published_configuration(animals: Hierarchy, training: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = training
    expected = {"beam_width": 8, "shrinkage": None, "anchor": 0.0, "signed": False, "head": "adamw"}
    published = HCEPClassifier.paper(animals)
    assert {name: published.get_params()[name] for name in expected} == expected
    trained = published.fit(X, y).head_
    assert isinstance(trained, AdamWHead)
    assert (trained.epochs, trained.batch_size, trained.lr, trained.weight_decay) == (500, 4096, 0.1, 1e-4)
    model = HCEPClassifier.paper(animals, head=LogisticRegression(C=2.0, max_iter=1000), n_jobs=1).fit(X, y)
    codes = hb_omp(X, model.dictionary_, beam_width=8).codes
    assert (model.transform(X) != codes).nnz == 0
    head = LogisticRegression(C=2.0, max_iter=1000).fit(codes, y)
    assert model.predict(X).tolist() == head.predict(codes).tolist()
    assert model.predict_proba(X) == pytest.approx(head.predict_proba(codes))
    assert HCEPClassifier.paper(animals, beam_width=32, head="path").get_params()["head"] == "path"


# -- scikit-learn's tools --------------------------------------------------------------------------


def test_clone_and_parameters(animals: Hierarchy) -> None:
    model = HCEPClassifier(animals, anchor=0.5, head="logistic")
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert copy.hierarchy is animals
    assert copy.set_params(anchor=0.1, beam_width=4).get_params()["anchor"] == 0.1
    assert model.anchor == 0.5
    with pytest.raises(ValueError, match="Invalid parameter 'lambda'"):
        copy.set_params(**{"lambda": 1.0})


def test_a_fitted_model_survives_pickling(animals: Hierarchy, training: tuple[np.ndarray, np.ndarray]) -> None:
    model = HCEPClassifier(animals).fit(*training)
    again = pickle.loads(pickle.dumps(model))
    assert again.predict_proba(training[0]).tolist() == model.predict_proba(training[0]).tolist()


def test_the_path_model_is_kept_with_the_model_and_made_again_when_a_part_changes(
    animals: Hierarchy, training: tuple[np.ndarray, np.ndarray]
) -> None:
    X, y = training
    model = HCEPClassifier(animals).fit(X, y)
    first = model.path_model()
    model.predict(X)
    assert model.path_model() is first
    for change in (
        lambda: model.set_params(beam_width=2),
        lambda: model.calibrate(X, y),
        lambda: model.partial_fit(X[:1], y[:1]),
        lambda: model.rename("pet", "companion"),
        lambda: model.fit(X, y),
    ):
        before = model.path_model()
        change()
        assert model.path_model() is not before
    assert model.path_model().options.beam_width == 2


def test_the_path_model_is_not_pickled_and_goes_with_its_model(
    animals: Hierarchy, training: tuple[np.ndarray, np.ndarray]
) -> None:
    model = HCEPClassifier(animals).fit(*training)
    model.predict(training[0])
    assert "_prepared" not in model.__getstate__()
    assert model._prepared is not None
    kept = weakref.ref(model.path_model())
    del model
    gc.collect()
    assert kept() is None


def test_threads_share_a_fitted_model(animals: Hierarchy, training: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = training
    model = pickle.loads(pickle.dumps(HCEPClassifier(animals).fit(X, y)))  # nothing is prepared yet
    expected = HCEPClassifier(animals).fit(X, y).predict_proba(X)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: model.predict_proba(X), range(32)))
    assert all(np.array_equal(answer, expected) for answer in answers)


def test_codes_can_be_dense_and_go_into_a_data_frame(
    animals: Hierarchy, training: tuple[np.ndarray, np.ndarray]
) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    X, y = training
    sparse, dense = (HCEPTransformer(animals, sparse_output=s).fit(X, y) for s in (True, False))
    np.testing.assert_array_equal(dense.transform(X), sparse.transform(X).toarray())
    frame = dense.set_output(transform="pandas").transform(X)
    assert isinstance(frame, pandas.DataFrame)
    assert frame.columns.tolist() == dense.get_feature_names_out().tolist()
    np.testing.assert_array_equal(frame.to_numpy(), sparse.transform(X).toarray())
    with pytest.raises(ValueError, match="outputs a scipy sparse matrix"):
        sparse.set_output(transform="pandas").transform(X)
    classifier = HCEPClassifier(animals, sparse_output=False).fit(X, y).set_output(transform="pandas")
    assert classifier.transform(X).shape == frame.shape


def test_weights_are_routed_through_a_pipeline_and_a_grid_search(
    animals: Hierarchy, training: tuple[np.ndarray, np.ndarray]
) -> None:
    X, y = training
    weights = np.random.default_rng(0).integers(1, 4, len(y)).astype(float)
    options: dict[str, Any] = {"shrinkage": 0.5, "anchor": 0.3, "power": 1.0, "refine": False}
    expected = HCEPClassifier(animals, **options).fit(StandardScaler().fit_transform(X), y, sample_weight=weights)
    plain = HCEPClassifier(animals, **options).fit(StandardScaler().fit_transform(X), y)
    with config_context(enable_metadata_routing=True):
        model = HCEPClassifier(animals, **options).set_fit_request(sample_weight=True)
        model.set_score_request(sample_weight=True)
        whole = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), model)
        whole.fit(X, y, sample_weight=weights)
        grid = GridSearchCV(model, {"anchor": [0.1, 0.3]}, cv=2).fit(X, y, sample_weight=weights)
        transformer = HCEPTransformer(animals, **options).set_fit_request(sample_weight=True)
        codes = make_pipeline(transformer, LogisticRegression().set_fit_request(sample_weight=True))
        assert codes.fit(X, y, sample_weight=weights).score(X, y) > 0.9
    atoms = whole[-1].dictionary_.atoms
    np.testing.assert_array_equal(atoms, expected.dictionary_.atoms)
    assert np.abs(atoms - plain.dictionary_.atoms).max() > 1e-3
    assert grid.best_estimator_.class_weights_.sum() == pytest.approx(weights.sum())


def test_in_pipelines(animals: Hierarchy, training: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = training
    whole = make_pipeline(StandardScaler(), HCEPClassifier(animals, n_jobs=1)).fit(X, y)
    assert whole.score(X, y) > 0.9
    codes = make_pipeline(HCEPTransformer(animals), LogisticRegression()).fit(X, y)
    assert codes.score(X, y) > 0.9
    assert cross_val_score(HCEPClassifier(animals), X, y, cv=3).mean() > 0.7


def test_grid_search_over_anchor_and_head(animals: Hierarchy, training: tuple[np.ndarray, np.ndarray]) -> None:
    grid = {"anchor": [0.0, 0.03, "auto"], "head": ["path", "logistic"]}
    search = GridSearchCV(HCEPClassifier(animals, shrinkage=0.5), grid, cv=2).fit(*training)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_estimator_.hierarchy_.root == "root"


@pytest.mark.parametrize("options", [{}, {"head": "logistic"}, {"max_steps": 1}])
def test_tables_keep_their_column_names(
    animals: Hierarchy, training: tuple[np.ndarray, np.ndarray], options: dict[str, Any]
) -> None:
    table = pa.table({f"f{i}": column for i, column in enumerate(training[0].T)})
    check_table(table, HCEPClassifier(animals, **options), *training)


@pytest.mark.parametrize("options", [{}, {"head": "logistic"}, {"max_steps": 1}])
def test_data_frames(animals: Hierarchy, training: tuple[np.ndarray, np.ndarray], options: dict[str, Any]) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(training[0], columns=[f"f{i}" for i in range(6)])
    check_table(frame, HCEPClassifier(animals, **options), training[0], pandas.Series(training[1]))


def check_table(table: Any, model: HCEPClassifier, X: np.ndarray, y: Any) -> None:
    """A model fitted on a table predicts as one fitted on its array, without a word about feature names."""
    fitted = model.fit(table, y)
    assert fitted.feature_names_in_.tolist() == [f"f{i}" for i in range(6)]
    probabilities = fitted.predict_proba(table)
    assert fitted.predict(table).tolist() == clone(model).fit(X, y).predict(X).tolist()
    assert probabilities == pytest.approx(clone(model).fit(X, y).predict_proba(X))


def test_object_arrays_of_numbers_are_accepted(animals: Hierarchy, training: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = training
    model = HCEPClassifier(animals, max_steps=1).fit(X.astype(object), y.astype(object))
    assert model.predict_proba(X.astype(object)).tolist() == model.predict_proba(X).tolist()


# -- refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", [HCEPClassifier(), HCEPTransformer()])
def test_not_fitted(estimator: Any) -> None:
    with pytest.raises(NotFittedError, match="not fitted yet"):
        estimator.transform(np.ones((1, 3)))
    with pytest.raises(NotFittedError, match="not fitted yet"):
        estimator.get_feature_names_out()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"anchor": None}, r"anchor must be 'auto' or a finite number of at least 0; got None"),
        ({"anchor": -1.0}, r"anchor must be 'auto' or a finite number of at least 0; got -1\.0"),
        ({"anchor": np.nan}, r"anchor must be 'auto' or a finite number of at least 0; got nan"),
        ({"anchor": "Auto"}, r"anchor must be 'auto' or a finite number of at least 0; got 'Auto'"),
        ({"shrinkage": 0.0}, r"shrinkage must be 'auto', None .* or a number above 0 and at most 1; got 0\.0"),
        ({"shrinkage": 1.5}, r"shrinkage must be 'auto', None .* or a number above 0 and at most 1; got 1\.5"),
        ({"shrinkage": True}, r"shrinkage must be 'auto', None .* or a number above 0 and at most 1; got True"),
        ({"beam_width": 0}, r"beam_width must be a positive integer, or None .*; got 0"),
        ({"max_steps": 0}, r"max_steps must be a positive integer, or None .*; got 0"),
        ({"tol": -1}, r"tol must be a finite number of at least 0; got -1"),
        (
            {"head": "linear"},
            r"head must be 'path' or 'logistic' or 'adamw' or a scikit-learn classifier, got 'linear'",
        ),
        ({"head": LogisticRegression}, r"or a scikit-learn classifier, got <class"),
        ({"head": StandardScaler()}, r"or a scikit-learn classifier, got StandardScaler"),
        ({"hierarchy": {"cat": "pet"}}, r"hierarchy must be a hcep\.Hierarchy, a file, a list .* or None; got dict"),
    ],
)
def test_bad_options_are_refused_when_fitting(
    training: tuple[np.ndarray, np.ndarray], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(HCEPError, match=message):
        HCEPClassifier(**options).fit(*training)


def test_a_class_outside_the_hierarchy_is_named(animals: Hierarchy) -> None:
    X, y = draw(["cat", "dgo", "fox"], 4)
    with pytest.raises(HierarchyError, match=r"1 of 3 classes is not a concept .* 'dgo'\. Near matches: 'dog'"):
        HCEPClassifier(animals).fit(X, y)


def test_bad_arrays_are_refused(animals: Hierarchy, training: tuple[np.ndarray, np.ndarray]) -> None:
    model = HCEPClassifier(animals).fit(*training)
    with pytest.raises(ValueError, match="X has 5 features, but HCEPClassifier is expecting 6"):
        model.predict(np.ones((1, 5)))
    with pytest.raises(ValueError, match="contains NaN"):
        model.predict(np.full((1, 6), np.nan))
    with pytest.raises(ValueError, match="requires y to be passed"):
        HCEPClassifier(animals).fit(training[0], None)


def test_a_hierarchy_can_be_pairs_a_file_or_a_networkx_graph(pets, tmp_path):
    networkx = pytest.importorskip("networkx", reason="networkx is not installed")
    rng = np.random.default_rng(0)
    y = np.repeat(pets.leaves, 4)
    X = rng.normal(size=(len(y), 6)) + 3 * np.repeat(rng.normal(size=(len(pets.leaves), 6)), 4, axis=0)
    expected = HCEPClassifier(pets).fit(X, y).pursue(X).paths
    (tmp_path / "pets.json").write_text(pets.to_json(), encoding="utf-8")
    pairs = [(str(parent), str(child)) for parent, child in pets.edges]
    for given in (pairs, tmp_path / "pets.json", str(tmp_path / "pets.json"), networkx.DiGraph(pairs)):
        model = HCEPClassifier(given).fit(X, y)
        assert model.pursue(X).paths == expected
        assert clone(model).hierarchy is not None
        assert load(save(model, tmp_path / "model")).predict(X).tolist() == model.predict(X).tolist()


def test_explain_images_takes_a_fitted_classifier() -> None:
    data = make_hierarchical_concepts(branching=3, depth=2, dim=10, noise=1e-3, samples_per_leaf=8)
    model = HCEPClassifier(data.hierarchy, shrinkage=None, anchor=0.1).fit(data.X, data.y).calibrate(data.X, data.y)
    one = explain_images(data.X[:1], model, sure=0.9, why_not=[data.y[-1]], n_best=2)[0]
    assert one.answer is not None
    assert len(one.contrasts) == len(one.rivals) == 1
    with pytest.raises(TypeError, match="covrage"):
        explain_images(data.X[:1], model, covrage=0.9)  # type: ignore[call-arg]
