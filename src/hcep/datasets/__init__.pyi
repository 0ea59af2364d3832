from .download import fetch as fetch
from .encoding import embeddings_of as embeddings_of, encode_images as encode_images
from .hierarchies import (
    cifar10_hierarchy as cifar10_hierarchy,
    cifar100_hierarchy as cifar100_hierarchy,
    find_hierarchy as find_hierarchy,
    imagenet_classes as imagenet_classes,
    imagenet_hierarchy as imagenet_hierarchy,
    imagenet_wnid as imagenet_wnid,
)
from .image_dataset import DatasetError as DatasetError, ImageDataset as ImageDataset
from .layouts import read_images as read_images
from .sample_data import load_sample as load_sample, write_sample as write_sample
from .synthetic import make_hierarchical_concepts as make_hierarchical_concepts
