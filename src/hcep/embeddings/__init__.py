"""Images -> vectors: the encoder protocol and one small adapter per library; the embedding store."""

from typing import TYPE_CHECKING

from hcep.lazy import lazy_names

if TYPE_CHECKING:
    from hcep.embeddings.arrays import EmbeddingArrays as EmbeddingArrays
    from hcep.embeddings.arrays import read_arrays as read_arrays
    from hcep.embeddings.arrays import write_arrays as write_arrays
    from hcep.embeddings.encoders import available_encoders as available_encoders
    from hcep.embeddings.encoders import load_encoder as load_encoder
    from hcep.embeddings.items import ImageItem as ImageItem
    from hcep.embeddings.manifest import SkippedImage as SkippedImage
    from hcep.embeddings.manifest import StoreError as StoreError
    from hcep.embeddings.pipeline import EncodeReport as EncodeReport
    from hcep.embeddings.pipeline import encode_to_store as encode_to_store
    from hcep.embeddings.protocol import Encoder as Encoder
    from hcep.embeddings.store import EmbeddingStore as EmbeddingStore
    from hcep.embeddings.writer import import_arrays as import_arrays

__all__ = [
    "EmbeddingArrays",
    "EmbeddingStore",
    "EncodeReport",
    "Encoder",
    "ImageItem",
    "SkippedImage",
    "StoreError",
    "available_encoders",
    "encode_to_store",
    "import_arrays",
    "load_encoder",
    "read_arrays",
    "write_arrays",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "EmbeddingArrays": "hcep.embeddings.arrays",
        "EmbeddingStore": "hcep.embeddings.store",
        "EncodeReport": "hcep.embeddings.pipeline",
        "Encoder": "hcep.embeddings.protocol",
        "ImageItem": "hcep.embeddings.items",
        "SkippedImage": "hcep.embeddings.manifest",
        "StoreError": "hcep.embeddings.manifest",
        "import_arrays": "hcep.embeddings.writer",
        "available_encoders": "hcep.embeddings.encoders",
        "encode_to_store": "hcep.embeddings.pipeline",
        "load_encoder": "hcep.embeddings.encoders",
        "read_arrays": "hcep.embeddings.arrays",
        "write_arrays": "hcep.embeddings.arrays",
    },
)
