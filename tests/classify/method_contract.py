"""What every method must do, and small data to try it on: test classes inherit `MethodContract`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hcep import Hierarchy, HierarchyError, support_scores
from hcep.pursuit import FlatResult, PathResult

#: Two-way and three-way splits: root -> (pet -> (cat, dog), wild -> (fox, wolf, bear)).
ANIMALS = Hierarchy.from_edges(
    [
        ("root", "pet"),
        ("root", "wild"),
        ("pet", "cat"),
        ("pet", "dog"),
        ("wild", "fox"),
        ("wild", "wolf"),
        ("wild", "bear"),
    ]
)


def draw_training() -> tuple[np.ndarray, np.ndarray]:
    """Ten images of each of five classes, in eight dimensions, well apart."""
    rng = np.random.default_rng(0)
    means = 3.0 * rng.standard_normal((5, 8))
    X = np.repeat(means, 10, axis=0) + 0.4 * rng.standard_normal((50, 8))
    return X, np.repeat(np.array(ANIMALS.leaves), 10)


X, Y = draw_training()


class MethodContract:
    """Subclasses are parametrized by `name`."""

    def make(self, name: str, hierarchy: Hierarchy | None, **options: Any) -> Any:
        raise NotImplementedError

    def test_it_fits_pursues_and_predicts(self, name: str) -> None:
        model = self.make(name, ANIMALS).fit(X, Y)
        result = model.pursue(X)
        assert isinstance(result, PathResult | FlatResult)
        assert result.codes.shape == (50, model.dictionary_.n_atoms)
        assert len(result.supports) == len(result.residual_norms) == 50
        assert model.classes_.tolist() == sorted(ANIMALS.leaves)
        assert model.hierarchy_ == model.dictionary_.hierarchy
        assert model.score(X, Y) >= 0.8
        support_scores(result, Y, model.hierarchy_)

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_probabilities_sum_to_1_and_the_largest_is_the_prediction(self, name: str, dtype: type) -> None:
        model = self.make(name, ANIMALS).fit(X.astype(dtype), Y)
        new = (X + np.random.default_rng(1).standard_normal(X.shape)).astype(dtype)
        probabilities = model.predict_proba(new)
        assert probabilities.sum(axis=1) == pytest.approx(np.ones(50))
        assert model.classes_[probabilities.argmax(axis=1)].tolist() == model.predict(new).tolist()

    @pytest.mark.parametrize("max_steps", [1, 2])
    def test_no_support_is_larger_than_max_steps(self, name: str, max_steps: int) -> None:
        supports = self.make(name, ANIMALS, max_steps=max_steps).fit(X, Y).pursue(X).supports
        assert max(len(support) for support in supports) <= max_steps

    def test_fitting_again_gives_the_same_on_any_number_of_threads(self, name: str) -> None:
        one, two = (self.make(name, ANIMALS, n_jobs=n).fit(X, Y) for n in (1, 2))
        assert one.pursue(X).supports == two.pursue(X).supports
        assert one.predict_proba(X).tolist() == two.predict_proba(X).tolist()

    def test_one_class_and_no_hierarchy(self, name: str) -> None:
        images = np.random.default_rng(0).standard_normal((6, 4))
        model = self.make(name, None).fit(images, np.zeros(6, dtype=int))
        assert model.predict(images[:2]).tolist() == [0, 0]
        assert model.predict_proba(images[:2]).tolist() == [[1.0], [1.0]]

    def test_labels_keep_their_type_without_a_hierarchy(self, name: str) -> None:
        rng = np.random.default_rng(0)
        labels = np.repeat([3, 10, 20], 8)
        images = np.repeat(4.0 * np.eye(3, 5), 8, axis=0) + 0.1 * rng.standard_normal((24, 5))
        predicted = self.make(name, None).fit(images, labels).predict(images)
        assert predicted.dtype == labels.dtype
        assert predicted.tolist() == labels.tolist()

    def test_classes_outside_the_hierarchy_are_named(self, name: str) -> None:
        with pytest.raises(HierarchyError, match=r"1 of 5 classes is not a concept of the hierarchy: 'wolves'"):
            self.make(name, ANIMALS).fit(X, np.where(Y == "wolf", "wolves", Y))
