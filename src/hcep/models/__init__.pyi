from .atom_names import load_atom_names as load_atom_names, save_atom_names as save_atom_names
from .card import model_card as model_card
from .fields import ModelError as ModelError
from .hub import (
    download_model as download_model,
    from_pretrained as from_pretrained,
    pull_model as pull_model,
    push_model as push_model,
)
from .loading import (
    load as load,
    load_model as load_model,
    load_path_model as load_path_model,
    load_summary as load_summary,
)
from .records import EncoderRecord as EncoderRecord, ModelSummary as ModelSummary, TrainingRecord as TrainingRecord
from .saving import save_model as save_model
