from . import report as report
from .answer import Answer as Answer
from .corrections import Corrections as Corrections, image_hash as image_hash
from .neighbours import nearest_photos as nearest_photos
from .photos import explain_images as explain_images
from .where import PathMaps as PathMaps
