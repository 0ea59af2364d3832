"""Numbers and tables as people read them, in Markdown and in notebooks."""

import math
from collections.abc import Iterable, Sequence

from hcep._escape import html as escape

#: What stands for a number that is not defined.
NOTHING = "–"


def number(value: float) -> str:
    """Three digits after the point (one from 10 up), shares without the zero before it.

    >>> number(0.5), number(1.0), number(-0.25), number(-0.0001), number(12.34), number(float("nan"))
    ('.500', '1.000', '-.250', '.000', '12.3', '–')
    """
    if math.isnan(value):
        return NOTHING
    text = f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"
    text = text.replace("-0.000", "0.000")  # too small to have a sign
    return text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    r"""A Markdown table, its bars in cells escaped; ends in a newline.

    >>> print(markdown(["a", "b"], [["1", "x|y"]]), end="")
    | a | b |
    |---|---|
    | 1 | x\|y |
    """
    lines = [_line(head), "|---" * len(head) + "|", *map(_line, rows)]
    return "\n".join(lines) + "\n"


def html(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table for a notebook, every text in it escaped.

    >>> html(["a"], [["1 < 2"]])
    '<table><tr><th>a</th></tr><tr><td>1 &lt; 2</td></tr></table>'
    """
    lines = [("th", head), *(("td", row) for row in rows)]
    cells = ("".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in line) for tag, line in lines)
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"
