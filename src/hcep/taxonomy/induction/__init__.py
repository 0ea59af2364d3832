"""Hierarchies for classes that have none: by a language model, from text, or from the embeddings themselves."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
