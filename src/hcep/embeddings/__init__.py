"""Images -> vectors: the encoder protocol and one small adapter per library; the embedding store."""

from hcep.embeddings.arrays import EmbeddingArrays, read_arrays, write_arrays
from hcep.embeddings.encoders import available_encoders, load_encoder
from hcep.embeddings.pipeline import EncodeReport, ImageItem, encode_to_store
from hcep.embeddings.protocol import Encoder
from hcep.embeddings.store import EmbeddingStore

__all__ = [
    "EmbeddingArrays",
    "EmbeddingStore",
    "EncodeReport",
    "Encoder",
    "ImageItem",
    "available_encoders",
    "encode_to_store",
    "load_encoder",
    "read_arrays",
    "write_arrays",
]
