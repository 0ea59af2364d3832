"""The methods to compare: one estimator each behind one interface, and all of them by name."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
