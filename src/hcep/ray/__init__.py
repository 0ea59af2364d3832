"""Encoding, fitting, predicting and evaluating on a Ray cluster: the only place that knows Ray."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
