"""Small fitted classifiers, one for every kind of thing a model may hold, and a saved one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hcep import HCEPClassifier, Hierarchy
from hcep.models.atom_names import AtomName, AtomNames, Exemplar, Phrase, save_atom_names
from hcep.models.saving import save_model

PETS = Hierarchy.from_edges(
    [
        ("thing", "animal"),
        ("thing", "vehicle"),
        ("animal", "cat"),
        ("animal", "dog"),
        ("animal", "fox"),
        ("vehicle", "car"),
        ("vehicle", "bus"),
        ("vehicle", "bike"),
    ],
    names={"cat": "Katze", "fox": "renard | “rusé”"},
)
#: cat and car hang from two parents; "animal" is a class and an ancestor of classes.
TANGLED = Hierarchy.from_edges(
    [
        ("thing", "animal"),
        ("thing", "soft"),
        ("thing", "hard"),
        ("animal", "cat"),
        ("animal", "dog"),
        ("animal", "owl"),
        ("soft", "cat"),
        ("soft", "pillow"),
        ("soft", "blanket"),
        ("hard", "car"),
        ("hard", "stone"),
        ("hard", "nut"),
    ]
)


def images(
    labels: list[object], n_per_class: int = 6, n_dims: int = 12, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Random clusters, one a label."""
    rng = np.random.default_rng(seed)
    means = rng.normal(size=(len(labels), n_dims)) + 1.0
    X = np.repeat(means, n_per_class, axis=0) + 0.3 * rng.normal(size=(len(labels) * n_per_class, n_dims))
    return X, np.repeat(np.array(labels), n_per_class)


PET_LABELS = ["bike", "bus", "car", "cat", "dog", "fox"]


def fitted(model: HCEPClassifier, labels: list[object], dtype: type = np.float64) -> HCEPClassifier:
    X, y = images(labels)
    return model.fit(X.astype(dtype), y)


TANGLED_LABELS = ["animal", "blanket", "car", "cat", "dog", "nut", "owl", "pillow", "stone"]

CASES: dict[str, Callable[[], HCEPClassifier]] = {
    "default": lambda: fitted(HCEPClassifier(PETS), PET_LABELS),
    "default, fitted on float32": lambda: fitted(HCEPClassifier(PETS), PET_LABELS, np.float32),
    "paper": lambda: fitted(HCEPClassifier.paper(PETS), PET_LABELS),
    "paper, logistic": lambda: fitted(HCEPClassifier.paper(PETS, head="logistic"), PET_LABELS),
    "paper, fitted on float32": lambda: fitted(HCEPClassifier.paper(PETS), PET_LABELS, np.float32),
    "logistic, two classes": lambda: fitted(HCEPClassifier(PETS, head="logistic"), ["car", "cat"]),
    "unit norm, centred, whitened": lambda: fitted(
        HCEPClassifier(PETS, unit_norm=True, center=True, shrinkage=0.5, anchor=0.1), PET_LABELS
    ),
    "unit norm only": lambda: fitted(HCEPClassifier(PETS, unit_norm=True, shrinkage=None, anchor=0), PET_LABELS),
    "centred only, signed": lambda: fitted(
        HCEPClassifier(PETS, center=True, shrinkage=None, anchor=0.0, signed=True), PET_LABELS
    ),
    "whitened, not rescaled": lambda: fitted(HCEPClassifier(PETS, shrinkage=1, anchor=0.0), PET_LABELS),
    "beam, steps, tolerance": lambda: fitted(
        HCEPClassifier(PETS, beam_width=np.int64(2), max_steps=2, tol=np.float64(0.5), n_jobs=1), PET_LABELS
    ),
    "integers, no hierarchy": lambda: fitted(HCEPClassifier(), [3, 10, 20, -1]),
    "booleans": lambda: fitted(HCEPClassifier(head="logistic"), [False, True]),
    "floats": lambda: fitted(HCEPClassifier(), [0.0, 1.0, 2.0]),
    "a class above a class, two parents": lambda: fitted(HCEPClassifier(TANGLED, coarse="own"), TANGLED_LABELS),
    "the same, logistic": lambda: fitted(HCEPClassifier(TANGLED, head="logistic", coarse="own"), TANGLED_LABELS),
    "words and pictures": lambda: HCEPClassifier(PETS).fit(
        *images(PET_LABELS), texts=dict(zip(PET_LABELS, images(PET_LABELS, 1)[0], strict=True))
    ),
    "one class": lambda: fitted(HCEPClassifier(shrinkage=None, anchor=0.1), ["cat"]),
    "one class, logistic": lambda: fitted(HCEPClassifier(head="logistic", shrinkage=None, anchor=0.1), ["cat"]),
}


@pytest.fixture(params=CASES, scope="session")
def model(request: pytest.FixtureRequest) -> HCEPClassifier:
    """Each of `CASES`, fitted once."""
    return CASES[request.param]()


@pytest.fixture(scope="session")
def pets_model() -> HCEPClassifier:
    return CASES["unit norm, centred, whitened"]()


@pytest.fixture(scope="session")
def logistic_model() -> HCEPClassifier:
    return CASES["paper, logistic"]()


@pytest.fixture(scope="session")
def auto_model() -> HCEPClassifier:
    return CASES["default"]()


@pytest.fixture
def saved(auto_model: HCEPClassifier, tmp_path: Path) -> Path:
    """A folder with a leave-one-out table and a whitener in it."""
    return save_model(auto_model, tmp_path / "pets", encoder="onnx:tiny.onnx", metrics={"accuracy": 0.5})


@pytest.fixture
def saved_logistic(logistic_model: HCEPClassifier, tmp_path: Path) -> Path:
    return save_model(logistic_model, tmp_path / "logistic")


PET_NAMES = AtomNames(
    (
        AtomName("thing", "animal", (Phrase("soft fur", 0.25), Phrase("four legs", 0.125))),
        AtomName("animal", "cat", (Phrase("long whiskers", 0.5),), summary="whiskers and slit eyes", gloss="a feline"),
        AtomName("animal", "fox", exemplars=(Exemplar("a/1.jpg", 1.5),), contrast=(Exemplar("b\n2.jpg", -0.5),)),
        AtomName("vehicle", "bus", (Phrase("<b>long</b> [red]side[/]", -0.5),), gloss="<script>alert(1)</script>"),
    ),
    encoder="open_clip:tiny",
    template="a photo of {}",
    centered=True,
    llm="loopback",
)


@pytest.fixture
def saved_named(saved: Path) -> Path:
    """The saved model with names for some of its atoms, hostile ones among them."""
    return save_atom_names(PET_NAMES, saved)
