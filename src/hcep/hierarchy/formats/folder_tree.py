"""A directory tree: its directories are the synsets, those without directories inside the leaves."""

import os
from pathlib import Path

from hcep.errors import HierarchyError
from hcep.hierarchy.formats.draft import Draft, Repeated
from hcep.hierarchy.formats.source import Source, counted
from hcep.hierarchy.graph import Hierarchy

MAX_DIRECTORIES = 1_000_000


def read(source: Source, *, repeated: Repeated = "raise") -> Hierarchy:
    """Read the directories below a place, in order of their names; hidden ones and files are passed over.

    One that a link reaches a second time is the same synset, with one more parent; a link to one above is passed over.
    """
    source.understood = "folder tree"
    top = source.place.resolve()
    draft = Draft(source, repeated)
    known: dict[tuple[int, int], int] = {}
    n_loops = 0
    # (path, parent, the directories above it)
    waiting: list[tuple[Path, int | None, frozenset[tuple[int, int]]]] = [(top, None, frozenset())]
    while waiting:
        path, parent, above = waiting.pop()
        status = path.stat()
        real = (status.st_dev, status.st_ino)
        if real in above:
            n_loops += 1
            continue
        if real in known:
            parents = draft.branches[known[real]].parents
            parents += [parent] if parent is not None and parent not in parents else []
            continue
        known[real] = draft.add(path.name or str(path), parent)
        if len(known) > MAX_DIRECTORIES:
            raise source.fail(f"holds more than {MAX_DIRECTORIES:,} directories; give the one that holds the classes")
        waiting += [(below, known[real], above | {real}) for below in reversed(_directories(path))]
    if n_loops:
        source.notes.append(f"passed over: {counted(n_loops, 'link')} to a directory above")
    return draft.hierarchy()


def _directories(path: Path) -> list[Path]:
    try:
        with os.scandir(path) as entries:
            found = [entry.name for entry in entries if entry.is_dir() and not entry.name.startswith(".")]
    except OSError as error:
        raise HierarchyError(f"cannot read the directory {str(path)!r}: {error.strerror}") from None
    return [path / name for name in sorted(found)]
