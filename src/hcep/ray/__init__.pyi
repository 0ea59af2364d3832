from .encoding import encode as encode
from .fitting import evaluate as evaluate, fit as fit, predict as predict
