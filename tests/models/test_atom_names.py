"""Names of atoms are kept with the model: the same again, all or nothing, checked field by field."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hcep import HCEPClassifier, explain_images
from hcep.explain.report import photo_report
from hcep.models import ModelError, read_model
from hcep.models.atom_names import AtomName, AtomNames, Exemplar, Phrase, save_atom_names
from hcep.models.loading import load_model
from hcep.models.saving import pack, save_model
from tests.models.conftest import PET_LABELS, PET_NAMES, images
from tests.models.damage import drop, edit_document, put, read_files, resealed
from tests.models.test_folder import Killed, kill_at

NAMES = {"model.json", "model.safetensors", "hierarchy.json", "README.md"}


def edit_names(folder: Path, edit: Callable[[dict[str, Any]], Any]) -> Path:
    """Change atoms.json and make the document's seal fit."""
    document = json.loads((folder / "atoms.json").read_bytes())
    edit(document)
    (folder / "atoms.json").write_text(json.dumps(document), encoding="utf-8")
    return edit_document(folder, lambda document: None)


def test_names_come_back_as_they_were(saved_named: Path, auto_model: HCEPClassifier) -> None:
    assert read_model(saved_named).atom_names == PET_NAMES.ordered(auto_model.hierarchy_)


def test_a_model_without_names_has_none(saved: Path) -> None:
    assert read_model(saved).atom_names is None
    assert set(read_model(saved).document.files) == {"hierarchy.json", "model.safetensors"}


def test_the_model_is_the_same_with_names(saved_named: Path, auto_model: HCEPClassifier) -> None:
    assert pack(load_model(saved_named)) == pack(auto_model)
    assert read_model(saved_named).encoder is not None
    assert set(read_model(saved_named).document.files) == {"hierarchy.json", "model.safetensors", "atoms.json"}
    assert {path.name for path in saved_named.iterdir()} == NAMES | {"atoms.json"}


def test_newer_names_replace_older_ones(saved_named: Path) -> None:
    newer = AtomNames((AtomName("animal", "dog", summary="floppy ears and wet nose"),))
    save_atom_names(newer, saved_named)
    assert read_model(saved_named).atom_names == newer


def test_a_new_model_has_no_names_of_the_old_one(saved_named: Path, pets_model: HCEPClassifier) -> None:
    save_model(pets_model, saved_named)
    assert read_model(saved_named).atom_names is None
    assert {path.name for path in saved_named.iterdir()} == NAMES


def test_a_file_of_another_kind_is_neither_overwritten_nor_removed(saved: Path, auto_model: HCEPClassifier) -> None:
    (saved / "atoms.json").write_text('{"H": 1.008}', encoding="utf-8")
    assert read_model(saved).atom_names is None
    with pytest.raises(
        ModelError, match=r"cannot save to .*: its atoms.json does not belong to a model; move it elsewhere"
    ):
        save_atom_names(PET_NAMES, saved)
    save_model(auto_model, saved)
    assert (saved / "atoms.json").read_text(encoding="utf-8") == '{"H": 1.008}'


#: Two writes, two renames to .new, then the folder's sync and two renames to the final names.
@pytest.mark.parametrize("step", range(8))
def test_a_death_at_any_step_leaves_the_old_names_or_the_new(
    step: int, saved_named: Path, auto_model: HCEPClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = read_model(saved_named).atom_names
    newer = AtomNames((AtomName("animal", "dog", gloss="a dog"),))
    with monkeypatch.context() as patched:
        kill_at(step, patched, Killed)
        with pytest.raises(Killed):
            save_atom_names(newer, saved_named)
    assert read_model(saved_named).atom_names == (newer if step >= 4 else old)
    assert pack(load_model(saved_named)) == pack(auto_model)
    save_atom_names(newer, saved_named)
    assert read_model(saved_named).atom_names == newer
    assert {path.name for path in saved_named.iterdir()} == NAMES | {"atoms.json"}


def test_names_that_a_dead_save_left_do_not_count_with_the_next_model(
    saved: Path, pets_model: HCEPClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        kill_at(3, patched, Killed)
        with pytest.raises(Killed):
            save_atom_names(PET_NAMES, saved)
    assert (saved / "atoms.json.new").exists()
    save_model(pets_model, saved)
    assert read_model(saved).atom_names is None
    assert {path.name for path in saved.iterdir()} == NAMES


def test_an_error_leaves_nothing_behind(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = read_files(saved)
    with monkeypatch.context() as patched:
        kill_at(2, patched, OSError)
        with pytest.raises(ModelError, match=r"cannot save to .*: Input/output error"):
            save_atom_names(PET_NAMES, saved)
    assert read_files(saved) == before
    assert {path.name for path in saved.iterdir()} == NAMES


@pytest.mark.parametrize(
    ("atom", "match"),
    [
        (AtomName("animal", "car"), "these names cannot be saved: 'animal → car': the hierarchy has no such edge"),
        (AtomName("animal", "cat", summary="red\x1b[31m"), r"atoms\[0\].summary must be a text without control"),
        (AtomName("animal", "cat", gloss="x" * 4001), r"atoms\[0\].gloss must be a text of 1 to 4,000 characters"),
        (AtomName("animal", "cat", (Phrase("", 0.1),)), r"atoms\[0\].phrases\[0\].text must be a text of 1 to 4,000"),
        (AtomName("animal", "cat", (Phrase("a", float("nan")),)), r"phrases\[0\].score must be a finite number"),
        (AtomName("animal", "cat", exemplars=(Exemplar("\ud800", 1.0),)), "these names cannot be saved"),
    ],
)
def test_names_that_could_not_be_read_again_are_not_saved(saved: Path, atom: AtomName, match: str) -> None:
    before = read_files(saved)
    with pytest.raises(ModelError, match=match):
        save_atom_names(AtomNames((atom,)), saved)
    assert read_files(saved) == before


@pytest.mark.parametrize(
    ("edit", "match"),
    [
        (put("format", "atoms"), "atoms.json: format must be \"hcep-atom-names\", got 'atoms'"),
        (put("version", 2), "atoms.json: this release of hcep reads version 1, got 2"),
        (put("atoms", {}), "atoms.json: atoms must be a list, got {}"),
        (drop("encoder"), "atoms.json: field 'encoder' is missing"),
        (put("encodr", None), "unknown field 'encodr'. Near matches: 'encoder'"),
        (put("centered", 1), "centered must be true or false, got 1"),
        (put("llm", "a\nb"), "llm must be a text without control characters"),
        (lambda d: d["atoms"][0].update(child="cow"), "'thing → cow': the hierarchy has no such edge"),
        (lambda d: d["atoms"].append(d["atoms"][0]), "an edge occurs twice"),
        (lambda d: d["atoms"][0].pop("gloss"), r"field 'atoms\[0\].gloss' is missing"),
        (
            lambda d: d["atoms"][0]["phrases"][0].update(score=1.5),
            r"score must be a finite number .* at most 1, got 1.5",
        ),
        (lambda d: d["atoms"][0]["phrases"][0].update(text="\u202eabc"), r"text must be a text without control"),
        (lambda d: d["atoms"][0].update(phrases=["fur"]), r"atoms\[0\].phrases\[0\] must be a JSON object, got 'fur'"),
        (lambda d: d["atoms"][2]["exemplars"][0].update(id=7), r"exemplars\[0\].id must be a string, got 7"),
    ],
)
def test_a_wrong_field_is_named(saved_named: Path, edit: Callable[[dict[str, Any]], Any], match: str) -> None:
    with pytest.raises(ModelError, match=match):
        _ = read_model(edit_names(saved_named, edit)).atom_names


def test_a_changed_or_missing_file_is_named_and_the_model_still_loads(saved_named: Path) -> None:
    data = (saved_named / "atoms.json").read_bytes()
    (saved_named / "atoms.json").write_bytes(data.replace(b"soft fur", b"hard fur"))
    with pytest.raises(ModelError, match=r"atoms.json: its content changed since it was saved"):
        _ = read_model(saved_named).atom_names
    (saved_named / "atoms.json").unlink()
    with pytest.raises(ModelError, match=r"the file atoms.json is missing"):
        _ = read_model(saved_named).atom_names
    load_model(saved_named)


def test_names_are_not_read_or_saved_for_a_damaged_hierarchy(saved_named: Path) -> None:
    os.truncate(saved_named / "hierarchy.json", 100)
    with pytest.raises(ModelError, match=r"hierarchy.json: 100 bytes where"):
        _ = read_model(saved_named).atom_names
    with pytest.raises(ModelError, match=r"hierarchy.json: 100 bytes where"):
        save_atom_names(PET_NAMES, saved_named)


def test_a_stray_entry_of_the_documents_files_is_refused(saved: Path) -> None:
    (saved / "model.json").write_bytes(
        resealed(read_files(saved), lambda d: d["files"].update({"atom.json": {"bytes": 1, "sha256": ""}}))[
            "model.json"
        ]
    )
    with pytest.raises(ModelError, match=r"unknown field 'files.atom.json'"):
        read_model(saved)


def test_explanations_show_the_meaning_and_nothing_hostile_gets_through(
    saved_named: Path, auto_model: HCEPClassifier
) -> None:
    X, y = images(PET_LABELS)
    X = np.stack([X[y == "bus"].mean(axis=0), X[y == "cat"].mean(axis=0)])
    bus, cat = explain_images(X, saved_named)
    assert [step.meaning for step in cat.path] == ["soft fur", "whiskers and slit eyes"]
    assert [step.meaning for step in bus.path] == [None, "<b>long</b> [red]side[/]"]
    assert "whiskers" not in cat.trail()
    page = photo_report([bus])
    assert "&lt;b&gt;long&lt;/b&gt; [red]side[/]" in page
    assert "<b>long" not in page
    assert [step.meaning for step in explain_images(X, auto_model)[1].path] == [None, None]
