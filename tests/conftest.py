"""Small trees to check by eye, and the real data beside the project, where it is."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from functools import cache
from importlib import import_module
from pathlib import Path

import hypothesis
import numpy as np
import pytest
import typer.testing

from hcep import ConceptDictionary, Hierarchy
from tests.compile_kernels import compile_kernels

SHARED = Path(os.environ.get("HCEP_SHARED", Path(__file__).parents[2] / "shared"))

# The same examples in every run, so that a red test is a change of the code; `make fuzz` looks for new ones.
hypothesis.settings.register_profile("same-every-time", derandomize=True, deadline=None)
hypothesis.settings.register_profile("explore", deadline=None, print_blob=True)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same-every-time"))
# The commands are made once, not in every call of a test: that takes a tenth of a second.
typer.testing._get_command = cache(typer.testing._get_command)


def pytest_report_header() -> str:
    return f"HCEP_FUZZ_SEED={os.environ['HCEP_FUZZ_SEED']} repeats the random files of this run"


def pytest_configure(config: pytest.Config) -> None:
    """Before xdist starts its workers: draw a seed, compile, and give each worker one thread.

    With more, torch's threads spin while they wait for a core that another worker uses.
    """
    os.environ.setdefault("HCEP_FUZZ_SEED", str(secrets.randbelow(10**9)))
    if getattr(config.option, "numprocesses", None):
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        compile_kernels()


#: The files that take longest, so that no worker is left with one of them at the end (`--durations=25` shows them):
#: first those that take minutes with all tests, then those that take ten seconds and more without the slow tests.
LONGEST = (
    "test_reproductions.py", "test_heads.py", "test_loop.py", "test_real_data.py", "test_photo.py",
    "test_examples.py", "test_outputs.py", "test_collection.py", "test_memory.py",
    "test_kills.py", "test_lasso.py", "test_encoding.py", "test_readme_commands.py",
    "test_help_examples.py", "test_labels.py", "test_interventions.py", "test_classifier.py", "test_docs.py",
    "test_demo.py", "test_command.py", "test_import.py", "test_methods.py", "test_pursuit_equals_oracle.py",
    "test_workflow.py",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the longest files first, and the others in the order in which they were collected."""
    items.sort(key=lambda item: LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST))


NMS = "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


def shared_file(name: str) -> Path:
    """A file of the shared data; the test that asks is skipped where it is absent."""
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"needs {name} in HCEP_SHARED (default ../shared)")
    return path


@pytest.fixture
def pets() -> Hierarchy:
    """thing -> animal -> (cat, dog, fox); thing -> vehicle -> (car, bus)."""
    edges = [
        ("thing", "animal"),
        ("thing", "vehicle"),
        ("animal", "cat"),
        ("animal", "dog"),
        ("animal", "fox"),
        ("vehicle", "car"),
        ("vehicle", "bus"),
    ]
    return Hierarchy.from_edges(edges)


@pytest.fixture
def diamond() -> Hierarchy:
    """cat has two parents: root -> pet -> (cat, hamster); root -> feline -> (cat, lion)."""
    edges = [
        ("root", "pet"),
        ("root", "feline"),
        ("pet", "cat"),
        ("pet", "hamster"),
        ("feline", "cat"),
        ("feline", "lion"),
    ]
    return Hierarchy.from_edges(edges)


@pytest.fixture
def pets_dictionary(pets: Hierarchy) -> ConceptDictionary:
    """Five leaves in four dimensions."""
    leaves = {
        "cat": [3.0, 1.0, 0.0, 0.0],
        "dog": [3.0, -1.0, 1.0, 0.0],
        "fox": [3.0, 0.0, -1.0, 0.0],
        "car": [0.0, 0.0, 1.0, 4.0],
        "bus": [0.0, 0.0, -1.0, 2.0],
    }
    return ConceptDictionary.from_leaf_embeddings(pets, leaves)


@pytest.fixture(scope="session")
def wordnet_dag() -> Hierarchy:
    """The WordNet DAG above ImageNet-1k's classes."""
    nodes = json.loads(shared_file("data/imagenet1k_wordnet_dag.json").read_text(encoding="utf-8"))["nodes"]
    edges = [(parent, child) for child, node in nodes.items() for parent in node["hypernyms"]]
    return Hierarchy.from_edges(edges, {child: node["lemmas"][0].replace("_", " ") for child, node in nodes.items()})


@pytest.fixture(scope="session")
def tiny_imagenet(wordnet_dag: Hierarchy) -> dict[str, object]:
    """Tiny-ImageNet-200 embeddings: X and y of train and validation, and the first-hypernym tree, chains collapsed."""
    data = np.load(shared_file("data/tinyimagenet200_efficientnet_lite2.npz"), allow_pickle=False)
    y = data["wnids"][data["labels"]]
    X = data["embeddings"].astype(np.float32)
    train = data["split"] == "train"
    return {
        "X": X[train],
        "y": y[train],
        "X_val": X[~train],
        "y_val": y[~train],
        "hierarchy": wordnet_dag.as_tree().restrict(data["wnids"]).collapse(),
    }


def k_shot(X: np.ndarray, y: np.ndarray, k: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """k images of each class, drawn reproducibly."""
    rng = np.random.default_rng(seed)
    rows = np.concatenate([rng.permutation(np.flatnonzero(y == c))[:k] for c in np.unique(y)])
    return X[rows], y[rows]


@pytest.fixture(scope="session")
def torchvision():
    """torchvision; where its wheel was built for another torch, with the two operators that its import looks for."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    probe = subprocess.run([sys.executable, "-c", "import torchvision"], capture_output=True, text=True, check=False)
    if "No module named" in probe.stderr:
        pytest.skip("torchvision is not installed")
    library = torch.library.Library("torchvision", "DEF" if probe.returncode else "FRAGMENT")
    if probe.returncode:
        library.define(NMS)
        library.define("q" + NMS)
    yield import_module("torchvision")
    del library
