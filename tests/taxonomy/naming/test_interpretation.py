"""Interpretation from Python: a dictionary or a saved model, phrases or images, what is kept and what is told."""

from pathlib import Path

import numpy as np
import pytest

from hcep import HCEPClassifier
from hcep.embeddings import Embeddings, EmbeddingStore, import_embeddings
from hcep.errors import HCEPError
from hcep.models import read_model
from hcep.models.saving import save_model
from hcep.taxonomy.naming import interpret
from tests.taxonomy.naming.bear_space import BEARS, PHRASES, RIGHT, bear_encoder, bear_images, bears


def meanings(found):
    return {edge: atom.meaning for edge, atom in found.names.by_edge.items()}


def labelled_images():
    X, y = bear_images()
    return Embeddings(X, y, np.array([f"{label}-{i}" for i, label in enumerate(y)]), source="bears")


def test_a_dictionary_is_named_and_nothing_is_kept():
    found = interpret(bears(), phrases=PHRASES, encoder=bear_encoder(), top_k=1)
    assert meanings(found) == RIGHT
    assert (found.names.encoder, found.names.template, found.kept) == ("words", "{}", False)
    assert (found.failures, found.notes) == ({}, [])


def test_a_saved_model_keeps_its_names(tmp_path):
    X, y = bear_images()
    folder = save_model(HCEPClassifier(BEARS, shrinkage=0.9, anchor=0.1).fit(X, y), tmp_path / "model")
    (tmp_path / "phrases.txt").write_text("\n".join(PHRASES), encoding="utf-8")
    files = [tmp_path / "phrases.txt", "a phrase besides"]
    found = interpret(folder, phrases=files, encoder=bear_encoder(), synsets=["Polar Bear"])
    assert meanings(found) == {("bear", "polar_bear"): "all white"}
    assert found.kept
    assert read_model(folder).atom_names == found.names
    assert interpret(str(folder)).names == found.names


def test_images_in_memory_and_in_a_store_show_the_same(tmp_path):
    images = labelled_images()
    arrays = Embeddings(images.X.astype(np.float32), images.labels, images.ids)
    import_embeddings(arrays, tmp_path / "store", encoder="colours")
    in_memory = interpret(bears(), images=images, top_k=2)
    streamed = interpret(bears(), images=EmbeddingStore(tmp_path / "store"), top_k=2)
    for one, other in zip(in_memory.names, streamed.names, strict=True):
        assert [image.id for image in one.exemplars] == [image.id for image in other.exemplars]
    assert in_memory.names["bear", "grizzly"].exemplars[0].id.startswith("grizzly")


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"phrases": PHRASES}, "'the model' does not record its encoder"),
        ({"phrases": [Path("p.npz"), "fur"]}, "'p.npz' contains embeddings and cannot be combined"),
        (
            {"glosses": True, "phrases": ["fur"], "encoder": bear_encoder(), "template": "{} {}"},
            "template must contain",
        ),
        ({"synsets": ["grizly"]}, "'grizly' is not a concept of this hierarchy. Near matches: 'grizzly'"),
        ({"images": Embeddings(np.ones((1, 6)), source="x.npy")}, "x.npy: images have no labels"),
    ],
)
def test_incomparable_inputs_are_refused(options, match):
    with pytest.raises(HCEPError, match=match):
        interpret(bears(), **options)


def test_no_source_of_names_gives_no_names():
    found = interpret(bears())
    assert not found.names.atoms
    assert not found.kept
    noted = interpret(bears(), glosses=True)
    assert noted.notes == ["--glosses has no effect: no concept of this hierarchy has a WordNet id"]
