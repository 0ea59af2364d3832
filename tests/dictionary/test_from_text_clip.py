"""A model from a real text encoder: a tiny CLIP with random weights, saved to a folder and loaded from it."""

import pytest

from hcep import HCEPClassifier, Hierarchy
from hcep.dictionary.from_text import text_vectors
from hcep.embeddings import load_encoder

# This must come before the next import, because a module that was skipped halfway provides no fixtures.
pytest.importorskip("torch", reason="torch is not installed")
from tests.embeddings.encoders.test_transformers_adapter import clip, mended, transformers  # noqa: F401

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("mended"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
PETS = Hierarchy.from_edges([("thing", "pet"), ("pet", "cat"), ("pet", "dog"), ("thing", "car")])


def test_clip_names_become_classes(clip):  # noqa: F811
    encoder = load_encoder(f"transformers:{clip[0]}", device="cpu")
    texts = text_vectors(PETS, encoder, ["{}"])
    model = HCEPClassifier(PETS).fit(texts[:0], [], texts=texts)
    assert model.n_features_in_ == encoder.n_dims
    assert model.predict(texts).tolist() == list(PETS.leaves)
