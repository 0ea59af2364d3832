"""`hcep induce llm | geometry` against a real server on the loopback interface."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from hcep.cli.app import app
from hcep.errors import HCEPError
from hcep.hierarchy import read_hierarchy
from hcep.taxonomy.llm.endpoint import LLMError
from tests.hierarchy.cifar10 import CIFAR, GOOD, TREE, without
from tests.taxonomy.llm.chat_server import ok, running_chat, status


def invoke(*words):
    return CliRunner().invoke(app, ["induce", *map(str, words)], catch_exceptions=False)


def run(*words):
    result = invoke(*words)
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


def test_llm_writes_a_tree_and_prints_its_tokens(classes, output, server):
    server.tell(without("deer"), ok(GOOD, prompt_tokens=500_000, completion_tokens=100_000))
    result = run("llm", classes, "-o", output, "--llm", "m", "--base-url", server.url)
    assert set(read_hierarchy(output).edges) == TREE
    assert "└── animal" in result.stdout
    assert "2 calls, 500,011 prompt + 100,007 completion tokens" in result.stdout
    assert "round 1: 9 of 10 classes placed; missing" in result.stderr
    assert "round 2: 10 of 10 classes placed; no fault" in result.stderr


def test_llm_root_and_transcript(classes, output, server, tmp_path):
    server.tell(GOOD)
    words = ("-P", "root=thing", "-P", "max_rounds=1", "--record", tmp_path / "talk.json")
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
    with pytest.raises(HCEPError, match=r"--output: .* already exists; pass --overwrite"):
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


def test_geometry_rejects_incomplete_options(arrays, output, tmp_path):
    (tmp_path / "words.txt").write_text("animal\n")
    with pytest.raises(HCEPError, match="needs --encoder"):
        invoke("geometry", arrays, "-o", output, "--vocabulary", tmp_path / "words.txt")
    with pytest.raises(HCEPError, match="--offline has no effect on `hcep induce geometry`"):
        invoke("geometry", arrays, "-o", output, "--offline")
    assert not output.exists()


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (("llm", "x.txt", "--llm", "m", "--split", "val"), "--split has no effect on `hcep induce llm`"),
        (("wordnet", "cat", "--base-url", "http://x/v1"), "--base-url has no effect on"),
        (("wordnet", "cat", "--record", "r.json"), "--record has no effect on `hcep induce wordnet`"),
        (("geometry", "x.npz", "y.npz"), "hcep induce geometry takes one SOURCE"),
        (("llm", "x.txt"), "hcep induce llm needs the name of a language model: pass --llm"),
        (("llm", "x.txt", "-P", "gap=1"), "there is no parameter 'gap'. The parameters are max_r"),
        (("llm", "x.txt", "-P", "max-round=1"), "no parameter 'max_round'. Near matches: 'max_rounds'"),
        (("llm", "x.txt", "-P", "max_rounds"), "--parameter: expected NAME=VALUE, got 'max_rounds'"),
    ],
)
def test_options_that_a_method_does_not_have(words, match, output):
    with pytest.raises(HCEPError, match=match):
        invoke(*words, "-o", output)
    assert not output.exists()
