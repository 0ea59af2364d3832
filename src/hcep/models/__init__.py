"""Fitted classifiers on disk and on the hub: safetensors, JSON, a model card. Loading executes nothing."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
