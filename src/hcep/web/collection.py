"""A model's answers for every photo of a collection, computed once, and the views of them that people ask for."""

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
from hcep.classify.hedging import right_levels
from hcep.classify.path_model import PathModel
from hcep.embeddings import EmbeddingStore
from hcep.embeddings.images import ImageProblem, open_image
from hcep.evaluate import tree_distances
from hcep.evaluate.drawing import mistakes_by_lca
from hcep.explain import explain_images
from hcep.explain.answer import NOTHING, doubt_about, percent
from hcep.explain.explainer import class_names
from hcep.explain.neighbours import fitted_on
from hcep.explain.report import photo_report
from hcep.hierarchy.names import with_article
from hcep.models.loading import SavedModel

#: Embeddings in memory at a time, photos on the map, and photos in a report.
BLOCK, ON_MAP, IN_REPORT = 2048, 6000, 500
#: Principal directions that UMAP starts from.
DIRECTIONS = 50
#: The arrays of a collection that are cached.
KEPT = ("predicted", "probability", "answer", "sureness", "unlike", "node", "on_map", "plane")

Rows = NDArray[np.int64]


class Photos:
    """The photos of a collection, by row; `key` identifies the collection, `labels` are the known classes."""

    key: str
    title: str
    names: Sequence[str]
    labels: Sequence[str | None]
    ids: Sequence[Any]  # hashes of the files; the engine may remember the photos
    splits: NDArray[Any] = np.empty(0)  # of all photos, if they have splits
    block = BLOCK

    def blocks(self) -> Iterator[NDArray[Any]]:
        """Embeddings, a block at a time."""
        rows = np.arange(len(self.names))
        return (self.vectors(rows[start : start + self.block]) for start in range(0, len(rows), self.block))

    def vectors(self, rows: Rows) -> NDArray[Any]:
        """Embeddings of rows in ascending order."""
        raise NotImplementedError

    def picture(self, row: int) -> Any:
        """A photo as a PIL image; raises `ImageProblem` if it cannot be read."""
        raise NotImplementedError


class StorePhotos(Photos):
    """The photos that a store lists; no other file can be read."""

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
    """Dropped photos with their names; the folder in a name is taken for the class."""

    def __init__(self, photos: Sequence[tuple[str, Any]]) -> None:
        self.photos = [(photo.embedding, photo.jpeg) for _, photo in photos]
        self.ids = [photo.id for _, photo in photos]
        self.key = hashlib.sha256("".join(self.ids).encode()).hexdigest()[:20]
        self.title, self.names = "your photos", [name for name, _ in photos]
        self.labels = [Path(name).parent.name or None for name in self.names]

    def vectors(self, rows: Rows) -> NDArray[Any]:
        return np.stack([self.photos[row][0] for row in rows.tolist()])

    def picture(self, row: int) -> Any:
        return Image.open(io.BytesIO(self.photos[row][1]), formats=["JPEG"])


@dataclass(frozen=True)
class View:
    """Which photos of a collection to show, and in which order."""

    node: int = 0  # photos whose path passes this node of the path tree
    show: str = "all"  # one of `Collection.masks`
    sort: str = "given"  # or "unsure": the least sure first; "worst": the mistake farthest in the tree first
    common: int | None = None  # mistakes whose lowest concept above truth and answer has this number
    group: tuple[int, ...] | None = None  # rows, such as those of a lasso


@dataclass(frozen=True, eq=False)
class Collection:
    """The answers of a model for all photos.

    Attributes
    ----------
    truth, predicted : (n_photos,) int32; positions in ``model.classes``, -1 for an unknown truth
    probability : (n_photos,) float32
    answer, sureness : (n_photos,) int32 and float32; the synset that is sure enough, 0 for none, and how sure it is
    unlike : (n_photos,) bool; less of the photo is explained than of nearly all training photos of its class
    node : (n_photos,) int32; where each path ends in the path tree
    on_map, plane : (n_shown,) int64 and (n_shown, 2) float32; the photos on the map and their positions
    """

    model: PathModel
    photos: Photos
    truth: NDArray[np.int32]
    predicted: NDArray[np.int32]
    probability: NDArray[np.float32]
    answer: NDArray[np.int32]
    sureness: NDArray[np.float32]
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
        masks = {"all": np.ones(len(self), dtype=bool), "unsure": ~self._is_class}
        return masks | {"mistakes": known & ~right, "unlike": self.unlike, "right": known & right}

    @cached_property
    def _is_class(self) -> NDArray[np.bool_]:
        """Whether the class itself is sure enough."""
        return np.asarray(self.answer == self.model.leaf_index[self.predicted])

    @cached_property
    def is_wrong(self) -> NDArray[np.bool_]:
        """Whether the answer is wrong: the label is known, and is neither the answer nor below it."""
        is_below = self.model.levels.is_below(np.maximum(self.truth, 0), self.answer)
        return np.asarray((self.truth >= 0) & (self.answer > 0) & ~is_below)

    def answer_name(self, row: int) -> str | None:
        """The name of the answer; None if nothing is sure enough."""
        h, synset = self.model.hierarchy, int(self.answer[row])
        return h.name(h.ids[synset]) if synset else None

    def headline(self, row: int) -> str:
        """The answer in words, as `Answer.headline` words it."""
        name, guess = self.answer_name(row), with_article(self.class_names[self.predicted[row]])
        sure = NOTHING if name is None else f"{with_article(name)}, {percent(float(self.sureness[row]))}"
        perhaps = f" (perhaps {guess}, {percent(float(self.probability[row]))})"
        return sure if self._is_class[row] else sure + perhaps

    @cached_property
    def _mistakes(self) -> tuple[Rows, NDArray[Any], NDArray[Any]]:
        """Rows, true and predicted labels of mistakes."""
        rows, labels = np.flatnonzero(self.masks["mistakes"]), self.model.classes.astype(str)
        return rows, labels[self.truth[rows]], labels[self.predicted[rows]]

    @cached_property
    def distance(self) -> NDArray[np.float64]:
        """Edges between truth and answer; 0 if they are equal or the truth is unknown."""
        distances, (rows, truth, answer) = np.zeros(len(self)), self._mistakes
        distances[rows] = tree_distances(truth, answer, self.model.hierarchy)
        return distances

    @cached_property
    def common(self) -> NDArray[np.int64]:
        """The lowest concept above truth and answer, for mistakes; -1 for other photos."""
        h, common, (rows, truth, answer) = self.model.hierarchy, np.full(len(self), -1), self._mistakes
        lowest = cache(lambda a, b: h.index(h.lca(h.leaf_of(a), h.leaf_of(b))))
        common[rows] = [lowest(a, b) for a, b in zip(truth.tolist(), answer.tolist(), strict=True)]
        return common

    def confusions(self) -> list[tuple[str, int, str, str, int]]:
        """Mistakes by the lowest concept above truth and answer (see `mistakes_by_lca`); classes by name."""
        h = self.model.hierarchy
        rows = mistakes_by_lca(*self._mistakes[1:], h)
        return [(concept, n, h.name(h.leaf_of(a)), h.name(h.leaf_of(b)), times) for concept, n, a, b, times in rows]

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
        """How many answers are right, in words; separately for photos that the model was not fitted on."""

        def share(of: NDArray[np.bool_]) -> str:
            n, right = int(of.sum()), int((of & self.masks["right"]).sum())
            return f"{right:,} of {n:,} answers match the labels ({100 * right / n:.1f} %)"

        known, own, what = self.truth >= 0, fitted_on(saved, self.photos.ids), "photos that the model was fitted on"
        if not own.any() and "train" in self.photos.splits:
            own, what = self.photos.splits == "train", "photos of the split train"
        if not known.any() or not own.any():
            return f"{share(known)}." if known.any() else ""
        others = (
            f"Of the others, {share(known & ~own)}." if (known & ~own).any() else "None of the photos is new to it."
        )
        return f"{share(known)}. But {int(own.sum()):,} of them are {what}. {others}"

    @cached_property
    def _ancestors(self) -> NDArray[np.int32]:
        return self.model.hierarchy.path_tree.ancestors()

    def node_name(self, node: int) -> str:
        h = self.model.hierarchy
        return h.name(h.ids[h.path_tree.synset[node]])

    def counts(self, rows: Rows) -> NDArray[np.int64]:
        """Number of photos at and below each node."""
        tree = self.model.hierarchy.path_tree
        counts = np.bincount(self.node[rows], minlength=tree.n_nodes)
        for level in range(tree.depth, 0, -1):
            nodes = np.flatnonzero(tree.level == level)
            np.add.at(counts, tree.parent[nodes], counts[nodes])
        return counts

    def children(self, node: int, counts: NDArray[np.int64]) -> list[int]:
        """The children of a node that have photos, those with most photos first."""
        tree = self.model.hierarchy.path_tree
        below = np.arange(tree.n_children[node]) + tree.first_child[node]
        return [int(v) for v in below[np.argsort(-counts[below], kind="stable")] if counts[v]]

    def fork(self, node: int, counts: NDArray[np.int64], most: float = 1.0) -> int:
        """The first node, from `node` down, none of whose children has the share `most`; for a leaf its parent."""
        tree = self.model.hierarchy.path_tree
        while (below := self.children(node, counts)) and counts[below[0]] >= most * counts[node]:
            node = below[0]
        return node if below else max(int(tree.parent[node]), 0)

    def outline(self, counts: NDArray[np.int64], least: float = 0.05, most: int = 14) -> list[int]:
        """Up to `most` nodes that at least the share `least` of the photos pass, parents before children."""
        large = np.flatnonzero(counts >= max(1.0, least * counts[0]))[1:]
        largest = set(large[np.argsort(-counts[large], kind="stable")][:most].tolist())
        nodes, waiting = [], [0]
        while waiting:
            nodes.append(waiting.pop())
            waiting += [child for child in self.children(nodes[-1], counts)[::-1] if child in largest]
        return nodes[1:]

    def trail(self, node: int) -> list[int]:
        """The nodes along the path to a node, without the root."""
        return [v for v in self._ancestors[node].tolist() if v >= 0]

    def at_level(self, rows: Rows, level: int) -> NDArray[np.int64]:
        """The node of each path at a level, or its end if it is shorter."""
        above = self._ancestors[self.node[rows], level - 1]
        return np.where(above < 0, self.node[rows], above).astype(np.int64)

    def path(self, row: int) -> list[str]:
        return [self.node_name(node) for node in self.trail(int(self.node[row]))]

    def doubt(self, row: int) -> str:
        """Why not to rely on the answer (see `Answer.doubt`)."""
        label = self.class_names[self.predicted[row]]
        answer = label if self._is_class[row] else self.answer_name(row) and ""
        return doubt_about(answer, label, bool(self.unlike[row]))

    def tile(self, row: int) -> dict[str, Any]:
        name, wrong, notes = self.answer_name(row), bool(self.is_wrong[row]), []
        if not self._is_class[row]:
            notes.append(f"perhaps {self.class_names[self.predicted[row]]}, {percent(float(self.probability[row]))}")
        if self.masks["mistakes"][row]:
            notes.append(f"label: {self.class_names[self.truth[row]]}")
        elif self.unlike[row]:
            notes.append(self.doubt(row))
        sure = "" if name is None else percent(float(self.sureness[row]))
        tone = "wrong" if wrong else "doubt" if notes else ""
        return {"name": name or NOTHING, "sure": sure, "row": row, "note": "; ".join(notes), "tone": tone}

    def table(self, rows: Rows) -> str:
        """Photos as CSV; no cell is a formula for a spreadsheet."""
        text, names = io.StringIO(), ["photo", "label", "answer", "answer_name", "answer_probability", "rank", "class"]
        writer = csv.writer(text)
        writer.writerow([*names, "name", "class_probability", "path", "doubt", "right"])
        h, labels = self.model.hierarchy, self.model.classes.astype(str).tolist()
        for row in rows.tolist():
            c, synset, right = int(self.predicted[row]), int(self.answer[row]), "" if self.truth[row] < 0 else "no"
            concept = h.class_of(h.ids[synset]) if synset else ""
            answer = labels[c] if self._is_class[row] else concept
            sure, rank = (f"{self.sureness[row]:.4f}", h.rank(concept) or "") if synset else ("", "")
            cells = [
                self.photos.names[row],
                self.photos.labels[row] or "",
                answer,
                self.answer_name(row) or "",
                sure,
                rank,
            ]
            cells += [labels[c], self.class_names[c], f"{self.probability[row]:.4f}", " → ".join(self.path(row))]
            writer.writerow(
                map(escape_spreadsheet, [*cells, self.doubt(row), "yes" if self.masks["right"][row] else right])
            )
        return text.getvalue()

    def report(self, rows: Rows, title: str) -> str:
        """The first `IN_REPORT` photos, explained, as one HTML page."""
        first = np.sort(rows[:IN_REPORT])
        answers = dict(zip(first.tolist(), explain_images(self.photos.vectors(first), self.model), strict=True))
        labels, shown = list(map(str, self.model.classes.tolist())), []
        for row in rows[:IN_REPORT].tolist():
            try:
                source = self.photos.picture(row)
            except ImageProblem:
                source = None
            truth = None if self.truth[row] < 0 else labels[self.truth[row]]
            shown.append(answers[row].replaced(file=self.photos.names[row], source=source, truth=truth))
        return photo_report(shown, title)


def answer_photos(model: PathModel, photos: Photos, advance: Callable[[int], object] = lambda n: None) -> Collection:
    """Answer for every photo; memory beyond the answers does not grow with the number of photos.

    `advance` is called with the number of photos done since its last call.
    """
    n, start, floor = len(photos.names), 0, model.explained_floor
    on_map = np.unique(np.linspace(0, n - 1, min(n, ON_MAP)).astype(np.int64))
    predicted, node, probability = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.float32)
    answer, sureness = np.empty(n, np.int32), np.empty(n, np.float32)
    unlike, points = np.zeros(n, dtype=bool), []
    for X in photos.blocks():
        rows = slice(start, start + len(X))
        result = model.infer(X, explained=floor is not None)
        predicted[rows], node[rows] = result.class_index, result.nodes
        probability[rows] = result.probabilities[np.arange(len(X)), result.class_index]
        answer[rows], sureness[rows] = right_levels(model, result)
        if floor is not None:
            unlike[rows] = result.explained < floor[result.class_index]
        own = on_map[(on_map >= start) & (on_map < rows.stop)] - start
        points.append(np.asarray(model.dictionary.embed(X[own]), dtype=np.float32) if len(own) else X[:0])
        start = rows.stop
        advance(len(X))
    plane = flat_map(np.concatenate([block for block in points if len(block)]))
    truth = class_numbers(model, photos.labels)
    return Collection(model, photos, truth, predicted, probability, answer, sureness, unlike, node, on_map, plane)


def cached_answers(saved: SavedModel, photos: Photos, advance: Callable[[int], object]) -> Collection:
    """`answer_photos`, or its earlier result from the user's cache."""
    name, model = f"{photos.key}-{saved.document.checksum[:20]}.npz", saved.path_model
    file = cache_folder("collections") / name
    try:
        with np.load(io.BytesIO(file.read_bytes()), allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in KEPT}
        if len(arrays["predicted"]) == len(photos.names):
            return Collection(model, photos, class_numbers(model, photos.labels), **arrays)
    except (OSError, ValueError, KeyError, BadZipFile):
        pass  # not cached yet, or incomplete
    collection = answer_photos(model, photos, advance)
    file.parent.mkdir(parents=True, exist_ok=True)
    with replacing(file) as partial, open(partial, "wb") as target:
        np.savez(target, **{name: getattr(collection, name) for name in KEPT})
    return collection


def class_numbers(model: PathModel, labels: Sequence[str | None]) -> NDArray[np.int32]:
    """The position of each label's class, by label or name; -1 if there is none."""
    positions = class_names(model)
    return np.array([positions.get((label or "").casefold(), -1) for label in labels], dtype=np.int32)


def flat_map(points: NDArray[np.float32]) -> NDArray[np.float32]:
    """Points in a plane, (n, 2): UMAP of the principal directions if it is installed, PCA otherwise.

    The largest entry of each direction is made positive, so that the map is the same in every run.
    """
    centred = points - points.mean(axis=0)
    directions = np.linalg.eigh(centred.T @ centred)[1][:, ::-1][:, :DIRECTIONS]
    directions *= np.sign(directions[np.abs(directions).argmax(axis=0), np.arange(directions.shape[1])])
    flat = centred @ directions
    if is_installed("umap") and len(points) > DIRECTIONS:
        return np.asarray(require("umap", "web", "a map").UMAP(random_state=0).fit_transform(flat), dtype=np.float32)
    return np.pad(flat, ((0, 0), (0, max(0, 2 - flat.shape[1]))))[:, :2].astype(np.float32)
