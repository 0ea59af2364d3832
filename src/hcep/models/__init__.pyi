from .card import model_card as model_card
from .fitting import fit_model as fit_model
from .hub import download_model as download_model, from_pretrained as from_pretrained, push_model as push_model
from .loading import load as load, load_model as load_model, read_model as read_model
from .opening import builtin_model as builtin_model, open_encoder as open_encoder
from .saving import change_model as change_model, save as save, save_model as save_model, undo_change as undo_change
from .schema import ModelError as ModelError
