"""What is known of one image: its class and path, what else it might be, whether to believe it, and where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from hcep.errors import HCEPError
from hcep.explain.explanation import Explanation
from hcep.hierarchy import Hierarchy

if TYPE_CHECKING:
    from PIL.Image import Image

    from hcep.classify.hedging import Hedged
    from hcep.embeddings import EmbeddingStore
    from hcep.explain.corrections import Correction
    from hcep.explain.evidence import Contributions, WhyNot
    from hcep.explain.neighbours import TrainingPhoto
    from hcep.explain.questions import Questions
    from hcep.explain.where import EvidenceMap, ImageMaps
    from hcep.pursuit.limits import Concepts, Request

#: From this probability on an answer counts as sure.
SURE = 0.8
UNLIKE, UNSURE = "unlike anything in training", "unsure"


class Rival(NamedTuple):
    """Another class that the image might be.

    Attributes
    ----------
    label, name : the class
    path, names : its best path for this image, by ids and by names, the root left out
    """

    label: str
    name: str
    probability: float
    path: tuple[str, ...]
    names: tuple[str, ...]

    def trail(self) -> str:
        """The path in one line: ``animal → dog``."""
        return " → ".join(self.names)


class PictureObject(NamedTuple):
    """One of several objects in a picture.

    Attributes
    ----------
    name : of the class
    share : of the picture
    path, names : by ids and by names, the root left out
    """

    name: str
    share: float
    path: tuple[str, ...]
    names: tuple[str, ...]


class Level(NamedTuple):
    """One concept of the path among its siblings.

    Attributes
    ----------
    probability : of the classes below the concept
    siblings : (name, probability) of the concept's siblings, the likeliest first: of the classes below them alone
    """

    probability: float
    siblings: tuple[tuple[str, float], ...]


class Odds:
    """Probabilities of classes, those that matter, for some images; and of the concepts above them."""

    def __init__(self, hierarchy: Hierarchy, leaves: NDArray[np.str_]) -> None:
        self.hierarchy = hierarchy
        self._leaves = leaves

    @cached_property
    def below(self) -> sparse.csr_array:
        """(n_classes, n_synsets): whether a class is the synset or below it."""
        leaves, h = self._leaves.tolist(), self.hierarchy
        above = [[h.index(leaf), *(h.index(synset) for synset in h.ancestors(leaf))] for leaf in leaves]
        pointer = np.cumsum([0, *map(len, above)])
        columns = np.concatenate([np.asarray(row, dtype=np.intp) for row in above])
        return sparse.csr_array((np.ones(len(columns)), columns, pointer), shape=(len(leaves), len(h)))

    def levels(self, explanation: Explanation, probabilities: sparse.csr_array) -> tuple[Level, ...]:
        """The concepts of a path among their siblings, by one image's row of probabilities."""
        row, h, above, found = probabilities.toarray()[0], self.hierarchy, self.hierarchy.root, []
        for step in explanation.steps:
            own = self.below[:, [h.index(step.synset)]].toarray()[:, 0] > 0
            # A class may be below siblings too: what they have beyond the concept's own classes is theirs.
            others = self.below.T @ np.where(own, 0.0, row)
            siblings = [(h.name(c), float(others[h.index(c)])) for c in h.children(above) if c != step.synset]
            found.append(Level(float(row[own].sum()), tuple(sorted(siblings, key=lambda pair: -pair[1]))))
            above = step.synset
        return tuple(found)


@dataclass(frozen=True)
class ExplainedImage:
    """One image with its class and path.

    Attributes
    ----------
    file : where the image is; of an image in memory or an embedding, its number
    label, name : the predicted class, and its display name
    probability : of that class
    rivals : the likeliest other classes, the likeliest first
    unlike : whether less of the image is explained than of 95 in 100 training images of the class; None where the model
        does not know its training images
    truth : the class that the name of the image's folder says, where it says one
    maps : where the concepts are, where that was asked for
    contrasts : the class against others, where that was asked for
    nearest, typical : training photos that are like the image, and by concept those that are typical of it, where the
        training photos are known
    hedged : the lowest concept that can be answered with the coverage that was asked for
    objects : what the picture is a sum of, the largest share first, where that was asked for
    correction : what somebody said of the image, which the answer obeys
    """

    file: str
    label: str
    name: str
    probability: float
    explanation: Explanation
    rivals: tuple[Rival, ...] = ()
    unlike: bool | None = None
    truth: str | None = None
    maps: ImageMaps | None = field(default=None, compare=False)
    source: Path | Image | None = field(default=None, compare=False)
    odds: tuple[Odds, sparse.csr_array, int] | None = field(default=None, compare=False)
    contrasts: tuple[WhyNot, ...] = field(default=(), compare=False)
    questions: Questions | None = field(default=None, compare=False, repr=False)
    nearest: tuple[TrainingPhoto, ...] = field(default=(), compare=False)
    typical: Mapping[str, tuple[TrainingPhoto, ...]] = field(default_factory=dict, compare=False)
    hedged: Hedged | None = field(default=None, compare=False)
    objects: tuple[PictureObject, ...] = field(default=(), compare=False)
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
        if self.odds is None:
            return ()
        odds, probabilities, row = self.odds
        return odds.levels(self.explanation, probabilities[[row]])

    def where(self, concept: str) -> EvidenceMap:
        """Where in the picture a concept of the path is, by id or name: shares that add up to its coefficient.

        Raises HCEPError: a concept that is not on the path, or an image that was explained without ``where=True``.
        """
        return self._maps().of(concept)

    def margin_map(self, rival: str) -> EvidenceMap:
        """What in the picture says this class rather than a runner-up, by label or name: positive for this class.

        Raises HCEPError: a class that is not among the runners-up, or an image that was explained without
        ``where=True``.
        """
        label = next((other.label for other in self.rivals if rival in (other.label, other.name)), rival)
        return self._maps().margin(label)

    @property
    def request(self) -> Request:
        """The concepts that were forced and forbidden when the image was searched."""
        return self._questions().request

    @cached_property
    def contributions(self) -> Contributions:
        """The score of the class, concept by concept: of its path, or the logit where the model has a linear head."""
        return self._questions().contributions()

    def contrast(self, concept: str, *, training: EmbeddingStore | None = None) -> WhyNot:
        """Why the image was not taken for another class or concept, by id, name or synonym.

        With a store of training photos also those nearest to the image, of both classes. Raises HCEPError: a concept
        that is unknown or on the path already.
        """
        found = self._questions().why_not(concept, training)
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

        Raises HCEPError: a concept that is unknown or not on the path, a request that no path can meet.

        Parameters
        ----------
        force, forbid : concepts that must, and must not, be on its path; correct one level, and the rest follows
        coefficients, scale : new coefficients of concepts on the path, 0 to remove one, and factors of old ones; the
            image is moved along the concepts' atoms and searched again, or a linear head gets the changed code
        """
        return self._questions().what_if(self, force, forbid, coefficients or {}, scale or {})

    def photo(self) -> Image:
        """The image, upright and RGB.

        Raises HCEPError: when there is only an embedding, or the file is gone.
        """
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
        from hcep.explain.notebook import image_card

        return image_card(self)

    def _questions(self) -> Questions:
        if self.questions is None:
            raise HCEPError(f"{self.file}: the model is not at hand; explain the image with explain_images")
        return self.questions

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
        from hcep.explain.notebook import image_cards

        return image_cards(self)


def percent(share: float) -> str:
    """A probability for people, who should not read 0 or 100 where it is neither.

    >>> percent(0.314), percent(0.001), percent(0.9999), percent(1.0)
    ('31 %', '<1 %', '>99 %', '>99 %')
    """
    return "<1 %" if share < 0.01 else ">99 %" if share > 0.99 else f"{100 * share:.0f} %"
