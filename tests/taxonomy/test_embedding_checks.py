"""What embeddings say about a hierarchy, on data where we know what is wrong."""

import re

import numpy as np
import pytest

from hcep import HCEPError, Hierarchy
from hcep.hierarchy.imagenet import imagenet_hierarchy
from hcep.taxonomy import HeldOut, Move, lint_embeddings
from hcep.taxonomy.effects import best_moves, what_if


@pytest.fixture(scope="module")
def odd_one():
    """Animals and vehicles far apart; "bat", among the animals, lies with the vehicles. Its images are b0, b1, ..."""
    animals, vehicles = ["cat", "dog", "fox", "bat"], ["car", "bus", "van"]
    edges = [("thing", "animal"), ("thing", "vehicle")]
    edges += [("animal", c) for c in animals] + [("vehicle", c) for c in vehicles]
    rng = np.random.default_rng(0)
    centres = {c: np.r_[5.0, 0.0, rng.normal(size=6)] for c in animals[:3]}
    centres |= {c: np.r_[0.0, 5.0, rng.normal(size=6)] for c in ["bat", *vehicles]}
    y = np.repeat([*animals, *vehicles], 12)
    X = np.stack([centres[c] for c in y.tolist()]) + 1.6 * rng.normal(size=(len(y), 8))
    ids = [f"{label}{i % 12}" for i, label in enumerate(y.tolist())]
    return Hierarchy.from_edges(edges), X, y, ids


def test_the_odd_one_is_found_with_its_images_and_the_move(odd_one):
    findings = lint_embeddings(*odd_one)
    (containment,) = [f for f in findings if f.code == "containment"]
    assert containment.synsets == ("animal", "bat")
    assert len(containment.examples) == 5
    assert all(example.startswith("bat") for example in containment.examples)
    (move,) = [f for f in findings if f.code == "nearer-parent" and f.severity == "warning"]
    assert move.fixes == (Move("bat", "vehicle", "animal"),)
    assert not move.safe
    assert "photos of 'bat' look, on average, more like 'vehicle' than like its parent 'animal'" in move.message
    assert move.measured.effect.metrics["f1_above_chance"].difference > 0


def test_the_worst_images_are_furthest_from_the_cone(odd_one):
    hierarchy, X, y, _ = odd_one
    held_out = HeldOut.from_images(hierarchy, X, y)
    (containment,) = [f for f in lint_embeddings(*odd_one, held_out=held_out, n_images=2) if f.code == "containment"]
    x = held_out.dictionary.embed(X[y == "bat"])
    animal = held_out.dictionary.synset_embedding("animal")
    cosine = x @ animal / np.linalg.norm(x, axis=1)
    assert containment.examples == tuple(f"bat{i}" for i in np.argsort(cosine)[:2])


def test_images_with_coarse_labels_are_left_out_and_counted(odd_one):
    hierarchy, X, y, ids = odd_one
    more = [X[:6], ["animal"] * 6, [f"coarse{i}" for i in range(6)]]
    findings = lint_embeddings(hierarchy, *map(np.concatenate, zip((X, y, ids), more, strict=True)))
    assert findings[0].message.startswith("6 of 90 images are labelled above the classes; ")
    assert [f.message for f in findings[1:]] == [f.message for f in lint_embeddings(*odd_one)]


def test_findings_use_plain_words(odd_one, monkeypatch):
    monkeypatch.setattr("hcep.taxonomy.embedding_checks.MAX_COSINE", 0.05)
    messages = [finding.message for finding in lint_embeddings(*odd_one)]
    assert {finding.code for finding in lint_embeddings(*odd_one)} == {"containment", "orthogonality", "nearer-parent"}
    for message in messages:
        assert "photos" in message
        assert not set(re.findall(r"[a-z°]+", message)) & {"cone", "cones", "atom", "cosine", "angle", "degrees", "°"}


def test_rows_are_the_names_of_images_without_ids(odd_one):
    hierarchy, X, y, _ = odd_one
    (containment,) = [f for f in lint_embeddings(hierarchy, X, y) if f.code == "containment"]
    assert set(containment.examples) <= {str(i) for i in range(36, 48)}


def test_an_atom_that_is_not_orthogonal_to_its_parent(odd_one, monkeypatch):
    monkeypatch.setattr("hcep.taxonomy.embedding_checks.MAX_COSINE", 0.05)
    monkeypatch.setattr("hcep.taxonomy.embedding_checks.N_SYNSETS", 1)
    findings = lint_embeddings(*odd_one, max_moves=0)
    leaning, rest = [f for f in findings if f.code == "orthogonality"]
    assert len(leaning.examples) == 5
    assert leaning.synsets[1] in ("animal", "vehicle")
    assert "more: photos look like more or less typical ones of the parent" in rest.message


def test_cones_that_hold_less(odd_one, monkeypatch):
    monkeypatch.setattr("hcep.taxonomy.embedding_checks.COVERAGE", 0.1)
    monkeypatch.setattr("hcep.taxonomy.embedding_checks.N_SYNSETS", 1)
    narrow = lint_embeddings(*odd_one, max_moves=0)
    assert [f.synsets for f in narrow if f.code == "containment"][1] == ("vehicle",)


def test_moves_that_were_not_measured_are_counted(odd_one):
    findings = lint_embeddings(*odd_one, max_moves=0)
    assert not any(f.measured for f in findings)
    assert "bat" in next(f for f in findings if f.code == "nearer-parent").synsets


def test_progress_is_reported(odd_one):
    told = []

    def begin(n_moves):
        told.append(n_moves)
        return lambda: told.append("step")

    lint_embeddings(*odd_one, progress=begin)
    assert told[1:] == ["step"] * told[0]


def test_ids_of_another_length(odd_one):
    hierarchy, X, y, ids = odd_one
    with pytest.raises(HCEPError, match="one name per image; got 83 ids and 84 labels"):
        lint_embeddings(hierarchy, X, y, ids[1:])


@pytest.mark.slow
def test_the_moves_suggested_on_tiny_imagenet_do_not_lower_f1_of_images_they_were_not_chosen_on(tiny_imagenet):
    data = tiny_imagenet
    dag = imagenet_hierarchy().restrict(np.unique(data["y"]))
    held_out = HeldOut.from_images(dag, data["X"], data["y"])
    findings = lint_embeddings(dag, data["X"], data["y"], held_out=held_out)
    measured = [f.measured for f in findings if f.measured]
    assert 1 <= sum(m.helps for m in measured) <= 10  # of 60 tried
    chosen = best_moves(held_out, measured, 5)
    assert chosen.edits
    effect = what_if(held_out.on(data["X_val"], data["y_val"]), chosen.edits)
    assert effect.metrics["support_f1"].after >= effect.metrics["support_f1"].before
    assert effect.metrics["f1_above_chance"].difference >= 0
    assert effect.accuracy.difference >= -effect.accuracy.error
