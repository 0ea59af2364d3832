"""Images -> vectors: the encoder protocol and one small adapter per library; the embedding store."""

from hcep.embeddings.protocol import Encoder

__all__ = ["Encoder"]
