"""`hcep induce llm | text | geometry` and `hcep hierarchy compare` against a real server on the loopback interface."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from hcep.cli.app import app
from hcep.errors import HCEPError
from hcep.hierarchy import read_hierarchy
from hcep.taxonomy.llm.endpoint import LLMError
from tests.hierarchy.cifar10 import CIFAR, CORPUS, GOOD, TREE, without
from tests.taxonomy.llm.chat_server import ok, running_chat, status


def invoke(*words):
    return CliRunner().invoke(app, ["induce", *map(str, words)], catch_exceptions=False)


def run(*words):
    result = invoke(*words)
    assert result.exit_code == 0, result.output
    return result


def compare(*words):
    result = CliRunner().invoke(app, ["hierarchy", "compare", *map(str, words)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture
def classes(tmp_path):
    path = tmp_path / "classes.txt"
    path.write_text("\n".join(CIFAR) + "\n\n", encoding="utf-8")
    return path


@pytest.fixture
def output(tmp_path):
    return tmp_path / "tree.json"


@pytest.fixture
def server(monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with running_chat() as chat:
        yield chat


# -- by a language model ---------------------------------------------------------------------------------------------


def test_llm_writes_a_tree_and_prints_its_cost(classes, output, server):
    server.tell(without("deer"), ok(GOOD, prompt_tokens=500_000, completion_tokens=100_000))
    result = run("llm", classes, "-o", output, "--llm", "m", "--base-url", server.url, "-P", "prices=2,10")
    assert set(read_hierarchy(output).edges) == TREE
    assert "└── animal" in result.stdout
    assert "2 calls, 500,011 prompt + 100,007 completion tokens, cost 2.0001" in result.stdout
    assert "round 1: 9 of 10 classes placed; missing" in result.stderr
    assert "round 2: 10 of 10 classes placed; no fault" in result.stderr


def test_llm_layers_root_and_transcript(classes, output, server, tmp_path):
    server.tell(GOOD)
    words = ("-P", "strategy=layers", "-P", "root=thing", "-P", "max_rounds=1", "--record", tmp_path / "talk.json")
    run("llm", classes, "-o", output, "--llm", "m", "--base-url", server.url, *words)
    tree = read_hierarchy(output)
    assert tree.root == "thing"
    assert set(tree.children("thing")) == {"animal", "vehicle"}
    assert json.loads((tmp_path / "talk.json").read_text("utf-8"))[0]["answer"] == GOOD


def test_llm_replays_without_a_server(classes, output, server, tmp_path):
    server.tell(GOOD)
    run("llm", classes, "-o", output, "--llm", "m", "--base-url", server.url, "--cache", tmp_path / "answers")
    offline = ("--llm", "m", "--cache", tmp_path / "answers", "--offline")
    again = run("llm", classes, "-o", tmp_path / "again.csv", *offline)
    assert "1 call (1 from disk)" in again.stdout
    assert read_hierarchy(tmp_path / "again.csv").leaves == read_hierarchy(output).leaves
    with pytest.raises(LLMError, match="offline, and no answer to prompt"):
        invoke("llm", classes, "-o", tmp_path / "other.json", "-P", "root=other", *offline)
    assert not (tmp_path / "other.json").exists()


def test_llm_leaves_a_partial_tree_and_exit_code_1(classes, output, server):
    server.tell(without("deer", "ship"))
    result = invoke("llm", classes, "-o", output, "--llm", "m", "--base-url", server.url, "-P", "max_rounds=2")
    assert result.exit_code == 1
    assert "warning: not placed, left under the root: 'deer', 'ship'" in result.stderr
    assert "the hierarchy is incomplete" in result.stderr
    assert set(read_hierarchy(output).leaves) == set(CIFAR)


def test_llm_json_is_complete(classes, output, server):
    server.tell(without("deer"))
    result = invoke(
        "llm", classes, "-o", output, "--llm", "m", "--base-url", server.url, "-P", "max_rounds=1", "--json"
    )
    record = json.loads(result.stdout)
    assert result.exit_code == 1
    assert result.stderr == ""
    assert record["missing"] == ["deer"]
    assert record["problems"][0]["kind"] == "missing"
    assert record["usage"]["calls"] == record["rounds"] == 1


def test_llm_without_an_answer_writes_nothing(classes, output, server):
    server.tell(status(401))
    with pytest.raises(LLMError, match="check the API key"):
        invoke("llm", classes, "-o", output, "--llm", "m", "--base-url", server.url)
    assert list(output.parent.iterdir()) == [classes]


def test_nothing_is_asked_before_the_output_is_known_to_be_writable(classes, output, server, tmp_path):
    output.write_text("mine")
    with pytest.raises(HCEPError, match=r"--output: .* exists already; pass --overwrite"):
        invoke("llm", classes, "-o", output, "--llm", "m", "--base-url", server.url)
    with pytest.raises(HCEPError, match="there is no folder"):
        invoke("llm", classes, "-o", tmp_path / "no" / "tree.json", "--llm", "m", "--base-url", server.url)
    with pytest.raises(HCEPError, match="xyz"):
        invoke("llm", classes, "-o", tmp_path / "tree.xyz", "--llm", "m", "--base-url", server.url)
    assert output.read_text() == "mine"
    assert server.requests == []
    server.tell(GOOD)
    run("llm", classes, "-o", output, "--llm", "m", "--base-url", server.url, "--overwrite")
    assert set(read_hierarchy(output).edges) == TREE


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("a.json", b'{"a": 1}', "must contain a JSON list of names"),
        ("a.json", b"[1", "cannot read names"),
        ("a.txt", b"\xff\xfe\x00", "cannot read names"),
        ("a.txt", b"cat\n", "at least two classes"),
        ("a.txt", b"\n \n", r"a\.txt' has no names; expected one per line"),
        ("a.json", b"[]", r"a\.json' has no names; expected a JSON list"),
    ],
)
def test_invalid_files_of_classes_are_rejected(name, content, match, tmp_path, output):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(HCEPError, match=match):
        invoke("llm", tmp_path / name, "-o", output, "--llm", "m", "--base-url", "http://127.0.0.1:1/v1")
    with pytest.raises(HCEPError, match=r"cannot read names from .*: No such file"):
        invoke("llm", tmp_path / "absent.txt", "-o", output, "--llm", "m")
    assert not output.exists()


def test_an_address_without_http(classes, output):
    with pytest.raises(HCEPError, match=r"'127\.0\.0\.1:8761/v1' is not a web address; expected http://.*--base-url"):
        invoke("llm", classes, "-o", output, "--llm", "m", "--base-url", "127.0.0.1:8761/v1")


def test_invalid_prices_are_rejected(classes, output):
    with pytest.raises(HCEPError, match="prices must be two numbers"):
        invoke("llm", classes, "-o", output, "--llm", "m", "-P", "prices=1")


# -- from text -------------------------------------------------------------------------------------------------------


def test_text_reads_corpora_and_keeps_the_evidence(tmp_path, output):
    names = tmp_path / "classes.json"
    names.write_text(json.dumps(CIFAR))
    first, *rest = CORPUS.splitlines(keepends=True)
    (tmp_path / "a.txt").write_text(first)
    (tmp_path / "b.txt").write_text("".join(rest))
    corpora = ("--corpus", tmp_path / "a.txt", "--corpus", tmp_path / "b.txt")
    run("text", names, "-o", output, *corpora, "-P", "min_count=1", "--record", tmp_path / "why.json")
    assert read_hierarchy(output).parents("horse") == ("mammal",)
    why = {(row["parent"], row["child"]): row for row in json.loads((tmp_path / "why.json").read_text("utf-8"))}
    assert why["mammal", "horse"]["count"] == 2
    partial = invoke("text", names, "-o", output, *corpora, "-P", "min_count=2", "--overwrite")
    assert partial.exit_code == 1
    assert "not placed, left under the root: 'deer'" in partial.stderr


def test_text_with_a_vocabulary_and_all_parents(tmp_path, classes, output):
    (tmp_path / "a.txt").write_text(CORPUS)
    (tmp_path / "words.txt").write_text("mammal\nvehicle\n")
    words = (
        "--corpus",
        tmp_path / "a.txt",
        "--vocabulary",
        tmp_path / "words.txt",
        "-P",
        "max_parents=0",
        "-P",
        "min_count=1",
    )
    result = invoke("text", classes, "-o", output, *words, "--json")
    assert json.loads(result.stdout)["missing"] == ["bird", "frog"]
    with pytest.raises(HCEPError, match="cannot read the corpus"):
        invoke("text", classes, "-o", output, "--corpus", tmp_path / "absent.txt", "--overwrite")


# -- from embeddings -------------------------------------------------------------------------------------------------


@pytest.fixture
def arrays(tmp_path):
    """Four classes in two pairs, thirty images each, with splits."""
    rng = np.random.default_rng(0)
    centres = np.array([[4.0, 1, 0], [4, -1, 0], [-2, 0, 1], [-2, 0, -1]])
    path = tmp_path / "points.npz"
    np.savez(
        path,
        embeddings=(centres.repeat(30, axis=0) + 0.1 * rng.normal(size=(120, 3))).astype(np.float32),
        labels=np.array(["cat", "dog", "car", "bus"]).repeat(30),
        split=np.tile(["train", "train", "val"], 40),
    )
    return path


def test_geometry_with_members_names_and_a_vocabulary(arrays, output, tmp_path):
    run("geometry", arrays, "-o", output)
    assert set(read_hierarchy(output).children("entity")) == {"cat + dog", "bus + car"}
    np.savez(tmp_path / "words.npz", phrases=["vehicle", "animal"], embeddings=np.array([[-1.0, 0, 0], [1, 0, 0]]))
    run("geometry", arrays, "-o", output, "--vocabulary", tmp_path / "words.npz", "--overwrite")
    assert read_hierarchy(output).children("animal") == ("cat", "dog")


def test_geometry_named_by_a_language_model(arrays, output, server):
    server.tell("Things on wheels", "Furry animals")
    result = run("geometry", arrays, "-o", output, "--llm", "m", "--base-url", server.url, "-P", "linkage=average")
    assert set(read_hierarchy(output).children("entity")) == {"Things on wheels", "Furry animals"}
    assert "2 calls" in result.stdout


def test_geometry_rejects_incomplete_options(arrays, output, tmp_path):
    (tmp_path / "words.txt").write_text("animal\n")
    with pytest.raises(HCEPError, match="needs --encoder"):
        invoke("geometry", arrays, "-o", output, "--vocabulary", tmp_path / "words.txt")
    with pytest.raises(HCEPError, match="need the name of a language model: pass --llm"):
        invoke("geometry", arrays, "-o", output, "--offline")
    assert not output.exists()


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (("llm", "x.txt", "--llm", "m", "--corpus", "y.txt"), "--corpus has no effect on `hcep induce llm`"),
        (("text", "x.txt", "--corpus", "y.txt", "--base-url", "http://x/v1"), "--base-url has no effect on"),
        (("wordnet", "cat", "--record", "r.json"), "--record has no effect on `hcep induce wordnet`"),
        (("geometry", "x.npz", "y.npz"), "hcep induce geometry takes one SOURCE"),
        (("llm", "x.txt"), "hcep induce llm needs the name of a language model: pass --llm"),
        (("text", "x.txt"), "hcep induce text needs a text to read: pass --corpus"),
        (
            ("text", "x.txt", "--corpus", "y.txt", "-P", "gap=1"),
            "there is no parameter 'gap'. The parameters are max_p",
        ),
        (
            ("text", "x.txt", "--corpus", "y.txt", "-P", "min-cont=1"),
            "no parameter 'min_cont'. Near matches: 'min_count'",
        ),
        (
            ("text", "x.txt", "--corpus", "y.txt", "-P", "min_count"),
            "--parameter: expected NAME=VALUE, got 'min_count'",
        ),
    ],
)
def test_options_that_a_method_does_not_have(words, match, output):
    with pytest.raises(HCEPError, match=match):
        invoke(*words, "-o", output)
    assert not output.exists()


# -- compare ---------------------------------------------------------------------------------------------------------


def test_compare_three_candidates_in_one_table(arrays, tmp_path):
    trees = {
        "good.csv": "parent,child\nr,animal\nr,vehicle\nanimal,cat\nanimal,dog\nvehicle,car\nvehicle,bus\n",
        "bad.csv": "parent,child\nr,a\nr,b\na,cat\na,car\nb,dog\nb,bus\n",
        "flat.csv": "parent,child\nr,cat\nr,dog\nr,car\nr,bus\n",
    }
    for name, text in trees.items():
        (tmp_path / name).write_text(text)
    files = [tmp_path / name for name in trees]
    scores = json.loads(compare(*files, "--gold", files[0], "--data", arrays, "--json").stdout)
    good, bad, flat = (scores[str(file)] for file in files)
    assert good["ancestor_f1"] == good["cluster_f1"] == good["accuracy"] == 1
    assert bad["cluster_f1"] == 0
    assert good["orthogonality"] < bad["orthogonality"]
    assert flat["orthogonality"] is None
    table = compare(*files, "--gold", files[0], "--data", arrays).stdout
    assert "F1" in table
    assert "–" in table


def test_compare_warns_about_trees_of_other_classes(arrays, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    whole, part = Path("whole.csv"), Path("part.csv")
    whole.write_text("parent,child\nr,animal\nr,vehicle\nanimal,cat\nanimal,dog\nvehicle,car\nvehicle,bus\n")
    part.write_text("parent,child\nr,animal\nr,ship\nanimal,cat\nanimal,dog\n")
    result = compare(whole, part, "--gold", whole)
    assert result.stdout.split()[1] == "classes"
    assert "4 of 4" in result.stdout
    assert "2 of 4" in result.stdout
    assert f"{part}: 2 of 4 classes of --gold compared, 1 of its own left out" in result.stderr
    assert f"{whole}: " not in result.stderr
    assert compare(whole, part, "--gold", whole, "--json").stderr == ""
    with pytest.raises(HCEPError, match=rf"^{part}: .*'(bus|car)'"):
        compare(whole, part, "--data", arrays)


def test_compare_needs_something_to_compare_by(tmp_path):
    with pytest.raises(HCEPError, match="give two hierarchies to compare, or --gold, --data or both; got 1"):
        compare(tmp_path / "tree.csv")


def test_compare_reads_files_with_options(tmp_path):
    (tmp_path / "h.csv").write_text("a,b,c\nx,animal,cat\nx,animal,dog\ny,vehicle,car\ny,vehicle,bus\n")
    file = tmp_path / "h.csv"
    scores = json.loads(compare(file, "--gold", file, "-O", "levels=b,c", "--json").stdout)
    assert scores[str(file)]["n_synsets"] == 7
