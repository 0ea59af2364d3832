"""What a model says of every photo of a collection, found once, and the parts of it that people ask to see."""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hcep._escape import spreadsheet
from hcep._files import cache_folder, replacing
from hcep._optional import is_installed, require
from hcep.classify.path_model import PathModel
from hcep.embeddings.images import open_image
from hcep.embeddings.store.embedding_store import EmbeddingStore
from hcep.evaluate.support import tree_distances
from hcep.explain.explained import SURE, UNLIKE, UNSURE, percent

#: Embeddings that are in memory at a time, photos on the map, and photos of a report.
BLOCK, ON_MAP, IN_REPORT = 2048, 6000, 500
#: Principal directions that UMAP starts from.
DIRECTIONS = 50

Rows = NDArray[np.int64]
Advance = Callable[[int], object]


class Photos(Protocol):
    """The photos of a collection, by their place in it.

    Attributes
    ----------
    key : what they are, so that answers can be kept
    title : what people call them
    names, labels : file name and class of each, None where it has none
    """

    key: str
    title: str

    @property
    def names(self) -> Sequence[str]: ...

    @property
    def labels(self) -> Sequence[str | None]: ...

    def blocks(self) -> Iterator[NDArray[Any]]:
        """Embeddings, some at a time."""
        ...

    def vectors(self, rows: Rows) -> NDArray[Any]:
        """Embeddings of some, whose places are sorted."""
        ...

    def picture(self, row: int) -> Any:
        """A photo as a PIL image; `ImageProblem` where it cannot be read."""
        ...


class StorePhotos:
    """The photos that a store lists: no other file can be asked for."""

    def __init__(self, store: EmbeddingStore) -> None:
        self.store = store
        shards = "".join(shard.sha256 for shard in store.shards)
        self.key = hashlib.sha256(shards.encode()).hexdigest()[:20]
        self.title = Path(store.folder).resolve().name

    @cached_property
    def names(self) -> list[str]:
        return ["/".join(Path(path).parts[-2:]) for path in self.store.paths.tolist()]

    @property
    def labels(self) -> list[str | None]:
        return list(self.store.labels.tolist())

    def blocks(self) -> Iterator[NDArray[Any]]:
        return (X for X, _ in self.store.batches(BLOCK))

    def vectors(self, rows: Rows) -> NDArray[Any]:
        return self.store.select(rows=rows).to_numpy(np.float32)

    def picture(self, row: int) -> Any:
        return open_image(str(self.store.paths[row]), shorter_side=640)


class Dropped:
    """One of the photos that somebody dropped: what is needed of it, and no more."""

    def __init__(self, name: str, photo: Any) -> None:
        self.id, self.name, self.embedding = photo.id, name, photo.embedding
        self.jpeg = photo.jpeg


class DroppedPhotos:
    """Photos that somebody dropped; the folder in a name is a class."""

    def __init__(self, photos: Sequence[Dropped]) -> None:
        self.photos = sorted(photos, key=lambda photo: photo.name)
        self.key = hashlib.sha256("".join(photo.id for photo in self.photos).encode()).hexdigest()[:20]
        self.title = "your photos"
        self.names = [photo.name for photo in self.photos]

    @property
    def labels(self) -> list[str | None]:
        return [Path(name).parent.name or None for name in self.names]

    def blocks(self) -> Iterator[NDArray[Any]]:
        rows = np.arange(len(self.photos))
        return (self.vectors(rows[start : start + BLOCK]) for start in range(0, len(rows), BLOCK))

    def vectors(self, rows: Rows) -> NDArray[Any]:
        return np.stack([self.photos[row].embedding for row in rows.tolist()])

    def picture(self, row: int) -> Any:
        from PIL import Image

        return Image.open(io.BytesIO(self.photos[row].jpeg), formats=["JPEG"])


@dataclass(frozen=True)
class View:
    """What is shown of a collection.

    Attributes
    ----------
    node : a rooted path, as a node of the path tree; photos whose path goes through it
    show : "all", or "unsure", "mistakes", "unlike", "right"
    sort : "given", or "unsure" (the least sure first), "worst" (the mistake farthest in the tree first)
    common : the lowest concept above truth and answer, by number, of mistakes
    group : rows, such as those of a lasso
    """

    node: int = 0
    show: str = "all"
    sort: str = "given"
    common: int | None = None
    group: tuple[int, ...] | None = None


@dataclass(frozen=True, eq=False)
class Collection:
    """The answers of a model to all photos.

    Attributes
    ----------
    truth, predicted : (n_photos,) int32; positions in ``model.classes``, -1 where the truth is not known
    probability : (n_photos,) float32
    unlike : (n_photos,) bool; less of the photo is explained than of nearly all training photos of its class
    node : (n_photos,) int32; the end of each path in the path tree
    on_map, plane : (n_shown,) int64 and (n_shown, 2) float32; photos of the map and where they are on it
    """

    model: PathModel
    photos: Photos
    truth: NDArray[np.int32]
    predicted: NDArray[np.int32]
    probability: NDArray[np.float32]
    unlike: NDArray[np.bool_]
    node: NDArray[np.int32]
    on_map: Rows
    plane: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.predicted)

    @cached_property
    def class_names(self) -> list[str]:
        return [self.model.hierarchy.name(leaf) for leaf in self.model.leaves.tolist()]

    @cached_property
    def masks(self) -> dict[str, NDArray[np.bool_]]:
        """Which photos a filter shows."""
        known, right = self.truth >= 0, self.truth == self.predicted
        return {
            "all": np.ones(len(self), dtype=bool),
            "unsure": self.probability < SURE,
            "mistakes": known & ~right,
            "unlike": self.unlike,
            "right": known & right,
        }

    @cached_property
    def _pairs(self) -> tuple[Rows, NDArray[np.int64], NDArray[np.float64], list[tuple[int, int]]]:
        """Of mistakes: rows, lowest common concepts and distances in the tree; all by pairs of classes."""
        h, leaves = self.model.hierarchy, self.model.leaves.tolist()
        rows = np.flatnonzero(self.masks["mistakes"])
        pairs, index = np.unique(np.column_stack([self.truth[rows], self.predicted[rows]]), axis=0, return_inverse=True)
        both = [(leaves[a], leaves[b]) for a, b in pairs.tolist()]
        common = np.array([h.index(h.lca(a, b)) for a, b in both], dtype=np.int64)
        far = tree_distances([a for a, _ in both], [b for _, b in both], h)
        return rows, common[index], far[index], [(a, b) for a, b in pairs[index].tolist()]

    @cached_property
    def distance(self) -> NDArray[np.float64]:
        """Edges between truth and answer; 0 where they are the same or the truth is not known."""
        found = np.zeros(len(self))
        found[self._pairs[0]] = self._pairs[2]
        return found

    def confusions(self) -> list[tuple[int, int, str, str, int]]:
        """Mistakes by the lowest concept above truth and answer, the most first.

        Concept, mistakes, and of the most frequent confusion there truth, answer and their number.
        """
        found: dict[int, dict[tuple[int, int], int]] = {}
        for concept, pair in zip(self._pairs[1].tolist(), self._pairs[3], strict=True):
            below = found.setdefault(concept, {})
            below[pair] = below.get(pair, 0) + 1
        rows = []
        for concept, below in found.items():
            (a, b), n = max(below.items(), key=lambda item: item[1])
            rows.append((concept, sum(below.values()), self.class_names[a], self.class_names[b], n))
        return sorted(rows, key=lambda row: -row[1])

    def rows(self, view: View) -> Rows:
        """The photos of a view, in its order."""
        keep = self.masks[view.show].copy()
        if view.node:
            keep &= self._below(view.node)[self.node]
        if view.common is not None:
            rows, common, *_ = self._pairs
            chosen = np.zeros(len(self), dtype=bool)
            chosen[rows[common == view.common]] = True
            keep &= chosen
        if view.group is not None:
            chosen = np.zeros(len(self), dtype=bool)
            chosen[list(view.group)] = True
            keep &= chosen
        rows = np.flatnonzero(keep)
        if view.sort == "unsure":
            return rows[np.argsort(self.probability[rows], kind="stable")]
        if view.sort == "worst":
            return rows[np.lexsort((self.probability[rows], -self.distance[rows]))]
        return rows

    @cached_property
    def _ancestors(self) -> NDArray[np.int32]:
        return self.model.hierarchy.path_tree.ancestors()

    def _below(self, node: int) -> NDArray[np.bool_]:
        """Which nodes of the path tree are a node or below it."""
        level = int(self.model.hierarchy.path_tree.level[node])
        return np.asarray(self._ancestors[:, level - 1] == node)

    def counts(self, rows: Rows) -> NDArray[np.int64]:
        """Photos at and below each node of the path tree."""
        tree = self.model.hierarchy.path_tree
        found = np.bincount(self.node[rows], minlength=tree.n_nodes)
        for level in range(tree.depth, 0, -1):
            nodes = np.flatnonzero(tree.level == level)
            np.add.at(found, tree.parent[nodes], found[nodes])
        return np.asarray(found)

    def children(self, node: int, counts: NDArray[np.int64]) -> list[int]:
        """Nodes below one that have photos, those with most first."""
        tree = self.model.hierarchy.path_tree
        below = range(int(tree.first_child[node]), int(tree.first_child[node] + tree.n_children[node]))
        return sorted((v for v in below if counts[v]), key=lambda v: -counts[v])

    def trail(self, node: int) -> list[int]:
        """Nodes from the first concept down to one."""
        tree, found = self.model.hierarchy.path_tree, []
        while node > 0:
            found.append(node)
            node = int(tree.parent[node])
        return found[::-1]

    def node_name(self, node: int) -> str:
        h = self.model.hierarchy
        return h.name(h.ids[h.path_tree.synset[node]])

    def path(self, row: int) -> list[str]:
        """Names along a photo's path."""
        return [self.node_name(node) for node in self.trail(int(self.node[row]))]

    def doubt(self, row: int) -> str:
        return UNLIKE if self.unlike[row] else UNSURE if self.probability[row] < SURE else ""

    def tile(self, row: int) -> dict[str, Any]:
        """What the gallery says of a photo."""
        truth, name = int(self.truth[row]), self.class_names[self.predicted[row]]
        wrong = truth >= 0 and truth != self.predicted[row]
        note = f"is {self.class_names[truth]}" if wrong else self.doubt(row)
        tone = "wrong" if wrong else "doubt" if note else ""
        return {"row": row, "name": name, "sure": percent(float(self.probability[row])), "note": note, "tone": tone}

    def at_level(self, rows: Rows, level: int) -> NDArray[np.int64]:
        """The node at a level of each path, or its end where it is shorter."""
        above = self._ancestors[self.node[rows], level - 1]
        return np.where(above < 0, self.node[rows], above).astype(np.int64)

    def outline(self, counts: NDArray[np.int64], least: float = 0.05, most: int = 14) -> list[int]:
        """The nodes that at least so great a share of the photos go through, parents before children, siblings by size.

        At most so many, the largest.
        """
        large = np.flatnonzero(counts >= max(1.0, least * counts[0]))[1:]
        kept = set(large[np.argsort(-counts[large], kind="stable")][:most].tolist())
        found, waiting = [], [0]
        while waiting:
            node = waiting.pop()
            found.append(node)
            waiting += [child for child in self.children(node, counts)[::-1] if child in kept]
        return found[1:]

    def table(self, rows: Rows) -> str:
        """Photos as CSV, for spreadsheets too: no cell is a formula."""
        text = io.StringIO()
        writer = csv.writer(text)
        writer.writerow(["photo", "label", "answer", "name", "probability", "path", "doubt", "right"])
        labels, classes = self.photos.labels, self.model.classes.tolist()
        for row in rows.tolist():
            known = self.truth[row] >= 0
            cells = [self.photos.names[row], labels[row] or "", str(classes[self.predicted[row]])]
            cells += [self.class_names[self.predicted[row]], f"{self.probability[row]:.4f}"]
            cells += [" → ".join(self.path(row)), self.doubt(row)]
            cells.append({True: "yes", False: "no"}[bool(self.masks["right"][row])] if known else "")
            writer.writerow(map(spreadsheet, cells))
        return text.getvalue()

    def report(self, rows: Rows, title: str) -> str:
        """The first photos as one HTML page, explained; at most `IN_REPORT`."""
        from hcep.explain import explain_images
        from hcep.explain.report import photo_report

        some = rows[:IN_REPORT]
        order = np.argsort(some, kind="stable")
        found = explain_images(self.photos.vectors(some[order]), self.model)
        labels = list(map(str, self.model.classes.tolist()))
        shown = []
        for at in np.argsort(order, kind="stable").tolist():
            row = int(some[order[at]])
            truth = None if self.truth[row] < 0 else labels[self.truth[row]]
            source = _readable(self.photos, row)
            shown.append(replace(found[at], file=self.photos.names[row], source=source, truth=truth))
        return photo_report(shown, title)


def look(model: PathModel, photos: Photos, advance: Advance = lambda n: None) -> Collection:
    """What the model says of every photo, block by block; memory beyond the answers does not grow with their number.

    `advance` is called with the number of photos done since its last call.
    """
    n = len(photos.names)
    truth = class_numbers(model, photos.labels)
    on_map = np.unique(np.linspace(0, n - 1, min(n, ON_MAP)).astype(np.int64)) if n else np.empty(0, dtype=np.int64)
    predicted, node = np.empty(n, dtype=np.int32), np.empty(n, dtype=np.int32)
    probability, unlike = np.empty(n, dtype=np.float32), np.zeros(n, dtype=bool)
    points: list[NDArray[np.float32]] = []
    start = 0
    for X in photos.blocks():
        rows = slice(start, start + len(X))
        found = model.infer(X, explained=model.explained_floor is not None)
        predicted[rows], node[rows] = found.class_index, found.paths.nodes
        probability[rows] = found.probabilities[np.arange(len(X)), found.class_index]
        if model.explained_floor is not None:
            unlike[rows] = found.paths.explained < model.explained_floor[found.class_index]
        own = on_map[np.searchsorted(on_map, start) : np.searchsorted(on_map, rows.stop)] - start
        if len(own):
            points.append(np.asarray(model.dictionary.embed(X[own]), dtype=np.float32))
        start = rows.stop
        advance(len(X))
    plane = flat_map(np.concatenate(points)) if points else np.empty((0, 2), dtype=np.float32)
    return Collection(model, photos, truth, predicted, probability, unlike, node, on_map, plane)


def kept(
    model: PathModel, checksum: str, photos: Photos, advance: Advance, folder: PathLike[str] | None = None
) -> Collection:
    """`look`, or what it found before for the same photos and model, whose checksum it is."""
    names = ("predicted", "probability", "unlike", "node", "on_map", "plane")
    file = Path(folder or cache_folder("collections")) / f"{photos.key}-{checksum[:20]}.npz"
    if file.is_file():
        with np.load(file, allow_pickle=False) as found:
            if set(names) <= set(found.files) and len(found["predicted"]) == len(photos.names):
                return Collection(model, photos, class_numbers(model, photos.labels), **{k: found[k] for k in names})
    collection = look(model, photos, advance)
    file.parent.mkdir(parents=True, exist_ok=True)
    with replacing(file) as partial, open(partial, "wb") as target:
        np.savez(target, **{name: getattr(collection, name) for name in names})
    return collection


def class_numbers(model: PathModel, labels: Sequence[str | None]) -> NDArray[np.int32]:
    """The class that each label is, by its label or its name; -1 for none."""
    classes = list(map(str, model.classes.tolist()))
    known: dict[str | None, int] = {}
    for i, leaf in enumerate(model.leaves.tolist()):
        name = model.hierarchy.name(leaf).casefold()
        known |= {name: i, name.replace(" ", "_"): i}
    known |= {label.casefold(): i for i, label in enumerate(classes)}
    found = {label: known.get(None if label is None else label.casefold(), -1) for label in set(labels)}
    return np.array([found[label] for label in labels], dtype=np.int32)


def flat_map(points: NDArray[np.float32]) -> NDArray[np.float32]:
    """Points of a high dimension on a plane, (n, 2): UMAP of the principal directions where it is installed, else PCA.

    Each direction's sign is that which makes its largest entry positive, so that the map is the same in every run.
    """
    centred = points - points.mean(axis=0)
    directions = np.linalg.eigh(centred.T @ centred)[1]
    directions = directions[:, ::-1][:, :DIRECTIONS]
    directions *= np.sign(directions[np.abs(directions).argmax(axis=0), np.arange(directions.shape[1])])
    flat = centred @ directions
    if is_installed("umap") and len(points) > DIRECTIONS:
        umap = require("umap", "web", "a map by UMAP")
        return np.asarray(umap.UMAP(random_state=0).fit_transform(flat), dtype=np.float32)
    return np.pad(flat, ((0, 0), (0, max(0, 2 - flat.shape[1]))))[:, :2].astype(np.float32)


def _readable(photos: Photos, row: int) -> Any:
    from hcep.embeddings.images import ImageProblem

    try:
        return photos.picture(row)
    except ImageProblem:
        return None
