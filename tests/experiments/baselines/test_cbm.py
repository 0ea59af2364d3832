"""The concept bottleneck model: targets, Adam, the predictor, the estimator."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.baselines.cbm import CBMClassifier, fit_concept_predictor, sigmoid
from hcep import HCEPError, Hierarchy
from hcep.classify.heads import AdamW


def draw(classes: tuple[str, ...], n: int = 6, n_dims: int = 8) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    means = 2.0 * rng.standard_normal((len(classes), n_dims))
    return np.repeat(means, n, axis=0) + 0.3 * rng.standard_normal((len(classes) * n, n_dims)), np.repeat(classes, n)


# -- targets ---------------------------------------------------------------------------------------


def test_an_image_has_the_concepts_of_all_paths_to_its_class(diamond: Hierarchy) -> None:
    X, y = draw(("cat", "lion"))
    model = CBMClassifier(diamond, collapse=False, concept_epochs=300).fit(X, y)
    held = model.predictor_(X[[0, -1]]) > 0.0
    named = [{model.hierarchy_.ids[1 + k] for k in np.flatnonzero(row)} for row in held]
    assert named == [{"cat", "pet", "feline"}, {"lion", "feline"}]


def test_a_score_is_stored_at_the_atom_of_the_first_parent(diamond: Hierarchy) -> None:
    X, y = draw(diamond.leaves)
    model = CBMClassifier(diamond, collapse=False, concept_epochs=2).fit(X, y)
    h, codes, scores = model.hierarchy_, model.pursue(X).codes, model.predictor_(X)
    atoms = [h.edges.index((h.parents(s)[0], s)) for s in h.ids[1:]]
    assert codes.has_sorted_indices
    assert codes.toarray()[:, atoms].tolist() == scores.tolist()
    assert codes.nnz == scores.size


def test_the_support_can_be_the_probable_concepts_or_the_best_path(diamond: Hierarchy) -> None:
    X, y = draw(("cat", "lion"))
    model = CBMClassifier(diamond, collapse=False, concept_epochs=300).fit(X, y)
    probable = model.set_params(support="probable").pursue(X[[0, -1]]).supports
    assert [set(support) for support in probable] == [{"cat", "pet", "feline"}, {"lion", "feline"}]
    paths = model.set_params(support="path").pursue(X[[0, -1]]).supports
    assert all(path in diamond.paths(path[-1]) for path in paths)
    assert [path[-1] for path in paths] == ["cat", "lion"]


# -- Adam ------------------------------------------------------------------------------------------


def test_two_steps_of_adam_by_hand() -> None:
    """With gradients 2 and 1: moments 0.2, 0.28 and 0.004, 0.004996, divided by 1 - beta**t."""
    parameters = np.zeros(1, dtype=np.float32)
    adam = AdamW(parameters, lr=0.1)
    adam.step(np.array([2.0], dtype=np.float32))
    assert parameters[0] == pytest.approx(-0.1, rel=1e-5)
    adam.step(np.array([1.0], dtype=np.float32))
    second = (0.28 / 0.19) / np.sqrt(0.004996 / (1 - 0.999**2))
    assert parameters[0] == pytest.approx(-0.1 - 0.1 * second, rel=1e-4)


def test_adam_equals_torch() -> None:
    torch = pytest.importorskip("torch", reason="compared with torch where it is installed")
    rng = np.random.default_rng(0)
    ours = rng.standard_normal((5, 3)).astype(np.float32)
    theirs = torch.nn.Parameter(torch.from_numpy(ours.copy()))
    adam, reference = AdamW(ours, lr=0.1), torch.optim.Adam([theirs], lr=0.1)
    for gradient in rng.standard_normal((50, 5, 3)).astype(np.float32):
        theirs.grad = torch.from_numpy(gradient.copy())
        reference.step()
        adam.step(gradient)
    assert ours == pytest.approx(theirs.detach().numpy(), abs=1e-4)


def test_the_sigmoid_does_not_overflow() -> None:
    found = sigmoid(np.array([-1e9, -1.0, 0.0, 1.0, 1e9], dtype=np.float32))
    assert found == pytest.approx([0.0, 1 / (1 + np.e), 0.5, np.e / (1 + np.e), 1.0], abs=1e-6)


# -- the predictor ---------------------------------------------------------------------------------


def mean_loss(X: np.ndarray, targets: np.ndarray, epochs: int) -> float:
    scores = fit_concept_predictor(X, targets, epochs=epochs)(X).astype(np.float64)
    return float(np.mean(np.logaddexp(0.0, scores) - targets * scores))


def test_cross_entropy_falls_with_the_epochs(pets: Hierarchy) -> None:
    X, y = draw(pets.leaves)
    targets = np.array([[s in (leaf, *pets.ancestors(leaf)) for s in pets.ids[1:]] for leaf in y])
    losses = [mean_loss(X, targets, epochs) for epochs in (1, 10, 100)]
    assert losses[0] > 2 * losses[1] > 4 * losses[2]


def test_concepts_that_images_do_not_show_are_predicted_by_their_share() -> None:
    """Two equal images, one with the concept: the best a linear predictor can say is one half."""
    scores = fit_concept_predictor(np.ones((2, 3)), np.array([[True], [False]]), epochs=200)(np.ones((2, 3)))
    assert scores == pytest.approx(np.zeros((2, 1)), abs=1e-3)


@pytest.mark.parametrize("n_concepts", [3, 150])
def test_the_answer_is_the_same_on_any_number_of_threads(n_concepts: int) -> None:
    rng = np.random.default_rng(0)
    X, targets = rng.standard_normal((60, 5)), rng.random((60, n_concepts)) < 0.3
    one = fit_concept_predictor(X, targets, epochs=20, batch_size=25, n_jobs=1)
    two = fit_concept_predictor(X, targets, epochs=20, batch_size=25, n_jobs=2)
    assert one.weight.tolist() == two.weight.tolist()


def test_the_seed_decides_the_order_of_the_batches() -> None:
    rng = np.random.default_rng(0)
    X, targets = rng.standard_normal((60, 5)), rng.random((60, 4)) < 0.3
    a, b, c = (fit_concept_predictor(X, targets, epochs=5, batch_size=20, random_state=s).weight for s in (0, 0, 1))
    assert a.tolist() == b.tolist()
    assert a.tolist() != c.tolist()


# -- the estimator ---------------------------------------------------------------------------------


def test_supports_are_the_highest_scores(pets: Hierarchy) -> None:
    X, y = draw(pets.leaves)
    model = CBMClassifier(pets, concept_epochs=100).fit(X, y)
    found = model.pursue(X)
    assert [set(s) for s in found.supports] == [set(pets.paths(label)[0]) for label in y]
    assert [len(s) for s in CBMClassifier(pets, max_steps=3, concept_epochs=5).fit(X, y).pursue(X[:2]).supports] == [
        3,
        3,
    ]
    ordered = np.take_along_axis(found.codes.toarray(), found.selected.astype(int), axis=1)
    assert (np.diff(ordered, axis=1) <= 0).all()
    assert np.isnan(found.residual_norms).all()


def test_the_head_sees_all_scores(pets: Hierarchy) -> None:
    X, y = draw(pets.leaves)
    model = CBMClassifier(pets, max_steps=1, concept_epochs=100).fit(X, y)
    assert model.head_.coef_.shape == (5, len(pets) - 1)
    assert model.score(X, y) == 1.0


def test_several_parents(diamond: Hierarchy) -> None:
    X, y = draw(diamond.leaves)
    model = CBMClassifier(diamond, max_steps=3, concept_epochs=200).fit(X, y)
    cats = [set(s) for s in model.pursue(X[y == "cat"]).supports]
    assert cats == [{"cat", "pet", "feline"}] * 6


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"concept_epochs": 0}, r"concept_epochs must be a positive integer; got 0"),
        ({"batch_size": -1}, r"batch_size must be a positive integer; got -1"),
    ],
)
def test_invalid_options_are_rejected(pets: Hierarchy, options: dict[str, int], match: str) -> None:
    with pytest.raises(HCEPError, match=match):
        CBMClassifier(pets, **options).fit(*draw(pets.leaves))
