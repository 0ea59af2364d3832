from .from_geometry import class_means as class_means, induce_from_embeddings as induce_from_embeddings
from .from_language_model import induce_with_llm as induce_with_llm
from .placement import read_answer as read_answer
