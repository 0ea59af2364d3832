from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from hcep import HCEPClassifier
from hcep.cli.app import app
from hcep.errors import HCEPError, MissingExtraError
from hcep.models import ModelError, download_model, from_pretrained, push_model, read_model
from hcep.models.hub import _reason
from hcep.models.loading import load_model
from hcep.models.saving import pack
from tests.models.hub_server import Hub, reachable_hub

#: The client's own upload of large files passes the bytes to its HTTP library in a way that this deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")

NAMES = {"model.json", "model.safetensors", "hierarchy.json", "README.md"}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    """A loopback hub, with the client's cache in a folder of the test."""
    pytest.importorskip("huggingface_hub")
    with reachable_hub(monkeypatch, tmp_path / "cache") as hub:
        yield hub


def pull(hub: Hub, tmp_path: Path, **options: object) -> HCEPClassifier:
    return from_pretrained("me/pets", endpoint=hub.url, cache_dir=tmp_path / "cache", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("fixture", ["auto_model", "logistic_model"])
def test_a_model_goes_up_and_comes_down_the_same(
    hub: Hub, fixture: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    model: HCEPClassifier = request.getfixturevalue(fixture)
    url = push_model(model, "me/pets", endpoint=hub.url, token="secret")
    assert url.startswith(f"{hub.url}/me/pets/commit/")
    loaded = pull(hub, tmp_path)
    X = np.random.default_rng(0).normal(size=(20, 12))
    assert pack(loaded) == pack(model)
    assert loaded.predict_proba(X).tolist() == model.predict_proba(X).tolist()


def test_a_push_is_one_commit_of_four_files_the_arrays_as_a_large_one(hub: Hub, auto_model: HCEPClassifier) -> None:
    push_model(auto_model, "me/pets", endpoint=hub.url, token="secret")
    assert set(hub.files("me/pets") or ()) == {*NAMES, ".gitattributes"}
    assert hub.large_names == {"model.safetensors"}
    assert [path for _, path in hub.requests if "/commit/" in path] == ["api/models/me/pets/commit/main"]
    assert any("hcep/" in agent for agent in hub.agents)


def test_the_card_says_how_to_load_the_model(hub: Hub, auto_model: HCEPClassifier) -> None:
    push_model(auto_model, "me/pets", endpoint=hub.url, token="t", license="mit", metrics={"accuracy": 0.5})
    card = (hub.files("me/pets") or {})["README.md"].decode("utf-8")
    assert 'license: "mit"' in card
    assert 'model = from_pretrained("me/pets")' in card
    assert "# me/pets" in card
    assert "| accuracy | 0.5 |" in card


def test_a_card_that_the_hub_cannot_read_does_not_go_up(hub: Hub, saved: Path) -> None:
    (saved / "README.md").write_text("---\nlicense: [\n---\n# pets\n", encoding="utf-8")
    with pytest.raises(ModelError, match=r"README.md: the metadata between the --- lines cannot be read: while"):
        push_model(saved, "me/pets", endpoint=hub.url, token="secret")
    assert hub.requests == []


def test_names_of_atoms_go_up_and_come_down_with_their_model(hub: Hub, saved_named: Path, tmp_path: Path) -> None:
    push_model(saved_named, "me/pets", endpoint=hub.url, token="secret")
    folder = download_model("me/pets", endpoint=hub.url, cache_dir=tmp_path / "cache")
    assert {path.name for path in folder.iterdir()} == NAMES | {"atoms.json"}
    assert read_model(folder).atom_names == read_model(saved_named).atom_names


def test_a_folder_with_damaged_names_does_not_go_up(hub: Hub, saved_named: Path) -> None:
    (saved_named / "atoms.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ModelError, match=r"atoms.json: 2 bytes where"):
        push_model(saved_named, "me/pets", endpoint=hub.url, token="secret")
    assert hub.files("me/pets") is None


def test_a_saved_folder_goes_up_as_it_is(hub: Hub, saved: Path, tmp_path: Path) -> None:
    (saved / "notes.txt").write_text("private", encoding="utf-8")
    push_model(saved, "me/pets", endpoint=hub.url, token="secret", private=True)
    folder = download_model("me/pets", endpoint=hub.url, cache_dir=tmp_path / "cache")
    assert {path.name for path in folder.iterdir()} == NAMES
    assert [(folder / name).read_bytes() == (saved / name).read_bytes() for name in NAMES] == [True] * 4


def test_a_second_push_replaces_the_first_and_the_first_has_its_revision(
    hub: Hub, auto_model: HCEPClassifier, logistic_model: HCEPClassifier, tmp_path: Path
) -> None:
    first = push_model(auto_model, "me/pets", endpoint=hub.url, token="secret").rpartition("/")[2]
    push_model(logistic_model, "me/pets", endpoint=hub.url, token="secret")
    assert pack(pull(hub, tmp_path)) == pack(logistic_model)
    assert pack(pull(hub, tmp_path, revision=first)) == pack(auto_model)


def test_a_push_to_another_branch(
    hub: Hub, auto_model: HCEPClassifier, logistic_model: HCEPClassifier, tmp_path: Path
) -> None:
    push_model(auto_model, "me/pets", endpoint=hub.url, token="secret")
    push_model(logistic_model, "me/pets", endpoint=hub.url, token="secret", branch="paper")
    assert pack(pull(hub, tmp_path)) == pack(auto_model)
    assert pack(pull(hub, tmp_path, revision="paper")) == pack(logistic_model)


def test_only_the_models_files_are_downloaded(hub: Hub, auto_model: HCEPClassifier, tmp_path: Path) -> None:
    push_model(auto_model, "me/pets", endpoint=hub.url, token="secret")
    hub.put("me/pets", {"evil.py": b"raise SystemExit", "pytorch_model.bin": b"pickle"})
    folder = download_model("me/pets", endpoint=hub.url, local_dir=tmp_path / "here")
    assert {path.name for path in folder.iterdir() if path.is_file()} == NAMES
    load_model(folder)


def test_a_cached_download_needs_no_hub(hub: Hub, auto_model: HCEPClassifier, tmp_path: Path) -> None:
    push_model(auto_model, "me/pets", endpoint=hub.url, token="secret")
    pull(hub, tmp_path)
    n_requests = len(hub.requests)
    assert pack(pull(hub, tmp_path, local_files_only=True)) == pack(auto_model)
    assert len(hub.requests) == n_requests


def test_a_damaged_file_on_the_hub_is_named(hub: Hub, auto_model: HCEPClassifier, tmp_path: Path) -> None:
    push_model(auto_model, "me/pets", endpoint=hub.url, token="secret")
    hub.put("me/pets", {"hierarchy.json": b"{}"})
    with pytest.raises(ModelError, match=r"hierarchy.json: 2 bytes where [\d,]+ were saved"):
        pull(hub, tmp_path)


def test_a_repository_without_a_model_says_so(hub: Hub, tmp_path: Path) -> None:
    hub.put("me/pets", {"README.md": b"nothing yet"})
    with pytest.raises(ModelError, match=r"the file model.json is missing"):
        pull(hub, tmp_path)


def test_from_pretrained_takes_a_folder_or_a_repository(
    hub: Hub, auto_model: HCEPClassifier, saved: Path, tmp_path: Path
) -> None:
    push_model(auto_model, "me/pets", endpoint=hub.url, token="secret")
    assert pack(from_pretrained(saved)) == pack(auto_model)
    assert hub.requests[-1][0] == "POST"
    assert pack(from_pretrained("me/pets", cache_dir=tmp_path / "cache")) == pack(auto_model)


# -- refusals ------------------------------------------------------------------------------------------


def test_a_damaged_folder_is_not_pushed(hub: Hub, saved: Path) -> None:
    (saved / "model.safetensors").write_bytes(b"")
    with pytest.raises(ModelError, match=r"model.safetensors: 0 bytes where"):
        push_model(saved, "me/pets", endpoint=hub.url)
    assert hub.requests == []


def test_details_are_refused_for_a_folder(hub: Hub, saved: Path) -> None:
    with pytest.raises(
        ModelError, match=r"'data', 'license': a saved model already has its details; pass them when you save"
    ):
        push_model(saved, "me/pets", endpoint=hub.url, data="pets", license="mit")


def test_an_unknown_repository_is_explained(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"cannot download 'me/pets': no such repository or revision on the hub"):
        pull(hub, tmp_path)


def test_an_unknown_revision_is_explained(hub: Hub, auto_model: HCEPClassifier, tmp_path: Path) -> None:
    push_model(auto_model, "me/pets", endpoint=hub.url, token="secret")
    with pytest.raises(ModelError, match=r"cannot download 'me/pets': no such repository or revision"):
        pull(hub, tmp_path, revision="v9")


def test_a_refusal_is_explained(hub: Hub, auto_model: HCEPClassifier, tmp_path: Path) -> None:
    hub.token = "right"
    with pytest.raises(
        ModelError, match=r"cannot push to 'me/pets': the hub refused the request; run `hf auth login` or pass"
    ):
        push_model(auto_model, "me/pets", endpoint=hub.url, token="wrong")
    with pytest.raises(ModelError, match=r"cannot download 'me/pets': the hub refused"):
        pull(hub, tmp_path, token="wrong")
    push_model(auto_model, "me/pets", endpoint=hub.url, token="right")


def test_a_bad_name_is_explained_in_one_line(hub: Hub, auto_model: HCEPClassifier) -> None:
    with pytest.raises(ModelError, match=r"cannot push to 'a/b/c': .*a/b/c") as caught:
        push_model(auto_model, "a/b/c", endpoint=hub.url, token="secret")
    assert "\n" not in str(caught.value)


def test_a_hub_that_cannot_be_reached_is_explained_in_one_line(
    hub: Hub, auto_model: HCEPClassifier, tmp_path: Path
) -> None:
    with socket.socket() as unused:  # bound, not listening: connections are refused
        unused.bind(("127.0.0.1", 0))
        hub.url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(ModelError, match=r"cannot download 'me/pets': the hub cannot be reached") as caught:
            pull(hub, tmp_path)
        assert "\n" not in str(caught.value)
        with pytest.raises(ModelError, match=r"cannot push to 'me/pets': the hub cannot be reached"):
            push_model(auto_model, "me/pets", endpoint=hub.url, token="secret")


def test_an_error_without_a_message_is_named() -> None:
    assert _reason(RuntimeError()) == "RuntimeError"


@pytest.mark.parametrize("call", [lambda m: push_model(m, "me/pets"), lambda m: from_pretrained("me/pets")])
def test_a_missing_package_gives_the_command(
    call: object, auto_model: HCEPClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtraError, match=r'pip install "hcep\[hub\]"'):
        call(auto_model)  # type: ignore[operator]


def test_a_model_is_pushed_and_pulled_from_the_command_line(hub: Hub, saved: Path, tmp_path: Path) -> None:
    pushed = CliRunner().invoke(app, ["model", "push", str(saved), "me/pets", "--private"], catch_exceptions=False)
    assert pushed.stdout.startswith(f"{hub.url}/me/pets/commit/")
    folder = tmp_path / "pulled"
    command = ["model", "pull", "me/pets", "-o", str(folder)]
    assert "6 classes" in CliRunner().invoke(app, command, catch_exceptions=False).stdout
    assert {path.name for path in folder.iterdir()} == NAMES
    assert pack(load_model(folder)) == pack(load_model(saved))
    with pytest.raises(HCEPError, match=r"--output: .* already exists; pass --overwrite"):
        CliRunner().invoke(app, command, catch_exceptions=False)
