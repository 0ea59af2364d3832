"""Checking, mending and editing a hierarchy: findings, repairs, moves, and what an edit would change."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
