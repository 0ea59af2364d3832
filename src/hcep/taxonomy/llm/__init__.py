"""A client for language models behind a chat endpoint, with answers cached on disk and tokens counted."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
