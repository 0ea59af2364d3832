"""Language models behind a chat endpoint: one client, its answers kept on disk, its tokens counted."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
