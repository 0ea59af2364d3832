"""Images to vectors: encoders, one small adapter per library, and the embedding store."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
