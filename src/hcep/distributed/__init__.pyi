from .cluster import Cluster as Cluster
from .encoding import encode as encode
from .fitting import fit as fit
from .places import Place as Place
from .predicting import evaluate as evaluate, predict as predict
