"""A project: a folder with photos, a tree, a model, corrections and settings, made and used in the browser alone."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from hcep._files import write_bytes, write_text
from hcep._progress import Listener, listening
from hcep.datasets import find_hierarchy
from hcep.embeddings import EmbeddingStore
from hcep.embeddings.files import is_store
from hcep.embeddings.images import IMAGE_SUFFIXES
from hcep.errors import HCEPError
from hcep.explain.corrections import read_corrections
from hcep.hierarchy import Hierarchy
from hcep.hierarchy.names import spelling_key
from hcep.models.fit_data import fit_data
from hcep.models.schema import DOCUMENT

#: Characters of a folder or file that a name may have; others are left out.
PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 -_.,()")
#: Stages of a fit: the shares of the work between which each one is, and its words.
STAGES = {"checking": (0.0, 0.05, "Checking the photos"), "encoding": (0.05, 0.8, "Encoding the photos")}
FITTING = (0.8, 1.0, "Fitting the model")
#: The file with the settings of a project, and the subfolder of photos that their project is kept in.
SETTINGS, OF_PHOTOS = "project.json", "hcep-project"
#: The longest pasted table.
MOST_TEXT = 5_000_000
#: An option of the command line in a message.
OPTION = re.compile(r" ?\(-O [^()]*\)")


#: Called with the share of the work that is done, and what is done now.
OnProgress = Callable[[float, str], object]


def stages(on_progress: OnProgress) -> Listener:
    """A listener that tells the progress of a fit as shares of the whole."""

    def listen(what: str, n_done: int, total: int) -> None:
        start, end, words = STAGES.get(what, FITTING)
        share = n_done / max(total, 1)
        on_progress(start + share * (end - start), f"{words}: {n_done:,} of {total:,}" if total > 1 else words)

    return listen


class Project:
    """The files of a project. `keep` says whether photos that are dropped anywhere in the explorer are kept in it.

    A folder that only has photos stays as it is: its project is kept in the subfolder `OF_PHOTOS`.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).resolve()  # the next start may be from another folder
        self.photos = self.folder / "photos"
        if self.folder.exists() and not self.folder.is_dir():
            raise HCEPError(f"{str(self.folder)!r} is a file; a project is a folder")
        if self.folder.is_dir() and any(self.folder.iterdir()) and not (self.folder / SETTINGS).exists():
            self.photos, self.folder = self.folder, self.folder / OF_PHOTOS
            if not ((self.folder / SETTINGS).exists() or any(map(_is_photo, self.photos.rglob("*")))):
                raise HCEPError(
                    f"{str(self.photos)!r} is neither a model nor a project, and has no photos; give the folder of a "
                    "model or of photos, or a new or empty folder for a project"
                )
        self.model, self._settings = self.folder / "model", self.folder / SETTINGS
        self.corrections = self.folder / "corrections.jsonl"
        if not self._settings.exists():
            self.set_keep(False)
        try:
            self.keep = bool(json.loads(self._settings.read_bytes())["keep"])
        except (ValueError, TypeError, KeyError, RecursionError):
            raise HCEPError(f"{str(self._settings)!r} does not hold the settings of a project; remove it") from None

    @property
    def tree(self) -> Path | None:
        """The file of the tree; None if there is none yet."""
        return next((file for file in (self.folder / "tree.tsv", self.folder / "tree.csv") if file.exists()), None)

    @property
    def has_model(self) -> bool:
        return (self.model / DOCUMENT).exists()

    @property
    def store(self) -> EmbeddingStore | None:
        """The embeddings of the photos that the model was fitted on, with their paths where the project is now."""
        if not is_store(self.model / "store"):
            return None
        store = EmbeddingStore(self.model / "store")
        here = [(self.photos / str(one), path) for one, path in zip(store.ids, store.paths, strict=True)]
        store.paths = np.array([str(file) if file.is_file() else path for file, path in here], dtype=object)
        return store

    def set_keep(self, keep: bool) -> None:
        write_text(self._settings, json.dumps({"keep": keep}))
        self.keep = keep

    def keep_photo(self, data: bytes, name: str) -> Path:
        """Save a photo in a subfolder that is named as the folder it came from, if any; return the file."""
        parts = [part for part in (_plain(part) for part in PurePosixPath(name.replace("\\", "/")).parts[-2:]) if part]
        file = self.photos.joinpath(*(parts or ["photo.jpg"]))
        if file.suffix.lower() not in IMAGE_SUFFIXES:  # a fit would not take it for a photo
            file = file.with_name(f"{file.name}.jpg")
        if file.exists() and file.read_bytes() != data:
            file = file.with_name(f"{sha256(data).hexdigest()[:8]}-{file.name}")
        write_bytes(file, data)
        return file

    def n_photos(self) -> tuple[int, int]:
        """How many photos there are, and in how many folders."""
        files = list(filter(_is_photo, self.photos.rglob("*")))
        return len(files), len({file.parent for file in files if file.parent != self.photos})

    def missing_classes(self, hierarchy: Hierarchy) -> list[str]:
        """The folders of photos that no concept of a tree is named after."""
        parents = {file.parent for file in filter(_is_photo, self.photos.rglob("*"))} - {self.photos}
        folders = {folder.name for folder in parents}
        names = {spelling_key(name) for one in hierarchy.ids for name in (one, hierarchy.name(one))}
        return sorted(folder for folder in folders if spelling_key(folder) not in names)

    def set_tree(self, table: str) -> Hierarchy:
        """Check and save a pasted table as the tree; an earlier tree is replaced only if the new one can be read."""
        if not table.strip() or len(table) > MOST_TEXT:
            raise HCEPError(f"paste a table of at most {MOST_TEXT // 1_000_000} million characters")
        name = "tree.tsv" if "\t" in table.partition("\n")[0] else "tree.csv"
        draft = self.folder / f"draft-{name}"
        write_text(draft, table)
        try:
            try:
                hierarchy = find_hierarchy(str(draft))
            except HCEPError as error:
                raise HCEPError(_about_the_table(str(error), draft.name)) from None
            assert hierarchy is not None
            earlier = self.tree
            draft.replace(self.folder / name)
            if earlier is not None and earlier.name != name:
                earlier.unlink()
        finally:
            draft.unlink(missing_ok=True)
        return hierarchy

    def fit(
        self,
        on_note: Callable[[str], object],
        encoder: Any = None,
        on_progress: OnProgress = lambda share, words: None,
    ) -> None:
        """Fit a model to the photos, with their folders as classes and labels as they were corrected.

        Photos in no folder, such as those that were kept on other pages, count once somebody has corrected them.
        `on_note` gets sentences about the data.
        """
        if not self.n_photos()[0]:
            raise HCEPError("there are no photos yet: choose or drop some first")
        corrections = read_corrections(self.corrections, None, on_note) if self.corrections.exists() else None
        tree = None if self.tree is None else str(self.tree)

        def note(words: str) -> None:
            on_note(words.partition("; inferred from its cells")[0])  # the rest names options of the command line

        try:
            with listening(stages(on_progress)):
                fit_data(
                    self.photos,
                    self.model,
                    tree,
                    encoder=encoder,
                    corrections=corrections,
                    leave_out=True,  # photos that were dropped on other pages have no folder
                    on_note=note,
                )
        except HCEPError as error:
            if tree is None and str(error).startswith("--hierarchy"):
                raise HCEPError(
                    "the folders are not named after ImageNet's classes: paste a tree of them first"
                ) from error
            raise


def _about_the_table(problem: str, file: str) -> str:
    """A problem with a file as one with the pasted table, without options of the command line."""
    if "has one column" in problem:
        return "the table has one column; it needs one column per level, with the classes in the last column"
    return OPTION.sub("", problem.replace(file, "the table")).removeprefix("the table: ")


def _is_photo(file: Path) -> bool:
    """Whether a file is named like a photo; a hidden file is one that a killed process was writing."""
    return file.suffix.lower() in IMAGE_SUFFIXES and not file.name.startswith(".") and file.is_file()


def _plain(part: str) -> str:
    """A part of a path that is safe in every file system: no control characters, no dots at the ends."""
    return "".join(c if c in PLAIN or c.isalnum() else "_" for c in part).strip(". ")[:80]
