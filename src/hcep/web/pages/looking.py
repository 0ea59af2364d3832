"""One look at one photo: the answer as it is asked for now, and what can be shown of each concept."""

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

#: Classes that are asked for, the answer among them; others are told of from this probability on.
N_BEST, WORTH_SAYING = 5, 0.01
#: Training photos whose coefficients make the range of a concept, and typical ones that are shown.
N_RANGE, N_TYPICAL = 400, 4
BY_ITSELF = "By the model's own estimate; it was not tested with photos held out."
UNLIKE = "The photo is unlike those that the model has learned from. Nearest: "

Ids = tuple[str, ...]


class Headline(NamedTuple):
    """What is said first, and the concept that it is about."""

    headline: str
    sentence: str
    concept: str


class Looking:
    """A photo, its answer, and what the reader has changed: what is forced or forbidden, how sure it must be."""

    found: Answer
    #: Without what-if.
    first: Answer

    def __init__(self, engine: Engine, photo: Photo) -> None:
        self.engine, self.photo = engine, photo
        self.force: Ids = ()
        self.forbid: Ids = ()
        self.certainty = 0.0
        #: Called when the answer has changed, or only how it is put.
        self.on_answer: list[Callable[[], Any]] = []
        self.on_words: list[Callable[[], Any]] = []

    async def ask(self, force: Ids = (), forbid: Ids = ()) -> None:
        """Look with something forced or forbidden; what no path can meet leaves all as it was."""
        found = await self._explained(force, forbid, self.photo.features is not None)
        self.force, self.forbid = force, forbid
        self._take(found)
        for draw in self.on_answer:
            draw()

    async def be_sure(self, certainty: float) -> None:
        """Answer with what is as sure as that."""
        self.certainty = certainty
        if self.coverage:
            hedged = (await self._explained(self.force, self.forbid, False)).hedged
            self.found = self.found.replaced(hedged=hedged)
        for draw in self.on_words:
            draw()

    async def maps(self) -> ImageMaps:
        """Where the concepts are; encoders without maps of their own take a while."""
        if self.found.maps is None:
            self._take(await self._explained(self.force, self.forbid, True))
        assert self.found.maps is not None
        return self.found.maps

    async def contrast(self, concept: str) -> tuple[Contrast, EvidenceMap]:
        """Why the answer is not something else, and where in the photo; raises HCEPError for a part of the answer."""
        answer = await self._explained(self.force, self.forbid, True, why_not=concept)
        assert answer.maps is not None
        contrast = answer.contrasts[0] if answer.contrasts else answer.contrast(concept)
        return contrast, answer.maps.margins[contrast.rival.label]

    async def _explained(self, force: Ids, forbid: Ids, where: bool, **more: Any) -> Answer:
        asked: dict[str, Any] = {"force": force, "forbid": forbid, "where": where, "coverage": self.coverage, **more}
        return await self.engine.explain(self.photo, **asked, n_best=N_BEST, corrected=not (force or forbid))

    def _take(self, found: Answer) -> None:
        self.found, self.hierarchy = found, found.context.model.hierarchy  # of the version that has answered
        if not (self.force or self.forbid):
            self.first = found

    @property
    def coverage(self) -> float | None:
        """What is asked of the model, where held-out photos tell how often its answers are right."""
        return self.certainty if self.certainty and self.engine.model.held_out is not None else None

    @property
    def path(self) -> list[str]:
        """Ids along the path, the root left out."""
        return [step.synset for step in self.found.path]

    @property
    def end(self) -> str:
        return self.found.leaf or self.hierarchy.root

    @property
    def rivals(self) -> list[str]:
        """Other classes that it may be, the likeliest first."""
        return [rival.path[-1] for rival in self.found.rivals]

    def name(self, concept: str) -> str:
        return self.hierarchy.name(concept) if concept in self.hierarchy else concept

    def likely(self, concept: str) -> float:
        """Probability of a concept as things are now."""
        return self.found.concept_probability(concept)

    def step(self, concept: str) -> Step | None:
        return next((step for step in self.found.path if step.synset == concept), None)

    def answer(self) -> Headline:
        found, known = self.found, self.engine.corrections
        guess = f"{a(found.name, 'a')}, {percent(found.probability)}"
        what_if = bool(self.force or self.forbid)
        if any(known.requests([self.photo.id])[0]) and not what_if:
            right = (self.end, *known.requests([self.photo.id])[0].force)[-1]
            by = f"{known.in_force[self.photo.id].who or 'Somebody'} said so."
            if right == self.hierarchy.root:
                return Headline("None of these.", f"{by} The model's guess: {guess}.", right)
            return Headline(f"{a(self.name(right))}.", by, right)
        if self.certainty:
            return self._careful()
        others = [f"{one.name} ({percent(one.probability)})" for one in found.rivals if one.probability > WORTH_SAYING]
        also = f"; also possible: {', '.join(others[:3])}." if others else "."
        if found.unlike and not what_if:
            return Headline("None of these, it seems.", UNLIKE + guess + also, self.end)
        sure = f"{'if so, ' * what_if}{percent(found.probability)} sure{also}"
        if found.probability < SURE:
            return Headline(f"Perhaps {a(found.name, 'a')}.", f"Not sure: {sure}", self.end)
        return Headline(f"{a(found.name)}.", sure[:1].upper() + sure[1:], self.end)

    def _careful(self) -> Headline:
        """The lowest concept that is sure enough."""
        root, wanted = self.hierarchy.root, f"{100 * self.certainty:.0f} %"
        if self.found.hedged is not None:
            concept = self.found.hedged.concept
            why = f"At least {wanted} of answers are right, for photos like those of the test."
        else:
            concept, why = ([root] + [c for c in self.path if self.likely(c) >= self.certainty])[-1], BY_ITSELF
        if self.found.hedged is not None and self.found.hedged.kind is not None:
            why += f" It may be a kind of {self.found.hedged.kind} that the model does not know."
        if concept == root:
            return Headline("Not sure enough to say.", f"Nothing is {wanted} certain. {why}", root)
        which = "" if concept == self.end else " Which kind of it is less certain."
        return Headline(f"{a(self.name(concept))}.", f"{percent(self.likely(concept))} sure.{which} {why}", concept)

    def meaning(self, concept: str) -> str:
        """What a concept is, in words: the model's, and by what is above it."""
        step, h = self.step(concept), self.hierarchy
        above = [h.name(parent) for parent in h.parents(concept) if parent != h.root]
        told = [step.meaning] if step is not None and step.meaning else []
        told += [f"A kind of {' and of '.join(above)}" if above else "One of the most general concepts"]
        told += [f"Stands also for {', '.join(name for _, name in h.merged(concept))}"] if h.merged(concept) else []
        return ". ".join(told) + "."


def a(name: str, article: str = "A") -> str:
    """A name with its article, unless it is a plural.

    >>> a("church"), a("Arctic fox", "a"), a("sunglasses")
    ('A church', 'an Arctic fox', 'Sunglasses')
    """
    if name.endswith("s") and not name.endswith(("ss", "us", "is")):
        return name[:1].upper() + name[1:] if article == "A" else name
    return f"{article}n {name}" if name[:1].lower() in "aeiou" else f"{article} {name}"


class Known(NamedTuple):
    """What training photos say of a concept: typical ones (data URI, class), and what 90 in 100 coefficients are."""

    photos: list[tuple[str, str]]
    between: list[float]


class Training:
    """Training photos of concepts, each looked up once; the collection stands in where the model has none."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._known: dict[tuple[int, str], Known] = {}

    async def of(self, concept: str) -> Known | None:
        """What is known of a concept; None where no photos are at hand."""
        key, engine = (id(self.engine.model), concept), self.engine
        store = training_photos(None, engine.saved) or engine.store
        if store is not None and key not in self._known:
            self._known[key] = await engine.run(_known, store, engine.model, concept)
        return self._known.get(key)


def _known(store: EmbeddingStore, model: PathModel, concept: str) -> Known:
    known, inside = Known([], []), {concept, *model.hierarchy.descendants(concept)}
    for photo in concept_photos(store, model, [concept], N_TYPICAL)[concept]:
        with suppress(HCEPError):  # gone, or no picture any more
            known.photos.append((thumbnail(Path(photo.file), 160, 76), photo.name))
    below = [str(label) for label, leaf in zip(model.classes, model.leaves.tolist(), strict=True) if leaf in inside]
    rows = np.flatnonzero(np.isin(store.labels.astype(str), below))
    if len(rows):
        some = store.select(rows=rows[:: max(1, len(rows) // N_RANGE)])
        atoms = [i for i, (_, child) in enumerate(model.dictionary.edges) if child == concept]
        values = model.pursue(some.to_numpy(np.float32)).codes[:, atoms].toarray().sum(axis=1)
        values = values[values != 0.0]  # of photos whose path has it
        known.between.extend(np.quantile(values, (0.05, 0.95)).tolist() if len(values) else [])
    return known
