"""Explained photos as one HTML file, and in a notebook: a card each, to sort and filter; maps on hover or tap."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from hcep._checks import escape_html as escape, html_table
from hcep.errors import HCEPError
from hcep.explain.explained import UNLIKE, ExplainedImage, Level, Rival, percent
from hcep.explain.explanation import Explanation, Step

if TYPE_CHECKING:
    from PIL.Image import Image

    from hcep.explain.evidence import WhyNot
    from hcep.explain.where import EvidenceMap

#: Longer side of the photos, and JPEG quality, up to so many of them: a thousand still open at once.
SIZES = ((60, 520, 82), (300, 320, 78), (10**9, 200, 72))
#: Longer side and JPEG quality of training photos.
SMALL = (112, 70)
#: Pixels per position in the overlays; the browser smooths further.
OVERLAY = 4
#: What a reader must know of maps that are not exact.
MAPS = {
    "approximate": "The maps are approximate: the model does not take the plain mean over positions.",
    "occlusion": "The maps are approximate, by occlusion: what is lost when a part of the photo is painted over.",
}
#: Siblings that are named beside a concept; those after the first from this probability on.
N_SIBLINGS, UNLIKELY = 3, 0.01
#: Cards that a list of images shows in a notebook.
N_CARDS = 12


def photo_report(found: Sequence[ExplainedImage], title: str = "HCEP explanations", before: str = "") -> str:
    """What `explain_images` found as one HTML document with its own small script; every text in it is escaped.

    `before` is HTML that stands before the images.
    """
    _, size, quality = next(row for row in SIZES if len(found) <= row[0])
    small, judged = SmallPhotos(), any(one.correct is not None for one in found)
    cards = "".join(card(one, i, size, quality, small) for i, one in enumerate(found))
    return Template(part("page.html")).substitute(
        title=escape(title),
        style=part("page.css"),
        before=before,
        facts=_facts(found),
        reading=_reading(found),
        right="<option value=wrong>wrong</option><option value=right>right</option>" if judged else "",
        classes="".join(f"<option>{escape(name)}</option>" for name in sorted({one.name for one in found})),
        cards=cards,
        small=json.dumps(small.uris),
        script=part("page.js"),
    )


def card(one: ExplainedImage, number: int, size: int, quality: int, small: SmallPhotos) -> str:
    """One explained image, at a place in the given order; `small` keeps its training photos."""
    picture = _picture(one, size, quality)
    steps = one.explanation.steps
    levels = one.levels or (None,) * len(steps)
    overlays, explained = _overlays(one), sum(step.share for step in steps)
    rows = "".join(
        _step(step, depth, level, explained, overlays.get(("concept", step.synset)), small.of(one, step))
        for depth, (step, level) in enumerate(zip(steps, levels, strict=True))
    )
    rivals = "".join(_rival(one, rival, overlays.get(("margin", rival.label))) for rival in one.rivals)
    rivals += "".join(_contrast(why, overlays.get(("margin", why.rival.label))) for why in one.contrasts)
    right = None if one.correction else one.correct  # what a person said is neither a hit nor a miss of the model
    mark = {None: "", True: "✓ ", False: "✗ "}[right]
    tone = "bad" if right is False else "good" if one.sure else "warn" if one.doubt else ""
    was = f"<p>The folder says {escape(one.truth or '')}.</p>" if one.correct is False else ""
    flags = [one.doubt, one.correction.told() if one.correction else ""]
    flag = "".join(f'<p><span class="flag warn">{escape(told)}</span></p>' for told in flags if told)
    flag += f"<p>Answer: {escape(str(one.hedged))}</p>" if one.hedged is not None else ""
    doubt = 2 if one.unlike else 1 if one.doubt else 0
    correct = {None: "", True: "1", False: "0"}[right]
    return (
        f'<article class="card{"" if picture else " plain"}" data-n={number} data-p={one.probability:.4f} '
        f'data-doubt={doubt} data-ok="{correct}" data-class="{escape(one.name)}" '
        f'data-file="{escape(_short(one.file))}">{picture}'
        f'<div class=told><h2 class="{tone}">{mark}{escape(one.name)}, {escape(percent(one.probability))}</h2>'
        f"{flag}{was}"
        f'<ol class=tree><li style="--d:0"><span class="step head"><span>{escape(one.explanation.root)}</span>'
        f"<span class=num>likely</span><span class=wide>of what is explained</span></span></li>{rows}"
        f"</ol><p class=rest>The path explains {escape(percent(explained))} of the image.</p>"
        f"{f'<ul class=rivals>{rivals}</ul>' if rivals else ''}</div>"
        f"{small.nearest(one)}</article>"
    )


def image_cards(found: Sequence[ExplainedImage]) -> str:
    """The first of some explained images for a notebook; maps, if any, as a strip below."""
    parts = []
    for one in found[:N_CARDS]:
        parts.append(card(replace(one, maps=None), 0, 320, 82, SmallPhotos(inline=True)))
        if one.maps is not None:
            parts.append(f'<img alt="where the concepts are" src="{thumbnail(one.strip(200), 1600)}">')
    rest = len(found) - N_CARDS
    more = f"<p class=soft>and {rest:,} more</p>" if rest > 0 else ""
    return f"<div class=hcep><style>{part('page.css')}</style>{''.join(parts)}{more}</div>"


def steps_table(explanation: Explanation) -> str:
    """The path as a table."""
    head, steps = ["concept", "coefficient", "share of the image", "meaning"], explanation.steps
    rows = [[step.name, f"{step.coefficient:.2f}", percent(step.share), step.meaning or ""] for step in steps]
    n = 4 if any(step.meaning for step in steps) else 3
    return html_table(head[:n], [row[:n] for row in rows])


@dataclass
class SmallPhotos:
    """Training photos of a report, each in it once; cards refer to them by number, or have them `inline`."""

    inline: bool = False
    uris: list[str] = field(default_factory=list)
    numbers: dict[str, int | None] = field(default_factory=dict)

    def number(self, file: str) -> int | None:
        """Of a photo; None where it cannot be read any more."""
        if file not in self.numbers:
            try:
                self.uris.append(thumbnail(Path(file), *SMALL))
                self.numbers[file] = len(self.uris) - 1
            except HCEPError:
                self.numbers[file] = None
        return self.numbers[file]

    def of(self, one: ExplainedImage, step: Step) -> str:
        """Numbers of the photos that are typical of a concept."""
        photos = () if self.inline else one.typical.get(step.synset, ())
        numbers = [self.number(photo.file) for photo in photos]
        return " ".join(str(number) for number in numbers if number is not None)

    def nearest(self, one: ExplainedImage) -> str:
        """The nearest training photos; concepts that are pointed at show theirs in the same place."""
        shown = ""
        for photo in one.nearest:
            if (number := self.number(photo.file)) is not None:
                source = f'src="{self.uris[number]}"' if self.inline else f"data-t={number}"
                shown += (
                    f'<figure><img {source} alt="training photo: {escape(photo.name)}" '
                    f'title="{escape(_short(photo.file))}"><figcaption>{escape(photo.name)}</figcaption></figure>'
                )
        if shown:
            return f"<div class=like><p>Nearest training photos</p><div>{shown}</div></div>"
        return "<div class=like hidden><p></p><div></div></div>" if one.typical and not self.inline else ""


def _short(file: str) -> str:
    """The end of a path: nobody needs to know where on whose machine a photo is."""
    return "/".join(Path(file).parts[-2:])


@cache
def part(name: str) -> str:
    """A part of the page."""
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def thumbnail(photo: str | Path | Image, size: int = 160, quality: int = 80) -> str:
    """A small JPEG of an image or an image file as a data URI, so that the report stays one file."""
    from hcep.embeddings.images import open_image, small_jpeg

    image = open_image(photo, shorter_side=size) if isinstance(photo, str | Path) else photo
    return "data:image/jpeg;base64," + base64.b64encode(small_jpeg(image, size, quality)).decode()


def _facts(found: Sequence[ExplainedImage]) -> str:
    """How many there are, how many are right where that is known, and how many to doubt."""
    judged = [one for one in found if one.correct is not None and not one.correction]
    right = sum(bool(one.correct) for one in judged)
    facts = [(f"{len(found):,}", "image" if len(found) == 1 else "images")]
    if judged:
        share = f"right, by the names of folders ({100 * right / len(judged):.1f} %)"
        facts += [(f"{right:,} of {len(judged):,}", share)]
    facts += [(f"{sum(one.doubt == 'unsure' for one in found):,}", "unsure")]
    if n := sum(one.correction is not None for one in found):
        facts += [(f"{n:,}", "corrected by people")]
    if any(one.unlike is not None for one in found):
        facts += [(f"{sum(bool(one.unlike) for one in found):,}", UNLIKE)]
    return f"<ul class=facts>{''.join(f'<li><b>{value}</b> {escape(what)}</li>' for value, what in facts)}</ul>"


def _reading(found: Sequence[ExplainedImage]) -> str:
    text = (
        "Each image is explained by a path of concepts, from the most general down. Beside a concept stand how likely "
        "it is and its own share of what the path explains of the image (the shares add up); below it, its likeliest "
        "siblings."
    )
    hows = dict.fromkeys(one.maps.how for one in found if one.maps is not None)
    if hows:
        text += " Point at a concept, or tap it, to see where it is: red speaks for it, blue against."
        text += "".join(f" {escape(MAPS[how])}" for how in hows if how in MAPS)
    if any(one.typical for one in found):
        text += " Pointing at a concept also shows typical training photos of it."
    return text


def _picture(one: ExplainedImage, size: int, quality: int) -> str:
    try:
        uri = thumbnail(one.source if isinstance(one.source, Path) else one.photo(), size, quality)
    except HCEPError:  # an embedding, or a file that is gone by now
        return ""
    told = escape(f"{Path(one.file).name}: {one.name}, {percent(one.probability)}")
    overlay = ""
    if one.maps is not None:
        (left, top, right, bottom), (width, height) = one.maps.region, one.maps.size
        sides = {"left": left / width, "top": top / height}
        sides |= {"width": (right - left) / width, "height": (bottom - top) / height}
        css = ";".join(f"{side}:{100 * value:.3f}%" for side, value in sides.items())
        overlay = f'<img class=map hidden alt="" style="{css}">'
    return (
        f'<figure><div class=frame><img loading=lazy decoding=async alt="{told}" src="{uri}">{overlay}</div>'
        f'<figcaption title="{escape(_short(one.file))}">{escape(Path(one.file).name)}</figcaption></figure>'
    )


def _overlays(one: ExplainedImage) -> dict[tuple[str, str], str]:
    """The maps as data URIs: concepts on one scale of colours, each margin on its own."""
    from hcep.explain.map_drawing import common_limit

    if one.maps is None:
        return {}
    limit = common_limit(list(one.maps.concepts.values()))
    found = {("concept", synset): overlay_uri(evidence, limit) for synset, evidence in one.maps.concepts.items()}
    margins = {("margin", label): overlay_uri(m) for label, m in one.maps.margins.items()}
    return found | margins


def overlay_uri(evidence: EvidenceMap, limit: float | None = None) -> str:
    """A map as a transparent picture in a data URI; its own strongest share is fully coloured, or the given one."""
    from hcep.explain.map_drawing import common_limit, overlay

    height, width = evidence.shares.shape
    data = io.BytesIO()
    overlay(evidence, limit or common_limit([evidence]), (OVERLAY * width, OVERLAY * height)).save(data, "PNG")
    return "data:image/png;base64," + base64.b64encode(data.getvalue()).decode()


def _step(step: Step, depth: int, level: Level | None, explained: float, overlay: str | None, typical: str) -> str:
    also, share = escape(", ".join(step.merged)), step.share / (explained or 1.0)
    merged = f' <span class=soft title="{also}">+{len(step.merged)}</span>' if step.merged else ""
    row = (
        f"<span class=name>{escape(step.name)}{merged}</span>"
        f"<span class=num>{escape(percent(level.probability)) if level else ''}</span>"
        f'<span class=track><i style="width:{100 * min(share, 1.0):.1f}%"></i></span>'
        f"<span class=num>{escape(percent(share))}</span>"
    )
    meaning = f'<span class="meaning soft">{escape(step.meaning)}</span>' if step.meaning else ""
    return f'<li style="--d:{depth}">{_pointed(row, overlay, "step", typical, step.name)}{meaning}{_beside(level)}</li>'


def _beside(level: Level | None) -> str:
    if level is None or not level.siblings:
        return ""
    likely = [pair for pair in level.siblings[:N_SIBLINGS] if pair[1] >= UNLIKELY] or level.siblings[:1]
    named = [f"{name} {percent(share)}" for name, share in likely]
    rest = len(level.siblings) - len(named)
    return f"<span class=beside>beside {escape(', '.join(named))}{f' and {rest:,} more' if rest else ''}</span>"


def _rival(one: ExplainedImage, rival: Rival, overlay: str | None) -> str:
    told = escape(f"what in the picture says {one.name} rather than {rival.name}")
    what = f'<span title="{told}">what says {escape(one.name)}</span>'
    pointed = _pointed(what, overlay, "") if overlay else ""
    return (
        f"<li>or <b>{escape(rival.name)}</b>, {escape(percent(rival.probability))}: "
        f"<span class=soft>{escape(what_separates(one, rival))}</span> {pointed}</li>"
    )


def _contrast(why: WhyNot, overlay: str | None) -> str:
    first, *others = map(escape, why.lines())
    pointed = _pointed(f"what says {escape(why.chosen.name)}", overlay, "") if overlay else ""
    return f"<li><b>{first}</b> {pointed}<br><span class=soft>{'<br>'.join(others)}</span></li>"


def what_separates(one: ExplainedImage, rival: Rival) -> str:
    """Where the path of a rival leaves the image's own, in words."""
    own = [step.synset for step in one.explanation.steps]
    pairs = enumerate(zip(own, rival.path, strict=False))
    n = next((i for i, (a, b) in pairs if a != b), min(len(own), len(rival.path)))
    if n == len(own) or n == len(rival.path):
        return "one path goes on where the other ends"
    above = f"below {one.explanation.steps[n - 1].name}" if n else "from the start"
    return f"{above}, {rival.names[n]} rather than {one.explanation.steps[n].name}"


def _pointed(content: str, overlay: str | None, style: str, typical: str = "", name: str = "") -> str:
    """A button that shows a map, or typical photos; without either, plain text."""
    if overlay is None and not typical:
        return f'<span class="{style}">{content}</span>'
    shows = f' data-map="{overlay}"' if overlay else ""
    shows += f' data-typical="{typical}" data-name="{escape(name)}"' if typical else ""
    return f'<button type=button class="{style}" aria-pressed=false{shows}>{content}</button>'
