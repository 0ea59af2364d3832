"""OMP, HNN, NN, the paper's HB-OMP and ours on the same images: one row a method."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from hcep.classify import HCEPClassifier, hnn, nn
from hcep.dictionary import ConceptDictionary
from hcep.evaluate import accuracy, support_scores, tree_distances
from hcep.hierarchy import Hierarchy
from hcep.pursuit import FlatResult, PathResult, hb_omp, omp

Pursuit = Callable[[NDArray[Any]], PathResult | FlatResult]
#: Images a speed is measured on, at least; fewer are repeated.
N_TIMED = 4096


@dataclass(frozen=True)
class Row:
    """One method's result on the evaluated images."""

    method: str
    label_from: str
    accuracy: float
    precision: float
    recall: float
    tree_distance: float
    images_per_second: float


@dataclass(frozen=True, eq=False)
class Comparison:
    """Rows, and what is needed to explain single images: the fitted classifier and the paper's paths."""

    rows: list[Row]
    ours: HCEPClassifier
    ours_result: PathResult
    paper_result: PathResult


def compare_methods(
    hierarchy: Hierarchy,
    X: NDArray[Any],
    y: NDArray[Any],
    X_val: NDArray[Any],
    y_val: NDArray[Any],
    beam_width: int = 8,
    on_step: Callable[[str], None] = lambda name: None,
) -> Comparison:
    """Fit on (X, y), evaluate on (X_val, y_val).

    OMP and HB-OMP get their label from logistic regression on the codes, as published; HNN, NN and ours from the leaf
    of the path. Speeds are those of the pursuit alone, kernels compiled.
    """
    on_step("fitting ours")
    ours = HCEPClassifier(hierarchy).fit(X, y)
    tree = ours.hierarchy_
    plain = ConceptDictionary.from_images(tree, X, y)
    pursuits: dict[str, tuple[Pursuit, bool]] = {
        "OMP": (lambda images: omp(images, plain, tree.depth), True),
        "HNN": (lambda images: hnn(images, plain), False),
        "NN": (lambda images: nn(images, plain), False),
        "HB-OMP (paper)": (lambda images: hb_omp(images, plain, beam_width=beam_width), True),
        "HCEP (ours)": (ours.pursue, False),
    }
    rows, results = [], {}
    for name, (pursuit, with_head) in pursuits.items():
        on_step(name)
        result = results[name] = pursuit(X_val)
        predicted = _head_labels(pursuit(X), y, result) if with_head else _leaf_labels(result)
        scores = support_scores(result, y_val, tree)
        rows.append(
            Row(
                method=name,
                label_from="logistic head" if with_head else "leaf of the path",
                accuracy=accuracy(y_val, predicted),
                precision=scores.mean[0],
                recall=scores.mean[1],
                tree_distance=_mistake_distance(y_val, predicted, tree),
                images_per_second=_speed(pursuit, X_val),
            )
        )
    paper, best = list(results.values())[-2:]
    assert isinstance(paper, PathResult)
    assert isinstance(best, PathResult)
    return Comparison(rows, ours, best, paper)


def only_ours_right(comparison: Comparison, y_val: NDArray[Any]) -> Iterator[int]:
    """Images whose path is wrong by the paper's rule and right by ours; two-way splits first."""
    wrong = comparison.paper_result.leaves != y_val
    right = comparison.ours_result.leaves == y_val
    found = np.flatnonzero(wrong & right)
    negative = [comparison.paper_result.coefficients(int(i)).min() for i in found]
    yield from (int(i) for i in found[np.argsort(negative, kind="stable")])


def _head_labels(train: PathResult | FlatResult, y: NDArray[Any], result: PathResult | FlatResult) -> NDArray[Any]:
    return np.asarray(LogisticRegression(max_iter=1000).fit(train.codes, y).predict(result.codes))


def _leaf_labels(result: PathResult | FlatResult) -> NDArray[Any]:
    assert isinstance(result, PathResult)
    return result.leaves


def _mistake_distance(y_val: NDArray[Any], predicted: NDArray[Any], tree: Hierarchy) -> float:
    """Mean tree distance of the mistakes; 0 where there are none."""
    wrong = predicted != y_val
    return float(np.mean(tree_distances(y_val[wrong], predicted[wrong], tree))) if wrong.any() else 0.0


def _speed(pursuit: Pursuit, X: NDArray[Any]) -> float:
    many = np.tile(X, (-(-N_TIMED // len(X)), 1))
    times = []
    for _ in range(3):
        start = time.perf_counter()
        pursuit(many)
        times.append(time.perf_counter() - start)
    return len(many) / min(times)
