"""The explorer: a local web application over a model, and a JSON API, in one process."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
