"""Everything that makes or improves a hierarchy: WordNet, checks, edits, induction, names for atoms."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
