from .app import create_app as create_app
from .batching import Busy as Busy
from .engine import Engine as Engine, Photo as Photo, PhotoNotFound as PhotoNotFound
