from .card import model_card as model_card
from .fitting import fit_model as fit_model
from .hub import download_model as download_model, from_pretrained as from_pretrained, push_model as push_model
from .loading import load as load, load_model as load_model, read_model as read_model
from .saving import save as save
from .schema import ModelError as ModelError
