"""Teach a model what people corrected, and measure on other photos what that changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from hcep.classify import HCEPClassifier
from hcep.classify.coarse import EITHER, read_labels
from hcep.classify.coarse_counts import only_class_lines
from hcep.classify.left_out import rank_in_class
from hcep.embeddings import Embeddings, EmbeddingStore
from hcep.embeddings.images import content_hash
from hcep.errors import HCEPError, HierarchyError, counted, quote
from hcep.evaluate.statistics import expected_calibration_error
from hcep.explain.corrections import Correction, Corrections, any_but, image_hash
from hcep.explain.neighbours import fitted_on, recorded_photos
from hcep.models import read_model
from hcep.models.fitting import IN_MEMORY, fit_streaming
from hcep.models.loading import SavedModel
from hcep.models.model_encoder import own_labels
from hcep.models.saving import change_model, learning_base

#: Held-out photos that the effect is measured on, and changed answers that are listed.
MEASURED, LISTED = 2000, 20
#: Corrected photos that are named because they are still answered otherwise.
NAMED = 5
#: Largest share of known photos that corrections to "none of these" may make look unlike training, and the fewest
#: known photos of a class that its own share is taken from.
FALSE_ALARMS, ENOUGH = 0.1, 20
Vectors = Mapping[str, NDArray[Any]]
NO_TEXT = (
    "There is no text of {}, so a regression predicts it from the photos; with its text (--vocabulary, or an encoder "
    "with a text tower) the class is recognised more often"
)
BY_HALVES = (
    "The model was fitted on all labelled photos. To measure the effect, it was fitted to each half of them and "
    "answered for the other half."
)


class Lesson(NamedTuple):
    """A photo and what a person said it is: a label, None for none of the classes; `under` is above a new class.

    Of a photo that is only known not to be something, the label says all other classes: "oak|beech".
    """

    x: NDArray[Any]
    image: str
    label: str | None
    under: str | None

    def allows(self, label: Any) -> bool:
        """Whether an earlier label of the photo says no more and no less, or is one of the classes that it may be."""
        return self.label is not None and self.under is None and str(label) in (self.label, *self.label.split(EITHER))


class HeldOutScore(NamedTuple):
    """How a version of a model does on held-out photos."""

    accuracy: float
    calibration_error: float
    answers: NDArray[Any]  # (n_photos,); names of the predicted classes


@dataclass(frozen=True)
class Learned:
    """What a model learned from corrections, and the effect on photos that were neither corrected nor fitted on."""

    what: str
    notes: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()  # of the held-out photos
    before: HeldOutScore | None = None
    after: HeldOutScore | None = None
    answered: Mapping[str, bool] = field(default_factory=dict)  # by corrected photo: whether it is answered so now

    @property
    def changed(self) -> list[tuple[str, str, str]]:
        """Photo, earlier answer and new answer, for held-out photos whose answer changes."""
        if self.before is None or self.after is None:
            return []
        rows = zip(self.ids, self.before.answers.tolist(), self.after.answers.tolist(), strict=True)
        return [row for row in rows if row[1] != row[2]]

    def lines(self) -> list[str]:
        """The effect in words."""
        lines = [*self._corrected(), *self.notes]
        if self.before is None or self.after is None:
            none = (
                "The effect was not measured: there are no labelled photos that were neither corrected nor fitted on."
            )
            return [*lines, none]
        (a, b), changed = (self.before, self.after), self.changed
        lines += [
            f"On {counted(len(self.ids), 'held-out photo')}: {100 * a.accuracy:.1f} % right before, "
            f"{100 * b.accuracy:.1f} % after; calibration error {100 * a.calibration_error:.1f} % before, "
            f"{100 * b.calibration_error:.1f} % after.",
            f"{counted(len(changed), 'answer')} changed.",
        ]
        return [*lines, *(f"{photo}: {old} → {new}" for photo, old, new in changed[:LISTED])]

    def _corrected(self) -> list[str]:
        if not self.answered:
            return []
        wrong = [photo for photo, right in self.answered.items() if not right]
        n_right = len(self.answered) - len(wrong)
        are = "is" if n_right == 1 else "are"
        line = f"{n_right:,} of {counted(len(self.answered), 'corrected photo')} {are} now answered as corrected"
        if wrong:
            more = f" and {len(wrong) - NAMED:,} more" if len(wrong) > NAMED else ""
            line += f"; {', '.join(wrong[:NAMED])}{more} {'is' if len(wrong) == 1 else 'are'} not"
        return [line]


def new_corrections(saved: SavedModel, corrections: Corrections) -> int:
    """How many corrections the model has not learned from yet."""
    n_learned = max((change.n_corrections for change in saved.training.history), default=0)
    return sum(i >= n_learned for i, _ in _numbered(corrections))


def learn(
    folder: str | Path,
    corrections: Corrections,
    sources: Sequence[Embeddings | EmbeddingStore] = (),
    vectors: Vectors | None = None,
    *,
    encode: Callable[[Sequence[Path]], NDArray[Any]] | None = None,
    text_of: Callable[[str, str], NDArray[Any] | None] | None = None,
) -> Learned:
    """Save a new version of a model that has learned from corrections; `hcep.models.undo_change` goes back.

    Photos that the model was not fitted on are added to it: exact labels to their class, labels above the classes to
    the classes below, "not this" to all other classes, and new classes below the concept that was named with them. If
    photos that the model was fitted on have another label now, the model is fitted again, as it would otherwise keep
    the wrong label. Photos of none of the classes raise the share of a photo that must be explained before it counts as
    like the training photos.

    Learning again starts from the version before the first of several learnings in a row, so that nothing counts twice
    and corrections that were undone are forgotten.

    Parameters
    ----------
    folder : the model's folder
    corrections : read with the hierarchy of the model
    sources : embeddings of photos, with labels as far as they have them: corrected photos are found here by their
        hash, and labelled photos that were neither corrected nor fitted on measure the effect
    vectors : (n_dims,) embeddings of further photos, by hash
    encode : embeddings of photo files, (n_files, n_dims); for corrected photos whose files are still where they were
    text_of : text vectors of a new class by its label and the concept above it, or None if there are none; for a model
        that was fitted with texts
    """
    saved = read_model(folder)
    base = learning_base(saved)
    training = recorded_photos(saved)  # an earlier version has no store in its folder
    everything = [*sources, *([] if training is None else [training])]
    n_learned = max((change.n_corrections for change in base.training.history), default=0)
    wanted = {one.image: one for i, one in _numbered(corrections) if i >= n_learned}
    at_hand = {**_vectors(everything, wanted), **{key: x for key, x in (vectors or {}).items() if key in wanted}}
    if encode is not None:
        at_hand |= _encoded([one for key, one in wanted.items() if key not in at_hand], encode)
    lessons, notes = _lessons(wanted, at_hand, base)
    if not lessons:
        raise HCEPError("; ".join(["there is nothing to learn", *notes]))
    new = {one.label: one.under for one in lessons if one.label is not None and one.under is not None}
    texts = {label: None if text_of is None else text_of(label, under) for label, under in new.items()}
    if base.classifier.words_ is not None:
        notes += [NO_TEXT.format(quote(label)) for label, text in texts.items() if text is None]
    refit, confirmed = _relabelled(base, training, lessons)
    outside = [one for one in lessons if one.image not in confirmed]
    if refit is not None:
        outside = [one for one in outside if one.image not in refit.fitted or one.under is not None]
    X, y, ids = _held_out(saved, base, everything, set(corrections.in_force))

    def teach(model: HCEPClassifier) -> None:
        model.__dict__.update(SavedModel(base.folder).classifier.__dict__)
        was_calibrated = model.held_out_ is not None
        if refit is not None:
            refit.fit(model)
        _grow(model, [one for one in outside if one.label is not None], texts)
        known = X if len(X) or training is None else training.select(rows=_spread(len(training))).to_numpy(np.float32)
        _teach_unknown(model, [one.x for one in lessons if one.label is None], known)
        if was_calibrated and len(X):
            model.calibrate(X, own_labels(model, y))

    what = f"learned from {counted(len(lessons), 'correction')}{' by fitting again' if refit is not None else ''}"
    halves = None
    if not len(X) and training is not None and len(training) <= IN_MEMORY:
        halves = _scores_of_halves(base, training, refit, outside, set(corrections.in_force), texts)
    before = _score([_answer(base.classifier, X)], [y]) if len(X) else None
    after = change_model(folder, what, teach, learned=(base.document.checksum, len(corrections.history)))
    answered = _answered(after, lessons, {key: one.file for key, one in wanted.items()})
    if halves is not None:
        return Learned(what, (*notes, BY_HALVES), *halves, answered)
    return Learned(what, tuple(notes), ids, before, _score([_answer(after, X)], [y]) if len(X) else None, answered)


def _answered(model: HCEPClassifier, lessons: Sequence[Lesson], files: Mapping[str, str]) -> dict[str, bool]:
    """Whether the class of each photo that was corrected to a concept is now this concept or below it."""
    named = [one for one in lessons if one.label is not None]
    if not named:
        return {}
    read = read_labels([one.label for one in named], model.hierarchy_, classes=model.classes_.tolist())
    right = read.allows(model.predict_proba(np.stack([one.x for one in named])).argmax(axis=1))
    return {files[one.image] or one.image[:12]: is_right for one, is_right in zip(named, right.tolist(), strict=True)}


def _numbered(corrections: Corrections) -> list[tuple[int, Correction]]:
    """The corrections in force, each with its number in the file."""
    numbers = {id(one): i for i, one in enumerate(corrections.history)}
    return [(numbers[id(one)], one) for one in corrections.in_force.values()]


def _columns(source: Embeddings | EmbeddingStore) -> tuple[NDArray[Any], NDArray[Any]]:
    """Hashes and labels of photos; None where there is none."""
    if isinstance(source, EmbeddingStore):
        hashes = source.content_hashes.copy()
        for i in np.flatnonzero([key is None for key in hashes.tolist()]):  # an imported store lacks them
            if Path(str(source.paths[i])).is_file():
                hashes[i] = content_hash(source.paths[i])
        return hashes, source.labels
    none = np.full(len(source.X), None, dtype=object)
    return np.array(source.hashes, dtype=object), none if source.labels is None else source.labels


def _rows(source: Embeddings | EmbeddingStore, rows: NDArray[np.intp]) -> NDArray[Any]:
    X = source if isinstance(source, EmbeddingStore) else source.X
    return X.select(rows=rows).to_numpy(np.float32) if isinstance(X, EmbeddingStore) else np.asarray(X)[rows]


def _vectors(sources: Iterable[Embeddings | EmbeddingStore], wanted: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    vectors: dict[str, NDArray[Any]] = {}
    for source in sources:
        hashes = _columns(source)[0].tolist()
        rows = np.array([i for i, key in enumerate(hashes) if key in wanted and key not in vectors], dtype=np.intp)
        vectors |= dict(zip([hashes[i] for i in rows], _rows(source, rows), strict=True)) if len(rows) else {}
    return vectors


def _encoded(
    corrections: Sequence[Correction], encode: Callable[[Sequence[Path]], NDArray[Any]]
) -> dict[str, NDArray[Any]]:
    """Embeddings of corrected photos whose files are where they were, and unchanged."""
    files: dict[str, Path] = {}
    for one in corrections:
        with suppress(HCEPError, OSError):
            if one.file and Path(one.file).is_file() and image_hash(Path(one.file)) == one.image:
                files[one.image] = Path(one.file)
    return dict(zip(files, encode(list(files.values())), strict=True)) if files else {}


def _lessons(wanted: Mapping[str, Correction], vectors: Vectors, base: SavedModel) -> tuple[list[Lesson], list[str]]:
    """What corrections teach, and why the others teach nothing."""
    new = {one.label: one.under for one in wanted.values() if one.under is not None}
    lessons, reasons, said, only = [], Counter[str](), list[str](), dict[str, str]()
    for key, one in wanted.items():
        try:
            under = new.get(one.label)
            decision = (one if under is None else replace(one, under=under)).decision(base.hierarchy)
        except HierarchyError:
            reasons["names a concept that the model does not have"] += 1
            continue
        others = any_but(base.hierarchy, base.classes.tolist(), one.forbid) if decision is None else None
        if decision is None and others is None:
            reasons["leaves a single class, which the correction does not name"] += 1
        elif key not in vectors:
            reasons["is of a photo that cannot be found; give its folder or store"] += 1
        elif decision is None:
            lessons.append(Lesson(vectors[key], key, others, None))
        else:
            is_new = under is not None and decision.id not in base.classes.astype(str)
            label = _only_class(base, decision.id)
            if label != decision.id:
                said.append(str(decision.name))
                only[str(decision.name)] = base.hierarchy.name(str(label))
            lessons.append(Lesson(vectors[key], key, label, under if is_new else None))
    notes = [f"{counted(n, 'correction')} not learned: each {reason}" for reason, n in reasons.items()]
    return lessons, [*notes, *only_class_lines(said, only, "correction to")]


def _only_class(base: SavedModel, label: str | None) -> str | None:
    """The class that a label means: the only one below it in the model, as a fit takes it; else the label itself."""
    h = base.hierarchy
    synset = None if label is None else h.merged_into(label)
    if synset is None or synset not in h or label in base.classes.astype(str) or base.classifier.coarse != "below":
        return label
    leaves = [one for one in (synset, *h.descendants(synset)) if h.is_leaf(one)]
    return h.class_of(leaves[0]) if len(leaves) == 1 else label


def _training_labels(base: SavedModel, training: EmbeddingStore) -> list[Any]:
    """The labels that the model was fitted with: a class, if it is the only one below a label of the store."""
    meant = cache(lambda label: _only_class(base, label))
    return [meant(label) for label in training.labels.tolist()]


class _Refit(NamedTuple):
    """Training photos with their labels as corrected, to fit a model to again."""

    store: EmbeddingStore
    y: NDArray[Any]
    fitted: set[str]  # hashes

    def fit(self, model: HCEPClassifier) -> None:
        if len(self.y) > IN_MEMORY and model.words_ is None:
            fit_streaming(model, self.store, self.y)
        else:
            _fit_again(model, self.store.to_numpy(np.float32), self.y)


def _fit_again(model: HCEPClassifier, X: NDArray[Any], y: NDArray[Any]) -> None:
    """Fit a model to other images and labels, with the texts that it has."""
    texts: dict[str, NDArray[Any]] | None = None
    if model.words_ is not None:
        leaves = zip(map(str, model.classes_.tolist()), model.path_model().leaves.tolist(), strict=True)
        concepts = {**dict(leaves), **{concept: concept for concept in model.words_.concepts}}
        place = model.hierarchy_.index
        texts = {label: model.dictionary_.word_block[place(concept)] for label, concept in concepts.items()}
    model.fit(X, own_labels(model, y), texts=texts)


def _relabelled(
    base: SavedModel, training: EmbeddingStore | None, lessons: Sequence[Lesson]
) -> tuple[_Refit | None, set[str]]:
    """What to fit again if photos that the model was fitted on have another label now; None if nothing has changed.

    Also None if the training photos lack a class of the model, which a new fit would lose. The hashes are those of
    photos that the model was fitted on with a label that their correction confirms.
    """
    if training is None:
        return None, set()
    hashes, labels = training.content_hashes.tolist(), _training_labels(base, training)
    root, by_image = base.hierarchy.root, {one.image: one for one in lessons}
    confirmed = {
        key for key, label in zip(hashes, labels, strict=True) if key in by_image and by_image[key].allows(label)
    }
    new = {one.image: root if one.label is None or one.under is not None else one.label for one in lessons}
    y = [label if key in confirmed else new.get(key, label) for key, label in zip(hashes, labels, strict=True)]
    known = np.array([label is not None for label in y])
    is_same = y == labels or not set(map(str, base.classes.tolist())) <= set(map(str, y))
    if is_same or not known.all():
        return None, confirmed
    return _Refit(training, np.array(y, dtype=str), set(hashes)), confirmed


def _grow(model: HCEPClassifier, lessons: Sequence[Lesson], texts: Mapping[str, NDArray[Any] | None]) -> None:
    """Add photos to a model, new classes first."""
    new = dict.fromkeys((one.label, one.under) for one in lessons if one.label is not None and one.under is not None)
    for label, under in new:
        model.add_class(label, under, np.stack([one.x for one in lessons if one.label == label]), texts[label])
    rest = [one for one in lessons if one.under is None]
    if rest:
        labels = np.array([one.label for one in rest], dtype=str)
        model.partial_fit(np.stack([one.x for one in rest]), own_labels(model, labels))


def _teach_unknown(model: HCEPClassifier, strangers: Sequence[NDArray[Any]], known: NDArray[Any]) -> None:
    """Make photos of none of the classes look unlike training, as far as few known photos come to look so, too."""
    floor = model.explained_floor_
    if not strangers or floor is None or not len(known):
        return
    of_strangers, of_known = (model.infer(X, explained=True) for X in (np.stack(strangers), known))
    raised = floor.copy()
    for c in np.unique(of_strangers.class_index):
        own = of_known.explained[of_known.class_index == c]
        most = np.quantile(own if len(own) >= ENOUGH else of_known.explained, FALSE_ALARMS)
        highest = np.nextafter(of_strangers.explained[of_strangers.class_index == c].max(), 2.0)
        raised[c] = max(raised[c], min(highest, most))
    model.explained_floor_ = raised
    model.path_model()


def _held_out(
    saved: SavedModel, base: SavedModel, sources: Iterable[Embeddings | EmbeddingStore], corrected: set[str]
) -> tuple[NDArray[Any], NDArray[Any], tuple[str, ...]]:
    """Labelled photos that were neither corrected nor fitted on: embeddings, labels and names; at most `MEASURED`."""
    classes, seen = set(map(str, base.classes.tolist())), set(corrected)
    X, y, ids = [], [], []
    for source in sources:
        hashes, labels = _columns(source)
        is_known = np.array([label is not None and str(label) in classes for label in labels.tolist()], dtype=bool)
        is_new = np.array([key is not None and key not in seen for key in hashes.tolist()], dtype=bool)
        was_fitted = fitted_on(saved, hashes.tolist())
        if not was_fitted.any() and isinstance(source, EmbeddingStore):
            was_fitted = source.splits == "train"
        rows = np.flatnonzero(is_known & is_new & ~was_fitted)
        rows = rows[_spread(len(rows))]
        if len(rows):
            names = source.paths if isinstance(source, EmbeddingStore) else source.image_ids
            X.append(_rows(source, rows))
            y.append(labels[rows].astype(str))
            ids += ["/".join(Path(str(name)).parts[-2:]) for name in names[rows].tolist()]
            seen |= set(hashes[rows].tolist())
    if not X:
        return np.empty((0, 0)), np.empty(0), ()
    return np.concatenate(X)[:MEASURED], np.concatenate(y)[:MEASURED], tuple(ids[:MEASURED])


def _spread(n: int) -> NDArray[np.intp]:
    """At most `MEASURED` of n positions, evenly."""
    return np.unique(np.linspace(0, max(n - 1, 0), min(n, MEASURED)).astype(np.intp))


class _Answers(NamedTuple):
    """Of a model for some photos."""

    labels: NDArray[Any]
    probabilities: NDArray[Any]
    names: NDArray[Any]


def _answer(model: HCEPClassifier, X: NDArray[Any]) -> _Answers:
    odds = model.predict_proba(X)
    best = odds.argmax(axis=1)
    names = np.array([model.hierarchy_.name(leaf) for leaf in model.path_model().leaves.tolist()], dtype=object)
    return _Answers(model.classes_[best].astype(str), odds.max(axis=1), names[best])


def _score(answers: Sequence[_Answers], truths: Sequence[NDArray[Any]]) -> HeldOutScore:
    labels, probabilities, names = (np.concatenate(parts) for parts in zip(*answers, strict=True))
    right = labels == np.concatenate(truths)
    return HeldOutScore(float(right.mean()), expected_calibration_error(probabilities, right), names)


def _scores_of_halves(
    base: SavedModel,
    training: EmbeddingStore,
    refit: _Refit | None,
    outside: Sequence[Lesson],
    corrected: set[str],
    texts: Mapping[str, NDArray[Any] | None],
) -> tuple[tuple[str, ...], HeldOutScore, HeldOutScore] | None:
    """Names and scores of uncorrected training photos, by models of the other half of the training photos.

    The scores are without and with what was learned. None if a class has too few photos for two halves.
    """
    X, old = training.to_numpy(np.float32), np.array(_training_labels(base, training), dtype=str)
    new = old if refit is None else refit.y
    classes, own = np.unique(old, return_inverse=True)
    half = rank_in_class(own, np.random.default_rng(0)) % 2
    is_free = np.array([key not in corrected for key in training.content_hashes.tolist()])
    is_free &= np.isin(old, base.classes.astype(str))
    fewest = [np.isin(classes, labels[half == h]).sum() for labels in (old, new) for h in (0, 1)]
    if min(fewest) < len(classes) or not all((is_free & (half == h)).any() for h in (0, 1)):
        return None
    ids, truths, before, after = [], [], list[_Answers](), list[_Answers]()
    for h in (0, 1):
        rows, others = np.flatnonzero(is_free & (half == h)), half != h
        for labels, lessons, answers in ((old, (), before), (new, outside, after)):
            model = SavedModel(base.folder).classifier
            _fit_again(model, X[others], labels[others])
            _grow(model, [one for one in lessons if one.label is not None], texts)
            answers.append(_answer(model, X[rows]))
        ids += ["/".join(Path(str(name)).parts[-2:]) for name in training.paths[rows].tolist()]
        truths.append(old[rows])
    return tuple(ids), _score(before, truths), _score(after, truths)
