"""Changes of a saved model, each a version of its own: the one before stays, and what was done is written down.

The folder of a model holds its newest version, replaced in one step; the versions before are in ``versions/``, each
under its number and the first letters of its checksum. A process that dies leaves the old model or the new one.
"""

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import Any

from hcep.classify import HCEPClassifier
from hcep.models.atom_names import dump_names, sealed_names
from hcep.models.card import model_card
from hcep.models.folder import NAMES, read_file, write_folder, writing
from hcep.models.loading import SavedModel
from hcep.models.saving import encoded, pack
from hcep.models.schema import CARD, DOCUMENT, ChangeRecord, ModelError, ModelSummary

VERSIONS = "versions"


def change_model(
    folder: str | PathLike[str], what: str, change: Callable[[HCEPClassifier], Any], *, keep_metrics: bool = False
) -> HCEPClassifier:
    """Load a model, change it, and save it as a new version beside the old one.

    Parameters
    ----------
    what : the change in words, for `model_log`
    change : called with the classifier, which it changes in place; when it raises, the saved model stays as it is
    keep_metrics : whether metrics that were measured before still hold
    """
    folder = Path(folder)
    _ = SavedModel(folder).summary
    with writing(folder):
        saved = SavedModel(folder)
        summary, model = saved.summary, saved.classifier
        change(model)
        training, counts = summary.training, model.images_per_class_
        by_class = training.images_per_class
        if counts is not None:
            by_class = {str(c): n for c, n in zip(model.classes_.tolist(), counts.tolist(), strict=True)}
        facts: dict[str, Any] = {"encoder": summary.encoder, "data": training.data, "images_per_class": by_class}
        facts["metrics"] = training.metrics if keep_metrics else None
        when = datetime.now(UTC).isoformat(timespec="seconds")
        history = [*summary.training.history, ChangeRecord(what, when, summary.checksum)]
        files = pack(model, **facts, history=history)
        files[CARD] = encoded(CARD, model_card(model, name=folder.resolve().name, **facts))
        if saved.atom_names is not None:
            edges = set(model.hierarchy_.edges)
            left = tuple(atom for atom in saved.atom_names.atoms if (atom.parent, atom.child) in edges)
            names = dump_names(replace(saved.atom_names, atoms=left), model.hierarchy_)
            files |= sealed_names(files[DOCUMENT], names)
        _keep(folder, summary)
        write_folder(folder, files)
    return model


def model_log(folder: str | PathLike[str]) -> list[ChangeRecord]:
    """The changes of a model since it was fitted, the first one first."""
    return SavedModel(folder).summary.training.history


def undo_change(folder: str | PathLike[str]) -> ChangeRecord:
    """Go back to the version before the last change; return what is undone. The newer version is kept as well."""
    folder = Path(folder)
    _ = SavedModel(folder).summary
    with writing(folder):
        summary = SavedModel(folder).summary
        if not summary.training.history:
            raise ModelError(f"{str(folder)!r}: there is no change to undo")
        last = summary.training.history[-1]
        before = _version(folder, len(summary.training.history) - 1, last.before)
        old = SavedModel(before)
        if not before.is_dir() or old.summary.checksum != last.before:
            raise ModelError(f"{str(folder)!r}: the version before the last change is not in {before}")
        _ = old.classifier  # whole and undamaged, before it replaces anything
        _keep(folder, summary)
        write_folder(folder, {name: read_file(before, name) for name in NAMES if (before / name).is_file()})
    return last


def _version(folder: Path, number: int, checksum: str) -> Path:
    return folder / VERSIONS / f"{number:04d}-{checksum[:12]}"


def _keep(folder: Path, summary: ModelSummary) -> None:
    """Put the version that the folder holds beside it, all or nothing."""
    target = _version(folder, len(summary.training.history), summary.checksum)
    if target.exists():
        return
    unfinished = target.with_name(target.name + ".part")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    for name in (*summary.files, DOCUMENT, CARD):
        if (folder / name).is_file() or name != CARD:
            (unfinished / name).write_bytes(read_file(folder, name))
    os.replace(unfinished, target)
