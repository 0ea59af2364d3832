"""How explanations show themselves in a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hcep._tables import html
from hcep.explain.explained import percent

if TYPE_CHECKING:
    from hcep.explain.explained import ExplainedImage
    from hcep.explain.explanation import Explanation

#: Cards that a list of images shows.
N_CARDS = 12


def steps_table(explanation: Explanation) -> str:
    """The path as a table."""
    rows = [
        [step.name, f"{step.coefficient:.2f}", percent(step.share), step.meaning or ""] for step in explanation.steps
    ]
    head = ["concept", "coefficient", "share of the image", "meaning"]
    n = 4 if any(step.meaning for step in explanation.steps) else 3
    return html(head[:n], [row[:n] for row in rows])


def image_card(one: ExplainedImage) -> str:
    """An explained image as in the report; its maps, if any, as a strip below."""
    return image_cards([one])


def image_cards(found: Sequence[ExplainedImage]) -> str:
    """The first of some explained images."""
    from dataclasses import replace

    from hcep.explain.report import card, part, thumbnail

    parts = []
    for one in found[:N_CARDS]:
        parts.append(card(replace(one, maps=None), size=320))
        if one.maps is not None:
            parts.append(f'<img alt="where the concepts are" src="{thumbnail(one.strip(200), 1600)}">')
    rest = len(found) - N_CARDS
    more = f"<p class=soft>and {rest:,} more</p>" if rest > 0 else ""
    return f"<div class=hcep><style>{part('page.css')}</style>{''.join(parts)}{more}</div>"
