"""All experiments by name, in the paper's order."""

from __future__ import annotations

from hcep.experiments import (
    beams,
    concept_geometry,
    fewshot,
    head_training,
    quality,
    several,
    sparsity,
    synthetic,
    trust,
    where,
    wrong_tree,
)
from hcep.experiments.experiment import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        synthetic.EXPERIMENT,
        sparsity.SAMPLE,
        sparsity.IMAGENETTE,
        sparsity.CIFAR100,
        sparsity.IMAGENET,
        fewshot.EXPERIMENT,
        beams.ABLATION,
        beams.RUNTIME,
        concept_geometry.EXPERIMENT,
        sparsity.SIGLIP,
        wrong_tree.EXPERIMENT,
        head_training.EXPERIMENT,
        where.EXPERIMENT,
        trust.EXPERIMENT,
        quality.EXPERIMENT,
        several.EXPERIMENT,
    )
}
