"""A store of embeddings shard by shard, wherever it is: what tasks over it are, and what an actor reads of each."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from os import PathLike
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from hcep.distributed.places import Place
from hcep.embeddings.reading import OF_SPLIT
from hcep.embeddings.store.manifest import (
    MANIFEST,
    VECTOR,
    Manifest,
    ShardRecord,
    StoreError,
    open_shard,
    parse_manifest,
)
from hcep.errors import HCEPError


@dataclass(frozen=True)
class Stored:
    """A store without its list of shards, small enough to be sent about; of a split, where one is asked for."""

    place: Place
    head: Manifest
    split: str | None = None

    @classmethod
    def of(
        cls, store: str | PathLike[str], split: str | None = None, default_split: str | None = None
    ) -> tuple[Stored, list[ShardRecord]]:
        """A store and its shards; of `default_split` where no split is given and there is that one.

        Raises StoreError: there is none, or its manifest is damaged.
        """
        place = Place.of(store)
        content = place.read(MANIFEST)
        if content is None:
            raise StoreError(f"no embedding store at {place.address!r}: {MANIFEST} is missing")
        manifest = parse_manifest(content, f"{place.address}/{MANIFEST}")
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
        with self.place.at_hand(shard.file) as folder, open_shard(folder, shard, self.head) as file:
            table = file.read(columns=[*names, VECTOR] if vectors else names)
        known = {name: np.array(table.column(name).to_pylist(), dtype=object) for name in names}
        keep = np.ones(len(table), bool) if self.split is None else known["split"] == self.split
        X = np.zeros((len(table), 0), np.float32)
        if vectors:
            chunks = [chunk.flatten().to_numpy(zero_copy_only=False) for chunk in table.column(VECTOR).chunks]
            X = np.concatenate(chunks).reshape(len(table), self.head.n_dims).astype(np.float32)
        return X[keep], {name: column[keep] for name, column in known.items()}


def shards_of(task: Mapping[str, Any]) -> list[ShardRecord]:
    """The shards of a task."""
    return msgspec.convert(json.loads(str(task["shards"])), list[ShardRecord])
