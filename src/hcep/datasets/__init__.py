"""Data: readers of image datasets, the WordNet DAG above ImageNet, the bundled sample, the synthetic model."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
