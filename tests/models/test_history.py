"""Every change of a saved model is a version: written down, undone at will, never half done."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest

from hcep import HCEPClassifier
from hcep.errors import HCEPError
from hcep.models import ModelError, read_model
from hcep.models.atom_names import AtomName, AtomNames, save_atom_names
from hcep.models.loading import load_model
from hcep.models.saving import change_model, pack, save_model, undo_change
from tests.models.conftest import PET_LABELS, images
from tests.models.test_folder import Killed, kill_at


@pytest.fixture
def folder(pets_model: HCEPClassifier, tmp_path: Path) -> Path:
    return save_model(pets_model, tmp_path / "model", data="pets")


def add_van(folder: Path) -> HCEPClassifier:
    X, _ = images(["van"], seed=9)
    return change_model(folder, "added class 'van'", lambda model: model.add_class("van", "vehicle", X))


def test_a_model_is_saved_with_what_it_needs_to_grow(folder: Path, pets_model: HCEPClassifier) -> None:
    loaded = load_model(folder)
    assert loaded.images_per_class_.tolist() == [6] * 6
    X, y = images(PET_LABELS)
    loaded.calibrate(X, y)
    loaded.partial_fit(X, y)
    loaded.calibrate(X, y)
    again = load_model(save_model(loaded, folder))
    assert (again.n_grown_, again.n_unlike_) == (loaded.n_grown_, loaded.n_unlike_)
    np.testing.assert_array_equal(again.held_out_.scores, loaded.held_out_.scores)
    assert again.predict_concept(X, sure=0.8).tolist() == loaded.predict_concept(X, sure=0.8).tolist()
    assert again.path_model().held_out is not None


def test_changes_are_written_down_and_undone(folder: Path) -> None:
    fitted = pack(load_model(folder))
    grown = add_van(folder)
    assert load_model(folder).classes_.tolist() == grown.classes_.tolist() == [*PET_LABELS, "van"]
    change_model(folder, "renamed", lambda model: model.rename("van", "Lieferwagen"))
    assert [change.what for change in read_model(folder).training.history] == ["added class 'van'", "renamed"]
    assert len(list((folder / "versions").iterdir())) == 2
    assert undo_change(folder).what == "renamed"
    assert [change.what for change in read_model(folder).training.history] == ["added class 'van'"]
    assert undo_change(folder).what == "added class 'van'"
    assert pack(load_model(folder)) == fitted
    with pytest.raises(ModelError, match="there is no change to undo"):
        undo_change(folder)
    assert len(list((folder / "versions").iterdir())) == 3  # what was undone is kept


def test_another_change_after_an_undo_is_another_version(folder: Path) -> None:
    add_van(folder)
    undo_change(folder)
    change_model(folder, "removed fox", lambda model: model.remove_class("fox"))
    assert [change.what for change in read_model(folder).training.history] == ["removed fox"]
    undo_change(folder)
    assert load_model(folder).classes_.tolist() == PET_LABELS


def test_a_change_that_is_refused_leaves_everything(folder: Path) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(HCEPError, match="'emu' is not a class"):
        change_model(folder, "removed emu", lambda model: model.remove_class("emu"))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_version_that_is_gone_or_damaged_is_not_gone_back_to(folder: Path) -> None:
    add_van(folder)
    (version,) = (folder / "versions").iterdir()
    (version / "model.safetensors").write_bytes(b"")
    with pytest.raises(ModelError, match=r"model\.safetensors"):
        undo_change(folder)
    version.rename(version.with_name("elsewhere"))
    with pytest.raises(ModelError, match="is not in"):
        undo_change(folder)
    assert "van" in load_model(folder).classes_


def test_names_of_atoms_stay_where_their_edge_does(folder: Path) -> None:
    names = (AtomName("animal", "cat", summary="whiskers"), AtomName("animal", "fox", summary="red"))
    save_atom_names(AtomNames(names), folder)
    change_model(folder, "removed fox", lambda model: model.remove_class("fox"))
    left = read_model(folder).atom_names
    assert left is not None
    assert [(atom.parent, atom.child) for atom in left.atoms] == [("animal", "cat")]


@pytest.mark.parametrize("step", range(15))
def test_a_death_at_any_step_leaves_the_old_model_or_the_new(
    step: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        kill_at(step, patched, Killed)
        with contextlib.suppress(Killed):
            add_van(folder)
    found = load_model(folder)
    assert found.classes_.tolist() in (PET_LABELS, [*PET_LABELS, "van"])
    assert len(read_model(folder).training.history) == len(found.classes_) - len(PET_LABELS)
    change_model(folder, "moved", lambda model: model.move("fox", "vehicle"))
    assert undo_change(folder).what == "moved"


LOOP = """
import sys
from hcep.models.saving import change_model
print("ready", flush=True)
for i in range(10_000):
    change_model(sys.argv[1], f"rename {i}", lambda model: model.rename("cat", f"cat {i}"))
"""


@pytest.mark.slow
def test_a_process_that_is_killed_leaves_a_model(folder: Path) -> None:
    for seconds in (0.1, 0.25, 0.5):
        with subprocess.Popen([sys.executable, "-c", LOOP, str(folder)], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            time.sleep(seconds)
            os.kill(process.pid, signal.SIGKILL)
        found = load_model(folder)
        assert found.classes_.tolist() == PET_LABELS
        log = read_model(folder).training.history
        assert found.hierarchy_.name("cat") == (log[-1].what.replace("rename", "cat") if log else "Katze")
    undo_change(folder)


def test_a_model_of_an_earlier_release_grows_where_it_says_how_many_images_it_had(
    pets_model: HCEPClassifier, tmp_path: Path
) -> None:
    old = deepcopy(pets_model)
    old.images_per_class_ = None
    untold = load_model(save_model(old, tmp_path / "untold"))
    with pytest.raises(HCEPError, match="does not record how many images each class had"):
        untold.partial_fit(*images(PET_LABELS))
    told = load_model(save_model(old, tmp_path / "told", images_per_class=dict.fromkeys(PET_LABELS, 6)))
    assert told.partial_fit(*images(PET_LABELS)).images_per_class_.tolist() == [12] * 6
