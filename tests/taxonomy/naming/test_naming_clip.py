"""Names through a real text tower: a tiny CLIP with random weights, saved to a folder and loaded by its path."""

import json

import numpy as np
import pytest

from hcep import ConceptDictionary, HCEPClassifier, Hierarchy
from hcep.embeddings import load_encoder
from hcep.errors import HCEPError
from hcep.models import read_model
from hcep.models.saving import save_model
from hcep.taxonomy.naming import name_atoms
from hcep.taxonomy.naming.phrases import embed_phrases
from tests.cli.test_interpret import fails, run
from tests.taxonomy.llm.chat_server import Answering, running_chat

# Before the next import: a module that was skipped halfway has no fixtures to give.
pytest.importorskip("torch", reason="torch is not installed")
from tests.embeddings.encoders.test_transformers_adapter import clip, mended, transformers  # noqa: F401

pytestmark = [pytest.mark.usefixtures("mended"), pytest.mark.filterwarnings("ignore::DeprecationWarning")]

PETS = Hierarchy.from_edges([("thing", "pet"), ("pet", "cat"), ("pet", "dog"), ("thing", "car")])
POOL = ["cat", "dog", "a photo", "of a"]


@pytest.fixture
def encoder(clip):  # noqa: F811
    folder, _ = clip
    return load_encoder(f"transformers:{folder}", device="cpu")


def leaves(encoder, template="{}"):
    """Classes whose differences to their parent are exactly the embeddings of "cat" and its opposite."""
    cat, dog, photo, _ = embed_phrases(encoder, POOL, template=template).astype(np.float64)
    return {"cat": photo + cat, "dog": photo - cat, "car": dog}


def test_the_atom_along_a_text_is_named_by_it(encoder):
    d = ConceptDictionary.from_leaf_embeddings(PETS, leaves(encoder))
    names = name_atoms(d, POOL, embed_phrases(encoder, POOL))
    first = names["pet", "cat"].phrases[0]
    assert (first.text, first.score) == ("cat", pytest.approx(1.0, abs=1e-5))
    assert names["pet", "dog"].phrases[-1].text == "cat"
    assert names.meaning("thing", "car") == "dog"


def test_the_template_changes_the_texts_and_is_undone_by_the_same_template(encoder):
    d = ConceptDictionary.from_leaf_embeddings(PETS, leaves(encoder, "a photo of a {}"))
    scores = [
        name_atoms(d, POOL, embed_phrases(encoder, POOL, template=template))["pet", "cat"].phrases[0].score
        for template in ("a photo of a {}", "{}")
    ]
    assert scores[0] == pytest.approx(1.0, abs=1e-5)
    assert scores[1] < 0.9999


@pytest.fixture
def model(encoder, tmp_path):
    rng = np.random.default_rng(0)
    means = leaves(encoder)
    y = np.repeat(sorted(means), 6)
    X = np.array([means[label] for label in y.tolist()])
    X = X + 1e-4 * np.abs(X).mean() * rng.normal(size=X.shape)
    return save_model(HCEPClassifier(PETS, shrinkage=None, anchor=0.1).fit(X, y), tmp_path / "model", encoder=encoder)


def test_the_command_uses_the_models_own_encoder(model, encoder, tmp_path):
    (tmp_path / "phrases.txt").write_text("# things\ncat\na photo\n", encoding="utf-8")
    (tmp_path / "words.txt").write_text("dog\nCat\nof a\n", encoding="utf-8")
    words = ("--vocabulary", tmp_path / "phrases.txt", "--vocabulary", tmp_path / "words.txt")
    found = json.loads(run("interpret", model, *words, "--json"))
    assert (found["encoder"], found["template"]) == (encoder.name, "{}")
    named = {atom["child"]: atom for atom in found["atoms"]}
    assert named["cat"]["meaning"] == "cat"
    assert {phrase["text"] for phrase in named["cat"]["phrases"]} == set(POOL)
    assert read_model(model).atom_names.meaning("pet", "cat") == "cat"


def test_template_and_centring_are_saved_with_the_names(model, tmp_path):
    (tmp_path / "phrases.txt").write_text("\n".join(POOL), encoding="utf-8")
    run(
        "interpret", model, "--vocabulary", tmp_path / "phrases.txt", "--template", "a photo of {}", "-P", "center=true"
    )
    names = read_model(model).atom_names
    assert (names.template, names.centered) == ("a photo of {}", True)


def test_definitions_need_wordnets_ids(model):
    fails(
        "no candidate phrases to compare with: --glosses needs a hierarchy with WordNet ids",
        "interpret",
        model,
        "--glosses",
    )


def test_another_encoder_is_refused(model, clip, tmp_path):  # noqa: F811
    (tmp_path / "phrases.txt").write_text("cat\n", encoding="utf-8")
    words = ("interpret", model, "--vocabulary", tmp_path / "phrases.txt")
    other = "function:tests.taxonomy.naming.bear_space:colour_vectors"
    fails("is not the encoder of the model: its fingerprint differs", *words, "--encoder", other)
    with pytest.raises(HCEPError, match=r"template must contain {} once"):
        run(*words, "--template", "a photo")
    assert read_model(model).atom_names is None


def test_the_papers_chain_from_the_shell(model, tmp_path):

    def answer(request):
        sent = json.loads(request["messages"][1]["content"])
        written = {"cat": "a photo", "dog": "of a", "pet": "of", "car": "photo"}
        return f"{sent['phrases'][0]} seen up close" if "phrases" in sent else written[sent["narrower group"]]

    with running_chat(Answering(answer)) as chat:
        words = ("interpret", model, "--llm", "tiny", "--base-url", chat.url, "--describe", "1", "--json")
        found = json.loads(run(*words, "--cache", tmp_path / "answers"))
    assert found["failures"] == []
    assert found["usage"]["calls"] == 8
    for atom in found["atoms"]:
        assert atom["source"] == "summary"
        assert atom["meaning"] == f"{atom['phrases'][0]['text']} seen up close"
