"""Data: readers of image datasets, the WordNet DAG above ImageNet, the bundled sample, the paper's synthetic model."""

from hcep.datasets.images import DatasetError, ImageDataset, ImageItem, read_images
from hcep.datasets.layouts.cifar_classes import cifar100_hierarchy
from hcep.datasets.sample_data import load_sample
from hcep.datasets.synthetic import make_hierarchical_concepts
from hcep.datasets.wordnet import ambiguous_classes, imagenet_classes, imagenet_hierarchy, imagenet_wnid, synset_gloss

__all__ = [
    "DatasetError",
    "ImageDataset",
    "ImageItem",
    "ambiguous_classes",
    "cifar100_hierarchy",
    "imagenet_classes",
    "imagenet_hierarchy",
    "imagenet_wnid",
    "load_sample",
    "make_hierarchical_concepts",
    "read_images",
    "synset_gloss",
]
