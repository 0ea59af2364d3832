"""What is known of one image: its class and path, what else it might be, whether to believe it, and where."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from hcep.errors import HCEPError, quoted
from hcep.explain.explanation import Explanation
from hcep.pursuit.limits import Concepts, Request
from hcep.pursuit.result import path_codes

if TYPE_CHECKING:
    from PIL.Image import Image
    from scipy import sparse

    from hcep.classify.hedging import Hedged
    from hcep.embeddings import EmbeddingStore
    from hcep.explain.corrections import Correction
    from hcep.explain.evidence import Contributions, WhyNot
    from hcep.explain.neighbours import TrainingPhoto
    from hcep.explain.photos import Explainer
    from hcep.explain.where import EvidenceMap, ImageMaps

#: From this probability on an answer counts as sure.
SURE = 0.8
UNLIKE, UNSURE = "unlike anything in training", "unsure"


class Rival(Struct, frozen=True):
    """Another class that the image might be, with its best path."""

    label: str = msgspec.field(name="class")
    name: str
    probability: float
    path: tuple[str, ...]  # ids, the root left out
    names: tuple[str, ...]

    def trail(self) -> str:
        """The path in one line: ``animal → dog``."""
        return " → ".join(self.names)


class PictureObject(Struct, frozen=True):
    """One of several objects in a picture, with its share of it and its path."""

    name: str
    share: float
    path: tuple[str, ...]
    names: tuple[str, ...]


class Level(NamedTuple):
    """One concept of the path among its siblings."""

    probability: float  #: of the classes below the concept
    #: (name, probability) of the concept's siblings, the likeliest first: of the classes below them alone
    siblings: tuple[tuple[str, float], ...]


class Searched(NamedTuple):
    """An image as it was searched, for further questions."""

    explainer: Explainer
    x: NDArray[Any]  # raw embedding
    node: int  # end of its path in the path tree
    label: int  # position of its class
    request: Request  # what was forced and forbidden
    odds: sparse.csr_array  # probabilities of classes, those that matter
    row: int  # which of them is the image's


@dataclass(frozen=True)
class ExplainedImage:
    """One image with its class and path."""

    file: str  #: where the image is; of an image in memory or an embedding, its number
    #: label, name: the predicted class, and its display name
    label: str
    name: str
    probability: float  #: of that class
    explanation: Explanation
    rivals: tuple[Rival, ...] = ()  #: the likeliest other classes, the likeliest first
    #: whether less of the image is explained than of 95 in 100 training images of the class; None where the model does
    #: not know its training images
    unlike: bool | None = None
    truth: str | None = None  #: the class that the name of the image's folder says, where it says one
    maps: ImageMaps | None = field(default=None, compare=False)  #: where the concepts are, where that was asked for
    source: Path | Image | None = field(default=None, compare=False)
    searched: Searched | None = field(default=None, compare=False, repr=False)
    #: the class against others, where that was asked for
    contrasts: tuple[WhyNot, ...] = field(default=(), compare=False)
    #: nearest, typical: training photos that are like the image, and by concept those that are typical of it, where the
    #: training photos are known
    nearest: tuple[TrainingPhoto, ...] = field(default=(), compare=False)
    typical: Mapping[str, tuple[TrainingPhoto, ...]] = field(default_factory=dict, compare=False)
    #: the lowest concept that can be answered with the coverage that was asked for
    hedged: Hedged | None = field(default=None, compare=False)
    #: what the picture is a sum of, the largest share first, where that was asked for
    objects: tuple[PictureObject, ...] = field(default=(), compare=False)
    #: what somebody said of the image, which the answer obeys
    correction: Correction | None = field(default=None, compare=False)

    @property
    def doubt(self) -> str:
        """Why not to rely on the answer: ``"unlike anything in training"``, ``"unsure"``, or ``""``."""
        return UNLIKE if self.unlike else UNSURE if self.probability < SURE else ""

    @property
    def sure(self) -> bool:
        """Whether nothing speaks against the answer, as far as the model can tell: likely, and like its training."""
        return self.unlike is False and not self.doubt

    @property
    def correct(self) -> bool | None:
        """Whether the class is that of the image's folder; None where that names none."""
        return None if self.truth is None else self.truth == self.label

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        """The concepts of the path among their siblings, with probabilities."""
        if self.searched is None:
            return ()
        h, below, found = self.searched.explainer.model.hierarchy, self.searched.explainer.classes_below, []
        row, parent = self.searched.odds[[self.searched.row]].toarray()[0], h.root
        for synset in [step.synset for step in self.explanation.steps]:
            own = below[:, [h.index(synset)]].toarray()[:, 0] > 0
            # A class may be below siblings too: what they have beyond the concept's own classes is theirs.
            others = below.T @ np.where(own, 0.0, row)
            siblings = [(h.name(c), float(others[h.index(c)])) for c in h.children(parent) if c != synset]
            found.append(Level(float(row[own].sum()), tuple(sorted(siblings, key=lambda pair: -pair[1]))))
            parent = synset
        return tuple(found)

    def where(self, concept: str) -> EvidenceMap:
        """Where in the picture a concept of the path is, by id or name: shares that add up to its coefficient."""
        return self._maps().of(concept)

    def margin_map(self, rival: str) -> EvidenceMap:
        """What in the picture says this class rather than a runner-up, by label or name: positive for this class."""
        margins = self._maps().margins
        label = next((other.label for other in self.rivals if rival in (other.label, other.name)), rival)
        if label not in margins:
            raise HCEPError(
                f"{label!r} is no runner-up of this image, which has {quoted(margins, 20) or 'none'}; "
                "ask for more with n_best"
            )
        return margins[label]

    @property
    def request(self) -> Request:
        """The concepts that were forced and forbidden when the image was searched."""
        return self._searched().request

    @cached_property
    def contributions(self) -> Contributions:
        """The score of the class, concept by concept: of its path, or the logit where the model has a linear head."""
        explainer, x, node, label, *_ = self._searched()
        return explainer.evidence.contributions(x, node, label)

    def contrast(self, concept: str, *, training: EmbeddingStore | None = None) -> WhyNot:
        """Why the image was not taken for another class or concept, by id, name or synonym.

        With a store of training photos also those nearest to the image, of both classes.
        """
        explainer, x, node, label, *_ = self._searched()
        found = explainer.evidence.why_not(x, node, label, concept, training)
        margins = {} if self.maps is None else self.maps.margins
        return replace(found, map=margins.get(found.rival.label))

    def what_if(
        self,
        *,
        force: Concepts = (),
        forbid: Concepts = (),
        coefficients: Mapping[str, float] | None = None,
        scale: Mapping[str, float] | None = None,
    ) -> ExplainedImage:
        """The image explained again, with something changed.

        Parameters
        ----------
        force, forbid : concepts that must, and must not, be on its path; correct one level, and the rest follows
        coefficients, scale : new coefficients of concepts on the path, 0 to remove one, and factors of old ones; the
            image is moved along the concepts' atoms and searched again, or a linear head gets the changed code
        """
        explainer, x, node, *_ = self._searched()
        model, evidence, request = explainer.model, explainer.evidence, Request.of(force, forbid)
        limits = model.limits(*request)
        if not coefficients and not scale:
            return explainer.again(self, x, limits=limits, request=request)
        h, steps = model.hierarchy, {step.synset: step for step in self.explanation.steps}
        values, factors = ({h.find(n): v for n, v in (some or {}).items()} for some in (coefficients, scale))
        absent = [h.name(synset) for synset in values | factors if synset not in steps]
        if absent:
            raise HCEPError(
                f"coefficients: {quoted(absent)} is not on the path of this image, which has "
                f"{quoted([step.name for step in steps.values()], 20)}; force it first"
            )
        new = np.array([values.get(s, factors.get(s, 1.0) * step.coefficient) for s, step in steps.items()])
        if model.head is None:
            # The image itself is moved along the atoms, what the path leaves unexplained stays.
            change = new - [step.coefficient for step in steps.values()]
            moved = evidence.metric(x) + change @ model.dictionary.atoms[evidence.edges(node)]
            return replace(explainer, model=evidence.in_metric).again(self, moved, limits=limits, request=request)
        found, row = model.infer(x[None], limits=limits, explained=True), np.zeros((1, h.path_tree.depth))
        if int(found.paths.nodes[0]) != node:
            raise HCEPError("coefficients are those of a path; force or forbid first, then change them")
        row[0, : len(new)] = new
        codes = path_codes(model.dictionary, found.paths.nodes, row)
        odds = np.asarray(model.head.predict_proba(codes))  # type: ignore[attr-defined]
        paths = replace(found.paths, codes=codes)
        found = replace(found, paths=paths, probabilities=odds, class_index=odds.argmax(axis=1))
        return explainer.again(self, x, inferred=found, request=request)

    def photo(self) -> Image:
        """The image, upright and RGB."""
        from PIL.ImageOps import exif_transpose

        from hcep.embeddings.images import open_image

        if self.source is None:
            raise HCEPError(f"{self.file}: an embedding has no picture")
        return open_image(self.source) if isinstance(self.source, Path) else exif_transpose(self.source).convert("RGB")

    def strip(self, height: int = 260) -> Image:
        """The photo, and beside it a copy per concept with the concept's map on it; raises as `where`."""
        from hcep.explain.map_drawing import strip

        maps = self._maps()
        return strip(self.photo(), list(maps.concepts.values()), maps.names, maps.region, height)

    def line(self) -> str:
        """Class, probability and path, and what speaks against them, in one line."""
        path = " → ".join(step.name for step in self.explanation.steps) or "no concept"
        doubt = f", {self.doubt}" if self.doubt else ""
        return f"{self.name}, {percent(self.probability)}{doubt} ({path})"

    def __repr__(self) -> str:
        return f"<{self.file}: {self.line()}>"

    def _repr_html_(self) -> str:
        from hcep.explain.report import image_cards

        return image_cards([self])

    def _searched(self) -> Searched:
        if self.searched is None:
            raise HCEPError(f"{self.file}: the model is not at hand; explain the image with explain_images")
        return self.searched

    def _maps(self) -> ImageMaps:
        if self.maps is None:
            raise HCEPError(f"{self.file}: there are no maps; photos get them with explain_images(..., where=True)")
        return self.maps


class ExplainedImages(list[ExplainedImage]):
    """Explanations in the order of the images.

    Attributes
    ----------
    skipped : (file, reason) of images that could not be used
    """

    def __init__(self) -> None:
        super().__init__()
        self.skipped: list[tuple[str, str]] = []

    def __repr__(self) -> str:
        lines = [f"<{len(self):,} explained images", *(f" {one.file}: {one.line()}" for one in self[:10])]
        return "\n".join([*lines, *([f" and {len(self) - 10:,} more"] if len(self) > 10 else [])]) + ">"

    def _repr_html_(self) -> str:
        from hcep.explain.report import image_cards

        return image_cards(self)


def changed(one: ExplainedImage, texts: Iterable[str]) -> ExplainedImage:
    """An image with new coefficients of concepts, as people write them: ``dog=0``, or ``dog*2``; "--set" in errors."""
    values: dict[str, float] = {}
    factors: dict[str, float] = {}
    for text in texts:
        sign = max("=*", key=text.rfind)
        name, _, number = text.rpartition(sign)
        try:
            (values if sign == "=" else factors)[name] = float(number)
        except ValueError:
            raise HCEPError(
                f"--set: expected a concept and its new coefficient, dog=0 or dog*2, got {text!r}"
            ) from None
    return one.what_if(force=one.request.force, forbid=one.request.forbid, coefficients=values, scale=factors)


def percent(share: float) -> str:
    """A probability for people, who should not read 0 or 100 where it is neither.

    >>> percent(0.314), percent(0.001), percent(0.9999), percent(1.0)
    ('31 %', '<1 %', '>99 %', '>99 %')
    """
    return "<1 %" if share < 0.01 else ">99 %" if share > 0.99 else f"{100 * share:.0f} %"
