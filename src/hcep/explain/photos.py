"""The headline verb: photos, or embeddings, and a model -> explanations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from hcep._checks import require_positive
from hcep._progress import progress as progress_bar
from hcep.classify.path_model import Inference, PathModel
from hcep.errors import HCEPError
from hcep.explain.corrections import Correction, Corrections, image_hash
from hcep.explain.evidence import Evidence
from hcep.explain.explained import ExplainedImage, ExplainedImages, PictureObject, Rival, Searched
from hcep.explain.explanation import Explanation, explain
from hcep.explain.finding import find_images
from hcep.explain.neighbours import training_photos, with_training_photos
from hcep.explain.where import GRID, ImageMaps, PathMaps, occluded
from hcep.models import SavedModel, read_model
from hcep.models.model_encoder import load_model_encoder
from hcep.pursuit.limits import Concepts, PathLimits, Request
from hcep.pursuit.result import path_of

if TYPE_CHECKING:
    from PIL.Image import Image

    from hcep.classify import HCEPClassifier
    from hcep.classify.hedging import Hedged
    from hcep.embeddings import EmbeddingStore, Encoder
    from hcep.models.atom_names import AtomNames

#: Photos that are in memory at a time, and embeddings.
BATCH, BLOCK = 32, 1024
#: Probabilities that are not kept add up to at most this.
NEGLIGIBLE = 0.01


def explain_images(
    images: str | PathLike[str] | Image | Iterable[str | PathLike[str] | Image] | NDArray[Any],
    model: str | PathLike[str] | SavedModel | PathModel | HCEPClassifier | None = None,
    *,
    where: bool = False,
    n_best: int = 3,
    encoder: Encoder | str | None = None,
    preprocessing: Any = None,
    training: EmbeddingStore | str | PathLike[str] | bool = False,
    why_not: Concepts = (),
    force: Concepts = (),
    forbid: Concepts = (),
    corrections: Corrections | None = None,
    coverage: float | None = None,
    n_paths: int | Literal["auto"] | None = None,
    strict: bool = False,
    progress: bool = False,
) -> ExplainedImages:
    """Explain photos, or embeddings: class, probability and rooted path of concepts of each.

    Raises HCEPError: a path that leads to no image, an encoder that is not the model's or that nobody names, a file
    that is no image where `strict` is true, maps of embeddings.

    >>> from hcep import HCEPClassifier, explain_images
    >>> from hcep.datasets import load_sample
    >>> sample = load_sample()
    >>> model = HCEPClassifier(sample.hierarchy).fit(sample.X_train, sample.y_train)
    >>> first = explain_images(sample.X_val[:2], model)[0]
    >>> first.name, first.explanation.leaf == first.label
    ('tench', True)

    Parameters
    ----------
    images : path, PIL image, several of them, or (n_images, n_dims) array
        Files, folders (all images below) and globs; images in memory; or raw embeddings of the model's encoder.
    model : a folder, or what it holds (it knows its encoder, and names of atoms); or a fitted classifier; by default
        the built-in one of ImageNet's classes
    where : also map where in a photo each concept is: exact for encoders whose vector is the mean of a feature map;
        otherwise approximate, and by occlusion, which encodes every photo about fifty times
    n_best : classes per image: the answer and its runners-up, which are other classes
    encoder : the model's own by default; the photos of a model that does not say which need it
    preprocessing : instead of the recorded one, see `hcep.embeddings.load_encoder`
    training : the store of the training photos, to show those that are nearest to each image and those that are typical
        of its concepts; True for the one in the model's folder, where `hcep fit` of photos leaves it, if it is there
    why_not : classes or concepts that each image is compared with in ``contrasts``, where it was not taken for them
    force, forbid : concepts that must, and must not, be on every path
    corrections : what people said of single images, see `hcep.explain.Corrections`
    coverage : say of each image the lowest concept that the true class is below with this probability, in ``hedged``;
        the model must have been calibrated, see `HCEPClassifier.calibrate`
    n_paths : also explain each image by up to so many objects, in ``objects``; "auto" finds out how many there are
    strict : make an image that cannot be used an error; else it is in ``skipped`` of what is returned
    progress : show a progress bar

    Returns
    -------
    ExplainedImages
        A list of `ExplainedImage`; memory beyond it does not grow with the number of images.
    """
    found = ExplainedImages()
    options: dict[str, Any] = {"coverage": coverage, "n_paths": n_paths, "progress": progress}
    options |= {"why_not": why_not, "force": force, "forbid": forbid, "corrections": corrections}
    options |= {"where": where, "n_best": n_best, "encoder": encoder, "preprocessing": preprocessing}
    for batch in explained_batches(images, model, None if strict else found.skipped, training=training, **options):
        found += batch
    return found


def explained_batches(
    images: str | PathLike[str] | Image | Iterable[str | PathLike[str] | Image] | NDArray[Any],
    model: str | PathLike[str] | SavedModel | PathModel | HCEPClassifier | None = None,
    skipped: list[tuple[str, str]] | None = None,
    *,
    where: bool = False,
    n_best: int = 3,
    encoder: Encoder | str | None = None,
    preprocessing: Any = None,
    training: EmbeddingStore | str | PathLike[str] | bool = False,
    why_not: Concepts = (),
    force: Concepts = (),
    forbid: Concepts = (),
    corrections: Corrections | None = None,
    coverage: float | None = None,
    n_paths: int | Literal["auto"] | None = None,
    progress: bool = False,
) -> Iterator[list[ExplainedImage]]:
    """As `explain_images`, some images at a time: memory does not grow with their number.

    `skipped` gets the (file, reason) of images that cannot be used; without it they are errors.
    """
    require_positive("n_best", n_best)
    classifier, saved = _opened(model)
    explainer = Explainer(classifier, n_best, saved.atom_names if saved else None, coverage, n_paths)
    explainer.hedged(None)  # says what is missing before any photo is encoded
    request, asked = Request.of(force, forbid), Request.of(why_not).force
    for name in asked:
        explainer.evidence.meant(name)  # says what is wrong before any photo is encoded
    limits = classifier.limits(*request)
    if isinstance(images, np.ndarray):
        if where:
            raise HCEPError("where: embeddings have no positions; give the photos")
        X = np.atleast_2d(images)
        n_images, batches = len(X), _blocks(X)
    else:
        photos = _photos(images)
        record, place = (saved.summary.encoder, saved.folder) if saved else (None, "the model")
        adapter = load_model_encoder(record, place, encoder, preprocessing)
        n_images, batches = len(photos), _encoded(photos, adapter, skipped, where)
    store = None if training is False else training_photos(None if training is True else training, saved)
    found: list[ExplainedImage] = []
    with progress_bar("explaining", n_images, progress and n_images > 1, "images") as advance:
        for batch in batches:
            own, said = [request] * len(batch.files), None
            if corrections is not None:
                keys = [image_hash(image) for image in batch.images()]
                own, said = corrections.requests(keys, request), list(map(corrections.honoured, keys))
                limits = PathLimits.of_images(classifier.hierarchy, own)
            found += explainer.explained(batch, asked, limits, own, training=store, said=said)
            advance(len(batch.files))
            if store is None or len(found) >= BLOCK:  # all training photos are read for each group of images
                yield with_training_photos(found, store, classifier)
                found = []
    if found:
        yield with_training_photos(found, store, classifier)


@dataclass(frozen=True, eq=False)
class Batch:
    """Images with their embeddings; of photos also the pictures, and what maps need, where maps are wanted."""

    files: list[str]
    X: NDArray[Any]
    sources: Sequence[Path | Image | None]
    sizes: Sequence[tuple[int, int]] = ()
    pixels: NDArray[np.float32] | None = None
    features: NDArray[np.float32] | None = None
    encoder: Encoder | None = None

    def images(self) -> list[Any]:
        """Each as it is known from run to run: a photo, or an embedding."""
        return [x if source is None else source for source, x in zip(self.sources, self.X, strict=True)]


@dataclass(frozen=True, eq=False)
class Explainer:
    """A model that explains batches, each image searched once."""

    model: PathModel
    n_best: int
    names: AtomNames | None
    coverage: float | None = None
    n_paths: int | Literal["auto"] | None = None

    @cached_property
    def evidence(self) -> Evidence:
        return Evidence(self.model)

    def again(self, one: ExplainedImage, x: NDArray[Any], *, request: Request, **given: Any) -> ExplainedImage:
        """An image once more, with another embedding, limits or inference."""
        batch, said = Batch([one.file], x[None], [one.source]), one.correction if request == one.request else None
        return replace(next(self.explained(batch, requests=[request], said=[said], **given)), truth=one.truth)

    def explained(
        self,
        batch: Batch,
        why_not: Sequence[str] = (),
        limits: PathLimits | None = None,
        requests: Sequence[Request] = (),
        inferred: Inference | None = None,
        training: EmbeddingStore | None = None,
        said: Sequence[Correction | None] | None = None,
    ) -> Iterator[ExplainedImage]:
        """The images of a batch, searched once, unless `inferred` says what a search found.

        `limits` are the paths that are open to them, `requests` (one per image) what those come from, and `said` the
        corrections behind these. `training` has photos to show beside the concepts that `why_not` compares with.
        """
        model, n_images = self.model, len(batch.files)
        # A class may have several routes: more paths than classes are asked for.
        n_asked = min(4 * self.n_best, len(model.hierarchy.path_tree.leaf_nodes)) if self.n_best > 1 else 1
        inferred = inferred or model.infer(batch.X, n_best=n_asked, explained=True, limits=limits)
        paths, chosen, odds = inferred.paths, inferred.class_index, inferred.probabilities
        hedged = self.hedged(inferred)
        objects = None if self.n_paths is None else self._objects(batch.X)
        # Runners-up are classes here, not paths.
        kept = {name: getattr(paths, name)[:, :1] for name in ("n_best_nodes", "n_best_residual_norms")}
        explanations = explain(batch.X, replace(paths, **kept), names=self.names)
        floor, ranked = model.explained_floor, self._ranked(odds, chosen)
        # Whether less of an image is explained than of nearly all training images of its class.
        unlike = [None] * n_images if floor is None else (paths.explained < floor[chosen]).tolist()
        small = sparse.csr_array(np.where(odds >= NEGLIGIBLE / odds.shape[1], odds, 0.0).astype(np.float32))
        each = zip(batch.files, batch.sources, batch.X, chosen.tolist(), explanations, paths.n_best_nodes, strict=True)
        for i, (file, source, x, c, explanation, hypotheses) in enumerate(each):
            node, likely = int(hypotheses[0]), odds[i].item
            others = [other for other in ranked[i].tolist() if likely(other) > 0]  # not those ruled out
            nodes = [self._rival_node(other, hypotheses.tolist(), x) for other in others]
            rivals = [
                Rival(*self.evidence.called(o), likely(o), *self._path(v)) for o, v in zip(others, nodes, strict=True)
            ]
            asked = [name for name in why_not if not self.evidence.is_answer(name, node, c)]
            whys = [self.evidence.why_not(x, node, c, name, training) for name in asked]
            maps = None
            if batch.encoder is not None:
                against = [*rivals, *(why.rival for why in whys)], nodes + [why.rival_node for why in whys]
                maps = self._maps(batch, i, explanation, node, *against)
                whys = [replace(why, map=maps.margins[why.rival.label]) for why in whys]
            yield ExplainedImage(
                file,
                *self.evidence.called(c),
                likely(c),
                explanation,
                tuple(rivals),
                unlike=unlike[i],
                truth=self._truths.get(source.parent.name.casefold()) if isinstance(source, Path) else None,
                maps=maps,
                source=source,
                searched=Searched(self, x, node, c, requests[i] if requests else Request(), small, i),
                contrasts=tuple(whys),
                hedged=hedged[i] if hedged else None,
                objects=objects[i] if objects else (),
                correction=said[i] if said else None,
            )

    def hedged(self, inferred: Inference | None) -> list[Hedged] | None:
        """What can be said with the coverage that was asked for; None where none was, or of no inference."""
        if self.coverage is None:
            return None
        from hcep.classify.hedging import class_quantiles, hedges

        class_quantiles(self.model, "concept", 1.0 - self.coverage, False)
        return None if inferred is None else hedges(self.model, inferred, 1.0 - self.coverage)

    def _ranked(self, odds: NDArray[np.float64], chosen: NDArray[np.intp]) -> NDArray[np.intp]:
        """The likeliest classes but the chosen one, (n_images, n_best - 1)."""
        n, others = min(self.n_best, odds.shape[1]) - 1, -odds
        others[np.arange(len(chosen)), chosen] = 1.0
        best = np.argpartition(others, n - 1, axis=1)[:, :n] if n else np.empty((len(odds), 0), dtype=np.intp)
        order = np.argsort(np.take_along_axis(others, best, axis=1), axis=1, kind="stable")
        return np.take_along_axis(best, order, axis=1)

    @cached_property
    def _routes(self) -> list[list[int]]:
        """The nodes of the complete paths of every class."""
        tree, h, found = self.model.hierarchy.path_tree, self.model.hierarchy, defaultdict[int, list[int]](list)
        for node in tree.leaf_nodes.tolist():
            found[int(tree.synset[node])].append(node)
        return [found[h.index(leaf)] for leaf in self.model.leaves.tolist()]

    @cached_property
    def _truths(self) -> dict[str, str]:
        """Labels by what a folder of the class may be called."""
        called = list(map(self.evidence.called, range(len(self.model.classes))))
        forms = [(form, label) for label, name in called for form in (name, name.replace(" ", "_"))]
        return {form.casefold(): label for form, label in (*forms, *((label, label) for label, _ in called))}

    @cached_property
    def classes_below(self) -> sparse.csr_array:
        """(n_classes, n_synsets): whether a class is the synset or below it."""
        h, leaves = self.model.hierarchy, self.model.leaves.tolist()
        above = [[h.index(synset) for synset in (leaf, *h.ancestors(leaf))] for leaf in leaves]
        ends, columns = np.cumsum([0, *map(len, above)]), np.concatenate(above)
        return sparse.csr_array((np.ones(len(columns)), columns, ends), shape=(len(leaves), len(h)))

    def _path(self, node: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Ids and names along the path to a node."""
        ids = path_of(self.model.dictionary, node)
        return ids, tuple(map(self.model.hierarchy.name, ids))

    def _objects(self, X: NDArray[Any]) -> list[tuple[PictureObject, ...]]:
        """What each image is a sum of."""
        assert self.n_paths is not None
        found = self.model.pursue_several(X, self.n_paths)
        return [
            tuple(
                PictureObject(names[-1], share, ids, names)
                for node, share in zip(nodes, shares, strict=True)
                if node >= 0
                for ids, names in [self._path(node)]
            )
            for nodes, shares in zip(found.nodes.tolist(), found.shares.tolist(), strict=True)
        ]

    def _rival_node(self, c: int, hypotheses: list[int], vector: NDArray[Any]) -> int:
        """The best path of a class for an image: among those that the search returned, else compared now."""
        routes = self._routes[c]
        if len(routes) == 1:
            return routes[0]
        for node in hypotheses:
            if node in routes:
                return node
        return routes[self._path_maps.lowest(list(map(self.evidence.edges, routes)), vector)]

    @cached_property
    def _path_maps(self) -> PathMaps:
        return PathMaps(self.model.dictionary, self.model.options.anchor)

    def _maps(
        self, batch: Batch, i: int, explanation: Explanation, node: int, rivals: Sequence[Any], others: list[int]
    ) -> ImageMaps:
        """The maps of image i, whose path ends in `node`, and those of its rivals in `others`."""
        assert batch.encoder is not None
        chosen, against = self.evidence.edges(node), list(map(self.evidence.edges, others))
        if batch.features is not None:
            exact = getattr(batch.encoder, "maps_are_exact", False)
            concepts, margins = self._path_maps.maps(chosen, against, batch.features[i], None if exact else batch.X[i])
        else:
            assert batch.pixels is not None
            vectors = occluded(batch.encoder, batch.pixels[i])
            concepts, margins = self._path_maps.occlusion_maps(chosen, against, vectors, (GRID, GRID))
        return ImageMaps(
            concepts={step.synset: one for step, one in zip(explanation.steps, concepts, strict=True)},
            names=tuple(step.name for step in explanation.steps),
            margins={rival.label: one for rival, one in zip(rivals, margins, strict=True)},
            region=_region(batch.encoder, *batch.sizes[i]),
            size=batch.sizes[i],
            occluded=batch.features is None,
        )


def _region(encoder: Encoder, width: int, height: int) -> tuple[float, float, float, float]:
    """What the model sees of a photo; the whole of it, where the preprocessing is not one of ours."""
    from hcep.embeddings.preprocessing import Preprocessing, PreprocessingError

    try:
        return Preprocessing.from_dict(encoder.preprocessing).region(width, height)
    except (PreprocessingError, TypeError):
        return 0.0, 0.0, float(width), float(height)


def _opened(model: Any) -> tuple[PathModel, SavedModel | None]:
    """What predicts, and the folder that it comes from, where there is one."""
    if model is None:
        from hcep.models import builtin_model

        model = builtin_model()
    if isinstance(model, str | PathLike):
        model = read_model(model)
    if isinstance(model, SavedModel):
        return model.path_model, model
    if not isinstance(model, PathModel) and not hasattr(model, "path_model"):
        raise HCEPError(f"model must be the folder of a saved model or a fitted classifier, got {type(model).__name__}")
    return model if isinstance(model, PathModel) else model.path_model(), None


def _photos(images: Any) -> list[Path | Image]:
    """Files and images, one each."""
    if isinstance(images, str | PathLike) or not isinstance(images, Iterable):
        images = [images]
    photos: list[Path | Image] = []
    for one in images:
        if not isinstance(one, str | PathLike) and not hasattr(one, "convert"):
            raise HCEPError(f"images must be paths, PIL images or an array of embeddings, got {type(one).__name__}")
        photos += find_images([one]) if isinstance(one, str | PathLike) else [one]
    return photos


def _blocks(X: NDArray[Any]) -> Iterator[Batch]:
    for start in range(0, len(X), BLOCK):
        rows = X[start : start + BLOCK]
        yield Batch([str(start + i) for i in range(len(rows))], rows, [None] * len(rows))


def _encoded(
    photos: list[Path | Image], encoder: Encoder, skipped: list[tuple[str, str]] | None, where: bool
) -> Iterator[Batch]:
    """Photos with their embeddings, from one run of the network where its maps are their parts.

    Those that cannot be used go to `skipped`, or are errors where it is None.
    """
    from PIL.ImageOps import exif_transpose

    from hcep.embeddings.images import ImageProblem, open_image

    def readable() -> Iterator[tuple[str, Path | Image, tuple[int, int], NDArray[np.float32]]]:
        for i, photo in enumerate(photos):
            file = str(photo) if isinstance(photo, Path) else str(i)
            try:
                image = open_image(photo) if isinstance(photo, Path) else exif_transpose(photo).convert("RGB")
                yield file, photo, image.size, encoder.preprocess(image)
            except ImageProblem as problem:
                if skipped is None:
                    raise HCEPError(f"{file}: {problem.reason}") from None
                skipped.append((file, problem.reason))

    left, has_maps = readable(), where and getattr(encoder, "has_maps", False)
    while batch := list(islice(left, BATCH)):
        files, sources, sizes, arrays = zip(*batch, strict=True)
        pixels = np.stack(arrays)
        features = encoder.feature_map(pixels) if has_maps else None  # type: ignore[attr-defined]
        if features is not None and getattr(encoder, "maps_are_exact", False):
            X = features.mean(axis=(2, 3))
        else:
            X = encoder.encode_images(pixels)
        yield Batch(
            list(files), X, sources, *((sizes, None if has_maps else pixels, features, encoder) if where else ())
        )
