from .app import create_app as create_app
from .batching import ServerBusyError as ServerBusyError
from .engine import Engine as Engine, Photo as Photo, PhotoNotFoundError as PhotoNotFoundError
