"""All experiments by name, in the paper's order: that of texts.toml."""

from importlib import import_module

from experiments.experiment import Experiment
from experiments.records import TEXTS

MODULES = "synthetic sparsity beams concept_geometry wrong_tree where trust quality several"
_FOUND = [known for name in MODULES.split() for known in vars(import_module(f"experiments.{name}")).values()]
_BY_NAME = {known.name: known for known in _FOUND if isinstance(known, Experiment)}
EXPERIMENTS: dict[str, Experiment] = {name: _BY_NAME[name] for name in TEXTS if name in _BY_NAME}
