"""Build concept dictionaries: atoms from a hierarchy and embeddings, and the path problem on them."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
