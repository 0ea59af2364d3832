from __future__ import annotations

import os
from pathlib import Path

import pytest

from hcep import HCEPClassifier
from hcep.models import ModelError
from hcep.models.loading import load_model
from hcep.models.saving import pack, save_model

NAMES = {"model.json", "model.safetensors", "hierarchy.json", "README.md"}
#: File operations of one save: four writes, four renames to .new, four to the final names.
N_STEPS = 12


def test_a_save_leaves_four_files(saved: Path) -> None:
    assert {path.name for path in saved.iterdir()} == NAMES


def test_parents_are_made_and_other_files_stay(auto_model: HCEPClassifier, tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    save_model(auto_model, folder)
    (folder / "config.toml").write_text("seed = 1", encoding="utf-8")
    save_model(auto_model, str(folder))
    assert {path.name for path in folder.iterdir()} == NAMES | {"config.toml"}


def test_a_folder_through_a_link_is_written_where_it_points(auto_model: HCEPClassifier, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    save_model(auto_model, tmp_path / "link")
    assert {path.name for path in (tmp_path / "real").iterdir()} == NAMES


class Killed(BaseException):
    """The process dies: nothing that follows runs."""


def kill_at(step: int, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]) -> None:
    """Let the given file operation, a sync or a rename, and all after it raise."""
    done = [0]
    real_replace, real_sync, real_unlink = os.replace, os.fsync, Path.unlink

    def count() -> None:
        done[0] += 1
        raise_from(done[0] > step, error)

    def replace(source: object, target: object) -> None:
        count()
        real_replace(source, target)  # type: ignore[arg-type]

    def sync(descriptor: int) -> None:
        count()
        real_sync(descriptor)

    def unlink(path: Path, missing_ok: bool = False) -> None:
        raise_from(error is Killed, error)
        real_unlink(path, missing_ok)

    monkeypatch.setattr(os, "replace", replace)
    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(Path, "unlink", unlink)


def raise_from(condition: bool, error: type[BaseException]) -> None:
    if condition:
        raise error(5, "Input/output error")


@pytest.mark.parametrize("step", range(N_STEPS + 2))
def test_a_death_at_any_step_leaves_the_old_model_or_the_new(
    step: int, saved: Path, auto_model: HCEPClassifier, pets_model: HCEPClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        kill_at(step, patched, Killed)
        with pytest.raises(Killed):
            save_model(pets_model, saved)
    old, new = pack(auto_model), pack(pets_model)
    assert pack(load_model(saved)) == (new if step >= 8 else old)
    save_model(auto_model, saved)
    assert pack(load_model(saved)) == old
    assert {path.name for path in saved.iterdir()} == NAMES


@pytest.mark.parametrize("step", range(8))
def test_an_error_before_the_commit_leaves_nothing_behind(
    step: int, saved: Path, auto_model: HCEPClassifier, pets_model: HCEPClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        kill_at(step, patched, OSError)
        with pytest.raises(ModelError, match=r"cannot save to .*: Input/output error"):
            save_model(pets_model, saved)
    assert {path.name for path in saved.iterdir()} == NAMES
    assert pack(load_model(saved)) == pack(auto_model)


def test_a_first_save_that_dies_leaves_no_model(
    auto_model: HCEPClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        kill_at(6, patched, Killed)
        with pytest.raises(Killed):
            save_model(auto_model, tmp_path / "m")
    with pytest.raises(ModelError, match=r"the file model.json is missing"):
        load_model(tmp_path / "m")
    load_model(save_model(auto_model, tmp_path / "m"))


def test_a_file_is_not_a_folder(auto_model: HCEPClassifier, tmp_path: Path) -> None:
    (tmp_path / "m").touch()
    with pytest.raises(ModelError, match=r"cannot save to .*: it is a file, not a folder"):
        save_model(auto_model, tmp_path / "m")


def test_a_project_keeps_its_readme(auto_model: HCEPClassifier, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine", encoding="utf-8")
    with pytest.raises(ModelError, match=r"it has 'README.md' but no model, and saving would overwrite it"):
        save_model(auto_model, tmp_path)
    assert (tmp_path / "README.md").read_text(encoding="utf-8") == "mine"


def test_a_document_of_another_program_is_kept(auto_model: HCEPClassifier, tmp_path: Path) -> None:
    (tmp_path / "model.json").write_text("{}", encoding="utf-8")
    with pytest.raises(
        ModelError, match=r"cannot save to .*: its model.json does not belong to a model; give a new folder"
    ):
        save_model(auto_model, tmp_path)


def test_a_damaged_model_may_be_saved_over(saved: Path, auto_model: HCEPClassifier) -> None:
    (saved / "model.safetensors").write_bytes(b"")
    load_model(save_model(auto_model, saved))
