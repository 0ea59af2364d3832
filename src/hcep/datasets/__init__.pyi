from .download import fetch as fetch
from .encoding import encode_images as encode_images
from .hierarchies import find_hierarchy as find_hierarchy, imagenet_wnid as imagenet_wnid
from .image_dataset import ImageDataset as ImageDataset
from .layouts import read_images as read_images
from .sample_data import load_sample as load_sample
from .synthetic import make_hierarchical_concepts as make_hierarchical_concepts
