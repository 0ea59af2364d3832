"""Images -> vectors: the encoder protocol and one small adapter per library; the embedding store."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
