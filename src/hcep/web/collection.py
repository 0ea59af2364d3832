"""A model's answers for every photo of a collection, computed once, and the views of them that people ask for."""

import csv
import hashlib
import io
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from hcep._checks import escape_spreadsheet, is_installed, require
from hcep._files import cache_folder, replacing
from hcep.classify.hedging import held_out_levels, right_levels, unknown_scores, unlike
from hcep.classify.left_out import left_out_probabilities
from hcep.classify.path_model import PathModel
from hcep.classify.right_level import SURE, promise
from hcep.dictionary.transform import unit_rows
from hcep.embeddings import EmbeddingStore
from hcep.embeddings.images import ImageProblem, content_hash, open_image
from hcep.errors import HCEPError, counted
from hcep.explain.answer import Answer, doubt_about, headline_parts, how_likely, percent
from hcep.explain.corrections import NONE_OF_THESE, Correction, Corrections, Decision
from hcep.explain.explainer import EncodedImage, Explainer, class_names
from hcep.explain.neighbours import fitted_on
from hcep.explain.report import photo_report
from hcep.hierarchy.names import with_article
from hcep.models.loading import SavedModel

#: Embeddings in memory at a time, photos on the map, and photos in a report.
BLOCK, ON_MAP, IN_REPORT = 2048, 6000, 500
#: Principal directions that UMAP starts from.
DIRECTIONS = 50
#: The arrays of a collection that are cached.
KEPT = ["predicted", "probability", "answer", "sureness", "unlike", "novelty", "node", "on_map", "plane"]
KEPT += ["group", "alike", "suspicion", "left_out", "left_out_probability"]
#: Part of the name of cached answers; changes with how they are computed.
EDITION = 4
#: Look-alikes are compared in this many random directions, this many photos at a time; the most that one decision
#: labels, and the neighbour whose usual similarity makes a look-alike.
PROJECTED, COMPARED, TOGETHER, NEIGHBOUR = 64, 2000, 20, 5
#: A label is likely wrong if the photo, left out of its class, is so many times as far from it as from another class.
SUSPICIOUS = 1.1
#: A label above the classes is likely wrong if a model without the photo finds another class more likely than this.
SURE_OF_ANOTHER = 0.7
#: Most numbers of embeddings that are in memory at a time to leave photos out.
MOST_NUMBERS = 200_000_000
#: Queues of photos to look at.
QUEUES = {
    "unsure": "Least sure",
    "different": "Most different from training",
    "informative": "Most informative",
    "mislabelled": "Likely mislabelled",
}

#: Stands for the hash of a photo whose file was not hashed.
NO_HASH = "0" * 64
Rows = NDArray[np.int64]


class Photos:
    """The photos of a collection, by row; `key` identifies the collection, `labels` are the known classes."""

    key: str
    title: str
    names: Sequence[str]
    labels: Sequence[str | None]
    ids: list[Any]  # hashes of the files; the engine may remember the photos
    splits: NDArray[Any] = np.empty(0)  # of all photos, if they have splits
    block = BLOCK

    @property
    def files(self) -> Sequence[str]:
        """Where the photos are, for the record; their names if they are nowhere."""
        return self.names

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

    def identify(self) -> None:
        """Find the hashes of photos that have none yet, so that corrections know them."""


class StorePhotos(Photos):
    """The photos that a store lists; no other file can be read."""

    def __init__(self, store: EmbeddingStore) -> None:
        self.store, self.title = store, Path(store.folder).resolve().name
        self.key = hashlib.sha256("".join(shard.sha256 for shard in store.shards).encode()).hexdigest()[:20]
        self.paths, self.labels = store.paths.tolist(), store.labels.tolist()
        self.ids, self.splits = store.content_hashes.tolist(), store.splits
        self.names = ["/".join(Path(path).parts[-2:]) for path in self.paths]

    @property
    def files(self) -> Sequence[str]:
        files: list[str] = self.paths
        return files

    def blocks(self) -> Iterator[NDArray[Any]]:
        return (X for X, _ in self.store.batches(self.block))

    def vectors(self, rows: Rows) -> NDArray[Any]:
        return self.store.select(rows=rows).to_numpy(np.float32)

    def picture(self, row: int) -> Any:
        return open_image(self.paths[row], shorter_side=640)

    def identify(self) -> None:
        for row, key in enumerate(self.ids):
            if key is None and Path(str(self.paths[row])).is_file():
                self.ids[row] = content_hash(self.paths[row])  # an imported store lacks them


class DroppedPhotos(Photos):
    """Dropped photos with their names; the folder in a name is taken for the class."""

    def __init__(self, photos: Sequence[tuple[str, Any]]) -> None:
        self.photos = [(photo.embedding, photo.jpeg) for _, photo in photos]
        self.ids = [photo.id for _, photo in photos]
        self.key = hashlib.sha256("".join(self.ids).encode()).hexdigest()[:20]
        self.title, self.names = "your selection", [name for name, _ in photos]
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
    novelty : (n_photos,) float32; how different the photo is from training (see `unknown_scores`)
    node : (n_photos,) int32; where each path ends in the path tree
    on_map, plane : (n_shown,) int64 and (n_shown, 2) float32; the photos on the map and their positions
    group, alike : (n_photos,) int32; the look-alikes that each photo belongs to, at most `TOGETHER`, and the number of
        photos that look like it
    suspicion : (n_photos,) float32; how much farther the photo, left out, is from its own class than from the next
    left_out, left_out_probability : (n_photos,) int32 and float32; the class by a model without the photo and its
        probability; -1 and 0 for photos that the model was not fitted on
    corrections : what people said about photos, which may change at any time
    """

    model: PathModel
    photos: Photos
    truth: NDArray[np.int32]
    predicted: NDArray[np.int32]
    probability: NDArray[np.float32]
    answer: NDArray[np.int32]
    sureness: NDArray[np.float32]
    unlike: NDArray[np.bool_]
    novelty: NDArray[np.float32]
    node: NDArray[np.int32]
    on_map: Rows
    plane: NDArray[np.float32]
    group: NDArray[np.int32]
    alike: NDArray[np.int32]
    suspicion: NDArray[np.float32]
    left_out: NDArray[np.int32]
    left_out_probability: NDArray[np.float32]
    corrections: Corrections | None = None

    def __len__(self) -> int:
        return len(self.predicted)

    @cached_property
    def class_names(self) -> list[str]:
        return [self.model.hierarchy.name(leaf) for leaf in self.model.leaves.tolist()]

    @cached_property
    def own_masks(self) -> dict[str, NDArray[np.bool_]]:
        """Photos by what the model makes of them."""
        known = self.label > 0
        right = self.model.levels.is_below(self.predicted, self.label)
        masks = {"unsure": ~self._is_class, "mistakes": known & ~right, "unlike": self.unlike, "right": known & right}
        return masks | {"known": known}

    @cached_property
    def label(self) -> NDArray[np.int64]:
        """The synset that the label of each photo names, a class or a concept above classes; 0 if there is none."""
        leaves = self.model.leaf_index[np.maximum(self.truth, 0)]
        return np.where(self.truth >= 0, leaves, concept_numbers(self.model, self.photos.labels)).astype(np.int64)

    def label_name(self, row: int) -> str:
        return self.model.hierarchy.name(self.model.hierarchy.ids[self.label[row]])

    def label_words(self, row: int) -> tuple[str, str]:
        """How the label of a photo agrees with the answer, and whether that is "good", "bad" or neither."""
        label, best = self.label_name(row), int(self.left_out[row])
        is_right = bool(self.own_masks["right"][row])
        words = "The label agrees" if is_right and self.truth[row] >= 0 else f"The label says {label}"
        if best < 0 or self.model.levels.is_below(self.left_out[row], self.label[row]):
            return f"{words}.", "good" if is_right else "bad" if self.is_wrong[row] else ""
        other = f"{with_article(self.class_names[best])}, {percent(float(self.left_out_probability[row]))}"
        return f"{words}, but without this photo the model would say: {other}.", "warn"

    @cached_property
    def unseen(self) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """The class of each photo and its probability as if the model had not been fitted on the photo."""
        is_out = self.left_out >= 0
        likely = np.where(is_out, self.left_out_probability, self.probability)
        return np.where(is_out, self.left_out, self.predicted), likely

    @property
    def masks(self) -> dict[str, NDArray[np.bool_]]:
        """Photos by what is to be seen; those that a person has corrected count as corrected and nothing else."""
        corrected = self._decided[0]
        masks = {name: mask & ~corrected for name, mask in self.own_masks.items()}
        return {"all": np.ones(len(self), dtype=bool), "corrected": corrected, **masks}

    @property
    def _decided(self) -> tuple[NDArray[np.bool_], NDArray[np.int32]]:
        """Which photos a person has corrected, and where each path ends, for corrected photos as people said."""
        n_lines = 0 if self.corrections is None else len(self.corrections.history)
        if n_lines not in self._decisions:
            self._decisions.clear()
            self._decisions[n_lines] = self._decide()
        return self._decisions[n_lines]

    @cached_property
    def _decisions(self) -> dict[int, tuple[NDArray[np.bool_], NDArray[np.int32]]]:
        return {}

    def _decide(self) -> tuple[NDArray[np.bool_], NDArray[np.int32]]:
        h, corrected, nodes = self.model.hierarchy, np.zeros(len(self), dtype=bool), self.node.copy()
        first = {synset: node for node, synset in reversed(list(enumerate(h.path_tree.synset.tolist())))}
        for image in () if self.corrections is None else self.corrections.in_force:
            for row in self._rows_of.get(image, ()):
                corrected[row] = True
                if (decision := self.decision(row)) is not None:
                    nodes[row] = first[h.index(decision.synset)]
        return corrected, nodes

    def queue(self, kind: str) -> list[list[int]]:
        """Photos that nobody has decided yet, in groups of look-alikes and in the order of one of `QUEUES`."""
        best, likely = self.unseen
        is_other = (self.label > 0) & ~self.model.levels.is_below(best, self.label) & (likely > SURE_OF_ANOTHER)
        is_other &= self.truth < 0
        scores = {
            "unsure": 1.0 - likely,
            "different": self.novelty,
            "informative": (1.0 - likely) * (1 + self.alike),
            "mislabelled": np.where(self.suspicion > SUSPICIOUS, self.suspicion, np.where(is_other, likely, -np.inf)),
        }[kind]
        rows = np.flatnonzero(~self.masks["corrected"] & np.isfinite(scores))
        groups: dict[Any, list[int]] = {}
        for row in rows[np.argsort(-scores[rows], kind="stable")].tolist():
            groups.setdefault((self.group[row], self.label[row] if kind == "mislabelled" else 0), []).append(row)
        return list(groups.values())

    @cached_property
    def _rows_of(self) -> dict[Any, list[int]]:
        """The rows of each photo, by its hash."""
        rows: dict[Any, list[int]] = {}
        for row, key in enumerate(self.photos.ids):
            rows.setdefault(key, []).append(row)
        return rows

    def correction(self, row: int) -> Correction | None:
        """The correction that a photo's answer follows."""
        if self.corrections is None or self.photos.ids[row] is None:
            return None
        return self.corrections.applied(self.photos.ids[row])

    def decision(self, row: int) -> Decision | None:
        """What a person said that a photo is."""
        correction = self.correction(row)
        return None if correction is None else correction.decision(self.model.hierarchy)

    @cached_property
    def _is_class(self) -> NDArray[np.bool_]:
        """Whether the class itself is sure enough."""
        return np.asarray(self.answer == self.model.leaf_index[self.predicted])

    @cached_property
    def is_wrong(self) -> NDArray[np.bool_]:
        """Whether the answer is wrong: the label is known, and neither of the two is above the other."""
        h = self.model.hierarchy
        pairs, place = np.unique(np.column_stack([self.label, self.answer]), axis=0, return_inverse=True)
        lines = [[{h.ids[i], *h.ancestors(h.ids[i])} for i in pair] for pair in pairs.tolist()]
        parts = np.array([not (a <= b or b <= a) for a, b in lines], dtype=bool)
        return np.asarray((self.label > 0) & (self.answer > 0) & parts[place.ravel()])

    def answer_name(self, row: int) -> str | None:
        """The name of the answer; None if nothing is sure enough."""
        h, synset = self.model.hierarchy, int(self.answer[row])
        return h.name(h.ids[synset]) if synset else None

    def headline(self, row: int) -> str:
        """The answer in words, as `Answer.headline` words it."""
        if (decision := self.decision(row)) is not None:
            return NONE_OF_THESE if decision.name is None else with_article(decision.name)
        if self.correction(row) is not None:  # it only says what the photo is not
            return self.explained([row])[row].headline()
        name, guess = self.answer_name(row), with_article(self.class_names[self.predicted[row]])
        guesses = None if self._is_class[row] else f"{guess}, {percent(float(self.probability[row]))}"
        return "".join(headline_parts(name, float(self.sureness[row]), guesses, bool(self.unlike[row]), self._promised))

    @cached_property
    def _promised(self) -> float | None:
        """How often answers are right according to held-out photos; None if these promise nothing."""
        return None if promise(SURE, held_out_levels(self.model)) is None else SURE

    @cached_property
    def _mistakes(self) -> list[tuple[int, str, str, str]]:
        """Row, label, prediction and the lowest concept above both, for every mistake."""
        h, lowest = self.model.hierarchy, cache(self.model.hierarchy.lca)
        rows = np.flatnonzero(self.own_masks["mistakes"])
        ids = np.array(h.ids, dtype=object)
        pairs = zip(ids[self.label[rows]], self.model.leaves[self.predicted[rows]].tolist(), strict=True)
        return [(row, a, b, lowest(a, b)) for row, (a, b) in zip(rows.tolist(), pairs, strict=True)]

    @cached_property
    def distance(self) -> NDArray[np.float64]:
        """Edges between truth and answer; 0 if they are equal or the truth is unknown."""
        distances, level = np.zeros(len(self)), self.model.hierarchy.level
        for row, a, b, above in self._mistakes:
            distances[row] = level(a) + level(b) - 2 * level(above)
        return distances

    @cached_property
    def common(self) -> NDArray[np.int64]:
        """The lowest concept above truth and answer, for mistakes; -1 for other photos."""
        common = np.full(len(self), -1)
        for row, _, _, above in self._mistakes:
            common[row] = self.model.hierarchy.index(above)
        return common

    def confusions(self) -> list[tuple[str, int, str, str, int]]:
        """Mistakes by the lowest concept above label and answer, those of most photos first.

        Rows are the concept, its number of mistakes, and the names and the number of the most frequent pair.
        """
        by_concept, name = dict[str, Counter[tuple[str, str]]](), self.model.hierarchy.name
        for _, a, b, above in self._mistakes:
            by_concept.setdefault(above, Counter())[name(a), name(b)] += 1
        rows = [(concept, pairs.total(), *pairs.most_common(1)[0]) for concept, pairs in by_concept.items()]
        return [(concept, n, *pair, times) for concept, n, pair, times in sorted(rows, key=lambda row: -row[1])]

    def rows(self, view: View) -> Rows:
        keep = self.masks[view.show].copy()
        if view.node:
            level = int(self.model.hierarchy.path_tree.level[view.node])
            keep &= self._ancestors[self._decided[1], level - 1] == view.node
        if view.common is not None:
            keep &= self.common == view.common
        if view.group is not None:
            keep &= np.isin(np.arange(len(self)), view.group)
        rows = np.flatnonzero(keep)
        order = {"unsure": (self.probability,), "worst": (self.probability, -self.distance)}.get(view.sort)
        return rows if order is None else rows[np.lexsort([key[rows] for key in order])]

    def score(self, saved: SavedModel) -> str:
        """How many answers are right, in words; separately for photos that the model was not fitted on."""
        masks = self.masks

        def share(of: NDArray[np.bool_], is_right: NDArray[np.bool_] = masks["right"]) -> str:
            n, right = int(of.sum()), int((of & is_right).sum())
            return f"{right:,} of {n:,} answers match the labels ({100 * right / n:.1f} %)"

        known, own, what = masks["known"], fitted_on(saved, self.photos.ids), "photos that the model was fitted on"
        n_corrected = int(masks["corrected"].sum())
        corrected = f" People corrected {counted(n_corrected, 'photo')}." if n_corrected else ""
        if not own.any() and "train" in self.photos.splits:
            own, what = self.photos.splits == "train", "photos of the split train"
        own &= known
        if not known.any() or not own.any():
            return (f"{share(known)}." if known.any() else "") + corrected
        if not (known & ~own).any() and (self.left_out[own] >= 0).any():
            is_out = own & (self.left_out >= 0)
            without = share(is_out, self.model.levels.is_below(self.left_out, self.label))
            return f"The model was fitted on these photos. Without each photo in turn, {without}.{corrected}"
        if not (known & ~own).any():
            return f"{share(known)}, but all are {what}, so this says nothing about new photos.{corrected}"
        others = f"Of the others, {share(known & ~own)}."
        return f"{share(known)}. But {int(own.sum()):,} of them are {what}. {others}{corrected}"

    @cached_property
    def _ancestors(self) -> NDArray[np.int32]:
        return self.model.hierarchy.path_tree.ancestors()

    def node_name(self, node: int) -> str:
        h = self.model.hierarchy
        return h.name(h.ids[h.path_tree.synset[node]])

    def counts(self, rows: Rows) -> NDArray[np.int64]:
        """Number of photos at and below each node."""
        tree = self.model.hierarchy.path_tree
        counts = np.bincount(self._decided[1][rows], minlength=tree.n_nodes)
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
        nodes = self._decided[1][rows]
        above = self._ancestors[nodes, level - 1]
        return np.where(above < 0, nodes, above).astype(np.int64)

    def path(self, row: int) -> list[str]:
        if (decision := self.decision(row)) is not None:
            h = self.model.hierarchy
            return [] if decision.synset == h.root else list(map(h.name, h.paths(decision.synset)[0]))
        if self.correction(row) is not None:
            return [step.name for step in self.explained([row])[row].path]
        return [self.node_name(node) for node in self.trail(int(self.node[row]))]

    def doubt(self, row: int) -> str:
        """Why not to rely on the answer (see `Answer.doubt`)."""
        if self.decision(row) is not None:
            return ""
        label = self.class_names[self.predicted[row]]
        answer = label if self._is_class[row] else self.answer_name(row) and ""
        return doubt_about(answer, label, bool(self.unlike[row]))

    def tile(self, row: int) -> dict[str, Any]:
        correction = self.correction(row)
        if correction is not None:
            words = correction.words(self.model.hierarchy)
            return {"name": words, "sure": "", "row": row, "note": correction.summary(), "tone": "corrected"}
        name, wrong, notes = self.answer_name(row), bool(self.is_wrong[row]), []
        guess, likely = f"perhaps {self.class_names[self.predicted[row]]}", percent(float(self.probability[row]))
        if not self._is_class[row]:
            notes.append(f"{guess}, {likely}" if name is not None or self.unlike[row] else self.doubt(row))
        if self.own_masks["mistakes"][row]:
            notes.append(f"label: {self.label_name(row)}")
        elif self.unlike[row] and name is not None:
            notes.append(self.doubt(row))
        tone = "wrong" if wrong else "doubt" if notes else ""
        sure = how_likely(float(self.sureness[row]), self._promised)
        if name is None:
            name, sure = (self.doubt(row), "") if self.unlike[row] else (guess, likely)
        return {"name": name, "sure": sure, "row": row, "note": "; ".join(notes), "tone": tone}

    def table(self, rows: Rows) -> str:
        """Photos as CSV; no cell is a formula for a spreadsheet."""
        text, names = io.StringIO(), ["photo", "label", "answer", "answer_name", "answer_probability", "rank", "class"]
        writer = csv.writer(text)
        writer.writerow([*names, "name", "class_probability", "path", "doubt", "right", "corrected"])
        h, labels = self.model.hierarchy, self.model.classes.astype(str).tolist()
        corrected = self.explained([row for row in rows.tolist() if self.correction(row) is not None])
        for row in rows.tolist():
            c, synset, right = int(self.predicted[row]), int(self.answer[row]), "no" if self.label[row] else ""
            concept = h.class_of(h.ids[synset]) if synset else ""
            answer = labels[c] if self._is_class[row] else concept
            sure, rank = (f"{self.sureness[row]:.4f}", h.rank(concept) or "") if synset else ("", "")
            right = "yes" if self.own_masks["right"][row] else right
            cells = [answer, self.answer_name(row) or "", sure, rank, labels[c], self.class_names[c]]
            cells += [f"{self.probability[row]:.4f}", " → ".join(self.path(row)), self.doubt(row), right, ""]
            if (one := corrected.get(row)) is not None and one.correction is not None:
                sure = "" if one.answer_probability is None else f"{one.answer_probability:.4f}"
                cells = [one.answer or "", one.answer_name or "", sure, one.rank or "", one.label, one.name]
                cells += [f"{one.probability:.4f}", " → ".join(self.path(row)), one.doubt, ""]
                cells.append(one.correction.said(h))
            photo = [self.photos.names[row], self.photos.labels[row] or ""]
            writer.writerow(map(escape_spreadsheet, [*photo, *cells]))
        return text.getvalue()

    def explained(self, rows: Sequence[int]) -> dict[int, Answer]:
        """The answers for some photos by row, as corrections limit and name them."""
        first = np.array(sorted(rows), dtype=np.int64)
        if not len(first):
            return {}
        images = [EncodedImage(name="", embedding=x) for x in self.photos.vectors(first)]
        corrections, requests = [self.correction(row) for row in first.tolist()], None
        if self.corrections is not None:
            requests = self.corrections.requests(self.photos.ids[row] or NO_HASH for row in first.tolist())
        each = Explainer(self.model).answers(images, requests=requests or (), corrections=corrections)
        return dict(zip(first.tolist(), each, strict=True))

    def report(self, rows: Rows, title: str) -> str:
        """The first `IN_REPORT` photos, explained, as one HTML page."""
        answers = self.explained(rows[:IN_REPORT].tolist())
        labels, shown = list(map(str, self.model.classes.tolist())), []
        for row in rows[:IN_REPORT].tolist():
            try:
                source = self.photos.picture(row)
            except ImageProblem:
                source = None
            truth = None if self.truth[row] < 0 else labels[self.truth[row]]
            shown.append(answers[row].replaced(file=self.photos.names[row], source=source, truth=truth))
        return photo_report(shown, title)


def answer_photos(
    model: PathModel,
    photos: Photos,
    advance: Callable[[int], object] = lambda n: None,
    corrections: Corrections | None = None,
    fitted: NDArray[np.bool_] | None = None,
    counts: Mapping[str, int] | None = None,
) -> Collection:
    """Answer for every photo, as the model is and, for photos that it was fitted on, as it would be without the photo.

    Parameters
    ----------
    advance : called with the number of photos done since its last call
    corrections : what people said about photos
    fitted : (n_photos,); whether the model was fitted on the photo; on none by default
    counts : training photos of each class, by its label, if not all are here
    """
    n, start = len(photos.names), 0
    on_map = np.unique(np.linspace(0, n - 1, min(n, ON_MAP)).astype(np.int64))
    predicted, node, probability = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.float32)
    answer, sureness = np.empty(n, np.int32), np.empty(n, np.float32)
    are_unlike, novelty, points = np.zeros(n, dtype=bool), np.empty(n, np.float32), []
    truth, projected = class_numbers(model, photos.labels), np.empty((n, PROJECTED), np.float32)
    looks = Looks.of(photos)
    directions = np.random.default_rng(0).normal(size=(len(looks.mean), PROJECTED))
    for X in photos.blocks():
        rows = slice(start, start + len(X))
        result = model.infer(X, explained=True)
        novelty[rows] = unknown_scores(model, result)
        embedded = np.asarray(model.dictionary.embed(X), dtype=np.float32)
        projected[rows] = looks(X) @ directions
        predicted[rows], node[rows] = result.class_index, result.nodes
        probability[rows] = result.probabilities[np.arange(len(X)), result.class_index]
        answer[rows], sureness[rows], _ = right_levels(model, result)
        are_unlike[rows] = False if (block_unlike := unlike(model, result)) is None else block_unlike
        own = on_map[(on_map >= start) & (on_map < rows.stop)] - start
        points.append(embedded[own])
        start = rows.stop
        advance(len(X))
    plane = flat_map(np.concatenate([block for block in points if len(block)]))
    suspicion = left_out_suspicion(photos, truth, len(model.classes), looks)
    labels = photos.labels if corrections is None else corrections.labels(photos.ids, photos.labels, model.hierarchy)
    was_fitted = np.zeros(n, dtype=bool) if fitted is None else fitted
    left_out, likely = left_out_answers(model, photos, was_fitted, labels, counts or {})
    best = np.where(left_out >= 0, left_out, predicted)
    group, alike = look_alikes(projected, predicted, (suspicion > 1.0) | ((truth >= 0) & (best != truth)))
    arrays = (truth, predicted, probability, answer, sureness, are_unlike, novelty, node, on_map, plane, group, alike)
    return Collection(model, photos, *arrays, suspicion, left_out, likely, corrections)


class Looks(NamedTuple):
    """What photos look like to the encoder alone: embeddings of norm 1, from which their mean is subtracted.

    The model's metric was fitted to labels, and a wrong one pulls its photo to the wrong class. Comparing the
    embeddings themselves does not group such photos with the class of their label.
    """

    mean: NDArray[np.float64]

    @classmethod
    def of(cls, photos: Photos) -> Self:
        total: Any = 0.0
        for X in photos.blocks():
            total = total + unit_rows(X.astype(np.float64)).sum(axis=0)
        return cls(np.asarray(total / max(len(photos.names), 1)))

    def __call__(self, X: NDArray[Any]) -> NDArray[np.float64]:
        return unit_rows(unit_rows(X.astype(np.float64)) - self.mean)


def look_alikes(
    points: NDArray[np.float32], predicted: NDArray[np.int32], alone: NDArray[np.bool_]
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The group of each photo and the number of its look-alikes, (n_photos,) each.

    Photos of one predicted class look alike if they are as similar as a photo usually is to its fifth neighbour.

    Parameters
    ----------
    points : (n_photos, n_directions) embeddings
    predicted : (n_photos,) predicted class
    alone : (n_photos,) photos that are never grouped, as one decision must not be made for a photo that may differ
    """
    group, alike = np.full(len(points), -1, np.int32), np.zeros(len(points), np.int32)
    group[alone] = np.flatnonzero(alone)
    units = unit_rows(points)
    for c in np.unique(predicted):
        own = np.flatnonzero((predicted == c) & ~alone)
        for start in range(0, len(own), COMPARED):
            rows = own[start : start + COMPARED]
            similar = units[rows] @ units[rows].T
            np.fill_diagonal(similar, -1.0)
            k = max(len(rows) - NEIGHBOUR, 0)
            least = float(np.median(np.partition(similar, k, axis=1)[:, k]))
            is_alike = similar >= least
            alike[rows] = is_alike.sum(axis=1)
            for i in np.argsort(-alike[rows], kind="stable").tolist():
                if group[rows[i]] < 0:
                    others = np.flatnonzero(is_alike[i] & (group[rows] < 0))
                    nearest = others[np.argsort(-similar[i, others], kind="stable")][: TOGETHER - 1]
                    group[rows[[i, *nearest.tolist()]]] = rows[i]
    return group, alike


def left_out_suspicion(photos: Photos, truth: NDArray[np.int32], n_classes: int, looks: Looks) -> NDArray[np.float32]:
    """How many times as far each labelled photo is from its class as from the nearest other one, (n_photos,).

    Distances are those of looks to the means of the labelled photos; a photo is left out of the mean of its own class,
    which is then ``n / (n - 1)`` times as far away. Photos without a label, or alone in it, have 0.
    """
    counts = np.bincount(truth[truth >= 0], minlength=n_classes).astype(np.float64)
    suspicion, start = np.zeros(len(truth), np.float32), 0
    if (counts > 1).sum() < 2:
        return suspicion
    sums = np.zeros((len(counts), len(looks.mean)))
    for X in photos.blocks():
        own = truth[start : start + len(X)]
        np.add.at(sums, own[own >= 0], looks(X[own >= 0]))
        start += len(X)
    means, start = sums / np.maximum(counts, 1.0)[:, None], 0
    for X in photos.blocks():
        own = truth[start : start + len(X)]
        rows = np.flatnonzero((own >= 0) & (counts[own] > 1))
        Z = looks(X[rows])
        squares = (Z**2).sum(axis=1)[:, None] - 2.0 * Z @ means.T + (means**2).sum(axis=1)
        distances = np.sqrt(np.maximum(squares, 0.0))
        distances[:, counts == 0] = np.inf
        at, n = np.arange(len(rows)), counts[own[rows]]
        mine = distances[at, own[rows]] * n / (n - 1.0)
        distances[at, own[rows]] = np.inf
        suspicion[start + rows] = mine / np.maximum(distances.min(axis=1), 1e-12)
        start += len(X)
    return suspicion


def left_out_answers(
    model: PathModel, photos: Photos, fitted: NDArray[np.bool_], labels: Sequence[str | None], counts: Mapping[str, int]
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """The class of each photo by a model without it, -1 for photos that the model was not fitted on, and how likely.

    Parameters
    ----------
    fitted : (n_photos,); whether the model was fitted on the photo
    labels : what each photo was labelled with when the model was fitted
    counts : training photos of each class, by its label
    """
    most, likely = np.full(len(fitted), -1, np.int32), np.zeros(len(fitted), np.float32)
    own = class_numbers(model, labels)
    rows = np.flatnonzero(fitted & (own >= 0))
    if not len(rows) or len(rows) * len(photos.vectors(rows[:1])[0]) > MOST_NUMBERS:
        return most, likely
    n_here = np.bincount(own[rows], minlength=len(model.classes))
    n_images = np.array([counts.get(str(label), n) for label, n in zip(model.classes.tolist(), n_here, strict=True)])
    odds = left_out_probabilities(model, photos.vectors(rows), own[rows].astype(np.intp), n_images.astype(np.float64))
    if odds is not None:
        most[rows], likely[rows] = odds.argmax(axis=1), odds.max(axis=1)
    return most, likely


def cached_answers(
    saved: SavedModel, photos: Photos, advance: Callable[[int], object], corrections: Corrections | None = None
) -> Collection:
    """`answer_photos`, or its earlier result from the user's cache."""
    name, model = f"{photos.key}-{saved.document.checksum[:20]}-{EDITION}.npz", saved.path_model
    file = cache_folder("collections") / name
    photos.identify()
    try:
        with np.load(io.BytesIO(file.read_bytes()), allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in KEPT}
        if len(arrays["predicted"]) == len(photos.names):
            return Collection(model, photos, class_numbers(model, photos.labels), **arrays, corrections=corrections)
    except (OSError, ValueError, KeyError, BadZipFile):
        pass  # not cached yet, or incomplete
    fitted, counts = fitted_on(saved, photos.ids), saved.training.images_per_class
    collection = answer_photos(model, photos, advance, corrections, fitted, counts)
    # A cache that cannot be written is not needed.
    with suppress(HCEPError), replacing(file) as partial, open(partial, "wb") as target:
        np.savez(target, **{name: getattr(collection, name) for name in KEPT})
    return collection


def class_numbers(model: PathModel, labels: Sequence[str | None]) -> NDArray[np.int32]:
    """The position of each label's class, by label or name; -1 if there is none."""
    positions = class_names(model)
    return np.array([positions.get((label or "").casefold(), -1) for label in labels], dtype=np.int32)


def concept_numbers(model: PathModel, labels: Sequence[str | None]) -> NDArray[np.int64]:
    """The number of the concept that each label names, by id or name; 0 if there is none, or the root."""
    h, numbers = model.hierarchy, dict[str | None, int]({None: 0, "": 0})
    for label in set(labels) - set(numbers):
        numbers[label] = 0
        with suppress(HCEPError):
            numbers[label] = h.index(h.find(str(label)))
    return np.array([numbers[label] for label in labels], dtype=np.int64)


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
