"""A self-contained HTML report: a table of methods, images as ladders of coefficients; no script, no network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hcep._escape import html as escape
from hcep.explain.explanation import Explanation, Step
from hcep.explain.page import photo_report as photo_report, thumbnail as thumbnail

#: Coefficients beyond this are drawn at the edge of their bar.
WIDEST = 3.0

STYLE = """
:root{color-scheme:light dark;--ink:#1c2430;--soft:#5b6675;--line:#d9dee5;--paper:#fff;--good:#1f7a55;--bad:#b3382e;
--bar:#4573b8}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ee;--soft:#9aa5b4;--line:#333c48;--paper:#151a21;--good:#5fc59a;
--bar:#7aa5e8;--bad:#ef8078}}
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:60rem;margin:2rem auto;
padding:0 1rem}
h1{font-size:1.6rem;margin:0 0 .25rem}h2{font-size:1.15rem;margin:2.2rem 0 .5rem}p{margin:.4rem 0}
.soft{color:var(--soft)}.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;margin:.5rem 0}
th,td{text-align:right;padding:.35rem .6rem;border-bottom:1px solid var(--line);font-variant-numeric:tabular-nums}
th:first-child,td:first-child{text-align:left}tr.ours td{font-weight:600}
.images{display:grid;grid-template-columns:repeat(auto-fill,minmax(26rem,1fr));gap:1rem}
.image{border:1px solid var(--line);border-radius:.5rem;padding:.8rem 1rem;min-width:0}
.image h3{font-size:1rem;margin:0}.image .file{font-size:.8rem;overflow-wrap:anywhere}
.image img{float:right;max-width:7rem;max-height:7rem;border-radius:.3rem;margin:0 0 .4rem .6rem}
.image ol{clear:both}.good{color:var(--good)}.bad{color:var(--bad)}
ol{list-style:none;margin:.5rem 0 0;padding:0}
li{display:grid;grid-template-columns:minmax(0,1fr) 7.5rem 3.2rem 3rem;gap:.5rem;align-items:center;padding:.1rem 0}
li .meaning{grid-column:1/-1;font-size:.85rem;overflow-wrap:anywhere}
li .value,li .sum{text-align:right;font-variant-numeric:tabular-nums}
.track{position:relative;height:.7rem;background:linear-gradient(var(--line),var(--line)) 50% 50%/100% 1px no-repeat}
.track i{position:absolute;top:0;bottom:0;background:var(--bar);border-radius:2px}.track i.minus{background:var(--bad)}
.track b{position:absolute;top:-2px;bottom:-2px;width:1px;background:var(--soft)}
@media(max-width:32rem){.images{grid-template-columns:1fr}li{grid-template-columns:minmax(0,1fr) 4rem 3rem 2.6rem}}
"""


@dataclass(frozen=True)
class Card:
    """One explained image of a report."""

    title: str
    file: str
    verdict: str
    correct: bool
    explanation: Explanation
    note: str = ""
    thumbnail: str = ""


@dataclass(frozen=True)
class Section:
    """A heading, a paragraph and explained images."""

    title: str
    text: str
    cards: Sequence[Card]


def report(
    title: str, text: str, table: Sequence[Mapping[str, str]], highlight: str, sections: Sequence[Section]
) -> str:
    """The report as one HTML document; every text in it is escaped.

    Parameters
    ----------
    table : one mapping of column to cell per row, all with the same columns; may be empty
    highlight : the first cell of the row to set in bold
    sections : explained images
    """
    body = [f"<h1>{escape(title)}</h1><p class=soft>{escape(text)}</p>"]
    if table:
        body.append(_table(table, highlight))
    body.append(
        "<p class=soft>In the ladders below a bar is a concept's coefficient (the tick marks 1, where an image "
        "of exactly that concept stands; a red bar points away from the concept), the last column how much of the "
        "embedding the path accounts for so far (it may dip where a later concept makes up for it).</p>"
    )
    body += [_section(section) for section in sections]
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{STYLE}</style><body>{''.join(body)}</body></html>\n"
    )


def _table(rows: Sequence[Mapping[str, str]], highlight: str) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in rows[0])
    lines = []
    for row in rows:
        cells = list(row.values())
        mark = " class=ours" if cells[0] == highlight else ""
        lines.append(f"<tr{mark}>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>")
    return f"<div class=scroll><table><tr>{head}</tr>{''.join(lines)}</table></div>"


def _section(section: Section) -> str:
    cards = "".join(_card(card) for card in section.cards)
    return f"<h2>{escape(section.title)}</h2><p>{escape(section.text)}</p><div class=images>{cards}</div>"


def _card(card: Card) -> str:
    verdict = f'<span class="{"good" if card.correct else "bad"}">{escape(card.verdict)}</span>'
    steps = "".join(_step(step, depth) for depth, step in enumerate(card.explanation.steps))
    note = f"<p>{escape(card.note)}</p>" if card.note else ""
    picture = f'<img alt="" src="{escape(card.thumbnail)}">' if card.thumbnail else ""
    return (
        f"<div class=image>{picture}<h3>{escape(card.title)} {verdict}</h3>"
        f'<p class="soft file">{escape(card.file)}</p><ol>{steps}</ol>{note}</div>'
    )


def _step(step: Step, depth: int) -> str:
    merged = (
        f' <span class=soft title="{escape(", ".join(step.merged))}">+{len(step.merged)}</span>' if step.merged else ""
    )
    indent = f'style="padding-left:{0.8 * depth:.1f}rem"'
    meaning = f'<span class="meaning soft" {indent}>{escape(step.meaning)}</span>' if step.meaning else ""
    return (
        f"<li><span {indent}>{escape(step.name)}{merged}</span>"
        f"{_bar(step.coefficient)}"
        f"<span class=value>{step.coefficient:.2f}</span><span class=sum>{step.explained:.0%}</span>{meaning}</li>"
    )


def _bar(coefficient: float) -> str:
    """A bar from 0 to the coefficient on a track from -WIDEST to WIDEST, with a tick at 1."""
    at = [50 + 50 * max(-WIDEST, min(WIDEST, value)) / WIDEST for value in (0.0, coefficient, 1.0)]
    left, right = sorted(at[:2])
    minus = " class=minus" if coefficient < 0 else ""
    return (
        f'<span class=track><i{minus} style="left:{left:.1f}%;width:{right - left:.1f}%"></i>'
        f'<b style="left:{at[2]:.1f}%"></b></span>'
    )
