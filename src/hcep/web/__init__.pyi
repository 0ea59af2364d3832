from .app import create_app as create_app
from .engine import Busy as Busy, Engine as Engine, Photo as Photo, PhotoNotFound as PhotoNotFound
