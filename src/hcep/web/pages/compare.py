"""The compare page: two models, possibly with two encoders, side by side on the same photos."""

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcep.embeddings.images import ImageProblem
from hcep.evaluate.statistics import paired_draws
from hcep.models.loading import SavedModel
from hcep.models.model_encoder import load_model_encoder
from hcep.web.collection import Collection, Photos, Rows, View, class_numbers
from hcep.web.engine import Engine
from hcep.web.pages import many
from hcep.web.pages.frame import frame, text, ui


class EncodedPhotos(Photos):
    """The photos of a collection, encoded again by another encoder; photos that cannot be read are all zeros."""

    block = 32

    def __init__(self, photos: Photos, encoder: Any) -> None:
        self.encoder, self.picture = encoder, photos.picture  # type: ignore[method-assign]
        self.key, self.title = f"{photos.key}-{encoder.fingerprint[:12]}", photos.title
        self.names, self.labels = photos.names, photos.labels

    def vectors(self, rows: Rows) -> NDArray[Any]:
        X = np.zeros((len(rows), self.encoder.n_dims), dtype=np.float32)
        read, pixels = [], []
        for i, row in enumerate(rows.tolist()):
            try:
                pixels.append(self.encoder.preprocess(self.picture(row).convert("RGB")))
                read.append(i)
            except ImageProblem:
                continue
        if read:
            X[read] = self.encoder.encode_images(np.stack(pixels))
        return X


@dataclass(frozen=True, eq=False)
class Pair:
    """The answers of two models for the same photos."""

    one: Collection
    other: Collection

    @cached_property
    def masks(self) -> dict[str, NDArray[np.bool_]]:
        labels = [np.array(list(map(str, c.model.classes.tolist())))[c.predicted] for c in (self.one, self.other)]
        agree = labels[0] == labels[1]
        a, b = (c.own_masks["right"] & self.known for c in (self.one, self.other))
        all_ = np.ones(len(agree), dtype=bool)
        return {"all": all_, "differ": ~agree, "one": a & ~b, "other": b & ~a, "neither": self.known & ~a & ~b}

    @cached_property
    def known(self) -> NDArray[np.bool_]:
        """Photos whose label is a class of both models."""
        return np.asarray((self.one.truth >= 0) & (self.other.truth >= 0))

    @cached_property
    def parting(self) -> Collection:
        """The first model's answers with the second's as the truth: its mistakes are where the two differ."""
        labels = [str(self.other.model.classes[c]) for c in self.other.predicted.tolist()]
        return replace(self.one, truth=class_numbers(self.one.model, labels))

    def tile(self, row: int) -> dict[str, Any]:
        """The words below a photo in the gallery: both answers."""
        tile, other = self.one.tile(row), self.other.tile(row)
        differ = bool(self.masks["differ"][row])
        note = f"{other['name']} {other['sure']}" if differ else "both agree"
        return {**tile, "note": note, "tone": "doubt" if differ else ""}


def register(engine: Engine) -> None:
    collections = many.collections_of(engine)

    @ui.page("/compare", title="Compare")  # type: ignore[untyped-decorator]
    async def page(photos: str = "") -> None:
        with frame("Compare", "collection.css"):
            chosen = collections.photos.get(photos or collections.store)
            if engine.other is None or chosen is None:
                _empty(engine)
                return
            same = _fingerprint(engine.other) in (None, _fingerprint(engine.saved))
            again = chosen if same else EncodedPhotos(chosen, _encoder(engine.other))
            one = await many.answered(collections, chosen, engine.saved)
            other = None if one is None else await many.answered(collections, again, engine.other)
            if one is not None and other is not None:
                names = [Path(model.folder).resolve().name for model in (engine.saved, engine.other)]
                names[0] = "the built-in model" if engine.read_only else names[0]
                ComparePage(
                    collections, Pair(one, other), names if names[0] != names[1] else ["the first", "the second"]
                )


def _fingerprint(saved: SavedModel) -> str | None:
    return None if saved.encoder is None else saved.encoder.fingerprint


@lru_cache(maxsize=1)
def _encoder(saved: SavedModel) -> Any:
    return load_model_encoder(saved.encoder, saved.folder)


def _empty(engine: Engine) -> None:
    text("h1", "Compare two models")
    text(
        "p",
        "See where two models or two encoders give different answers, and which one is right.",
        "lead",
    )
    with text("div", classes="card stack"):
        text("h2", "Start with a second model and a collection")
        text("pre", "hcep serve model/ --compare other/ --store store/", "command")
        if engine.other is not None:
            text("p", "The second model is loaded, but a collection is missing. You can also drop photos.")
            text("a", "Drop photos", "button", href="/collection")


class ComparePage:
    def __init__(self, collections: many.Collections, pair: Pair, names: list[str]) -> None:
        self.collections, self.pair, self.names = collections, pair, names
        a, b = names
        self.filters = {"all": "All", "differ": "Different answers", "one": f"Only {a} is right"}
        self.filters |= {"other": f"Only {b} is right", "neither": "Neither is right"}
        text("h1", f"{a[:1].upper()}{a[1:]} and {b}", "wrap")
        self.draw_summary()
        with text("div", classes="collection"):
            with text("section", classes="card stack panel", aria_label="Where they differ"):
                text("h2", "Where they differ")
                text(
                    "p",
                    "The lowest concept that both answers share: a specific one means close answers.",
                    "small soft",
                )
                many.confusion_bars(
                    pair.parting,
                    lambda theirs, ours, n: f"most often {ours} ({a}) and {theirs} ({b}), {n:,}×",
                    lambda concept: self.change("differ", concept),
                )
            with text("section", classes="stack", aria_label="Photos"):
                self.toolbar = text("div", classes="line", role="group", aria_label="Show")
                self.gallery = many.Gallery(pair.one.photos, pair.tile, self.open)
        self.change("differ" if pair.masks["differ"].any() else "all")

    def draw_summary(self) -> None:
        pair, (a, b) = self.pair, self.names
        text("p", f"They agree on {100 - 100 * pair.masks['differ'].mean():.1f} % of {len(pair.one):,} photos.", "lead")
        if pair.known.any():
            right = [c.own_masks["right"][pair.known] * 100.0 for c in (pair.one, pair.other)]
            sure = paired_draws(right[1][None], right[0][None])
            shares = ", ".join(f"{name} {each.mean():.1f} %" for name, each in zip((a, b), right, strict=True))
            interval = f"{sure.difference:+.1f} points (95 % interval {sure.low:+.1f} to {sure.high:+.1f}, paired)"
            text("p", f"Answers that match the labels: {shares}. The difference is {interval}.")

    def change(self, show: str, concept: int | None = None) -> None:
        keep = self.pair.masks[show]
        if concept is not None:
            keep = np.isin(np.arange(len(keep)), self.pair.parting.rows(View(common=concept)))
        self.gallery.show(np.flatnonzero(keep))
        self.toolbar.clear()
        with self.toolbar:
            numbers = {name: (words, self.pair.masks[name].sum()) for name, words in self.filters.items()}
            filters = {name: pair for name, pair in numbers.items() if pair[1]}
            many.chips(filters, show if concept is None else "", self.change)
            text("span", f"{keep.sum():,} shown", "soft number", role="status")

    def open(self, row: int) -> None:
        with many.photo_dialog(self.collections, self.pair.one.photos, row), text("div", classes="sides"):
            for name, collection in zip(self.names, (self.pair.one, self.pair.other), strict=True):
                with text("div", classes="stack"):
                    text("p", name, "small soft wrap")
                    many.answer_details(collection, row)
