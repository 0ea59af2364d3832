"""Fitted classifiers on disk and on the hub: safetensors, JSON, a model card. Loading executes nothing."""

from typing import TYPE_CHECKING

from hcep.lazy import lazy_names

if TYPE_CHECKING:
    from hcep.models.atom_names import load_atom_names as load_atom_names
    from hcep.models.atom_names import save_atom_names as save_atom_names
    from hcep.models.card import model_card as model_card
    from hcep.models.fields import ModelError as ModelError
    from hcep.models.hub import download_model as download_model
    from hcep.models.hub import from_pretrained as from_pretrained
    from hcep.models.hub import pull_model as pull_model
    from hcep.models.hub import push_model as push_model
    from hcep.models.loading import load_model as load_model
    from hcep.models.loading import load_path_model as load_path_model
    from hcep.models.loading import load_summary as load_summary
    from hcep.models.records import EncoderRecord as EncoderRecord
    from hcep.models.records import ModelSummary as ModelSummary
    from hcep.models.records import TrainingRecord as TrainingRecord
    from hcep.models.saving import save_model as save_model

__all__ = [
    "EncoderRecord",
    "ModelError",
    "ModelSummary",
    "TrainingRecord",
    "download_model",
    "from_pretrained",
    "load_atom_names",
    "load_model",
    "load_path_model",
    "load_summary",
    "model_card",
    "pull_model",
    "push_model",
    "save_atom_names",
    "save_model",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "EncoderRecord": "hcep.models.records",
        "ModelError": "hcep.models.fields",
        "ModelSummary": "hcep.models.records",
        "TrainingRecord": "hcep.models.records",
        "download_model": "hcep.models.hub",
        "from_pretrained": "hcep.models.hub",
        "load_atom_names": "hcep.models.atom_names",
        "load_model": "hcep.models.loading",
        "load_path_model": "hcep.models.loading",
        "load_summary": "hcep.models.loading",
        "model_card": "hcep.models.card",
        "pull_model": "hcep.models.hub",
        "push_model": "hcep.models.hub",
        "save_atom_names": "hcep.models.atom_names",
        "save_model": "hcep.models.saving",
    },
)
