"""The search step by step: what a beam keeps and drops, and why."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hcep import HCEPClassifier, hb_omp
from hcep.explain.beam_steps import WIDTH, beam_levels
from hcep.explain.evidence import Evidence
from hcep.pursuit.limits import Request


@pytest.fixture(scope="module")
def fitted():
    """thing -> animal -> (cat, dog, fox); thing -> vehicle -> (car, bus): a model and an image of a fox."""
    from hcep import Hierarchy

    edges = [("thing", "animal"), ("thing", "vehicle")]
    edges += [("animal", name) for name in ("cat", "dog", "fox")] + [("vehicle", name) for name in ("car", "bus")]
    h, random = Hierarchy.from_edges(edges), np.random.default_rng(0)
    centres = random.normal(size=(5, 8)) + 3.0
    y = np.repeat(h.leaves, 6)
    X = np.repeat(centres, 6, axis=0) + 0.3 * random.normal(size=(30, 8))
    model = HCEPClassifier(h, anchor=0.3, shrinkage=None).fit(X, y).path_model()
    return model, centres[h.leaves.index("fox")]


def narrow(model, width: int):
    return replace(model, options=replace(model.options, beam_width=width))


def test_forbidden_paths_are_dropped_with_the_reason(fitted):
    model, x = fitted
    levels = beam_levels(narrow(model, 2), x, Request.of(forbid="fox"))
    assert "fox" not in [one.name for kept, _ in levels for one in kept]
    assert [one.why for _, dropped in levels for one in dropped if one.name == "fox"] == ["excluded by the request"]


def test_the_signed_rule_is_given_as_the_reason(fitted):
    model, x = fitted
    signed = replace(model, options=replace(model.options, beam_width=8, signed=True, anchor=0.0))
    reasons = {one.why for _, dropped in beam_levels(signed, x, Request()) for one in dropped}
    assert reasons == {"the photo points away from it"}


@pytest.mark.parametrize(
    ("width", "words"), [(1, "path that was kept"), (2, "2 paths that were kept"), (3, "3 paths that were kept")]
)
def test_every_child_is_kept_or_dropped_and_the_best_path_is_the_answer(fitted, width, words):
    model, x = fitted
    h, levels = model.hierarchy, beam_levels(narrow(model, width), x, Request())
    above = {h.root}
    for kept, dropped in levels:
        assert {one.name for one in (*kept, *dropped)} == {child for c in above for child in h.children(c)}
        assert len(kept) == min(width, len(kept) + len(dropped))
        assert min(one.share for one in kept) >= max((one.share for one in dropped), default=-np.inf)
        assert {one.why for one in dropped} <= {f"explains less than the {words}"}
        assert {one.why for one in kept} == {""}
        above = {one.name for one in kept}
    options = {"anchor": model.options.anchor, "signed": model.options.signed}
    answer = hb_omp(x[None], model.dictionary, beam_width=width, **options).paths[0]
    assert [next(one.name for one in kept if one.on_answer) for kept, _ in levels] == list(answer)


def test_shares_equal_the_contributions_and_an_exact_model_is_shown_with_a_narrow_beam(fitted):
    model, x = fitted
    assert model.options.beam_width is None
    best = beam_levels(model, x, Request())[-1][0][0]
    found = model.infer(x[None])
    score = Evidence(model).contributions(x, int(found.nodes[0]), int(found.class_index[0]))
    assert best.name == found.labels[0] == "fox"
    assert best.share == pytest.approx(score.total / score.square)
    assert max(len(kept) for kept, _ in beam_levels(model, x, Request())) <= WIDTH
