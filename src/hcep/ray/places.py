"""Folders on this machine or at a URL that pyarrow or fsspec can open, and the stores in them."""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from pyarrow import fs as arrow_fs

from hcep._checks import require
from hcep._files import write_bytes
from hcep.embeddings.store import manifest as disk
from hcep.embeddings.store.embedding_store import EmbeddingStore
from hcep.embeddings.store.manifest import Manifest, ShardRecord
from hcep.embeddings.vectors import MANIFEST, OF_SPLIT, Embeddings, StoreError
from hcep.errors import HCEPError

#: One slash is enough, because a path object swallows the other.
_URL = re.compile(r"([a-z][a-z0-9+.-]+):/{1,2}(?=[^/]|/)", re.IGNORECASE)


def is_url(where: str | os.PathLike[str]) -> bool:
    """Whether this is a URL rather than a path."""
    return bool(_URL.match(str(where)))


@dataclass(frozen=True)
class Place:
    """A folder, by path or URL (``s3://bucket/store``, ``gs://…``, ``file:///…``)."""

    address: str

    @classmethod
    def of(cls, where: str | os.PathLike[str]) -> "Place":
        """The folder at a path or URL."""
        match = _URL.match(str(where))
        if not match:
            return cls(str(Path(where).resolve()))
        rest = str(where)[match.end() :].strip("/")
        return cls(f"/{rest}" if match[1].lower() == "file" else f"{match[1]}://{rest}")

    @property
    def local(self) -> Path | None:
        """The folder as a path, if it is on this machine or on a shared file system; otherwise None."""
        return None if is_url(self.address) else Path(self.address)

    @cached_property
    def _system(self) -> tuple[Any, str]:
        if self.local is not None:
            return arrow_fs.LocalFileSystem(), self.address
        try:
            opened: tuple[Any, str] = arrow_fs.FileSystem.from_uri(self.address)
        except pa.ArrowInvalid:  # not one of pyarrow's own
            fsspec = require("fsspec", "ray", f"{self.address!r}")
            try:
                other, root = fsspec.core.url_to_fs(self.address)
            except (ValueError, ImportError) as error:
                raise HCEPError(f"cannot open {self.address!r}: {error}") from None
            opened = arrow_fs.PyFileSystem(arrow_fs.FSSpecHandler(other)), root
        return opened

    def __getstate__(self) -> dict[str, str]:
        return {"address": self.address}  # a connection stays where it was made

    def __truediv__(self, name: str) -> "Place":
        return Place(f"{self.address}/{name}")

    def read(self, name: str) -> bytes | None:
        """The content of a file; None if there is no such file."""
        with suppress(FileNotFoundError), self.opened(name) as file:
            content: bytes = file.read()
            return content
        return None

    def opened(self, name: str) -> Any:
        """A file to read in pieces."""
        system, root = self._system
        return system.open_input_file(f"{root}/{name}")

    def write(self, name: str, content: bytes) -> None:
        """Write a file; readers see all of it or nothing."""
        if self.local is not None:
            write_bytes(self.local / name, content, StoreError)
            return
        system, root = self._system
        system.create_dir(root, recursive=True)  # object stores have no folders, other systems need it
        with system.open_output_stream(f"{root}/{name}") as stream:
            stream.write(content)

    def sizes(self) -> dict[str, int]:
        """The size of each file in bytes, by its path below the folder."""
        system, root = self._system
        below = system.get_file_info(arrow_fs.FileSelector(root, allow_not_found=True, recursive=True))
        cut = len(root.strip("/")) + 1
        return {one.path.strip("/")[cut:]: one.size for one in below if one.type == arrow_fs.FileType.File}

    def publish(self, name: str, target: "Place") -> None:
        """Make a file of this folder appear in another folder of the same file system."""
        if self.local is not None and target.local is not None:
            with suppress(OSError):  # it is there already, or the file system has no hard links
                os.link(self.local / name, target.local / name)
            if not (target.local / name).exists():
                target.write(name, (self.local / name).read_bytes())
            return
        system, root = self._system
        system.copy_file(f"{root}/{name}", f"{target._system[1]}/{name}")

    def remove(self) -> None:
        """Delete the folder, if it exists."""
        system, root = self._system
        with suppress(FileNotFoundError):
            system.delete_dir(root)

    @contextmanager
    def at_hand(self, name: str) -> Iterator[Path]:
        """A folder on this machine that holds the file: this one, or a temporary one with a copy."""
        if self.local is not None:
            yield self.local
            return
        with TemporaryDirectory(prefix="hcep-") as scratch:
            Path(scratch, name).write_bytes(self.read(name) or b"")
            yield Path(scratch)


@dataclass(frozen=True)
class Stored:
    """A store without its list of shards, small enough to send to every actor; only one split of it, if given."""

    place: Place
    manifest: Manifest
    split: str | None = None

    @classmethod
    def of(
        cls, store: str | PathLike[str], split: str | None = None, default_split: str | None = None
    ) -> tuple["Stored", list[ShardRecord]]:
        """A store and its shards; of `default_split` if no split is given and the store has that one."""
        place = Place.of(store)
        content = place.read(MANIFEST)
        if content is None:
            raise StoreError(f"no embedding store at {place.address!r}: {MANIFEST} is missing")
        manifest = disk.parse_manifest(content, f"{place.address}/{MANIFEST}")
        stored = cls(place, manifest.having(shards=(), skipped=()), split)
        if split is None and default_split and any(default_split in stored._splits(s) for s in manifest.shards):
            stored = replace(stored, split=default_split)
        return stored, list(manifest.shards)

    @property
    def source(self) -> str:
        """The store's address and the split, as in `Embeddings.source`."""
        return self.place.address + (f"{OF_SPLIT}{self.split}" if self.split else "")

    def tasks(self, shards: Sequence[ShardRecord], n_tasks: int) -> list[dict[str, Any]]:
        """Tasks of consecutive shards, about equally many each."""
        edges = np.linspace(0, len(shards), min(n_tasks, len(shards)) + 1).astype(int)
        parts = [shards[first:last] for first, last in pairwise(edges)]
        return [{"number": k, "shards": json.dumps(msgspec.to_builtins(part))} for k, part in enumerate(parts)]

    def read(self, shard: ShardRecord, vectors: bool = True) -> Embeddings:
        """The images of a shard that are in the split; without `vectors` X has no columns."""
        with self._opened(shard) as store:
            part = store if self.split is None else store.select(rows=store.splits == self.split)
            X = part.to_numpy(np.float32) if vectors else np.zeros((len(part), 0), np.float32)
            labels = part.labels if any(label is not None for label in part.labels.tolist()) else None
            return Embeddings(X, labels, part.ids, source=repr(self.place.address))

    def _splits(self, shard: ShardRecord) -> set[str | None]:
        with self._opened(shard) as store:
            return set(store.splits.tolist())

    @contextmanager
    def _opened(self, shard: ShardRecord) -> Iterator[EmbeddingStore]:
        """One shard as a store of its own, from this machine or from a copy of the file."""
        with self.place.at_hand(shard.file) as folder:
            yield EmbeddingStore.of_manifest(folder, self.manifest.having(shards=[shard]))


def shards_of(task: Mapping[str, Any]) -> list[ShardRecord]:
    """The shards of a task."""
    return msgspec.convert(json.loads(str(task["shards"])), list[ShardRecord])
