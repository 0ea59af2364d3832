"""Names for atoms: phrases near them, images along them, a language model's summary."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
