"""`hcep interpret` from the shell, and what `hcep explain` then shows."""

import json

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from hcep import HCEPClassifier
from hcep.cli.app import app
from hcep.datasets import load_sample
from hcep.embeddings import Embeddings, import_embeddings, load_encoder
from hcep.errors import HCEPError
from hcep.explain.report import TEMPLATES
from hcep.models import read_model
from hcep.models.atom_names import AtomName, AtomNames, Phrase, save_atom_names
from hcep.models.loading import load_model
from hcep.models.saving import save_model
from tests.taxonomy.llm.chat_server import Answering, running_chat, status
from tests.taxonomy.naming.bear_space import BEARS, PHRASES, RIGHT, bear_images, counted_words

ENCODER = "function:tests.taxonomy.naming.bear_space:colour_vectors"


def invoke(*words):
    return CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)


def run(*words):
    result = invoke(*words)
    assert result.exit_code == 0, result.output
    return result.stdout


def fails(match, *words):
    with pytest.raises(HCEPError, match=match):
        invoke(*words)


@pytest.fixture
def model(tmp_path):
    """Bears and vehicles, whitened, with an encoder that has no texts."""
    X, y = bear_images()
    fitted = HCEPClassifier(BEARS, shrinkage=0.9, anchor=0.1).fit(X, y)
    return save_model(fitted, tmp_path / "bears", encoder=load_encoder(ENCODER))


@pytest.fixture
def embedded(tmp_path):
    """Phrases with their embeddings, as a text tower elsewhere made them."""
    np.savez(tmp_path / "phrases.npz", phrases=np.array(PHRASES), embeddings=counted_words(PHRASES))
    return tmp_path / "phrases.npz"


@pytest.fixture
def images(tmp_path):
    X, y = bear_images()
    np.savez(tmp_path / "images.npz", embeddings=X, labels=y, ids=[f"{label}-{i}.jpg" for i, label in enumerate(y)])
    return tmp_path / "images.npz"


@pytest.fixture(autouse=True)
def _nothing_of_the_machine(monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


def test_embedded_phrases_describe_every_step_and_are_saved_with_the_model(model, embedded):
    names = json.loads(run("interpret", model, "--vocabulary", embedded, "-n", "2", "--json"))
    assert {(atom["parent"], atom["child"]): atom["meaning"] for atom in names["atoms"]} == RIGHT
    assert {len(atom["phrases"]) for atom in names["atoms"]} == {2}
    assert read_model(model).atom_names["bear", "polar_bear"].meaning == "all white"
    assert "bear → polar bear  all white" in run("interpret", model)
    assert "6 of 6 steps: 6 by phrase" in run("interpret", model)


def test_the_table_in_three_formats(model, embedded, tmp_path):
    run("interpret", model, "--vocabulary", embedded)
    assert "bear → polar bear\n    all white\n    all white 0." in run("interpret", model, "--table")
    run("interpret", model, "-o", tmp_path / "t.md", "-n", "1")
    markdown = (tmp_path / "t.md").read_text("utf-8").splitlines()
    assert "| bear → polar bear | all white | all white |" in markdown
    run("interpret", model, "-o", tmp_path / "t.tex", "--concept", "polar bear", "-n", "3")
    latex = (tmp_path / "t.tex").read_text("utf-8")
    assert latex.count("\\texttt") == 2
    assert latex.count("\\item") == 3


def test_images_show_atoms_without_a_text_tower(model, images):
    text = run("interpret", model, images, "-n", "2", "--table")
    assert "bear → grizzly\n    (no words)\n    grizzly-" in text
    assert "    unlike polar_bear-" in text
    atom = read_model(model).atom_names["bear", "grizzly"]
    assert (len(atom.exemplars), len(atom.contrast), atom.source) == (2, 3, "exemplars")
    assert "bear → grizzly  grizzly-" in run("interpret", model)


def test_a_store_shows_the_same_as_its_arrays(model, images, tmp_path):
    run("interpret", model, images)
    first = read_model(model).atom_names
    X, y = bear_images()
    ids = np.array([f"{label}-{i}.jpg" for i, label in enumerate(y)])
    arrays = Embeddings(X.astype(np.float32), y, ids, splits=np.repeat(["train", "val"], 16))
    encoder = load_encoder(ENCODER)
    import_embeddings(arrays, tmp_path / "store", encoder=encoder.name, fingerprint=encoder.fingerprint)
    run("interpret", model, tmp_path / "store")
    assert [image.id for image in read_model(model).atom_names["bear", "grizzly"].exemplars] == [
        image.id for image in first["bear", "grizzly"].exemplars
    ]
    run("interpret", model, tmp_path / "store", "--split", "val", "-n", "1")
    assert int(read_model(model).atom_names["thing", "bear"].exemplars[0].id.split("-")[1][:-4]) >= 16


def test_images_of_another_encoder_or_without_labels_are_refused(model, tmp_path):
    X, y = bear_images()
    import_embeddings(Embeddings(X.astype(np.float32), y), tmp_path / "other", encoder="onnx:other.onnx")
    fails("was encoded by 'onnx:other.onnx'", "interpret", model, tmp_path / "other")
    encoder = load_encoder(ENCODER)
    import_embeddings(
        Embeddings(X.astype(np.float32)), tmp_path / "bare", encoder=ENCODER, fingerprint=encoder.fingerprint
    )
    fails("images have no labels", "interpret", model, tmp_path / "bare")
    assert read_model(model).atom_names is None


def test_a_run_for_one_concept_keeps_the_descriptions_of_others(model, embedded, images):
    run("interpret", model, "--vocabulary", embedded)
    run("interpret", model, images, "--concept", "grizzly")
    names = read_model(model).atom_names
    assert names["bear", "grizzly"].phrases
    assert names["bear", "grizzly"].exemplars
    assert not names["bear", "polar_bear"].exemplars
    assert names["bear", "polar_bear"].phrases


def test_a_language_model_summarises_the_phrases(model, embedded, tmp_path):
    run("interpret", model, "--vocabulary", embedded)

    def answer(request):
        sent = json.loads(request["messages"][1]["content"])
        return "a bear" if sent["narrower group"] == "grizzly" else f"{sent['phrases'][0]} all over"

    with running_chat(Answering(answer)) as chat:
        words = ("interpret", model, "--llm", "tiny", "--base-url", chat.url, "--cache", tmp_path / "cache")
        result = invoke(*words)
        n_asked = len(chat.requests)
        again = json.loads(run(*words, "--json"))
    assert result.exit_code == 0
    assert "bear → polar bear  all white all over" in result.stdout
    assert "bear → grizzly: the answer has 2 words, but 3 to 10 were asked for" in result.stderr
    assert n_asked == len(chat.requests) == 8  # three rounds for one atom, one for five; the second run asks nothing
    assert (again["usage"]["cached_calls"], again["usage"]["calls"], again["llm"]) == (8, 8, "tiny")
    assert [failure["child"] for failure in again["failures"]] == ["grizzly"]
    offline = ("interpret", model, "--llm", "tiny", "--cache", tmp_path / "cache", "--offline", "--table")
    assert "all white all over" in run(*offline)
    assert read_model(model).atom_names["bear", "grizzly"].source == "phrase"


def test_a_server_that_fails_loses_nothing(model, embedded):
    with running_chat(status(401)) as chat:
        result = invoke(
            "interpret", model, "--vocabulary", embedded, "--llm", "tiny", "--base-url", chat.url, "--n-best", "2"
        )
    assert result.exit_code == 0
    assert "warning: thing → bear" in result.stderr.replace("\n", " ")
    assert read_model(model).atom_names.meaning("bear", "polar_bear") == "all white"


def test_an_encoder_without_a_text_tower_points_to_images_before_anything_is_asked(model, tmp_path):
    (tmp_path / "phrases.txt").write_text("\n".join(PHRASES), encoding="utf-8")
    match = r"colour_vectors' has no text tower.*`hcep interpret MODEL DATA`.*with their vectors"
    fails(match, "interpret", model, "--encoder", ENCODER, "--vocabulary", tmp_path / "phrases.txt")
    fails(match, "interpret", model, "--encoder", ENCODER, "--vocabulary", tmp_path / "phrases.txt")
    with running_chat("never asked") as chat:
        fails(match, "interpret", model, "--encoder", ENCODER, "--llm", "tiny", "--base-url", chat.url)
    assert chat.requests == []
    assert read_model(model).atom_names is None


def test_wordnets_definitions_are_used_by_default(tmp_path):
    sample = load_sample()
    fitted = HCEPClassifier(sample.hierarchy, shrinkage=None, anchor=0.1).fit(sample.X_train[:, :32], sample.y_train)
    save_model(fitted, tmp_path / "m")
    text = run("interpret", tmp_path / "m", "--table", "--concept", "golf ball")
    assert "equipment → golf ball\n    a small hard ball used in playing golf; dimpled to reduce wind" in text
    assert read_model(tmp_path / "m").atom_names is None
    assert "not saved with" in run("interpret", tmp_path / "m")


@pytest.fixture
def imagenette(tmp_path):
    """A model of WordNet's synsets, whose encoder nobody said."""
    sample = load_sample()
    fitted = HCEPClassifier(sample.hierarchy, shrinkage=None, anchor=0.1).fit(sample.X_train[:, :32], sample.y_train)
    np.savez(tmp_path / "val.npz", embeddings=sample.X_val[:, :32], labels=sample.y_val)
    return save_model(fitted, tmp_path / "imagenette")


def test_glosses_are_attached_if_the_encoder_is_unknown_and_images_still_count(imagenette, tmp_path):
    result = invoke("interpret", imagenette, tmp_path / "val.npz", "--glosses")
    assert result.exit_code == 0
    assert result.stderr.strip() == (
        "note: the definitions are only shown with the steps and not compared with them: the model does not record its "
        "encoder"
    )
    atoms = read_model(imagenette).atom_names
    assert all(atom.gloss and '"' not in atom.gloss and not atom.phrases for atom in atoms)
    assert any(atom.exemplars for atom in atoms)
    assert f"{sum(bool(atom.exemplars) for atom in atoms)} with images; saved with" in result.stdout


def test_glosses_are_attached_if_the_encoder_has_no_text_tower(imagenette):
    model = load_model(imagenette)
    save_model(model, imagenette, encoder=load_encoder(ENCODER))
    result = invoke("interpret", imagenette, "--encoder", ENCODER, "--glosses", "--table", "--concept", "golf ball")
    assert f"not compared with them: encoder '{load_encoder(ENCODER).name}' has no text tower" in result.stderr
    assert "equipment → golf ball\n    a small hard ball" in result.stdout


def test_glosses_of_synsets_that_wordnet_does_not_know(model, images):
    result = invoke("interpret", model, "--encoder", ENCODER, "--glosses", images)
    assert "note: --glosses has no effect: no concept of this hierarchy has a WordNet id" in result.stderr
    assert read_model(model).atom_names["bear", "grizzly"].exemplars


def test_phrases_need_an_encoder_that_is_known(imagenette, tmp_path):
    (tmp_path / "phrases.txt").write_text("white fur", encoding="utf-8")
    match = (
        "does not record its encoder.* pass --encoder, give --vocabulary a file of embedded phrases, or labelled images"
    )
    fails(match, "interpret", imagenette, "--vocabulary", tmp_path / "phrases.txt", "--glosses")


def test_images_added_to_phrases_are_shown(model, embedded, images):
    run("interpret", model, "--vocabulary", embedded)
    text = run("interpret", model, images)
    assert f"bear → grizzly  {RIGHT['bear', 'grizzly']}  (images grizzly-" in text
    assert "6 by phrase; 6 with images; saved with" in text
    assert "\n    images grizzly-" in run("interpret", model, "--table", "--concept", "grizzly")


@pytest.mark.parametrize(
    ("words", "match"),
    [
        ([], "there are no words or images to describe the steps with: give --vocabulary"),
        (["--concept", "grizly"], "'grizly' is not a concept of this hierarchy. Near matches: 'grizzly'"),
        (["--offline"], "--base-url, --cache and --offline need the name of a language model: pass --llm"),
        (["--describe", "3"], "--describe: a language model writes these phrases; pass its name with --llm"),
        (["nowhere.npz"], "there is no file or folder 'nowhere.npz'"),
        (["--vocabulary", "nowhere.npz"], "cannot read texts from 'nowhere.npz': No such file"),
        (["--llm", "tiny", "--offline"], "offline answers come from the cache"),
        (["-o", "table.html"], r"--output: expected a name ending in .md, .tex, .txt, got 'table.html'"),
        (["--template", "a {}", "--template", "the {}"], "--template: hcep interpret takes one template, got 2"),
        (["--vocabulary", "p.npz", "--template", "a {}"], "--template has no effect on 'p.npz', .* leave"),
    ],
)
def test_impossible_requests_are_rejected(model, words, match):
    fails(match, "interpret", model, *words)


def test_summaries_need_phrases(model, images):
    run("interpret", model, images)
    words = ("--llm", "tiny", "--base-url", "http://127.0.0.1:9/v1", "--describe", "0")
    fails("the atoms have no phrases to summarise: give candidates", "interpret", model, *words)


@pytest.mark.parametrize(
    ("arrays", "match"),
    [
        ({"phrases": np.array(["a"])}, "bad.npz has no array 'embeddings'; its arrays are 'phrases'"),
        (
            {"phrases": np.array([1]), "embeddings": np.ones((1, 6))},
            "has no list of names for the 1 vectors in 'embeddings'",
        ),
        (
            {"phrases": np.array(["a"]), "embeddings": np.ones((1, 5))},
            "bad.npz: the embeddings have 5 dimensions, the model 6; embed the texts with the text tower",
        ),
    ],
)
def test_a_bad_file_of_embedded_phrases_is_named(model, tmp_path, arrays, match):
    np.savez(tmp_path / "bad.npz", **arrays)
    fails(match, "interpret", model, "--vocabulary", tmp_path / "bad.npz")
    assert read_model(model).atom_names is None


def test_embedded_phrases_are_not_mixed(model, embedded):
    fails("contains embeddings and cannot be combined", "interpret", model, "--vocabulary", embedded, "--glosses")


def test_damaged_descriptions_are_replaced(model, embedded):
    run("interpret", model, "--vocabulary", embedded)
    (model / "atoms.json").write_text('{"hcep-atom-names"', encoding="utf-8")
    with pytest.raises(HCEPError, match=r"atoms.json: 18 bytes where"):
        _ = read_model(model).atom_names
    result = invoke("interpret", model, "--vocabulary", embedded)
    assert "the saved names cannot be read and will be replaced (atoms.json: 18 bytes" in " ".join(
        result.stderr.split()
    )
    assert read_model(model).atom_names.meaning("bear", "polar_bear") == "all white"


def test_control_characters_in_names_of_images_are_escaped(model, tmp_path):
    X, y = bear_images()
    np.savez(tmp_path / "evil.npz", embeddings=X, labels=y, ids=[f"\x1b[31mred{i}" for i in range(len(y))])
    for words in ([], ["--table"]):
        text = run("interpret", model, tmp_path / "evil.npz", *words)
        assert "\x1b" not in text
        assert r"\x1b[31mred" in text


HOSTILE = "<script>alert(1)</script> [bold red]x[/] [link=http://evil]y[/link]"


@pytest.fixture
def photo(model, tmp_path):
    """A red photo, that is a polar bear; the model has a hostile name for its atom."""
    Image.new("RGB", (32, 32), "red").save(tmp_path / "red.png")
    names = AtomNames(
        (AtomName("bear", "polar_bear", (Phrase(HOSTILE, 0.5),)), AtomName("thing", "bear", gloss="furry"))
    )
    save_atom_names(names, model)
    return tmp_path / "red.png"


def test_explain_shows_the_meaning_of_every_step(model, photo):
    text = run("explain", model, photo, "--encoder", ENCODER)
    first = text.splitlines()[0]
    assert first.startswith("a bear, ")
    assert "(perhaps a polar bear, " in first
    assert first.endswith(": bear → polar bear")
    assert "  bear: furry" in text
    assert f"  polar bear: {HOSTILE}" in text
    assert "furry" in run("explain", model, photo, "--encoder", ENCODER, "--tree")
    record = json.loads(run("explain", model, photo, "--encoder", ENCODER, "--json"))[0]
    assert [step["meaning"] for step in record["path"]] == ["furry", HOSTILE]


def test_the_report_escapes_names(model, photo, tmp_path):
    run("explain", model, photo, "--encoder", ENCODER, "--html", tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "&lt;script&gt;alert(1)&lt;/script&gt; [bold red]x[/]" in page
    rest = page.replace(f"<script>{(TEMPLATES / 'page.js').read_text('utf-8')}</script>", "", 1)
    assert "<script" not in rest.replace("<script type='application/json' id=small>[]</script>", "", 1)
    assert '<span class="meaning soft"' in page


def test_explanations_without_descriptions_are_unchanged(model, tmp_path):
    Image.new("RGB", (32, 32), "blue").save(tmp_path / "blue.png")
    assert len(run("explain", model, tmp_path / "blue.png", "--encoder", ENCODER).splitlines()) == 1
    record = json.loads(run("explain", model, tmp_path / "blue.png", "--encoder", ENCODER, "--json"))[0]
    assert [step["meaning"] for step in record["path"]] == [None, None]
    load_model(model)
