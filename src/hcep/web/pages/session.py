"""A visitor's session with one photo: the current answer, in words, and what is known about each concept."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hcep.classify.path_model import PathModel
from hcep.embeddings import EmbeddingStore
from hcep.errors import HCEPError
from hcep.explain.answer import SURE, Answer, Contrast, Step, percent
from hcep.explain.neighbours import concept_photos, training_photos
from hcep.explain.report import thumbnail
from hcep.explain.where import EvidenceMap, ImageMaps
from hcep.web.engine import Engine, Photo

#: Classes to ask for, including the answer; other classes are mentioned from this probability on.
N_BEST, WORTH_MENTIONING = 5, 0.01
#: Training photos from which the usual range of a coefficient is taken, and typical photos to show.
N_RANGE, N_TYPICAL = 400, 4
OWN_ESTIMATE = "This is the model's own estimate; it was not checked on held-out photos."
UNLIKE_TRAINING = "The photo is unlike the photos the model was trained on. Closest class: "

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
        self.certainty = 0.0
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

    async def set_certainty(self, certainty: float) -> None:
        """Answer with a concept that is at least this certain; 0 for the best guess."""
        self.certainty = certainty
        if self.coverage:
            answer = await self._explain(self.force, self.forbid, False)
            self.answer = self.answer.replaced(hedged=answer.hedged)
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
        options: dict[str, Any] = {"force": force, "forbid": forbid, "where": where, "coverage": self.coverage, **more}
        return await self.engine.explain(self.photo, **options, n_best=N_BEST, corrected=not (force or forbid))

    def _set(self, answer: Answer) -> None:
        self.answer, self.hierarchy = answer, answer.context.model.hierarchy  # of the version that answered
        if not (self.force or self.forbid):
            self.first = answer

    @property
    def coverage(self) -> float | None:
        """The coverage to ask for, if held-out photos tell how often the model's answers are right."""
        return self.certainty if self.certainty and self.engine.model.held_out is not None else None

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
        """The answer in words."""
        answer, guess = self.answer, f"{a(self.answer.name, 'a')}, {percent(self.answer.probability)}"
        what_if = bool(self.force or self.forbid)
        if answer.correction is not None and not what_if:
            return self._corrected(guess)
        if self.certainty:
            return self._certain()
        rivals = [rival for rival in answer.rivals if rival.probability > WORTH_MENTIONING][:3]
        names = ", ".join(f"{rival.name} ({percent(rival.probability)})" for rival in rivals)
        also = f"; also possible: {names}." if names else "."
        if answer.unlike and not what_if:
            return Headline("Probably none of the known classes.", UNLIKE_TRAINING + guess + also, self.end)
        sure = f"{'in that case ' * what_if}{percent(answer.probability)} sure{also}"
        if answer.probability < SURE:
            return Headline(f"Perhaps {a(answer.name, 'a')}.", f"Not certain: {sure}", self.end)
        return Headline(f"{a(answer.name)}.", sure[:1].upper() + sure[1:], self.end)

    def _corrected(self, guess: str) -> Headline:
        """The answer that a correction gives."""
        assert self.answer.correction is not None
        right = (self.end, *self.answer.force)[-1]
        who = f"Corrected by {self.answer.correction.who or 'somebody'}."
        if right == self.hierarchy.root:
            return Headline("None of the known classes.", f"{who} The model's guess: {guess}.", right)
        return Headline(f"{a(self.name(right))}.", who, right)

    def _certain(self) -> Headline:
        """The most specific concept that is certain enough."""
        root, wanted, hedged = self.hierarchy.root, f"{100 * self.certainty:.0f} %", self.answer.hedged
        if hedged is not None:
            concept = hedged.concept
            basis = f"At least {wanted} of such answers are right for photos like those used for calibration."
        else:
            concept = ([root] + [c for c in self.path if self.probability(c) >= self.certainty])[-1]
            basis = OWN_ESTIMATE
        if hedged is not None and hedged.kind is not None:
            basis += f" It may be a kind of {hedged.kind} that the model does not know."
        if concept == root:
            return Headline("Not sure enough to say.", f"Nothing is {wanted} certain. {basis}", root)
        which = "" if concept == self.end else " The exact kind is less certain."
        return Headline(
            f"{a(self.name(concept))}.", f"{percent(self.probability(concept))} sure.{which} {basis}", concept
        )

    def meaning(self, concept: str) -> str:
        """What a concept is, in words: the model's own description, the concepts above it, and its other names."""
        step, h = self.step(concept), self.hierarchy
        above = [h.name(parent) for parent in h.parents(concept) if parent != h.root]
        sentences = [step.meaning] if step is not None and step.meaning else []
        sentences += [f"A kind of {' and of '.join(above)}" if above else "One of the most general concepts"]
        if h.merged(concept):
            sentences += [f"Also called {', '.join(name for _, name in h.merged(concept))}"]
        return ". ".join(sentences) + "."


def a(name: str, article: str = "A") -> str:
    """A name with its article, unless it is a plural.

    >>> a("church"), a("Arctic fox", "a"), a("sunglasses")
    ('A church', 'an Arctic fox', 'Sunglasses')
    """
    if name.endswith("s") and not name.endswith(("ss", "us", "is")):
        return name[:1].upper() + name[1:] if article == "A" else name
    return f"{article}n {name}" if name[:1].lower() in "aeiou" else f"{article} {name}"


class TrainingSummary(NamedTuple):
    """Training photos of a concept: typical ones (data URI, class), and the range of 90 % of its coefficients."""

    photos: list[tuple[str, str]]
    range: list[float]


class TrainingSummaries:
    """Summaries of concepts, each made once, from the model's training photos or else from the collection."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._summaries: dict[tuple[int, str], TrainingSummary] = {}

    async def of(self, concept: str) -> TrainingSummary | None:
        """The summary of a concept; None if there are no photos."""
        key, engine = (id(self.engine.model), concept), self.engine
        store = training_photos(None, engine.saved) or engine.store
        if store is not None and key not in self._summaries:
            self._summaries[key] = await engine.run(_summary, store, engine.model, concept)
        return self._summaries.get(key)


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
