from .atom_names import (
    AtomName as AtomName,
    AtomNames as AtomNames,
    Exemplar as Exemplar,
    Phrase as Phrase,
    load_atom_names as load_atom_names,
    save_atom_names as save_atom_names,
)
from .card import EncoderRecord as EncoderRecord, model_card as model_card
from .fitting import FittedModel as FittedModel, fit_model as fit_model
from .hub import (
    download_model as download_model,
    from_pretrained as from_pretrained,
    pull_model as pull_model,
    push_model as push_model,
)
from .loading import (
    SavedModel as SavedModel,
    load as load,
    load_model as load_model,
    load_summary as load_summary,
    read_model as read_model,
)
from .opening import builtin_model as builtin_model, open_encoder as open_encoder
from .saving import (
    change_model as change_model,
    model_log as model_log,
    save as save,
    save_model as save_model,
    undo_change as undo_change,
)
from .schema import (
    ChangeRecord as ChangeRecord,
    ModelError as ModelError,
    ModelSummary as ModelSummary,
    TrainingRecord as TrainingRecord,
)
