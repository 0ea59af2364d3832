"""Why this and not that: nothing left over in any sum, no smaller change that would do."""

import msgspec
import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier

from hcep import HCEPClassifier, explain_images
from hcep.datasets import load_sample, make_hierarchical_concepts
from hcep.errors import HCEPError
from hcep.explain.answer import Answer, Contrast
from hcep.explain.evidence import smallest_change
from hcep.pursuit import path_objectives

SAMPLE = load_sample()
X, Y = SAMPLE.X_train[::5, ::8], SAMPLE.y_train[::5]
NEW = SAMPLE.X_val[::50, ::8]
PLAIN = {"tree": "first", "shrinkage": None, "anchor": 0.1, "power": 1.0, "refine": False}
SETTINGS = {
    "paper": {"shrinkage": None, "anchor": 0.0},
    "signed": {"shrinkage": None, "anchor": 0.0, "signed": True},
    "anchored": {"shrinkage": None, "anchor": 0.1},
    "whitened": {"shrinkage": 0.5, "anchor": 0.03},
    "centred": {"shrinkage": 0.5, "anchor": 0.03, "center": True, "unit_norm": True},
    "power": {"shrinkage": 0.5, "anchor": 0.03, "power": 0.5},
    "short": {"shrinkage": 0.5, "anchor": 0.03, "max_steps": 2},
    "routes": {"shrinkage": 0.5, "anchor": 0.03, "tree": None},
    "words": {"shrinkage": 0.5, "anchor": 0.3},
}
TEXTS = {
    str(c): X[c == Y].mean(axis=0) + np.random.default_rng(i).normal(size=X.shape[1])
    for i, c in enumerate(sorted(set(Y)))
}


def is_answer(one, concept):
    return one.context.explainer.evidence.is_answer(concept, one.context.node, one.context.class_index)


@pytest.fixture(scope="module", params=SETTINGS)
def model(request):
    texts = {"texts": TEXTS} if request.param == "words" else {}
    return HCEPClassifier(SAMPLE.hierarchy, **PLAIN | SETTINGS[request.param]).fit(X, Y, **texts)


def objectives(model, x):
    """Lowest objective of every class, free of the signed rule, by the pursuit's own sums."""
    tree = model.hierarchy_.path_tree
    found = path_objectives(x[None], model.dictionary_, anchor=model.anchor_)[0]
    ends = np.array(model.hierarchy_.ids)[tree.synset[tree.leaf_nodes]]
    return {c: found[ends == model.hierarchy_.leaf_of(c)].min() for c in model.classes_}


def test_contributions_add_up_to_the_score(model):
    for one, x in zip(explain_images(NEW, model), NEW.astype(np.float64), strict=True):
        z = model.dictionary_.transform(x[None])[0]
        r, a = one.residual_norm, np.array([step.coefficient for step in one.path])
        objective = r**2 + model.anchor_ * ((a - 1) ** 2).sum()
        assert one.contributions.total == pytest.approx(z @ z - objective, rel=1e-4, abs=1e-4)
        assert [c.synset for c in one.contributions.concepts] == [step.synset for step in one.path]
        assert one.contributions.label == one.label


def test_evidence_adds_up_to_the_difference_of_the_objectives(model):
    if model.max_steps:
        pytest.skip("objectives of complete paths are not those of cut ones")
    for one, x in zip(explain_images(NEW, model), NEW.astype(np.float64), strict=True):
        known = objectives(model, x)
        for other in [c for c in model.classes_ if c != one.label and not is_answer(one, c)]:
            why = one.contrast(other)
            n = len(why.shared)
            assert why.rival.label == other
            assert why.margin == pytest.approx(known[other] - known[one.label], rel=1e-7, abs=1e-9)
            # What both paths have counts for both alike: the difference is that of what is below the fork.
            above = [[c.value for c in side.concepts[:n]] for side in (why.chosen, why.rival)]
            assert above[0] == pytest.approx(above[1], rel=1e-12)
            below = [sum(c.value for c in side.concepts[n:]) for side in (why.chosen, why.rival)]
            assert below[0] - below[1] == pytest.approx(why.margin, abs=1e-9)


def test_no_smaller_change_makes_two_classes_equal(model):
    rng = np.random.default_rng(0)
    transform, evidence = model.dictionary_.transform, explain_images(NEW[:1], model)[0].context.explainer.evidence
    checked = 0
    for one in explain_images(NEW[:4], model):
        for why in [one.contrast(rival.label) for rival in one.rivals if not is_answer(one, rival.label)]:
            if why.flip is None:
                assert model.signed or why.margin <= 0
                continue
            start = transform.prepared(one.context.x[None].astype(np.float64))[0]

            def margins(changes, one=one, why=why, start=start):
                z = transform.after_unit_norm(start + changes)
                nodes = [evidence.nodes(node) for node in (one.context.node, why.rival_node)]
                scores = [
                    ((z @ d.T + o) ** 2 - model.anchor_).sum(axis=1)
                    for d, o in map(evidence.problem.path_directions, nodes)
                ]
                return scores[0] - scores[1]

            assert margins(np.zeros((1, len(start))))[0] == pytest.approx(why.margin)
            assert margins(why.change[None])[0] == pytest.approx(0, abs=1e-7 * max(why.margin, 1e-3))
            assert why.flip.norm == pytest.approx(np.linalg.norm(why.change))
            # Random changes in the span where the margin lives, and around the best one, a little shorter than it.
            nodes = np.concatenate([evidence.nodes(node) for node in (one.context.node, why.rival_node)])
            span = evidence._pulled(one.context.x, evidence.problem.path_directions(nodes)[0])[1]
            tries = rng.standard_normal((4000, len(span))) @ span
            near = why.change + 0.3 * why.flip.norm * rng.standard_normal((4000, 1)) * tries / np.linalg.norm(
                tries, axis=1, keepdims=True
            )
            for some in (tries, near):
                shorter = 0.995 * why.flip.norm * some / np.linalg.norm(some, axis=1, keepdims=True)
                assert margins(shorter).min() > 0
            checked += 1
    assert (checked == 0) == model.signed  # the signed rule has no such change, every other setting has some


def test_the_answer_differs_just_beyond_the_smallest_change(model):
    turned = 0
    for one in explain_images(NEW[:4], model):
        for why in [one.contrast(rival.label) for rival in one.rivals if not is_answer(one, rival.label)]:
            if why.flip is None or why.flip.prepared:
                continue
            beyond = one.context.x.astype(np.float64) + 1.0001 * why.change
            assert model.predict(beyond[None])[0] == why.flip.label != one.label
            turned += 1
    assert (turned == 0) == (model.signed or not model.dictionary_.transform.is_affine)


@pytest.mark.parametrize("products", [[3.0, 1.0], [3.0, 0.0], [0.5, 0.4]])
def test_the_smallest_change_in_two_dimensions(products):
    # p1**2 = p2**2: the nearest of the two diagonals.
    found = smallest_change(np.eye(2), np.array(products), np.array([1.0, -1.0]), 0.0)
    assert np.linalg.norm(found) == pytest.approx((products[0] - products[1]) / np.sqrt(2), rel=1e-5)


def test_there_is_no_change_if_it_is_impossible_or_not_needed():
    eye = np.eye(2)
    assert smallest_change(eye, np.array([1.0, 2.0]), np.array([1.0, -1.0]), 0.0) is None  # it is behind already
    assert smallest_change(eye, np.array([1.0, 2.0]), np.array([1.0, 1.0]), -1.0) is None  # never so low
    assert smallest_change(eye, np.array([3.0, 0.0]), np.array([1.0, 1.0]), 1.0) == pytest.approx([-2.0, 0.0])


@pytest.mark.parametrize("two", [False, True])
@pytest.mark.parametrize("head", ["logistic", "adamw"])
def test_logits_are_sums_over_concepts(head, two):
    rows = np.isin(Y, np.unique(Y)[:2]) if two else np.full(len(Y), True)
    model = HCEPClassifier(SAMPLE.hierarchy, **PLAIN, head=head).fit(X[rows], Y[rows])
    logits = np.atleast_2d(model.head_.decision_function(model.pursue(NEW).codes).T).T
    logits = np.hstack([np.zeros_like(logits), logits]) if logits.shape[1] == 1 and head == "logistic" else logits
    for one, row in zip(explain_images(NEW, model), logits, strict=True):
        questions = one.context
        assert one.contributions.kind == "logit"
        sums = [
            questions.explainer.evidence.contributions(questions.x, questions.node, c).total
            for c in range(len(model.classes_))
        ]
        if row.shape == (1,):  # AdamW's head of two classes tells their difference
            sums, row = [sums[1] - sums[0]], row
        assert np.allclose(sums, row, atol=1e-5)
        other = next(c for c in model.classes_ if c != one.label)
        why = one.contrast(other)
        wanted = sums[int(np.flatnonzero(model.classes_ == one.label)[0])] if len(sums) > 1 else None
        assert wanted is None or why.chosen.total == pytest.approx(wanted, abs=1e-5)
        moved = one.context.x.astype(np.float64) + why.change
        again = questions.explainer.evidence.contributions
        pair = [int(np.flatnonzero(model.classes_ == c)[0]) for c in (one.label, other)]
        level = [again(moved, questions.node, c).total for c in pair]
        assert level[0] == pytest.approx(level[1], abs=1e-6)


def test_a_head_that_is_not_linear_has_no_contributions():
    model = HCEPClassifier(SAMPLE.hierarchy, **PLAIN, head=RandomForestClassifier(5))
    one = explain_images(NEW[:1], model.fit(X, Y))[0]
    assert one.contributions is None
    with pytest.raises(HCEPError, match="RandomForestClassifier, is not linear"):
        one.contrast(next(c for c in model.classes_ if c != one.label))


def test_invalid_contrasts_are_rejected_in_one_sentence():
    model = HCEPClassifier(SAMPLE.hierarchy, **PLAIN).fit(X, Y)
    one = next(one for one in explain_images(NEW, model) if one.name == "tench")
    with pytest.raises(HCEPError, match="'tench' is part of this image's answer; ask about another concept"):
        one.contrast("tench")
    with pytest.raises(HCEPError, match="'vertebrate' is part of this image's answer"):
        one.contrast("vertebrate")
    with pytest.raises(
        HCEPError, match=r"'garbige truck' is not a concept of this hierarchy\. Near matches: 'garbage truck'"
    ):
        one.contrast("garbige truck")


def test_a_contrast_with_an_inner_concept_uses_its_best_class():
    model = HCEPClassifier(SAMPLE.hierarchy, **PLAIN).fit(X, Y)
    one = next(one for one in explain_images(NEW, model) if one.name == "tench")
    why = one.contrast("artifact")
    assert why.rival.label == one.what_if(force="artifact").label
    assert why.rival.total == max(one.contrast(c).rival.total for c in ("church", "gas pump", why.rival.label))
    lines = why.lines()
    assert lines[0].startswith(
        f"Why tench and not {why.rival.name}? Their paths diverge at the first step: one goes to vertebrate"
    )
    assert lines[1].startswith("evidence for tench: vertebrate +")
    assert "the two would tie if the embedding changed by" in lines[-1]
    assert msgspec.convert(msgspec.to_builtins(why), Contrast).lines() == lines


def test_what_if_moves_the_image_along_the_atoms():
    model = HCEPClassifier(SAMPLE.hierarchy, **PLAIN).fit(X, Y)
    one = next(one for one in explain_images(NEW, model) if len(one.path) > 1)
    same = one.what_if(coefficients={step.synset: step.coefficient for step in one.path})
    assert (same.label, same.probability) == (one.label, pytest.approx(one.probability, abs=1e-4))
    leaf = one.path[-1]
    atom = model.dictionary_.atoms[[child == leaf.synset for _, child in model.dictionary_.edges]][0]
    scale = model.dictionary_.transform.scale
    by_hand = explain_images((one.context.x.astype(np.float64) - (leaf.coefficient + 1.0) * atom / scale)[None], model)[
        0
    ]
    gone = one.what_if(coefficients={leaf.name: -1.0})
    assert gone.label == by_hand.label
    assert gone.probability == pytest.approx(by_hand.probability, abs=1e-6)
    assert gone.what_if(force=one.label).label == one.label  # questions of answers to questions
    with pytest.raises(HCEPError, match="coefficients: 'church' is not on the path of this image, which has"):
        next(one for one in explain_images(NEW, model) if one.name == "tench").what_if(coefficients={"church": 0.0})


def test_what_if_gives_a_linear_head_the_changed_code():
    model = HCEPClassifier(SAMPLE.hierarchy, **PLAIN, head="logistic").fit(X, Y)
    one = explain_images(NEW[:1], model)[0]
    code = model.pursue(NEW[:1]).codes.copy()
    code.data[-1] = -2.0
    changed = one.what_if(coefficients={one.leaf: -2.0})
    assert changed.probability == pytest.approx(model.head_.predict_proba(code)[0].max())
    assert changed.label == model.classes_[model.head_.predict(code)[0]]
    assert changed.path[-1].coefficient == -2.0


def test_forced_and_forbidden_concepts_are_in_the_answer():
    model = HCEPClassifier(SAMPLE.hierarchy, **PLAIN).fit(X, Y)
    one = explain_images(NEW[:1], model)[0].what_if(force="artifact", forbid=["church", "device"])
    assert (one.force, one.forbid) == (("artifact",), ("church", "device"))
    assert {"artifact"} <= {step.name for step in one.path}
    assert not {rival.name for rival in one.rivals} & {"church", "tench", "cassette player"}
    free = explain_images(NEW[:1], model)[0]
    assert (free.force, free.forbid) == ((), ())


def test_a_contrast_needs_the_model():
    lone = Answer(file="a.jpg", label="x", name="x", probability=0.9)
    with pytest.raises(HCEPError, match="the model is not available"):
        lone.contrast("y")


def test_a_flat_model_has_contrasts_too():
    data = make_hierarchical_concepts(branching=2, depth=1, dim=3, noise=0.05)
    model = HCEPClassifier(shrinkage=None, anchor=0.1).fit(data.X, data.y)
    one = explain_images(data.X[:1], model)[0]
    why = one.contrast(next(c for c in model.classes_ if c != one.label))
    assert why.shared == ()
    assert why.margin > 0
