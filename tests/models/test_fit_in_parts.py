"""Images that are never all in memory, some of them with labels above the classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hcep import HCEPClassifier, Hierarchy, HierarchyError
from hcep.embeddings import Embeddings, import_embeddings, read_embeddings
from hcep.models import fit_model, fitting, read_model
from tests.classify.test_coarse import EDGES, draw, mostly_coarse

TREE = Hierarchy.from_edges(EDGES)


def in_parts(
    model: HCEPClassifier, X: np.ndarray, y: np.ndarray, sample: int, n_parts: int = 7
) -> tuple[HCEPClassifier, int]:
    """Fit to images in parts; also the number of images that were in memory at a time."""
    rows = np.array_split(np.arange(len(y)), n_parts)
    counts = {i: Counter(y[part].tolist()) for i, part in enumerate(rows)}

    def each(_: str, work: Callable[..., Any], **options: Any) -> Iterator[Any]:
        for i, part in enumerate(rows):
            yield work(i, [(X[part], y[part])], **options)

    sampled, _ = fitting.fit_in_parts(model, counts, each, sample)
    return model, len(sampled)


def shuffled(n_exact: int, n: int, spread: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    X, y, truth = mostly_coarse(n_exact, n, spread)
    order = np.random.default_rng(4).permutation(len(y))
    return X[order], y[order], truth[order]


def test_coarse_images_of_all_parts_teach_the_classes_below_their_label() -> None:
    X, y, truth = shuffled(4, 250, spread=2.5)
    X_new, y_new = draw(100, spread=2.5, seed=7)
    model, n_sampled = in_parts(HCEPClassifier(TREE), X, y, sample=300)
    assert n_sampled < 320
    assert model.classes_.tolist() == sorted(set(truth.tolist()))
    assert model.images_per_class_.tolist() == [4] * 6
    assert {name: count.n_images for name, count in model.coarse_counts_.items()} == dict(Counter(y[y != truth]))
    assert model.class_weights_.sum() == pytest.approx(len(y))
    assert sum(sum(count.classes.values()) for count in model.coarse_counts_.values()) == pytest.approx(
        len(y) - 24, abs=1
    )
    alone = HCEPClassifier(TREE).fit(X[y == truth], y[y == truth]).score(X_new, y_new)
    together = HCEPClassifier(TREE).fit(X, y).score(X_new, y_new)
    assert model.score(X_new, y_new) > alone + 0.05
    assert model.score(X_new, y_new) > together - 0.03


def test_the_sample_does_not_grow_with_the_images() -> None:
    sizes = []
    for n in (50, 400):
        X, y, _ = shuffled(4, n, spread=1.0)
        sizes.append(in_parts(HCEPClassifier(TREE), X, y, sample=120)[1])
    assert max(sizes) <= 130


def test_a_sample_of_everything_is_the_fit_in_memory() -> None:
    X, y, _ = shuffled(3, 40, spread=1.0)
    model, n_sampled = in_parts(HCEPClassifier(TREE), X, y, sample=10_000)
    assert n_sampled == len(y)
    whole = HCEPClassifier(TREE).fit(X, y)
    np.testing.assert_array_equal(model.predict_proba(X), whole.predict_proba(X))
    assert model.coarse_counts_ == whole.coarse_counts_


def test_coarse_images_that_would_harm_are_used_in_no_part() -> None:
    X, y, truth = shuffled(20, 100, spread=1.0)
    X[y != truth] = np.random.default_rng(5).standard_normal((np.count_nonzero(y != truth), 12)) * 30.0
    model, _ = in_parts(HCEPClassifier(TREE), X, y, sample=300)
    assert model.class_weights_ is None
    assert model.images_per_class_.tolist() == [20] * 6
    assert {str(count) for count in model.coarse_counts_.values()} == {
        "240 (not used)",
        "160 (not used)",
        "80 (not used)",
    }


@pytest.mark.parametrize(("coarse", "classes"), [("drop", 6), ("own", 9)])
def test_the_other_choices_hold_for_parts(coarse: str, classes: int) -> None:
    X, y, truth = shuffled(20, 100, spread=1.0)
    model, _ = in_parts(HCEPClassifier(TREE, coarse=coarse), X, y, sample=300)
    assert len(model.classes_) == classes
    assert model.coarse_counts_ is None
    assert model.images_per_class_.sum() == (len(y) if coarse == "own" else np.count_nonzero(y == truth))


def test_a_label_above_one_class_is_rejected_before_anything_is_read() -> None:
    labels = Counter({"owl": 3, "barn owl": 3, "car": 3})
    with pytest.raises(HierarchyError, match=r"'owl'.*only class below it is 'barn owl'.*coarse='own'"):
        fitting.fit_in_parts(HCEPClassifier(TREE), {0: labels}, each=pytest.fail, sample=10)


def test_a_store_that_stays_on_disk_is_taught_and_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, truth = shuffled(10, 150, spread=1.0)
    import_embeddings(Embeddings(X.astype(np.float32), labels=y), tmp_path / "store", encoder="e")
    monkeypatch.setattr(fitting, "SAMPLE", 240)
    monkeypatch.setattr(fitting, "SAMPLE_PER_CLASS", 2)
    monkeypatch.setattr(fitting, "BLOCK", 128)
    stays = read_embeddings(tmp_path / "store", in_memory=100)
    monkeypatch.setattr("hcep.embeddings.EmbeddingStore.to_numpy", None)  # no way to have all at once
    fit_model(stays, TREE, tmp_path / "model", several_objects=True)
    saved = read_model(tmp_path / "model")
    assert saved.coarse_counts["owl"].n_images == 280
    assert dict(saved.coarse_counts["owl"].most()) == pytest.approx({"barn owl": 140, "eagle owl": 140}, abs=6)
    assert saved.training.n_images == 60
    assert saved.training.metrics["training accuracy"] > 0.9
    assert np.mean(saved.classifier.predict(X) == truth) > 0.95
