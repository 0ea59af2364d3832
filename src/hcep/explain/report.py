"""Answers as one HTML file, or in a notebook: a card each, with the photo, its maps and the path of concepts."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hcep._checks import render_html
from hcep.errors import HCEPError, quoted
from hcep.explain.answer import UNLIKE, Answer, Rival, Step, TrainingPhoto, percent
from hcep.explain.evidence import n_shared

if TYPE_CHECKING:
    from PIL.Image import Image

    from hcep.explain.where import EvidenceMap, ImageMaps

TEMPLATES = Path(__file__).with_name("templates")
#: Longer side and JPEG quality of the photos, for up to so many of them: a thousand still open quickly.
SIZES = ((60, 520, 82), (300, 320, 78), (10**9, 200, 72))
#: Longer side and JPEG quality of training photos, of the photos below the thumbnails of maps, and in a notebook.
SMALL, BELOW_MAPS, IN_NOTEBOOK = (112, 70), (168, 70), (420, 82)
#: Pixels per position in the overlays; the browser smooths further.
OVERLAY = 4
#: What a reader must know about maps that are not exact.
MAPS = {
    "approximate": "are approximate: the encoder or the model does not simply average over the photo.",
    "occlusion": "are approximate, by occlusion: they show what is lost when a part of the photo is covered.",
}
#: Siblings named beside a concept; all but the first only from this probability on.
N_SIBLINGS, UNLIKELY = 3, 0.01
#: Cards that a list of answers shows in a notebook.
N_CARDS = 12


class ReportTable(NamedTuple):
    """A table below the images of a report; the first row is its head."""

    heading: str
    text: str
    rows: Sequence[Sequence[str]]


def photo_report(
    answers: Sequence[Answer],
    title: str = "HCEP explanations",
    introduction: str = "",
    tables: Sequence[ReportTable] = (),
    captions: Sequence[tuple[str, str]] = (),
) -> str:
    """Answers as one HTML document with its own small script; every text in it is escaped.

    `captions` are a heading and a text above each answer; `tables` stand below all of them.
    """
    _, size, quality = next(row for row in SIZES if len(answers) <= row[0])
    return render_html(
        TEMPLATES / "report.html",
        title=title,
        introduction=introduction,
        tables=tables,
        captions=captions,
        facts=_facts(answers),
        notes=[note for how in MAPS if (note := _note_on_maps(answers, how))],
        levels=list(dict.fromkeys((answer.sure, answer.promise) for answer in answers)),
        answers=answers,
        pictures=Pictures(size, quality),
    )


def _note_on_maps(answers: Sequence[Answer], how: str) -> str:
    """A sentence about maps that were made in one way, if there are any; it names the photos if not all maps were."""
    files = list(dict.fromkeys("/".join(Path(a.file).parts[-2:]) for a in answers if a.mapping == how))
    is_all = all(answer.mapping in (how, None) for answer in answers)
    return f"The maps{'' if is_all else f' of {quoted(files)}'} {MAPS[how]}" if files else ""


def notebook_cards(answers: Sequence[Answer]) -> str:
    """The first answers as cards for a notebook."""
    shown = answers[:N_CARDS]
    return render_html(
        TEMPLATES / "notebook.html",
        answers=shown,
        n_more=len(answers) - len(shown),
        pictures=Pictures(*IN_NOTEBOOK, inline=True),
    )


class Pictures:
    """The pictures of a report as data URIs, and the words beside them.

    Each training photo is in a report once: cards refer to `small` by number, or have them `inline`.
    """

    def __init__(self, size: int, quality: int, inline: bool = False) -> None:
        self.size, self.quality, self.inline = size, quality, inline
        self.percent, self.place, self.overlay, self.object_name = percent, map_place, overlay_uri, object_name
        self.small: list[str] = []
        self._numbers: dict[str, int | None] = {}

    def photo(self, answer: Answer, small: bool = False) -> str | None:
        """The picture, or a `small` one to lie below maps; None for an embedding, or if the file is gone."""
        source, (size, quality) = answer.context.source, BELOW_MAPS if small else (self.size, self.quality)
        try:
            return thumbnail(source if isinstance(source, Path) else answer.photo(), size, quality)
        except HCEPError:
            return None

    def main_map(self, answer: Answer) -> tuple[str, str] | None:
        """The map to show on the photo and what red on it speaks for, see `main_evidence`."""
        if answer.maps is None or not answer.path:
            return None
        evidence, name = main_evidence(answer)
        return overlay_uri(evidence), name

    def typical(self, answer: Answer, step: Step) -> str:
        """Numbers of the training photos that are typical of a concept."""
        photos = () if self.inline else answer.context.typical.get(step.synset, ())
        return " ".join(str(number) for number in map(self._number, photos) if number is not None)

    def nearest(self, answer: Answer) -> list[tuple[TrainingPhoto, dict[str, Any]]]:
        """The nearest training photos that can still be read, with the attributes of their images."""
        numbered = [(photo, self._number(photo)) for photo in answer.nearest]
        return [
            (photo, {"src": self.small[number]} if self.inline else {"data-t": number})
            for photo, number in numbered
            if number is not None
        ]

    def n_sure(self, answer: Answer) -> int:
        """How many concepts of the path are the answer or above it; the others are guesses."""
        if answer.is_decided:
            return len(answer.path)
        sure = answer.answer
        if sure is not None and answer.context.explainer is not None:
            sure = answer.context.model.hierarchy.merged_into(sure)
        return next((i for i, step in enumerate(answer.path, start=1) if step.synset == sure), 0)

    def siblings(self, answer: Answer, step: int) -> str:
        """The most likely siblings of a concept of the path, in words."""
        if answer.context.explainer is None or not (siblings := answer.siblings(step)):
            return ""
        likely = [pair for pair in siblings[:N_SIBLINGS] if pair[1] >= UNLIKELY] or siblings[:1]
        rest = len(siblings) - len(likely)
        names = ", ".join(f"{name} {percent(share)}" for name, share in likely)
        return names + (f" and {rest:,} more" if rest else "")

    def fork(self, answer: Answer, rival: Rival) -> str:
        """Where the path of a rival leaves the answer's, in words."""
        n = n_shared([step.synset for step in answer.path], rival.path)
        if n == len(answer.path) or n == len(rival.path):
            return "one path continues where the other ends"
        above = f"below {answer.path[n - 1].name}" if n else "from the start"
        other = rival.names[n]
        if answer.context.explainer is not None:
            other = answer.context.model.hierarchy.shown_path(rival.path[n : n + 1])[0]
        return f"{above}, {other} instead of {(*answer.path[n].ranked(), answer.path[n].name)[0]}"

    def class_name(self, answer: Answer) -> str:
        """The name of the class that the image's folder is named after."""
        if answer.context.explainer is None or answer.truth is None:
            return str(answer.truth)
        return str(dict(answer.context.explainer.evidence.classes)[answer.truth])

    def unbroken(self, text: str) -> str:
        """Words in which no line breaks between a number and its per cent sign."""
        return text.replace(" %", "\N{NO-BREAK SPACE}%")

    def short(self, file: str) -> str:
        """The end of a path: readers need not know where on whose machine a photo is."""
        return "/".join(Path(file).parts[-2:])

    def base(self, file: str) -> str:
        return Path(file).name

    def _number(self, photo: TrainingPhoto) -> int | None:
        if photo.file not in self._numbers:
            try:
                self.small.append(thumbnail(Path(photo.file), *SMALL))
                self._numbers[photo.file] = len(self.small) - 1
            except HCEPError:  # it cannot be read any more
                self._numbers[photo.file] = None
        return self._numbers[photo.file]


def main_evidence(answer: Answer) -> tuple[EvidenceMap, str]:
    """The map that says most about an answer, and what it is evidence for.

    That is the map against the first class that the answer is compared with, if any; or else the map of the largest
    object against the next, if there are several; or else the map of the concept that adds most of the evidence.
    """
    for rival in (contrast.rival for contrast in answer.contrasts):
        return answer.margin_map(rival.label), f"{answer.name} rather than {rival.name}"
    for evidence in answer.maps.objects if answer.maps is not None else ():
        return evidence, object_name(answer, 0)
    step = max(answer.path, key=lambda step: step.share)
    return answer.where(step.synset), step.name


def object_name(answer: Answer, i: int) -> str:
    """What the map of an object is evidence for (see `ImageMaps.objects`)."""
    return f"{answer.objects[i].name} rather than {answer.objects[0 if i else 1].name}"


def thumbnail(photo: str | Path | Image, size: int = 160, quality: int = 80) -> str:
    """A small JPEG of an image or an image file as a data URI, so that a report stays one file."""
    from hcep.embeddings.images import open_image, small_jpeg

    image = open_image(photo, shorter_side=size) if isinstance(photo, str | Path) else photo
    return "data:image/jpeg;base64," + base64.b64encode(small_jpeg(image, size, quality)).decode()


def map_place(maps: ImageMaps) -> str:
    """CSS of where on the photo its maps lie."""
    (left, top, right, bottom), (width, height) = maps.region, maps.size
    sides = {"left": left / width, "top": top / height}
    sides |= {"width": (right - left) / width, "height": (bottom - top) / height}
    return ";".join(f"{side}:{100 * value:.3f}%" for side, value in sides.items())


def overlay_uri(evidence: EvidenceMap, among: Iterable[EvidenceMap] = ()) -> str:
    """A map as a transparent picture in a data URI; it has one scale of colours with the maps `among` which it is."""
    from hcep.explain.map_drawing import common_limit, overlay

    height, width = evidence.shares.shape
    data = io.BytesIO()
    limit = common_limit([evidence, *among])
    overlay(evidence, limit, (OVERLAY * width, OVERLAY * height)).save(data, "PNG")
    return "data:image/png;base64," + base64.b64encode(data.getvalue()).decode()


def _facts(answers: Sequence[Answer]) -> list[tuple[str, str]]:
    """How many images there are, how many are right if that is known, and how many are doubtful."""
    judged = [answer for answer in answers if answer.correct is not None and not answer.correction]
    right, n_corrected = sum(bool(answer.correct) for answer in judged), sum(map(bool, (a.correction for a in answers)))
    facts = [(f"{len(answers):,}", "image" if len(answers) == 1 else "images")]
    if judged:
        share = f"right, judging by the folder names ({100 * right / len(judged):.1f} %)"
        facts.append((f"{right:,} of {len(judged):,}", share))
    own = [answer for answer in answers if not answer.is_decided]
    above = sum(answer.answer not in (None, answer.label) for answer in own)
    facts += [(f"{above:,}", "answered with a concept above the classes")] if above else []
    nothing = sum(answer.answer is None for answer in own)
    facts += [(f"{nothing:,}", "without a sure answer")] if nothing else []
    if n_corrected:
        facts.append((f"{n_corrected:,}", "corrected by people"))
    if any(answer.unlike is not None for answer in answers):
        facts.append((f"{sum(bool(answer.unlike) for answer in own):,}", UNLIKE))
    return facts
