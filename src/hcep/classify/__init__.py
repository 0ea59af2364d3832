"""Codes -> labels: the scikit-learn estimators, the choice of metric and anchor, baselines."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
