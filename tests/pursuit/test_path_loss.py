"""The path loss: its terms, its gradient, and its effect on the geometry of real embeddings."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import hcep.pursuit.path_loss as loss
from hcep import ConceptDictionary, HCEPError, Hierarchy
from hcep.datasets import make_hierarchical_concepts
from hcep.pursuit import path_objectives

torch = pytest.importorskip("torch", reason="torch is not installed")


@pytest.fixture
def tree() -> Hierarchy:
    edges = [("r", "a"), ("r", "b"), ("a", "a1"), ("a", "a2"), ("b", "b1"), ("b", "b2"), ("a", "b2")]
    return Hierarchy.from_edges(edges)


def batch(hierarchy: Hierarchy, seed: int = 0, n: int = 6, n_dims: int = 5):
    rng = np.random.default_rng(seed)
    X, leaves = rng.standard_normal((n, n_dims)), rng.standard_normal((len(hierarchy.leaves), n_dims))
    y = rng.integers(len(hierarchy.leaves), size=n)
    return torch.from_numpy(X), torch.from_numpy(y), torch.from_numpy(leaves)


def test_the_class_term_agrees_with_the_pursuit(tree: Hierarchy) -> None:
    X, y, leaves = batch(tree)
    scale = 1.0 / np.sqrt(np.mean(np.sum(X.numpy() ** 2, axis=1)))
    by_leaf = dict(zip(tree.leaves, leaves.numpy() * scale, strict=True))
    dictionary = ConceptDictionary.from_leaf_embeddings(tree, by_leaf)
    objectives = path_objectives(X.numpy() * scale, dictionary, anchor=0.1 / dictionary.anchor_unit)
    ends = tree.path_tree.synset[tree.path_tree.leaf_nodes]
    best = np.stack([objectives[:, ends == leaf].min(axis=1) for leaf in tree.leaf_index], axis=1)
    terms = loss.path_loss_terms(X, y, leaves, tree, anchor=0.1, temperature=0.2)
    logits = -best / 0.2
    expected = np.mean(np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(y)), y.numpy()])
    assert float(terms["classes"]) == pytest.approx(expected)
    assert float(terms["pull"]) == pytest.approx(best[np.arange(len(y)), y.numpy()].mean())


def test_geometry_terms_agree_with_the_dictionarys_geometry(tree: Hierarchy) -> None:
    X, y, leaves = batch(tree, seed=3)
    dictionary = ConceptDictionary.from_leaf_embeddings(tree, dict(zip(tree.leaves, leaves.numpy(), strict=True)))
    terms = loss.path_loss_terms(X, y, leaves, tree)
    assert float(terms["orthogonality"]) == pytest.approx(np.mean(dictionary.geometry.orthogonality().cosine ** 2))
    cones = dictionary.geometry.sibling_cones()
    overlap = np.nansum(cones.mean_violation * cones.n_compared) / cones.n_compared.sum()
    assert overlap > 0
    assert float(terms["cones"]) == pytest.approx(np.radians(overlap))


def test_the_papers_geometry_has_no_loss() -> None:
    data = make_hierarchical_concepts(depth=2, dim=8, half_angle=40, reduction=0.3, orientation="random")
    leaves = torch.from_numpy(data.dictionary.leaf_embeddings)
    terms = loss.path_loss_terms(leaves, torch.arange(len(leaves)), leaves, data.hierarchy)
    assert {name: round(float(terms[name]), 12) for name in ("orthogonality", "cones", "pull")} == {
        "orthogonality": 0.0,
        "cones": 0.0,
        "pull": 0.0,
    }


def test_gradients_agree_with_finite_differences(tree: Hierarchy) -> None:
    X, y, leaves = batch(tree)
    X.requires_grad_()
    leaves.requires_grad_()
    assert torch.autograd.gradcheck(lambda a, b: loss.path_loss(a, y, b, tree), (X, leaves))


def test_the_loss_does_not_depend_on_the_scale(tree: Hierarchy) -> None:
    X, y, leaves = batch(tree)
    losses = [float(loss.path_loss(X * s, y, leaves * s, tree)) for s in (1.0, 100.0)]
    assert losses[0] == pytest.approx(losses[1])


def test_a_flat_hierarchy_has_no_geometry_loss() -> None:
    flat = Hierarchy.from_edges([("r", "a"), ("r", "b")])
    X, y, leaves = batch(flat)
    terms = loss.path_loss_terms(X, y, leaves, flat)
    assert float(terms["orthogonality"]) == float(terms["cones"]) == 0.0


def test_class_positions(tree: Hierarchy) -> None:
    positions = loss.class_positions(["b2", "a1"], tree)
    assert [tree.leaves[k] for k in positions] == ["b2", "a1"]


def test_invalid_arguments_are_rejected(tree: Hierarchy) -> None:
    X, y, leaves = batch(tree)
    with pytest.raises(HCEPError, match=r"leaf_embeddings must have shape \(4, 5\), one row per leaf"):
        loss.path_loss(X, y, leaves[:2], tree)
    with pytest.raises(HCEPError, match="anchor and temperature must be above 0; got 0 and"):
        loss.path_loss(X, y, leaves, tree, anchor=0)
    with pytest.raises(HCEPError, match="cones must be a finite number of at least 0, got -1"):
        loss.path_loss(X, y, leaves, tree, cones=-1)


def test_a_search_on_arrays_does_not_load_torch() -> None:
    code = "import sys, numpy, hcep\n"
    code += "d = hcep.ConceptDictionary.from_leaf_embeddings(hcep.Hierarchy.from_edges([('r','a')]), {'a': [1.0]})\n"
    code += "hcep.hb_omp(numpy.ones((1, 1)), d)\nassert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.slow
def test_an_adapter_improves_the_geometry_of_unseen_images(tiny_imagenet: dict) -> None:
    """The short form of benchmarks/path_loss.py: 40 classes in 96 dimensions."""
    from hcep.pursuit.path_loss import class_positions, path_loss

    classes = np.unique(tiny_imagenet["y"])[::5]
    tree = tiny_imagenet["hierarchy"].restrict(classes).collapse()
    parts = {}
    for part in ("", "_val"):
        rows = np.isin(tiny_imagenet[f"y{part}"], classes)
        parts[part] = tiny_imagenet[f"X{part}"][rows].astype(np.float64), tiny_imagenet[f"y{part}"][rows]
    axes = np.linalg.svd(parts[""][0], full_matrices=False)[2][:96].T
    X, X_val = (torch.from_numpy(parts[part][0] @ axes) for part in ("", "_val"))
    y, y_val = (torch.from_numpy(class_positions(parts[part][1], tree)) for part in ("", "_val"))
    means, means_val = (
        torch.stack([images[labels == c].mean(dim=0) for c in range(40)]) for images, labels in ((X, y), (X_val, y_val))
    )
    torch.manual_seed(0)
    adapter = torch.nn.Linear(96, 96, bias=False, dtype=torch.float64)
    torch.nn.init.eye_(adapter.weight)
    optimiser = torch.optim.Adam(adapter.parameters(), lr=3e-3)
    with torch.no_grad():
        before = loss.path_loss_terms(X_val, y_val, means_val, tree)
    for _ in range(60):
        optimiser.zero_grad()
        path_loss(adapter(X), y, adapter(means), tree).backward()
        optimiser.step()
    with torch.no_grad():
        after = loss.path_loss_terms(adapter(X_val), y_val, adapter(means_val), tree)
    # The residual has the smallest weight in the loss, and it does not decrease on unseen images.
    better = {name: bool(after[name] < before[name]) for name in ("classes", "orthogonality", "cones")}
    assert all(better.values()), (better, before, after)
