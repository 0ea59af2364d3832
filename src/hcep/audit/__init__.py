"""Checks of a fitted model that can fail, in one report that says what the model may be used for."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
