"""The one grader: methods are fitted and scored."""

import numpy as np
import pytest

from hcep.classify import make_method
from hcep.datasets import make_hierarchical_concepts
from hcep.errors import MissingExtraError
from hcep.evaluate import evaluate_method
from hcep.evaluate.grade import grade_methods


@pytest.fixture(scope="module")
def data():
    return make_hierarchical_concepts(branching=3, depth=3, dim=12, noise=0.02)


@pytest.fixture(scope="module")
def grades(data):
    methods = {name: make_method(name, data.hierarchy) for name in ("nn", "hb-omp")}
    return grade_methods(methods, (data.X, data.y), (data.X, data.y))


def test_scores_equal_those_of_evaluate_method(data, grades):
    graded = grades["nn"]
    expected = evaluate_method(graded.estimator, data.X, data.y)
    for name, values in expected.columns.items():
        np.testing.assert_array_equal(graded.scores[name], values)


def test_a_fitted_method_is_not_fitted_again(data):
    model = make_method("nn", data.hierarchy).fit(data.X, data.y)
    dictionary = model.dictionary_
    graded = grade_methods({"mine": model}, (data.X, data.y))["mine"]
    assert graded.estimator.dictionary_ is dictionary


def test_the_result_is_kept(data, grades):
    graded = grades["nn"]
    assert np.mean(graded.result.leaves == data.y) == graded.scores.summary()["correct"]


class Lacking:
    def fit(self, X, y):
        raise MissingExtraError("pip install it")


def test_an_optional_method_is_skipped_and_another_is_an_error(data):
    methods = {"nn": make_method("nn", data.hierarchy), "lacking": Lacking()}
    labels, skipped = [], {}
    options = {"optional": ["lacking"], "on_method": labels.append, "on_skip": skipped.__setitem__}
    graded = grade_methods(methods, (data.X, data.y), (data.X, data.y), **options)
    assert (list(graded), skipped, labels) == (["nn"], {"lacking": "pip install it"}, ["nn", "lacking"])
    with pytest.raises(MissingExtraError, match="pip install it"):
        grade_methods(methods, (data.X, data.y), (data.X, data.y))
