from .encoders import load_encoder as load_encoder
from .files import read_embeddings as read_embeddings, write_embeddings as write_embeddings
from .protocol import Encoder as Encoder
from .store.embedding_store import EmbeddingStore as EmbeddingStore
from .store.encoding import encode_to_store as encode_to_store
from .store.writer import import_embeddings as import_embeddings
from .vectors import Embeddings as Embeddings
