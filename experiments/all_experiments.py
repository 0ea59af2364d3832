"""All experiments by name, in the order of texts.toml."""

from importlib import import_module

from experiments.experiment import Experiment
from experiments.records import TEXTS

MODULES = """
synthetic sparsity beams concept_geometry wrong_tree words atom_names public_sets where trust quality several labels
right_level decoders ties learned_atoms packages
"""
_VALUES = [value for name in MODULES.split() for value in vars(import_module(f"experiments.{name}")).values()]
_BY_NAME = {value.name: value for value in _VALUES if isinstance(value, Experiment)}
EXPERIMENTS: dict[str, Experiment] = {name: _BY_NAME[name] for name in TEXTS if name in _BY_NAME}
