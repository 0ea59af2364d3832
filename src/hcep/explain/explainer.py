"""A fitted model that answers for encoded images; each image is searched once, and all else comes from that search."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from msgspec import structs
from numpy.typing import NDArray
from scipy import sparse

from hcep.classify.groups import infer_groups
from hcep.classify.hedging import answer_concepts, held_out_levels, is_limited, unknown_kinds, unlike
from hcep.classify.path_model import Inference, PathModel
from hcep.classify.right_level import SURE, promise, require_sure
from hcep.errors import HCEPError, quoted
from hcep.explain.answer import Answer, AnswerContext, Contrast, PictureObject, Rival, Step
from hcep.explain.corrections import Correction
from hcep.explain.evidence import N_ROUTES, Evidence
from hcep.explain.where import PathMaps
from hcep.pursuit import PathResult
from hcep.pursuit.limits import PathLimits, Request
from hcep.pursuit.result import path_codes

if TYPE_CHECKING:
    from PIL.Image import Image

    from hcep.embeddings import EmbeddingStore, Encoder
    from hcep.embeddings.images import ImageItem
    from hcep.models.atom_names import AtomNames

#: Class probabilities that an answer does not keep add up to at most this.
NEGLIGIBLE = 0.01


@dataclass(frozen=True, eq=False, kw_only=True)
class EncodedImage:
    """An image with its embedding, the picture if there is one, and what maps need if maps are wanted."""

    name: str
    embedding: NDArray[Any]  # (n_dims,), raw
    source: Path | ImageItem | Image | None = None
    size: tuple[int, int] = (0, 0)  # width and height of the upright picture
    features: NDArray[np.float32] | None = None  # (n_dims, height, width), if the encoder has feature maps
    pixels: NDArray[np.float32] | None = None  # the encoder's input, if it has none


@dataclass(frozen=True, eq=False)
class Explainer:
    """A model and what to answer: `n_best` classes per image, and more on request.

    Parameters
    ----------
    names : words for the model's atoms; steps then have a ``meaning``
    sure, n_paths, rank : as for `hcep.explain_images`
    """

    model: PathModel
    n_best: int = 3
    names: AtomNames | None = None
    sure: float = SURE
    n_paths: int | Literal["auto"] | None = None
    rank: str | None = None

    def __post_init__(self) -> None:
        require_sure(self.sure)

    @cached_property
    def at_rank(self) -> str | None:
        """The rank that answers stop at, as the hierarchy spells it."""
        return None if self.rank is None else self.model.hierarchy.find_rank(self.rank)

    @cached_property
    def evidence(self) -> Evidence:
        return Evidence(self.model)

    def answers(
        self,
        images: Sequence[EncodedImage],
        *,
        requests: Sequence[Request] = (),
        corrections: Sequence[Correction | None] = (),
        why_not: Sequence[str] = (),
        training: EmbeddingStore | None = None,
        encoder: Encoder | None = None,
        result: Inference | None = None,
        groups: Sequence[str] | None = None,
    ) -> Iterator[Answer]:
        """Answer for images, all of them searched together, or for groups of images.

        Parameters
        ----------
        requests : the concepts forced, forbidden and only possible, one request per image
        corrections : the correction behind each request, if any
        why_not : classes or concepts to compare each answer with, unless they are part of it
        training : training photos, to show beside the comparisons
        encoder : the images' encoder, to make maps of where the concepts are
        result : what an earlier search found, instead of a new one
        groups : the group of each image; a group has one answer (see `hcep.classify.groups.infer_groups`)
        """
        model, requests = self.model, requests or [Request()] * len(images)
        limits = PathLimits.of_images(model.hierarchy, requests)
        limited = is_limited(model, limits, len(images))
        if groups is not None:
            X = np.stack([image.embedding for image in images])
            names, rows, result = infer_groups(model, X, groups, limits, self._n_hypotheses)
            limited = np.isin(names, np.asarray(groups)[limited])
            best = rows.tolist()
            images = [replace(images[i], name=name) for i, name in zip(best, names, strict=True)]
            requests, corrections = [requests[i] for i in best], [corrections[i] for i in best] if corrections else []
        if result is None:
            X = np.stack([image.embedding for image in images])
            result = model.infer(X, n_best=self._n_hypotheses, explained=True, limits=limits)
        classes, odds = result.class_index.tolist(), result.probabilities
        steps, sums, ranked = self._steps(result), self.evidence.of_search(result, classes), self._ranked(result)
        right = self._right_levels(result, limited, groups is not None)
        (objects, ends), are_unlike = self._objects(images), unlike(model, result)
        kinds = unknown_kinds(model, result)
        likely_odds = sparse.csr_array(np.where(odds >= NEGLIGIBLE / odds.shape[1], odds, 0.0).astype(np.float32))
        for i, image in enumerate(images):
            x, node, c = image.embedding, int(result.nodes[i]), classes[i]
            rivals = self._rivals(result, i, ranked[i], x)
            others = [concept for concept in why_not if not self.evidence.is_answer(concept, node, c)]
            contrasts = tuple(self.evidence.contrast(x, node, c, other, odds[i], training) for other in others)
            maps = None
            if encoder is not None:
                against = {rival.label: end for end, rival in rivals}
                against |= {contrast.rival.label: contrast.rival_node for contrast in contrasts}
                maps = self._path_maps.image_maps(image, encoder, node, against, ends[i])
            label, name = self.evidence.classes[c]
            routes, n_routes = self.evidence.other_routes(x, node, requests[i], N_ROUTES if self.n_best > 1 else 0)
            has_words = bool(model.dictionary.transform.words)
            answer = Answer(
                file=image.name,
                **right[i],
                label=label,
                name=name,
                probability=odds[i, c].item(),
                unlike=None if are_unlike is None else bool(are_unlike[i]),
                truth=self._truth(image.source),
                kind=kinds[i],
                force=requests[i].force,
                forbid=requests[i].forbid,
                path=self._by_view(steps[i], x, node) if has_words else steps[i],
                routes=routes,
                n_routes=n_routes,
                by_name=self.evidence.name_share(x, c) if has_words else None,
                objects=objects[i],
                residual_norm=result.residual_norms[i].item(),
                contributions=contrasts[0].chosen if contrasts else sums[i],
                contrasts=contrasts,
                rivals=tuple(rival for _, rival in rivals),
                mapping=None if maps is None else maps.how,
            )
            answer.__dict__["context"] = AnswerContext(
                self, x, node, c, likely_odds, i, image.source, maps, requests[i].only
            )
            yield answer.corrected(corrections[i] if corrections else None)

    def contrast(self, answer: Answer, concept: str, training: EmbeddingStore | None = None) -> Contrast:
        """Compare an answer with another class or concept; a new question, so the image is searched again."""
        x, request = answer.context.x, Request(answer.force, answer.forbid, answer.context.only)
        odds = self.model.infer(x[None], limits=self.model.limits(*request)).probabilities[0]
        return self.evidence.contrast(x, answer.context.node, answer.context.class_index, concept, odds, training)

    def what_if(
        self, answer: Answer, request: Request, coefficients: Mapping[str, float], scale: Mapping[str, float]
    ) -> Answer:
        """Answer again with other limits, or with other coefficients of concepts on the path (see `Answer.what_if`)."""
        model, evidence, x, node = self.model, self.evidence, answer.context.x, answer.context.node
        if not coefficients and not scale:
            return self._again(answer, x, request)
        h, steps = model.hierarchy, {step.synset: step for step in answer.path}
        values, factors = ({h.find(n): v for n, v in named.items()} for named in (coefficients, scale))
        absent = [h.name(synset) for synset in values | factors if synset not in steps]
        if absent:
            raise HCEPError(
                f"coefficients: {quoted(absent)} is not on the path of this image, which has "
                f"{quoted([step.name for step in answer.path], 20)}; force it first"
            )
        new = np.array([values.get(s, factors.get(s, 1.0) * step.coefficient) for s, step in steps.items()])
        if model.head is None:
            # The image itself moves along the atoms; what the path leaves unexplained stays.
            change = new - [step.coefficient for step in answer.path]
            moved = evidence.metric(x) + change @ model.dictionary.atoms[evidence.edges(node)]
            return replace(self, model=evidence.in_metric)._again(answer, moved, request)
        result, row = (
            model.infer(x[None], limits=model.limits(*request), explained=True),
            np.zeros((1, h.path_tree.depth)),
        )
        if int(result.nodes[0]) != node:
            raise HCEPError("coefficients belong to a path; force or forbid concepts first, then change coefficients")
        row[0, : len(new)] = new
        codes = path_codes(model.dictionary, result.nodes, row)
        odds = np.asarray(model.head.predict_proba(codes))
        changed = replace(result, codes=codes, probabilities=odds, class_index=odds.argmax(axis=1))
        return self._again(answer, x, request, changed)

    def _again(self, answer: Answer, x: NDArray[Any], request: Request, result: Inference | None = None) -> Answer:
        """The answer for the same image with another embedding, request or search result."""
        same = request[:2] == (answer.force, answer.forbid)
        image = EncodedImage(name=answer.file, embedding=x, source=answer.context.source)
        corrections = [answer.correction if same else None]
        again = next(self.answers([image], requests=[request], corrections=corrections, result=result))
        return again.replaced(truth=answer.truth)

    @property
    def _n_hypotheses(self) -> int:
        """Paths to ask the search for: more than classes, as a class may have several."""
        return min(4 * self.n_best, len(self.model.hierarchy.path_tree.leaf_nodes)) if self.n_best > 1 else 1

    def _steps(self, paths: PathResult) -> list[tuple[Step, ...]]:
        """The concepts along each path."""
        assert paths.explained_shares is not None
        assert paths.own_shares is not None
        concept, starts, rows = self._concept, paths.codes.indptr.tolist(), []
        atoms, coefficients = paths.codes.indices.tolist(), paths.codes.data.tolist()
        for i, (explained, own) in enumerate(
            zip(paths.explained_shares.tolist(), paths.own_shares.tolist(), strict=True)
        ):
            part, steps = slice(starts[i], starts[i + 1]), []
            for atom, a, share, alone in zip(atoms[part], coefficients[part], explained, own, strict=False):
                steps.append(Step(**concept(atom), coefficient=a, explained=share, share=alone))
            rows.append(tuple(steps))
        return rows

    def _by_view(self, steps: tuple[Step, ...], x: NDArray[Any], node: int) -> tuple[Step, ...]:
        """Steps with the parts of their coefficients that come from pictures and from words."""
        parts = zip(steps, self.evidence.by_name(x, node).tolist(), strict=True)
        return tuple(structs.replace(step, by_name=part, by_look=step.coefficient - part) for step, part in parts)

    @cached_property
    def _concepts(self) -> dict[int, dict[str, Any]]:
        return {}

    def _concept(self, atom: int) -> dict[str, Any]:
        """The fields of a step to the concept that an atom leads to, those that no image changes."""
        if atom not in self._concepts:
            h, (parent, synset) = self.model.hierarchy, self.model.dictionary.edges[atom]
            ids, names = tuple(zip(*h.merged(synset), strict=True)) or ((), ())
            meaning = None if self.names is None else self.names.meaning(parent, synset)
            fields = {"synset": synset, "name": h.name(synset), "merged": names, "meaning": meaning}
            self._concepts[atom] = fields | {"rank": h.rank(synset), "merged_ranks": tuple(map(h.rank, ids))}
        return self._concepts[atom]

    def _ranked(self, result: Inference) -> list[list[int]]:
        """The most likely classes of each image after the predicted one, `n_best` - 1 of them."""
        n, others = min(self.n_best, result.probabilities.shape[1]) - 1, -result.probabilities
        if not n:
            return [[]] * len(others)
        others[np.arange(len(others)), result.class_index] = 1.0
        best = np.argpartition(others, n - 1, axis=1)[:, :n]
        order = np.argsort(np.take_along_axis(others, best, axis=1), axis=1, kind="stable")
        ranked: list[list[int]] = np.take_along_axis(best, order, axis=1).tolist()
        return ranked

    def _rivals(self, result: Inference, i: int, classes: Sequence[int], x: NDArray[Any]) -> list[tuple[int, Rival]]:
        """Other possible classes of an image, each with the node where its best path ends."""
        odds, rivals = result.probabilities[i], []
        for c in classes:
            if odds[c] > 0:  # the request does not exclude it
                end = self._rival_end(c, result.n_best_nodes[i], x)
                rivals.append((end, Rival(*self.evidence.classes[c], odds[c].item(), *self._shown(end))))
        return rivals

    def _shown(self, node: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Ids along the path to a node, and the names that people read."""
        ids = self.evidence.path(node)[0]
        return ids, self.model.hierarchy.shown_path(ids)

    def _rival_end(self, c: int, hypotheses: NDArray[np.int32], x: NDArray[Any]) -> int:
        """Where the best path of a class ends: among the paths that the search returned, or else compared now."""
        routes = self.evidence.routes(c)
        returned = [node for node in hypotheses.tolist() if node in routes] if len(routes) > 1 else routes
        return returned[0] if returned else self.evidence.best_route(self.evidence.metric(x), routes)

    def _right_levels(self, result: Inference, limited: NDArray[np.bool_], by_group: bool) -> list[dict[str, Any]]:
        """The fields of each answer that say at which level it is sure."""
        what, fields = "groups of photos" if by_group else "photos", []
        promised = promise(self.sure, held_out_levels(self.model, by_group), what)
        answers = answer_concepts(self.model, result, self.sure, limited, self.at_rank, by_group)
        for concept, p, estimate, void in zip(*answers, limited.tolist(), strict=True):
            field: dict[str, Any] = {"sure": self.sure, "promise": None if void else promised}
            field["at_rank"] = self.at_rank
            if concept is not None:
                field |= {"answer": concept.id, "answer_name": concept.name, "rank": concept.rank}
                field |= {"answer_probability": p, "answer_estimate": estimate}
            fields.append(field)
        return fields

    def _objects(self, images: Sequence[EncodedImage]) -> tuple[list[tuple[PictureObject, ...]], list[list[int]]]:
        """What each image is a sum of, and where in the path tree these paths end."""
        if self.n_paths is None:
            return [()] * len(images), [[]] * len(images)
        X, h = np.stack([image.embedding for image in images]), self.model.hierarchy
        sums = self.model.pursue_several(X, self.n_paths)
        ends, objects = [[node for node in nodes if node >= 0] for nodes in sums.nodes.tolist()], []
        can_tell, enough = self.model.dictionary.transform.constants is None, sums.n_paths
        if can_tell and self.n_paths != "auto" and enough.max() > 1:
            enough = self.model.pursue_several(X, "auto").n_paths
        for nodes, shares, n in zip(ends, sums.shares.tolist(), enough.tolist(), strict=True):
            paths = [self.evidence.path(node)[0] for node in nodes]
            doubts = [place >= n if can_tell else None for place in range(len(nodes))]
            parts = zip(paths, shares, doubts, strict=False)
            objects.append(tuple(PictureObject(h.name(p[-1]), s, p, h.shown_path(p), doubt) for p, s, doubt in parts))
        return objects, ends

    def _truth(self, source: Path | ImageItem | Image | None) -> str | None:
        """The class that an image's folder is named after."""
        if not isinstance(source, Path):
            return None
        c = self._class_names.get(source.parent.name.casefold())
        return None if c is None else str(self.model.classes[c])

    @cached_property
    def _class_names(self) -> dict[str, int]:
        return class_names(self.model)

    @cached_property
    def _path_maps(self) -> PathMaps:
        return PathMaps(self.model.dictionary, self.model.options.anchor)


def class_names(model: PathModel) -> dict[str, int]:
    """Positions of classes by label and by name, in lower case; names also with underscores for spaces."""
    names = [model.hierarchy.name(leaf) for leaf in model.leaves.tolist()]
    forms = (names, [name.replace(" ", "_") for name in names], map(str, model.classes.tolist()))
    return {form.casefold(): c for some in forms for c, form in enumerate(some)}
