"""A visitor's session with one photo: the current answer, in words, and what is known about each concept."""

from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hcep.classify.path_model import PathModel
from hcep.classify.right_level import SURE
from hcep.embeddings import EmbeddingStore
from hcep.errors import HCEPError
from hcep.explain.answer import Answer, Contrast, Step, arrows, percent
from hcep.explain.neighbours import concept_photos, training_photos
from hcep.explain.report import thumbnail
from hcep.explain.where import EvidenceMap, ImageMaps
from hcep.hierarchy.names import with_article
from hcep.web.engine import Engine, Photo

#: Classes to ask for, including the answer; other classes are mentioned from this probability on.
N_BEST, WORTH_MENTIONING = 5, 0.01
#: Training photos from which the usual range of a coefficient is taken, and typical photos to show.
N_RANGE, N_TYPICAL = 400, 4
OWN_ESTIMATE = "This is the model's own estimate; it was not checked on held-out photos."
UNLIKE_TRAINING = "The photo is unlike the photos the model was trained on: it may be none of the known classes."
#: Fields of an answer that depend on how sure it must be.
OF_LEVEL = ("answer", "answer_name", "answer_probability", "answer_estimate", "rank", "sure", "promise")

Ids = tuple[str, ...]


class Headline(NamedTuple):
    """The answer in words, and the concept that it names."""

    headline: str
    sentence: str
    concept: str


class PhotoSession:
    """A photo, its answer, and the visitor's changes: concepts forced or forbidden, and how sure the answer must be."""

    answer: Answer
    #: The answer without forced and forbidden concepts.
    first: Answer

    def __init__(self, engine: Engine, photo: Photo) -> None:
        self.engine, self.photo = engine, photo
        self.force: Ids = ()
        self.forbid: Ids = ()
        self.sure = SURE
        #: Called when the answer has changed, and when only its words have.
        self.on_answer: list[Callable[[], Any]] = []
        self.on_words: list[Callable[[], Any]] = []

    async def ask(self, force: Ids = (), forbid: Ids = ()) -> None:
        """Explain the photo with concepts forced or forbidden; if no path satisfies them, nothing changes."""
        answer = await self._explain(force, forbid, self.photo.features is not None)
        self.force, self.forbid = force, forbid
        self._set(answer)
        for draw in self.on_answer:
            draw()

    async def set_sure(self, sure: float) -> None:
        """Answer with the most specific concept that is at least this likely."""
        self.sure = sure
        answer = await self._explain(self.force, self.forbid, False)
        if sure != self.sure:  # the visitor has moved on meanwhile
            return
        self.answer = self.answer.replaced(**{name: getattr(answer, name) for name in OF_LEVEL})
        for draw in self.on_words:
            draw()

    async def maps(self) -> ImageMaps:
        """Where the concepts are in the photo; slow for encoders without feature maps."""
        if self.answer.maps is None:
            self._set(await self._explain(self.force, self.forbid, True))
        assert self.answer.maps is not None
        return self.answer.maps

    async def contrast(self, concept: str) -> tuple[Contrast, EvidenceMap]:
        """Why the answer is not something else, and where in the photo; raises HCEPError for a part of the answer."""
        answer = await self._explain(self.force, self.forbid, True, why_not=concept)
        assert answer.maps is not None
        contrast = answer.contrasts[0] if answer.contrasts else answer.contrast(concept)
        return contrast, answer.maps.margins[contrast.rival.label]

    async def _explain(self, force: Ids, forbid: Ids, where: bool, **more: Any) -> Answer:
        options: dict[str, Any] = {"force": force, "forbid": forbid, "where": where, "sure": self.sure, **more}
        return await self.engine.explain(self.photo, **options, n_best=N_BEST, corrected=not (force or forbid))

    def _set(self, answer: Answer) -> None:
        self.answer, self.hierarchy = answer, answer.context.model.hierarchy  # of the version that answered
        if not (self.force or self.forbid):
            self.first = answer

    @property
    def path(self) -> list[str]:
        """Ids along the path, without the root."""
        return [step.synset for step in self.answer.path]

    @property
    def end(self) -> str:
        return self.answer.leaf or self.hierarchy.root

    @property
    def rivals(self) -> list[str]:
        """The leaves of other possible classes, the most likely first."""
        return [rival.path[-1] for rival in self.answer.rivals]

    def name(self, concept: str) -> str:
        return self.hierarchy.name(concept) if concept in self.hierarchy else concept

    def probability(self, concept: str) -> float:
        return self.answer.concept_probability(concept)

    def step(self, concept: str) -> Step | None:
        return next((step for step in self.answer.path if step.synset == concept), None)

    def headline(self) -> Headline:
        """The answer in words: those of `Answer.headline`, and what they rest on."""
        answer, what_if = self.answer, bool(self.force or self.forbid)
        if answer.is_decided:
            return self._corrected()
        first, rest = (part.strip(" ()") for part in answer.headline_parts())
        sentences = []
        if answer.correction is not None:
            sentences.append(f"{_sentence(answer.correction.words(self.hierarchy))}: {answer.correction.summary()}.")
        if rest:
            sentences.append(f"{_sentence(rest)}.")
        else:
            others = [rival for rival in answer.rivals if rival.probability > WORTH_MENTIONING][:3]
            names = "; ".join(f"{rival.name}, {percent(rival.probability)}" for rival in others)
            sentences += [f"Also possible: {names}."] if names else []
        if answer.kind is not None and not what_if:
            sentences.append(f"It may be a kind of {answer.kind} that the model does not know.")
        sentences += [UNLIKE_TRAINING] if answer.unlike and not what_if else []
        sentences.append(answer.promise or OWN_ESTIMATE)
        return Headline(_sentence(first), " ".join(sentences), self.concept)

    @property
    def concept(self) -> str:
        """The id of the concept that answers; the root if nothing is sure."""
        answer = self.answer
        return (
            self.hierarchy.root
            if answer.answer is None
            else self.end
            if answer.answer == answer.label
            else answer.answer
        )

    def _corrected(self) -> Headline:
        """The answer that a correction gives."""
        answer = self.answer
        assert answer.correction is not None
        decision, who = answer.correction.decision(self.hierarchy), f"{_sentence(answer.correction.summary())}."
        assert decision is not None
        if decision.id is None:
            who += f" The model's guess: {with_article(answer.name)}, {percent(answer.probability)}."
        return Headline(f"{_sentence(answer.summary())}.", who, decision.synset)

    def meaning(self, concept: str) -> str:
        """What a concept is, in words: the model's own description, the concepts above it, and its other names."""
        step, h = self.step(concept), self.hierarchy
        above = [h.name(parent) for parent in h.parents(concept) if parent != h.root]
        sentences = [step.meaning] if step is not None and step.meaning else []
        sentences += [f"A kind of {' and of '.join(above)}" if above else "One of the most general concepts"]
        if h.merged(concept):
            ranked = [f"{name} ({h.rank(one)})" for one, name in h.merged(concept) if h.rank(one)]
            names = [name for one, name in h.merged(concept) if not h.rank(one)]
            sentences += [f"The only concept below {arrows(ranked)}"] if ranked else []
            sentences += [f"Also called {', '.join(names)}"] if names else []
        return ". ".join(sentences) + "."


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]


class TrainingSummary(NamedTuple):
    """Training photos of a concept: typical ones (data URI, class), and the range of 90 % of its coefficients."""

    photos: list[tuple[str, str]]
    range: list[float]


async def training_summary(engine: Engine, concept: str) -> TrainingSummary | None:
    """The summary of a concept from the model's training photos or the collection; None if there are no photos."""
    of_model = None if engine.project is not None else _photos_of(engine.saved)
    store = of_model or engine.store
    return None if store is None else await engine.run(_summary, store, engine.saved.path_model, concept)


#: The training photos of a version of a model.
_photos_of = lru_cache(maxsize=8)(partial(training_photos, None))


@lru_cache(maxsize=4096)
def _summary(store: EmbeddingStore, model: PathModel, concept: str) -> TrainingSummary:
    summary, inside = TrainingSummary([], []), {concept, *model.hierarchy.descendants(concept)}
    for photo in concept_photos(store, model, [concept], N_TYPICAL)[concept]:
        with suppress(HCEPError):  # the file is gone or no longer a picture
            summary.photos.append((thumbnail(Path(photo.file), 160, 76), photo.name))
    below = [str(label) for label, leaf in zip(model.classes, model.leaves.tolist(), strict=True) if leaf in inside]
    rows = np.flatnonzero(np.isin(store.labels.astype(str), below))
    if len(rows):
        sample = store.select(rows=rows[:: max(1, len(rows) // N_RANGE)])
        atoms = [i for i, (_, child) in enumerate(model.dictionary.edges) if child == concept]
        values = model.pursue(sample.to_numpy(np.float32)).codes[:, atoms].toarray().sum(axis=1)
        values = values[values != 0.0]  # of photos with the concept on their path
        summary.range.extend(np.quantile(values, (0.05, 0.95)).tolist() if len(values) else [])
    return summary
