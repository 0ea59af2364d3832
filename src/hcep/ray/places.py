"""A folder on this machine, or at a URL that pyarrow or fsspec knows: files read whole and written whole."""

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
from numpy.typing import NDArray
from pyarrow import fs as arrow_fs

from hcep._checks import require
from hcep.embeddings.reading import OF_SPLIT
from hcep.embeddings.store import manifest as disk
from hcep.embeddings.store.manifest import MANIFEST, Manifest, ShardRecord, StoreError, write_atomically
from hcep.errors import HCEPError

#: Also with one slash: a path object has swallowed the other.
_URL = re.compile(r"([a-z][a-z0-9+.-]+):/{1,2}(?=[^/]|/)", re.IGNORECASE)


def is_url(where: str | os.PathLike[str]) -> bool:
    """Whether this is the address of a folder or file, not a path."""
    return bool(_URL.match(str(where)))


@dataclass(frozen=True)
class Place:
    """A folder by path or URL (``s3://bucket/store``, ``gs://…``, ``file:///…``); what it holds is picked by name."""

    address: str

    @classmethod
    def of(cls, where: str | os.PathLike[str]) -> "Place":
        """The folder at a path or URL."""
        found = _URL.match(str(where))
        if not found:
            return cls(str(Path(where).resolve()))
        rest = str(where)[found.end() :].rstrip("/")
        return cls(f"/{rest.lstrip('/')}" if found[1].lower() == "file" else f"{found[1]}://{rest.lstrip('/')}")

    @property
    def local(self) -> Path | None:
        """The folder as a path, where it is on this machine (or on a file system that all machines share)."""
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
        """What a file holds; None where there is none."""
        with suppress(FileNotFoundError), self.opened(name) as file:
            content: bytes = file.read()
            return content
        return None

    def opened(self, name: str) -> Any:
        """A file to read pieces of."""
        system, root = self._system
        return system.open_input_file(f"{root}/{name}")

    def write(self, name: str, content: bytes) -> None:
        """Write a file; others see all of it or nothing."""
        if self.local is not None:
            write_atomically(self.local / name, content)
            return
        system, root = self._system
        system.create_dir(root, recursive=True)  # object stores have none, others need it
        with system.open_output_stream(f"{root}/{name}") as stream:
            stream.write(content)

    def sizes(self) -> dict[str, int]:
        """Bytes of each file, by its name below the folder."""
        system, root = self._system
        below = system.get_file_info(arrow_fs.FileSelector(root, allow_not_found=True, recursive=True))
        cut = len(root.strip("/")) + 1
        return {one.path.strip("/")[cut:]: one.size for one in below if one.type == arrow_fs.FileType.File}

    def publish(self, name: str, target: "Place") -> None:
        """Give a file a second name, in another folder of the same place."""
        if self.local is not None and target.local is not None:
            with suppress(OSError):  # it is there already, or this file system has no second names
                os.link(self.local / name, target.local / name)
            if not (target.local / name).exists():
                target.write(name, (self.local / name).read_bytes())
            return
        system, root = self._system
        system.copy_file(f"{root}/{name}", f"{target._system[1]}/{name}")

    def remove(self) -> None:
        """Delete the folder, where there is one."""
        system, root = self._system
        with suppress(FileNotFoundError):
            system.delete_dir(root)

    @contextmanager
    def at_hand(self, name: str) -> Iterator[Path]:
        """A folder of this machine that holds the file: this one, or one for the time being."""
        if self.local is not None:
            yield self.local
            return
        with TemporaryDirectory(prefix="hcep-") as scratch:
            Path(scratch, name).write_bytes(self.read(name) or b"")
            yield Path(scratch)


@dataclass(frozen=True)
class Stored:
    """A store without its list of shards, small enough to be sent about; of a split, where one is asked for."""

    place: Place
    head: Manifest
    split: str | None = None

    @classmethod
    def of(
        cls, store: str | PathLike[str], split: str | None = None, default_split: str | None = None
    ) -> tuple["Stored", list[ShardRecord]]:
        """A store and its shards; of `default_split` where no split is given and there is that one."""
        place = Place.of(store)
        content = place.read(MANIFEST)
        if content is None:
            raise StoreError(f"no embedding store at {place.address!r}: {MANIFEST} is missing")
        manifest = disk.parse_manifest(content, f"{place.address}/{MANIFEST}")
        stored = cls(place, msgspec.structs.replace(manifest, shards=(), skipped=()), split)
        parts = (stored.read(shard, vectors=False)[1]["split"] for shard in manifest.shards)
        if split is None and default_split and any(default_split in part for part in parts):
            stored = replace(stored, split=default_split)
        return stored, list(manifest.shards)

    @property
    def source(self) -> str:
        """What `Embeddings.source` says of the same images."""
        return self.place.address + (f"{OF_SPLIT}{self.split}" if self.split else "")

    def tasks(self, shards: Sequence[ShardRecord], n_tasks: int) -> list[dict[str, Any]]:
        """Consecutive shards, about equally many per task."""
        edges = np.linspace(0, len(shards), min(n_tasks, len(shards)) + 1).astype(int)
        parts = [shards[first:last] for first, last in pairwise(edges)]
        return [{"number": k, "shards": json.dumps(msgspec.to_builtins(part))} for k, part in enumerate(parts)]

    def labelled(self, shard: ShardRecord, vectors: bool = True) -> tuple[NDArray[Any], NDArray[np.str_]]:
        """Vectors of a shard and their labels, all of them there."""
        X, known = self.read(shard, vectors)
        if None in known["label"].tolist():
            raise HCEPError(f"{self.place.address!r} has images without a label; encode them with their labels")
        return X, known["label"].astype(np.str_)

    def read(self, shard: ShardRecord, vectors: bool = True) -> tuple[NDArray[Any], dict[str, NDArray[Any]]]:
        """Vectors of a shard (empty where they are not wanted) and what is known of their images."""
        names = ["id", "label", "split"]
        with self.place.at_hand(shard.file) as folder, disk.open_shard(folder, shard, self.head) as file:
            table = file.read(columns=[*names, disk.VECTOR] if vectors else names)
        known = {name: np.array(table.column(name).to_pylist(), dtype=object) for name in names}
        keep = np.ones(len(table), bool) if self.split is None else known["split"] == self.split
        X = np.zeros((len(table), 0), np.float32)
        if vectors:
            chunks = [chunk.flatten().to_numpy(zero_copy_only=False) for chunk in table.column(disk.VECTOR).chunks]
            X = np.concatenate(chunks).reshape(len(table), self.head.n_dims).astype(np.float32)
        return X[keep], {name: column[keep] for name, column in known.items()}


def shards_of(task: Mapping[str, Any]) -> list[ShardRecord]:
    """The shards of a task."""
    return msgspec.convert(json.loads(str(task["shards"])), list[ShardRecord])
