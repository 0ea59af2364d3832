"""What a model says of every photo of a collection, found once, and the parts of it that people ask to see."""

import csv
import hashlib
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from hcep._checks import escape_spreadsheet, is_installed, require
from hcep._files import cache_folder, replacing
from hcep.classify.path_model import PathModel
from hcep.embeddings import EmbeddingStore
from hcep.embeddings.images import ImageProblem, open_image
from hcep.evaluate import mistakes_by_lca, tree_distances
from hcep.explain import explain_images
from hcep.explain.answer import SURE, UNLIKE, UNSURE, percent
from hcep.explain.explainer import class_names
from hcep.explain.neighbours import fitted_on
from hcep.explain.report import photo_report
from hcep.models import SavedModel

#: Embeddings that are in memory at a time, photos on the map, and photos of a report.
BLOCK, ON_MAP, IN_REPORT = 2048, 6000, 500
#: Principal directions that UMAP starts from.
DIRECTIONS = 50
#: What is kept of a collection that was looked through.
KEPT = ("predicted", "probability", "unlike", "node", "on_map", "plane")

Rows = NDArray[np.int64]


class Photos:
    """The photos of a collection, by their place in it; `key` says which they are, `labels` what is known of them."""

    key: str
    title: str
    names: Sequence[str]
    labels: Sequence[str | None]
    ids: Sequence[Any]  # hashes of the files; the engine may remember photos by them
    splits: NDArray[Any] = np.empty(0)  # of all photos, where they have any
    block = BLOCK

    def blocks(self) -> Iterator[NDArray[Any]]:
        """Embeddings, some at a time."""
        rows = np.arange(len(self.names))
        return (self.vectors(rows[start : start + self.block]) for start in range(0, len(rows), self.block))

    def vectors(self, rows: Rows) -> NDArray[Any]:
        """Embeddings of some, whose places are sorted."""
        raise NotImplementedError

    def picture(self, row: int) -> Any:
        """A photo as a PIL image; `ImageProblem` where it cannot be read."""
        raise NotImplementedError


class StorePhotos(Photos):
    """The photos that a store lists: no other file can be asked for."""

    def __init__(self, store: EmbeddingStore) -> None:
        self.store, self.title = store, Path(store.folder).resolve().name
        self.key = hashlib.sha256("".join(shard.sha256 for shard in store.shards).encode()).hexdigest()[:20]
        self.paths, self.labels = store.paths.tolist(), store.labels.tolist()
        self.ids, self.splits = store.content_hashes.tolist(), store.splits
        self.names = ["/".join(Path(path).parts[-2:]) for path in self.paths]

    def blocks(self) -> Iterator[NDArray[Any]]:
        return (X for X, _ in self.store.batches(self.block))

    def vectors(self, rows: Rows) -> NDArray[Any]:
        return self.store.select(rows=rows).to_numpy(np.float32)

    def picture(self, row: int) -> Any:
        return open_image(self.paths[row], shorter_side=640)


class DroppedPhotos(Photos):
    """Photos that somebody dropped, with their names; the folder in a name is a class."""

    def __init__(self, given: Sequence[tuple[str, Any]]) -> None:
        self.photos = [(photo.embedding, photo.jpeg) for _, photo in given]
        self.ids = [photo.id for _, photo in given]
        self.key = hashlib.sha256("".join(self.ids).encode()).hexdigest()[:20]
        self.title, self.names = "your photos", [name for name, _ in given]
        self.labels = [Path(name).parent.name or None for name in self.names]

    def vectors(self, rows: Rows) -> NDArray[Any]:
        return np.stack([self.photos[row][0] for row in rows.tolist()])

    def picture(self, row: int) -> Any:
        return Image.open(io.BytesIO(self.photos[row][1]), formats=["JPEG"])


@dataclass(frozen=True)
class View:
    node: int = 0  # of the path tree: photos whose path goes through it
    show: str = "all"  # one of `Collection.masks`
    sort: str = "given"  # or "unsure", the least sure first; "worst", the mistake farthest in the tree first
    common: int | None = None  # the lowest concept above truth and answer, by number, of mistakes
    group: tuple[int, ...] | None = None  # rows, such as those of a lasso


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
        known, right = self.truth >= 0, self.truth == self.predicted
        masks = {"all": np.ones(len(self), dtype=bool), "unsure": self.probability < SURE}
        return masks | {"mistakes": known & ~right, "unlike": self.unlike, "right": known & right}

    @cached_property
    def _mistakes(self) -> tuple[Rows, NDArray[Any], NDArray[Any]]:
        """Rows, true and predicted labels of mistakes."""
        rows, labels = np.flatnonzero(self.masks["mistakes"]), self.model.classes.astype(str)
        return rows, labels[self.truth[rows]], labels[self.predicted[rows]]

    @cached_property
    def distance(self) -> NDArray[np.float64]:
        """Edges between truth and answer; 0 where they are the same or the truth is not known."""
        found, (rows, truth, answer) = np.zeros(len(self)), self._mistakes
        found[rows] = tree_distances(truth, answer, self.model.hierarchy)
        return found

    @cached_property
    def common(self) -> NDArray[np.int64]:
        """The lowest concept above truth and answer of mistakes; -1 of other photos."""
        h, found, (rows, truth, answer) = self.model.hierarchy, np.full(len(self), -1), self._mistakes
        lowest = cache(lambda a, b: h.index(h.lca(h.leaf_of(a), h.leaf_of(b))))
        found[rows] = [lowest(a, b) for a, b in zip(truth.tolist(), answer.tolist(), strict=True)]
        return found

    def confusions(self) -> list[tuple[str, int, str, str, int]]:
        """Mistakes by the lowest concept above truth and answer, see `mistakes_by_lca`; classes by name."""
        h = self.model.hierarchy
        found = mistakes_by_lca(*self._mistakes[1:], h)
        return [(concept, n, h.name(h.leaf_of(a)), h.name(h.leaf_of(b)), times) for concept, n, a, b, times in found]

    def rows(self, view: View) -> Rows:
        keep = self.masks[view.show].copy()
        if view.node:
            level = int(self.model.hierarchy.path_tree.level[view.node])
            keep &= self._ancestors[self.node, level - 1] == view.node
        if view.common is not None:
            keep &= self.common == view.common
        if view.group is not None:
            keep &= np.isin(np.arange(len(self)), view.group)
        rows = np.flatnonzero(keep)
        order = {"unsure": (self.probability,), "worst": (self.probability, -self.distance)}.get(view.sort)
        return rows if order is None else rows[np.lexsort([key[rows] for key in order])]

    def score(self, saved: SavedModel) -> str:
        """How many answers are right, in words; also of photos that the model was not fitted on."""

        def share(of: NDArray[np.bool_]) -> str:
            n, right = int(of.sum()), int((of & self.masks["right"]).sum())
            return f"{right:,} of {n:,} right by their labels ({100 * right / n:.1f} %)"

        known, own, what = self.truth >= 0, fitted_on(saved, self.photos.ids), "those that the model was fitted on"
        if not own.any() and "train" in self.photos.splits:
            own, what = self.photos.splits == "train", "of the split train"
        if not known.any() or not own.any():
            return f"{share(known)}." if known.any() else ""
        others = f"; of the others {share(known & ~own)}" if (known & ~own).any() else ", none is new to it"
        return f"{share(known)}. But {int(own.sum()):,} of the photos are {what}{others}."

    @cached_property
    def _ancestors(self) -> NDArray[np.int32]:
        return self.model.hierarchy.path_tree.ancestors()

    def node_name(self, node: int) -> str:
        h = self.model.hierarchy
        return h.name(h.ids[h.path_tree.synset[node]])

    def counts(self, rows: Rows) -> NDArray[np.int64]:
        """Photos at and below each node."""
        tree = self.model.hierarchy.path_tree
        found = np.bincount(self.node[rows], minlength=tree.n_nodes)
        for level in range(tree.depth, 0, -1):
            nodes = np.flatnonzero(tree.level == level)
            np.add.at(found, tree.parent[nodes], found[nodes])
        return found

    def children(self, node: int, counts: NDArray[np.int64]) -> list[int]:
        """Nodes below one that have photos, those with most first."""
        tree = self.model.hierarchy.path_tree
        below = np.arange(tree.n_children[node]) + tree.first_child[node]
        return [int(v) for v in below[np.argsort(-counts[below], kind="stable")] if counts[v]]

    def fork(self, node: int, counts: NDArray[np.int64], most: float = 1.0) -> int:
        """The first node from one down where no child has so great a share of the photos; of a leaf its parent."""
        tree = self.model.hierarchy.path_tree
        while (below := self.children(node, counts)) and counts[below[0]] >= most * counts[node]:
            node = below[0]
        return node if below else max(int(tree.parent[node]), 0)

    def outline(self, counts: NDArray[np.int64], least: float = 0.05, most: int = 14) -> list[int]:
        """The nodes that at least so great a share of the photos go through, at most so many; parents first."""
        large = np.flatnonzero(counts >= max(1.0, least * counts[0]))[1:]
        kept = set(large[np.argsort(-counts[large], kind="stable")][:most].tolist())
        found, waiting = [], [0]
        while waiting:
            found.append(waiting.pop())
            waiting += [child for child in self.children(found[-1], counts)[::-1] if child in kept]
        return found[1:]

    def trail(self, node: int) -> list[int]:
        """Nodes from the first concept down to one."""
        return [v for v in self._ancestors[node].tolist() if v >= 0]

    def at_level(self, rows: Rows, level: int) -> NDArray[np.int64]:
        """The node at a level of each path, or its end where it is shorter."""
        above = self._ancestors[self.node[rows], level - 1]
        return np.where(above < 0, self.node[rows], above).astype(np.int64)

    def path(self, row: int) -> list[str]:
        return [self.node_name(node) for node in self.trail(int(self.node[row]))]

    def doubt(self, row: int) -> str:
        """Why not to rely on the answer, see `Answer.doubt`."""
        return UNLIKE if self.unlike[row] else UNSURE if self.probability[row] < SURE else ""

    def tile(self, row: int) -> dict[str, Any]:
        wrong = bool(self.masks["mistakes"][row])
        note = f"is {self.class_names[self.truth[row]]}" if wrong else self.doubt(row)
        told = {"name": self.class_names[self.predicted[row]], "sure": percent(float(self.probability[row]))}
        return {**told, "row": row, "note": note, "tone": "wrong" if wrong else "doubt" if note else ""}

    def table(self, rows: Rows) -> str:
        """Photos as CSV, for spreadsheets too: no cell is a formula."""
        text = io.StringIO()
        writer = csv.writer(text)
        writer.writerow(["photo", "label", "answer", "name", "probability", "path", "doubt", "right"])
        for row in rows.tolist():
            answer, right = self.predicted[row], "" if self.truth[row] < 0 else "no"
            cells = [self.photos.names[row], self.photos.labels[row] or "", str(self.model.classes[answer])]
            cells += [self.class_names[answer], f"{self.probability[row]:.4f}", " → ".join(self.path(row))]
            writer.writerow(
                map(escape_spreadsheet, [*cells, self.doubt(row), "yes" if self.masks["right"][row] else right])
            )
        return text.getvalue()

    def report(self, rows: Rows, title: str) -> str:
        """The first `IN_REPORT` photos, explained, as one HTML page."""
        some = np.sort(rows[:IN_REPORT])
        found = dict(zip(some.tolist(), explain_images(self.photos.vectors(some), self.model), strict=True))
        labels, shown = list(map(str, self.model.classes.tolist())), []
        for row in rows[:IN_REPORT].tolist():
            try:
                source = self.photos.picture(row)
            except ImageProblem:
                source = None
            truth = None if self.truth[row] < 0 else labels[self.truth[row]]
            shown.append(found[row].replaced(file=self.photos.names[row], source=source, truth=truth))
        return photo_report(shown, title)


def look(model: PathModel, photos: Photos, advance: Callable[[int], object] = lambda n: None) -> Collection:
    """What the model says of every photo; memory beyond the answers does not grow with their number.

    `advance` is called with the number of photos done since its last call.
    """
    n, start, floor = len(photos.names), 0, model.explained_floor
    on_map = np.unique(np.linspace(0, n - 1, min(n, ON_MAP)).astype(np.int64))
    predicted, node, probability = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.float32)
    unlike, points = np.zeros(n, dtype=bool), []
    for X in photos.blocks():
        rows = slice(start, start + len(X))
        found = model.infer(X, explained=floor is not None)
        predicted[rows], node[rows] = found.class_index, found.paths.nodes
        probability[rows] = found.probabilities[np.arange(len(X)), found.class_index]
        if floor is not None:
            unlike[rows] = found.paths.explained < floor[found.class_index]
        own = on_map[(on_map >= start) & (on_map < rows.stop)] - start
        points.append(np.asarray(model.dictionary.embed(X[own]), dtype=np.float32) if len(own) else X[:0])
        start = rows.stop
        advance(len(X))
    plane = flat_map(np.concatenate([some for some in points if len(some)]))
    truth = class_numbers(model, photos.labels)
    return Collection(model, photos, truth, predicted, probability, unlike, node, on_map, plane)


def looked_through(saved: SavedModel, photos: Photos, advance: Callable[[int], object]) -> Collection:
    """`look`, or what it found before, which is kept in the user's cache."""
    name, model = f"{photos.key}-{saved.document.checksum[:20]}.npz", saved.path_model
    file = cache_folder("collections") / name
    try:
        with np.load(io.BytesIO(file.read_bytes()), allow_pickle=False) as found:
            arrays = {name: found[name] for name in KEPT}
        if len(arrays["predicted"]) == len(photos.names):
            return Collection(model, photos, class_numbers(model, photos.labels), **arrays)
    except (OSError, ValueError, KeyError, BadZipFile):
        pass  # not there yet, or not whole
    collection = look(model, photos, advance)
    file.parent.mkdir(parents=True, exist_ok=True)
    with replacing(file) as partial, open(partial, "wb") as target:
        np.savez(target, **{name: getattr(collection, name) for name in KEPT})
    return collection


def class_numbers(model: PathModel, labels: Sequence[str | None]) -> NDArray[np.int32]:
    """The class that each label is, by its label or its name; -1 for none."""
    known = class_names(model)
    found = {label: known.get((label or "").casefold(), -1) for label in set(labels)}
    return np.array([found[label] for label in labels], dtype=np.int32)


def flat_map(points: NDArray[np.float32]) -> NDArray[np.float32]:
    """Points of a high dimension on a plane, (n, 2): UMAP of the principal directions where it is installed, else PCA.

    Each direction's sign is that which makes its largest entry positive, so that the map is the same in every run.
    """
    centred = points - points.mean(axis=0)
    directions = np.linalg.eigh(centred.T @ centred)[1][:, ::-1][:, :DIRECTIONS]
    directions *= np.sign(directions[np.abs(directions).argmax(axis=0), np.arange(directions.shape[1])])
    flat = centred @ directions
    if is_installed("umap") and len(points) > DIRECTIONS:
        return np.asarray(require("umap", "web", "a map").UMAP(random_state=0).fit_transform(flat), dtype=np.float32)
    return np.pad(flat, ((0, 0), (0, max(0, 2 - flat.shape[1]))))[:, :2].astype(np.float32)
