"""Figures of a class set: boxes that tile, values by concept, pages that escape what they are given."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import numpy as np
import pytest

from hcep import HCEPClassifier, Hierarchy
from hcep.errors import HCEPError
from hcep.evaluate import concept_f1, risk_coverage
from hcep.evaluate.drawing import (
    concept_means,
    draw_icicle,
    draw_risk_coverage,
    icicle_boxes,
    icicle_page,
    mistakes_by_lca,
    write_figures,
)

TRUE = ["cat", "cat", "dog", "fox", "car", "bus"]
PREDICTED = ["cat", "dog", "dog", "car", "bus", "bus"]


def test_boxes_tile_every_level_below_their_parent(diamond: Hierarchy) -> None:
    boxes = icicle_boxes(diamond)
    assert (boxes[0].synset, boxes[0].top, boxes[0].height) == ("root", 0.0, 1.0)
    leaves = [box for box in boxes if diamond.is_leaf(box.synset)]
    assert [box.synset for box in leaves].count("cat") == 2  # a box for each of its paths
    assert sum(box.height for box in leaves) == pytest.approx(1.0)
    tops = sorted((box.top, box.top + box.height) for box in leaves)
    assert all(a[1] == pytest.approx(b[0]) for a, b in itertools.pairwise(tops))


def test_f1_of_concepts_counts_images_below_them(pets: Hierarchy) -> None:
    f1 = concept_f1(TRUE, PREDICTED, pets)
    assert f1["cat"] == pytest.approx(2 / 3)
    assert f1["animal"] == pytest.approx(2 * 3 / (4 + 3))
    assert f1["thing"] == 1.0


def test_means_of_concepts(pets: Hierarchy) -> None:
    means = concept_means(TRUE, np.array([1.0, 0.0, 0.5, 0.5, 1.0, 1.0]), pets)
    assert (means["cat"], means["animal"], means["vehicle"]) == (0.5, 0.5, 1.0)


def test_mistakes_are_filed_under_the_lowest_common_concept(pets: Hierarchy) -> None:
    assert mistakes_by_lca([*TRUE, "cat"], [*PREDICTED, "dog"], pets) == [
        ("animal", 2, "cat", "dog", 2),
        ("thing", 1, "fox", "car", 1),
        ("vehicle", 1, "car", "bus", 1),
    ]


def test_a_page_escapes_names_and_loads_nothing() -> None:
    edges = [("all", f"branch {i // 40}") for i in range(1000)] + [(f"branch {i // 40}", f"c{i}") for i in range(1000)]
    big = Hierarchy.from_edges(edges, {"c0": "</script><b>x"})
    page = icicle_page(big, {f"c{i}": i / 1000 for i in range(1000)}, "<i>title")
    assert page.count("</script>") == 1
    assert "&lt;i&gt;title" in page
    assert "http" not in page
    data = json.loads(re.search(r"const data=(.*?);\n", page)[1])  # type: ignore[index]
    assert len(data["boxes"]) == len(big.path_tree.synset)


def test_high_boxes_are_labelled(pets: Hierarchy) -> None:
    figure = draw_icicle(pets, {"cat": 1.0}, "pets")
    assert {text.get_text() for text in figure.axes[0].texts} == set(pets.ids)


def test_a_folder_of_figures(pets: Hierarchy, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y = np.repeat(["cat", "dog", "fox", "car", "bus"], 8)
    X = np.repeat(rng.standard_normal((5, 4)), 8, axis=0) + 0.5 * rng.standard_normal((40, 4))
    model = HCEPClassifier(pets, shrinkage=0.5, anchor=0.3, refine=False).fit(X, y)
    paths = write_figures(tmp_path / "figures", model, X, y)
    assert sorted(path.name for path in paths) == sorted(path.name for path in (tmp_path / "figures").iterdir())
    kinds = {"pdf": b"%PDF", "png": b"\x89PNG", "html": b"<!doctype html>"}
    assert all(path.read_bytes().startswith(kinds[path.suffix[1:]]) for path in paths)


def test_risk_is_lower_for_the_most_certain_answers() -> None:
    rng = np.random.default_rng(0)
    sure = rng.random(500)
    right = rng.random(500) < sure
    coverage, risk = risk_coverage(sure, right)
    assert risk[100] < risk[-1] == pytest.approx(1 - right.mean())
    assert draw_risk_coverage({"ours": (coverage, risk)}).axes


def test_equal_confidences_are_answered_together() -> None:
    assert risk_coverage([0.5, 0.5, 0.5, 0.5], [1, 0, 1, 0])[1].tolist() == [0.5] * 4
    assert risk_coverage([0.9, 0.1], [1, 0])[1].mean() == 0.25
    with pytest.raises(HCEPError, match="one number per image"):
        risk_coverage([0.5], [1, 0])
