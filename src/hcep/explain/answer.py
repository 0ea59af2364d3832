"""The answer for one image: one record from which every text line, JSON object, table row and page is made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np
from msgspec import Struct, structs
from numpy.typing import NDArray

from hcep.classify.right_level import SURE
from hcep.errors import HCEPError, quote, quoted
from hcep.explain.corrections import NONE_OF_THESE, Correction
from hcep.hierarchy.names import with_article
from hcep.pursuit.limits import Concepts, Request

if TYPE_CHECKING:
    from PIL.Image import Image
    from scipy import sparse

    from hcep.classify.path_model import PathModel
    from hcep.embeddings import EmbeddingStore
    from hcep.embeddings.images import ImageItem
    from hcep.explain.explainer import Explainer
    from hcep.explain.where import EvidenceMap, ImageMaps

#: Why not to rely on an answer.
UNLIKE, UNCLEAR, NOTHING = "unlike anything in training", "which one is unclear", "nothing is sure enough"
#: An answer above the classes names this many classes, all but the first only from this probability on.
N_PERHAPS, NAMED = 3, 0.05
#: Answers that a list shows in a terminal.
N_SHOWN = 10


def arrows(names: Iterable[str]) -> str:
    """A path in one line: ``animal → dog``; a class that is also above others is named once."""
    return " → ".join(distinct(names))


def distinct(names: Iterable[str]) -> list[str]:
    """The names without repetitions in a row."""
    return [name for name, _ in groupby(names)]


class Step(Struct, frozen=True):
    """One concept of the path: its coefficient, the share of the image explained so far, and its own share."""

    synset: str
    name: str
    merged: tuple[str, ...]  #: names of the single-child chain that `collapse` merged into this concept, highest first
    #: 1 for an image that is exactly the concept's embedding; negative when the image points away from it
    coefficient: float
    #: share of the image's squared norm that the path explains down to this concept, with the path's final
    #: coefficients; it may fall when a later concept compensates
    explained: float
    meaning: str | None  #: what the concept adds to the one above it, in words, if the model's atoms have names
    #: the concept's own share of the image's squared norm, along what its atom adds to those above it; never negative,
    #: and the shares of a path add up
    share: float
    rank: str | None = None  #: such as "family", if the hierarchy has ranks
    merged_ranks: tuple[str | None, ...] = ()  #: the ranks of `merged`
    by_look: float | None = None  #: the part of the coefficient that comes from pictures; None without texts
    by_name: float | None = None  #: the part that comes from words; both parts add up to the coefficient

    def ranked(self) -> tuple[str, ...]:
        """The merged names that have a rank: part of the path for people, although one atom stands for all."""
        return tuple(name for name, rank in zip(self.merged, self.merged_ranks, strict=False) if rank)


class Rival(Struct, frozen=True):
    """Another class that the image might belong to, with that class's best path."""

    label: str = msgspec.field(name="class")
    name: str
    probability: float
    path: tuple[str, ...]  # ids, without the root
    names: tuple[str, ...]

    def trail(self) -> str:
        """The path in one line: ``animal → dog``."""
        return arrows(self.names)


class Route(Struct, frozen=True):
    """Another rooted path to the last concept of the answer's path, in a hierarchy with several parents."""

    path: tuple[str, ...]  # ids, without the root
    names: tuple[str, ...]
    coefficients: tuple[float, ...]  # one per concept, as for `Step`
    #: what the search minimises: the squared residual in the model's metric and, with an anchor, the price of
    #: coefficients that are not 1
    objective: float
    explained: float  #: share of the image's squared norm that the path explains

    def trail(self) -> str:
        """The path with its coefficients in one line, as `Answer.trail`."""
        return " → ".join(f"{name} {a:.2f}" for name, a in zip(self.names, self.coefficients, strict=True))


class PictureObject(Struct, frozen=True):
    """One of several objects in a picture, with its share of the evidence, which is no probability, and its path."""

    name: str
    share: float
    path: tuple[str, ...]
    names: tuple[str, ...]  #: along the path, with merged concepts that have a rank
    #: whether ``n_paths="auto"`` would have stopped before it; None if the model cannot tell how many objects there are
    doubtful: bool | None = None


class TrainingPhoto(Struct, frozen=True):
    """A training photo and its distance in the model's metric."""

    file: str  # its path when it was encoded
    label: str = msgspec.field(name="class")  # as in the store
    name: str  # the model's name for the class
    distance: float


class Contribution(Struct, frozen=True):
    """How much one concept adds to the score of a class."""

    synset: str
    name: str
    value: float


class Contributions(Struct, frozen=True):
    """The score of a class as a sum: the concepts' values, from the root down, and the constant add up to the total.

    For a path the score is by how much the path lowers the objective below `square`, the image's squared norm in the
    model's metric; each concept's value is what it adds to the concepts above it, less the anchor's price of a step.
    For a linear head the score is the logit, and the constant is its intercept.
    """

    label: str = msgspec.field(name="class")
    name: str
    kind: Literal["path", "logit"]
    concepts: tuple[Contribution, ...]
    constant: float
    total: float
    square: float

    def shown(self, value: float) -> str:
        """A value for people: for a path, as a share of the image."""
        if self.kind == "logit":
            return f"{value:+.2f}"
        return f"{round(100 * value / (self.square or 1.0), 1) + 0.0:+.1f} %"

    def line(self, first: int = 0) -> str:
        """The concepts from position `first` on, in one line: ``animal +31.2 %, cat +4.0 %``."""
        concepts = self.concepts[first:]
        if not self.constant and [one.name for one in concepts] == [self.name]:
            return self.shown(concepts[0].value)
        parts = [f"{one.name} {self.shown(one.value)}" for one in concepts]
        if self.constant:
            parts.append(f"constant {self.shown(self.constant)}")
        return ", ".join(parts) or "nothing more"


class Flip(Struct, frozen=True):
    """The smallest change of the embedding that makes two classes equal: its norm, and as a share of the embedding's.

    `prepared` says that the change applies after the model's power and unit norm instead of to the raw embedding.
    `class` is the answer just beyond the change: the other class, or a third one.
    """

    norm: float
    share: float
    prepared: bool
    label: str = msgspec.field(name="class")
    name: str


class Contrast(Struct, frozen=True, kw_only=True, dict=True):
    """Why this class and not another: the scores' totals differ by `margin`; `shared` concepts count for both."""

    chosen: Contributions
    rival: Contributions
    margin: float  #: by how much the chosen class scores higher; for paths ``objective(rival) - objective(chosen)``
    shared: tuple[str, ...]  #: names of the concepts on both paths, from the root down
    path: tuple[str, ...]  #: names along the path of the chosen class
    rival_path: tuple[str, ...]  #: names along the rival's best path for this image
    probability: float
    rival_probability: float
    barred: tuple[str, ...] = ()  #: names of the rival's concepts that a model with the signed rule rules out
    #: None when the rule is signed, when no change would do, or when the rival already scores higher
    flip: Flip | None = None
    #: the nearest training photos of the chosen class and of the rival, if training photos were given
    photos: tuple[tuple[TrainingPhoto, ...], ...] = ()

    @property
    def change(self) -> NDArray[np.float64] | None:
        """The (n_dims,) change of the embedding that `flip` describes; not part of the JSON."""
        return self.__dict__.get("change")

    @property
    def rival_node(self) -> int:
        """The path-tree node where the rival's path ends; not part of the JSON."""
        return int(self.__dict__["rival_node"])

    @property
    def forks(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What paths show of the first step of each side below the shared concepts; from JSON, its last name."""
        n = len(self.shared)
        return self.__dict__.get("forks") or (self.path[n : n + 1], self.rival_path[n : n + 1])

    def lines(self) -> list[str]:
        """The comparison in words."""
        a, b, n = self.chosen, self.rival, len(self.shared)
        fork = f"below {self.shared[-1]}" if self.shared else "at the first step"
        own, other = (names[0] if names else "nothing more" for names in self.forks)
        first = n if a.kind == "path" else 0
        lines = [
            f"Why {a.name} and not {b.name}? Their paths diverge {fork}: one goes to {own}, the other to {other}.",
            f"evidence for {a.name}: {a.line(first)}",
            f"evidence for {b.name}: {b.line(first)}",
            f"difference in favour of {a.name}: {a.shown(self.margin)}"
            + ("; the concepts above the fork count for both" if first else ""),
        ]
        if self.barred:
            lines.append(f"the image points away from {', '.join(self.barred)}, which rules {b.name} out")
        if self.flip is not None:
            then = "" if self.flip.name == b.name else f"; the answer would then be {self.flip.name}"
            share = f"{100 * self.flip.share:.1f} %"
            lines.append(f"the two would tie if the embedding changed by {share}{then}")
        for side, photos in zip((a, b), self.photos, strict=False):
            files = ", ".join(photo.file for photo in photos) or "none"
            lines.append(f"nearest training photos of {side.name}: {files}")
        return lines

    def __repr__(self) -> str:
        return "\n".join(self.lines())


@dataclass(frozen=True, eq=False)
class AnswerContext:
    """What belongs to an answer but not to its JSON: the picture, and the search, for further questions."""

    explainer: Explainer | None = None
    x: NDArray[Any] = field(default_factory=lambda: np.empty(0))  # (n_dims,) raw embedding
    node: int = 0  # where the path ends in the path tree
    class_index: int = -1  # position of the class in ``model.classes``
    odds: sparse.csr_array | None = None  # probabilities of classes of the whole batch, negligible ones left out
    row: int = 0  # this image's row of `odds`
    source: Path | ImageItem | Image | None = None
    maps: ImageMaps | None = None
    only: tuple[str, ...] = ()  # the only possible classes and concepts, if not all are
    typical: Mapping[str, tuple[TrainingPhoto, ...]] = field(default_factory=dict)  # training photos by concept

    @property
    def model(self) -> PathModel:
        if self.explainer is None:
            raise HCEPError("the model is not available: this answer was not made by explain_images")
        return self.explainer.model

    @cached_property
    def class_odds(self) -> NDArray[np.float32]:
        """Probability of each class, (n_classes,)."""
        assert self.odds is not None
        return np.asarray(self.odds[[self.row]].toarray()[0])

    @cached_property
    def concept_odds(self) -> NDArray[np.float64]:
        """Probability of each concept, (n_synsets,): that of the classes below it."""
        return np.asarray(self.model.classes_below.T @ self.class_odds)


class Answer(Struct, frozen=True, kw_only=True, dict=True):
    """What a model answers for one image. The fields are those of the JSON; `context` holds everything else."""

    file: str = msgspec.field(name="image")  #: path of the image; its number for an image in memory or an embedding
    answer: str | None = None  #: the most specific concept that is sure enough; None if the model is sure of nothing
    answer_name: str | None = None  #: its display name
    #: how likely it is: by the model's own estimate or, if that is higher, by what held-out photos promise
    answer_probability: float | None = None
    rank: str | None = None  #: the rank of the answer, such as "family", if the hierarchy has ranks
    label: str = msgspec.field(name="class")  #: the predicted class, the best guess below the answer
    name: str  #: the display name of the class
    probability: float  #: of the class
    class_probability: float = 0.0  #: the same, under the name that tables have
    #: whether the path explains less of the image than of 95 in 100 training images of the class; None if the model
    #: does not know its training images
    unlike: bool | None = msgspec.field(default=None, name="unlike_training")
    doubt: str = ""  #: why not to rely on the class: `UNLIKE`, `UNCLEAR`, `NOTHING` or ""; follows from the others
    sure: float = SURE  #: how sure the answer had to be
    at_rank: str | None = None  #: the rank that answers were to stop at, if any
    promise: str | None = None  #: what held-out photos promise, in one sentence; None for the model's own estimate
    answer_estimate: float | None = None  #: the model's own estimate: the probability of the classes below the answer
    kind: str | None = None  #: name of what the image seems to be an unknown kind of; None if it is of a known class
    truth: str | None = None  #: the class that the image's folder is named after, if any
    force: tuple[str, ...] = ()  #: concepts required on the path, by the caller or by a correction
    forbid: tuple[str, ...] = ()  #: concepts excluded from the path, by the caller or by a correction
    path: tuple[Step, ...] = ()  #: the concepts from the root down, without the root
    routes: tuple[Route, ...] = ()  #: other paths to the last concept, the lowest objective first; at most five
    n_routes: int = 1  #: number of rooted paths to the last concept, this one included; 1 in a tree
    objects: tuple[PictureObject, ...] = ()  #: what the picture is a sum of, the largest share first, if requested
    residual_norm: float = 0.0
    #: by how much the name of the class favours it over the average class, as a share of what its name and its look do
    #: together; above 1 if its look speaks against it, below 0 if its name does; None if the model has no texts
    by_name: float | None = None
    contributions: Contributions | None = None  #: the score of the class, by concept; None if the head is not linear
    contrasts: tuple[Contrast, ...] = ()  #: the class against others, if requested
    rivals: tuple[Rival, ...] = msgspec.field(default=(), name="runners_up")  #: other classes, the most likely first
    nearest: tuple[TrainingPhoto, ...] = ()  #: training photos most like the image, if training photos were given
    mapping: str | None = msgspec.field(default=None, name="maps")  #: how `maps` were made; None without maps
    correction: Correction | None = msgspec.field(default=None, name="corrected")  #: the correction that was applied

    def __post_init__(self) -> None:
        structs.force_setattr(self, "class_probability", self.probability)
        doubt = "" if self.is_decided else doubt_about(self.answer, self.label, self.unlike, self.has_rank)
        structs.force_setattr(self, "doubt", doubt)

    @property
    def context(self) -> AnswerContext:
        context: AnswerContext = self.__dict__.setdefault("context", AnswerContext())
        return context

    def replaced(self, **changes: Any) -> Answer:
        """A copy with other fields, or with other fields of its `context`."""
        fields = {name: changes.pop(name) for name in list(changes) if name in self.__struct_fields__}
        copy = structs.replace(self, **fields)
        copy.__dict__["context"] = replace(self.context, **changes)
        return copy

    def corrected(self, correction: Correction | None) -> Answer:
        """A copy that says what a person said: a concept, none of the classes, or what the image is not.

        The path then ends at the concept; `class` and `probability` stay the model's guess.
        """
        if correction is None:
            return self
        hierarchy = self.context.model.hierarchy
        decision = correction.decision(hierarchy)
        if decision is None:
            return self.replaced(correction=correction)
        above = {decision.synset, *hierarchy.ancestors(decision.synset)}
        path = tuple(step for step in self.path if step.synset in above)
        answer = {"answer": decision.id, "answer_name": decision.name, "rank": decision.rank}
        no_longer = dict.fromkeys(("answer_probability", "answer_estimate", "promise", "kind"))
        return self.replaced(correction=correction, path=path, **answer, **no_longer)

    @property
    def is_decided(self) -> bool:
        """Whether a person, not the model, said what the image is."""
        one = self.correction
        return one is not None and bool(one.none or one.label or one.force)

    @property
    def has_rank(self) -> bool:
        """Whether the answer has the rank that it was to stop at."""
        return self.at_rank is not None and self.rank == self.at_rank

    @property
    def is_sure(self) -> bool:
        """Whether the class itself is sure and the image is known to be like the training images."""
        return self.unlike is False and not self.doubt

    @property
    def correct(self) -> bool | None:
        """Whether the answer is the class of the image's folder or above it; None if either is unknown."""
        if self.truth is None or self.answer is None:
            return None
        if self.context.explainer is None or self.answer == self.label:
            return self.truth == self.label
        model = self.context.model
        if (concept := model.hierarchy.merged_into(self.answer)) not in model.hierarchy:  # a person named a new class
            return self.answer == self.truth
        synset = model.hierarchy.index(concept)
        return bool(model.classes_below[model.classes.tolist().index(self.truth), synset])

    @property
    def leaf(self) -> str:
        """Id of the last concept on the path; '' for an empty path."""
        return self.path[-1].synset if self.path else ""

    @property
    def root(self) -> str:
        """Name of the root of the hierarchy."""
        return (
            ""
            if self.context.explainer is None
            else self.context.model.hierarchy.name(self.context.model.hierarchy.root)
        )

    def trail(self) -> str:
        """The path with its coefficients in one line: ``animal 0.98 → mammal 0.95 → cat 1.02``."""
        return " → ".join(f"{step.name} {step.coefficient:.2f}" for step in self.path) or "(no concept)"

    def names(self) -> str:
        """The path in one line: ``animal → mammal → cat``."""
        return " → ".join(self.shown_path()) or "no concept"

    def shown_path(self) -> list[str]:
        """The names along the path as people read it, as `Hierarchy.shown_path`."""
        return distinct(name for step in self.path for name in (*step.ranked(), step.name))

    def other_routes(self) -> list[str]:
        """The other paths to the last concept in words: ``pet 0.31 → cat 1.02, which explains 41 % of the image``."""
        lines = [f"{route.trail()}, which explains {percent(route.explained)} of the image" for route in self.routes]
        n_more = self.n_routes - 1 - len(self.routes)
        return lines + ([f"{n_more:,} more, which explain less or are not allowed here"] if n_more and lines else [])

    def objects_doubt(self) -> str:
        """Whether the picture shows fewer objects than were found, in words; empty if nothing speaks against them."""
        n, n_doubtful = len(self.objects), sum(bool(part.doubtful) for part in self.objects)
        if n > 1 and any(part.doubtful is None for part in self.objects):
            return f"this model cannot tell whether there really are {n} objects"
        if not n_doubtful:
            return ""
        which = "the second is" if n == 2 else "the last is" if n_doubtful == 1 else f"the last {n_doubtful} are"
        enough = "one object explains" if n - n_doubtful == 1 else f"{n - n_doubtful} objects explain"
        return f"{which} doubtful: {enough} the photo about as well"

    def headline(self) -> str:
        """The answer in words: ``a building, 94 % (perhaps a palace, 58 %; bell cote, 9 %)``."""
        return "".join(self.headline_parts())

    def headline_parts(self) -> tuple[str, str]:
        """The two parts of the headline, see `headline_parts`."""
        if self.is_decided:
            return NONE_OF_THESE if self.answer_name is None else with_article(self.answer_name), ""
        guesses = None if self.answer == self.label else self.guesses()
        least = None if self.promise is None else self.sure
        return headline_parts(self.answer_name, self.answer_probability, guesses, self.unlike, least)

    def guesses(self) -> str:
        """The likeliest classes below the answer: ``a palace, 58 %; bell cote, 9 %``."""
        synset = self.answer
        if synset is not None and self.context.explainer is not None:
            synset = self.context.model.hierarchy.merged_into(synset)
        below = [r for r in self.rivals if r.probability >= NAMED and (synset is None or synset in r.path)]
        others = "".join(f"; {rival.name}, {percent(rival.probability)}" for rival in below[: N_PERHAPS - 1])
        return f"{with_article(self.name)}, {percent(self.probability)}{others}"

    def remarks(self) -> list[str]:
        """What else to know: what the image is not, that it is unlike training images, or of an unknown kind."""
        excluded = []
        if self.correction is not None:
            excluded = [f"not {self._name(concept)}" for concept in self.correction.forbid]
        if self.is_decided:
            return excluded
        unknown = f"maybe a kind of {self.kind} that is not among the training images"
        unlike = bool(self.unlike) and self.answer is not None  # otherwise the headline says it
        return excluded + [UNLIKE] * unlike + [unknown] * (self.kind is not None)

    def _name(self, concept: str) -> str:
        return concept if self.context.explainer is None else self.context.model.hierarchy.name(concept)

    def views(self) -> str:
        """Whether its name or its look decided: ``62 % by its name, 38 % by its look``; empty without texts."""
        if self.by_name is None:
            return ""
        if not 0.0 <= self.by_name <= 1.0:
            return (
                "by its name, against its appearance" if self.by_name > 1.0 else "by its appearance, against its name"
            )
        return f"{100 * self.by_name:.0f} % by its name, {100 - round(100 * self.by_name)} % by its appearance"

    def summary(self) -> str:
        """The answer and remarks about it in one line."""
        return ", ".join([self.headline(), *self.remarks()])

    def line(self) -> str:
        """The answer, remarks about it, and the path in one line."""
        if self.is_decided and not self.path:
            return self.summary()
        in_brackets = self.is_decided or self.answer == self.label
        return self.summary() + (f" ({self.names()})" if in_brackets else f": {self.names()}")

    def to_dict(self) -> dict[str, Any]:
        """The answer as `hcep explain --json` prints it (docs/explanations.schema.json)."""
        return dict(msgspec.to_builtins(self))

    def concept_probability(self, concept: str) -> float:
        """Probability of a concept by its id: that of the classes below it, with the requested limits in force."""
        return float(self.context.concept_odds[self.context.model.hierarchy.index(concept)])

    def siblings(self, step: int) -> list[tuple[str, float]]:
        """(name, probability) of the siblings of a concept on the path, by its position, the most likely first.

        A class may also be below siblings; they only get the classes that are not below the concept itself.
        """
        model, h = self.context.model, self.context.model.hierarchy
        own, above = self.path[step].synset, self.path[step - 1].synset if step else h.root
        is_own = model.classes_below[:, [h.index(own)]].toarray()[:, 0] > 0
        others = model.classes_below.T @ np.where(is_own, 0.0, self.context.class_odds)
        siblings = [(h.name(c), float(others[h.index(c)])) for c in h.children(above) if c != own]
        return sorted(siblings, key=lambda pair: -pair[1])

    @property
    def maps(self) -> ImageMaps | None:
        """Where in the picture the concepts are, if requested."""
        return self.context.maps

    def where(self, concept: str) -> EvidenceMap:
        """Where in the picture a concept of the path is, by id or name: shares that add up to its coefficient."""
        return self._maps().of(concept)

    def margin_map(self, rival: str) -> EvidenceMap:
        """Which parts of the picture favour this class over a rival (label or name): positive for this class."""
        margins = self._maps().margins
        label = next((other.label for other in self.rivals if rival in (other.label, other.name)), rival)
        if label not in margins:
            raise HCEPError(
                f"{quote(label)} is not a runner-up of this image, which has {quoted(margins, 20) or 'none'}; "
                "ask for more with n_best"
            )
        return margins[label]

    def photo(self) -> Image:
        """The image, upright and in RGB."""
        from PIL.ImageOps import exif_transpose

        from hcep.embeddings.images import ImageItem, open_image

        source = self.context.source
        if source is None:
            raise HCEPError(f"{self.file}: an embedding has no picture to show")
        if isinstance(source, ImageItem):
            return open_image(source.path, box=source.box)
        return open_image(source) if isinstance(source, Path) else exif_transpose(source).convert("RGB")

    def strip(self, height: int = 260) -> Image:
        """The photo, and beside it one copy per concept with the concept's map on it; raises as `where`."""
        from hcep.explain.map_drawing import strip

        maps = self._maps()
        return strip(self.photo(), list(maps.concepts.values()), maps.names, maps.region, height)

    def contrast(self, concept: str, *, training: EmbeddingStore | None = None) -> Contrast:
        """Explain why the answer is not another class or concept, given by id, name or synonym.

        With a store of training photos the contrast also has the photos of both classes nearest to the image.
        """
        return self._explainer().contrast(self, concept, training)

    def what_if(
        self,
        *,
        force: Concepts = (),
        forbid: Concepts = (),
        coefficients: Mapping[str, float] | None = None,
        scale: Mapping[str, float] | None = None,
    ) -> Answer:
        """Explain the image again with something changed.

        Parameters
        ----------
        force, forbid : concepts that must, and must not, be on the path; correct one level, and the rest follows
        coefficients, scale : new coefficients of concepts on the path (0 removes one), and factors for the present
            ones. The image is moved along the concepts' atoms and searched again; a linear head gets the changed code.
        """
        request = Request.of(force, forbid, self.context.only)
        return self._explainer().what_if(self, request, coefficients or {}, scale or {})

    def with_coefficients(self, texts: Sequence[str]) -> Answer:
        """`what_if` with coefficients as people write them, ``dog=0`` or ``dog*2``, and the present limits.

        Errors call the texts "--set".
        """
        values: dict[str, float] = {}
        factors: dict[str, float] = {}
        for text in texts:
            sign = max("=*", key=text.rfind)
            name, _, number = text.rpartition(sign)
            try:
                (values if sign == "=" else factors)[name] = float(number)
            except ValueError:
                raise HCEPError(
                    f"--set: expected a concept and its new coefficient, dog=0 or dog*2, got {quote(text)}"
                ) from None
        return self.what_if(force=self.force, forbid=self.forbid, coefficients=values, scale=factors)

    def __repr__(self) -> str:
        return f"<{self.file}: {self.line()}>"

    def _repr_html_(self) -> str:
        from hcep.explain.report import notebook_cards

        return notebook_cards([self])

    def _explainer(self) -> Explainer:
        if self.context.explainer is None:
            raise HCEPError(f"{self.file}: the model is not available; explain the image with explain_images")
        return self.context.explainer

    def _maps(self) -> ImageMaps:
        if self.maps is None:
            raise HCEPError(f"{self.file}: there are no maps; explain_images(..., where=True) makes them for photos")
        return self.maps


class Answers(list[Answer]):
    """Answers in the order of the images; `skipped` lists (file, reason) of images that could not be used."""

    def __init__(self) -> None:
        super().__init__()
        self.skipped: list[tuple[str, str]] = []

    def __repr__(self) -> str:
        lines = [f"<{len(self):,} explained images", *(f" {answer.file}: {answer.line()}" for answer in self[:N_SHOWN])]
        return "\n".join([*lines, *([f" and {len(self) - N_SHOWN:,} more"] if len(self) > N_SHOWN else [])]) + ">"

    def _repr_html_(self) -> str:
        from hcep.explain.report import notebook_cards

        return notebook_cards(self)


def schema() -> dict[str, Any]:
    """The JSON Schema of a list of answers."""
    document = msgspec.json.schema(list[Answer])
    describe(document["$defs"])
    return document


def describe(definitions: dict[str, Any]) -> None:
    """Describe each record of a JSON Schema in one line; the JSON of answers and contrasts has all their fields."""
    for name, definition in definitions.items():
        definition["description"] = definition["description"].partition("\n")[0]
        if name in ("Answer", "Contrast"):
            definition["required"] = list(definition["properties"])
            for part in definition["properties"].values():
                part.pop("default", None)


def doubt_about(answer: str | None, label: str, unlike: bool | None, has_rank: bool = False) -> str:
    """Why not to rely on a class with this answer: `UNLIKE`, `NOTHING`, `UNCLEAR` or "".

    With `has_rank`, the answer has the rank that was asked for: what is below it was not the question.
    """
    if unlike or answer is None:
        return UNLIKE if unlike else NOTHING
    return UNCLEAR if answer != label and not has_rank else ""


def headline_parts(
    name: str | None,
    probability: float | None,
    guesses: str | None,
    unlike: bool | None,
    promised: float | None = None,
) -> tuple[str, str]:
    """An answer in words: what comes first, and the rest with its brackets.

    `guesses` are the likeliest classes in words, None if the class itself is sure. Where nothing is, they come first.
    A probability that is only what held-out photos promise is called "at least": the model's own estimate is lower.

    >>> "".join(headline_parts("building", 0.94, "a palace, 58 %", False))
    'a building, 94 % (perhaps a palace, 58 %)'
    >>> "".join(headline_parts("building", 0.9, "a palace, 58 %", False, promised=0.9))
    'a building, at least 90 % (perhaps a palace, 58 %)'
    >>> "".join(headline_parts(None, None, "a palace, 58 %", False))
    'perhaps a palace, 58 % (nothing is sure enough)'
    >>> "".join(headline_parts(None, None, "a palace, 58 %", True))
    'unlike anything in training (perhaps a palace, 58 %)'
    """
    perhaps = "" if guesses is None else f"perhaps {guesses}"
    if name is None or probability is None:
        return (UNLIKE, f" ({perhaps})") if unlike else (perhaps, f" ({NOTHING})")
    return f"{with_article(name)}, {how_likely(probability, promised)}", f" ({perhaps})" if perhaps else ""


def how_likely(probability: float, promised: float | None) -> str:
    """The probability of an answer in words, given what held-out photos promise, if they do.

    >>> how_likely(0.9, 0.9), how_likely(0.94, 0.9), how_likely(0.9, None)
    ('at least 90 %', '94 %', '90 %')
    """
    is_bound = promised is not None and probability <= promised
    return f"at least {100 * probability:g} %" if is_bound else percent(probability)


def percent(share: float) -> str:
    """A probability for people, who should never read that something is 0 or 100 per cent likely.

    >>> percent(0.314), percent(0.001), percent(0.9999), percent(1.0)
    ('31 %', '<1 %', '>99 %', '>99 %')
    """
    return "<1 %" if share < 0.01 else ">99 %" if share > 0.99 else f"{100 * share:.0f} %"
