"""The parsed tables of WordNet kept on disk, as plain arrays that no code is read from."""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcep._files import write_bytes
from hcep.errors import HierarchyError
from hcep.hierarchy.wordnet_files import Tables, content, parse

LAYOUT = 1  # a change of the tables needs a new number


def tables(folder: Path, pos: str) -> Tables:
    """The tables of a database, from the cache where it has been parsed before."""
    data, index = (content(folder / f"{kind}.{pos}") for kind in ("data", "index"))
    cache = cache_folder() / f"wordnet-{pos}-{_key(folder, pos, (data, index))}.npz"
    known = _cached(cache)
    if known is None:
        known = parse(data, index, folder, pos)
        _keep(known, cache)
    return known


def cache_folder() -> Path:
    """Folder of what can be made anew: ``$XDG_CACHE_HOME/hcep``, by default ``~/.cache/hcep``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hcep"


def _key(folder: Path, pos: str, contents: tuple[bytes, bytes]) -> str:
    digest = hashlib.blake2b(str(LAYOUT).encode(), digest_size=12)
    for kind, text in zip(("data", "index"), contents, strict=True):
        status = (folder / f"{kind}.{pos}").stat()
        digest.update(f"{status.st_size} {status.st_mtime_ns} ".encode())
        digest.update(text)
    return digest.hexdigest()


def _keep(known: Tables, cache: Path) -> None:
    """Write the tables as plain arrays; a cache that cannot be written is done without."""
    values = {field.name: getattr(known, field.name) for field in fields(Tables)}
    arrays: dict[str, Any] = {n: v if isinstance(v, np.ndarray) else _packed(v) for n, v in values.items()}
    packed = io.BytesIO()
    np.savez(packed, **arrays)
    try:
        cache.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(cache, packed.getvalue())
    except (OSError, HierarchyError):
        return


def _cached(cache: Path) -> Tables | None:
    """The tables as they were kept; None where there are none, or what is there is damaged."""
    try:
        # Opened here: numpy leaves a damaged file open.
        with cache.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            values: dict[str, Any] = {field.name: stored[field.name] for field in fields(Tables)}
        texts = {name: _unpacked(value) for name, value in values.items() if value.dtype == np.uint8}
        known = Tables(**{**values, **texts, "version": texts["version"][0]})
    except (OSError, ValueError, KeyError, IndexError, EOFError, TypeError, zipfile.BadZipFile):
        return None
    n = len(known.offsets)
    whole = (
        len(known.lemmas) == len(known.glosses) == n == len(known.pointer) - 1
        and len(known.words) == len(known.sense_pointer) - 1
        and known.pointer[-1] == len(known.hypernyms)
        and known.sense_pointer[-1] == len(known.senses)
    )
    return known if whole else None


def _packed(texts: str | list[str]) -> NDArray[np.uint8]:
    joined = texts if isinstance(texts, str) else "\n".join(texts)
    return np.frombuffer(joined.encode("utf-8"), dtype=np.uint8)


def _unpacked(packed: NDArray[np.uint8]) -> list[str]:
    return packed.tobytes().decode("utf-8").split("\n")
