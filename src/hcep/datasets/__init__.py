"""Data: readers of image datasets, the WordNet DAG above ImageNet, the bundled sample, the synthetic model."""

from typing import TYPE_CHECKING

from hcep.lazy import lazy_names

if TYPE_CHECKING:
    from hcep.datasets.images import DatasetError as DatasetError
    from hcep.datasets.images import ImageDataset as ImageDataset
    from hcep.datasets.images import ImageItem as ImageItem
    from hcep.datasets.images import read_images as read_images
    from hcep.datasets.layouts.cifar_classes import cifar10_hierarchy as cifar10_hierarchy
    from hcep.datasets.layouts.cifar_classes import cifar100_hierarchy as cifar100_hierarchy
    from hcep.datasets.sample_data import load_sample as load_sample
    from hcep.datasets.synthetic import make_hierarchical_concepts as make_hierarchical_concepts
    from hcep.datasets.wordnet import ambiguous_classes as ambiguous_classes
    from hcep.datasets.wordnet import imagenet_classes as imagenet_classes
    from hcep.datasets.wordnet import imagenet_hierarchy as imagenet_hierarchy
    from hcep.datasets.wordnet import imagenet_wnid as imagenet_wnid
    from hcep.datasets.wordnet import synset_gloss as synset_gloss
    from hcep.datasets.wordnet import synset_lemmas as synset_lemmas

__all__ = [
    "DatasetError",
    "ImageDataset",
    "ImageItem",
    "ambiguous_classes",
    "cifar10_hierarchy",
    "cifar100_hierarchy",
    "imagenet_classes",
    "imagenet_hierarchy",
    "imagenet_wnid",
    "load_sample",
    "make_hierarchical_concepts",
    "read_images",
    "synset_gloss",
    "synset_lemmas",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "DatasetError": "hcep.datasets.images",
        "ImageDataset": "hcep.datasets.images",
        "ImageItem": "hcep.datasets.images",
        "ambiguous_classes": "hcep.datasets.wordnet",
        "cifar10_hierarchy": "hcep.datasets.layouts.cifar_classes",
        "cifar100_hierarchy": "hcep.datasets.layouts.cifar_classes",
        "imagenet_classes": "hcep.datasets.wordnet",
        "imagenet_hierarchy": "hcep.datasets.wordnet",
        "imagenet_wnid": "hcep.datasets.wordnet",
        "load_sample": "hcep.datasets.sample_data",
        "make_hierarchical_concepts": "hcep.datasets.synthetic",
        "read_images": "hcep.datasets.images",
        "synset_gloss": "hcep.datasets.wordnet",
        "synset_lemmas": "hcep.datasets.wordnet",
    },
)
