from .arrays import EmbeddingArrays as EmbeddingArrays, read_arrays as read_arrays, write_arrays as write_arrays
from .encoders import available_encoders as available_encoders, load_encoder as load_encoder
from .protocol import Encoder as Encoder, EncoderRecord as EncoderRecord
from .reading import Embeddings as Embeddings, is_store as is_store, read_embeddings as read_embeddings
from .store.embedding_store import EmbeddingStore as EmbeddingStore
from .store.encoding import EncodeReport as EncodeReport, encode_to_store as encode_to_store
from .store.manifest import ImageItem as ImageItem, SkippedImage as SkippedImage, StoreError as StoreError
from .store.writer import import_arrays as import_arrays
