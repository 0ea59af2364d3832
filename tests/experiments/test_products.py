"""The few-shot experiment in its short settings: every image is projected once per model."""

import importlib

import pytest

from experiments.measuring import method_cell
from experiments.sparsity import FEWSHOT as EXPERIMENT
from experiments.tasks import sample

search = importlib.import_module("hcep.pursuit.search")


@pytest.mark.parametrize(("method", "beam", "with_training"), [("hcep", None, False), ("hb-omp", 8, True)])
def test_every_image_is_projected_once(monkeypatch, method, beam, with_training):
    counts, project = [], search.project

    def counted(rows, block, *rest):
        counts.append(block.stop - block.start)
        return project(rows, block, *rest)

    monkeypatch.setattr(search, "project", counted)
    cell = method_cell(method, beam, shots=5, seed=0)
    list(EXPERIMENT.measure(EXPERIMENT.smoke, sample(tree=True), cell))
    # Five images of each of ten classes train a linear head; 300 validate, for paths and probabilities at once.
    assert sum(counts) == 300 + 50 * with_training
