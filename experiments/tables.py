"""Numbers and Markdown tables for the results page."""

import math
from collections.abc import Iterable, Sequence

#: Stands for a number that is not defined.
NOTHING = "–"


def number(value: float) -> str:
    """Format a number with three decimals (one from 10 upwards), without the zero before the point.

    >>> number(0.5), number(1.0), number(-0.25), number(-0.0001), number(12.34), number(float("nan"))
    ('.500', '1.000', '-.250', '.000', '12.3', '–')
    """
    if math.isnan(value):
        return NOTHING
    text = f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"
    text = text.replace("-0.000", "0.000")  # a value that rounds to zero has no sign
    return text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    r"""Format a Markdown table that ends in a newline; vertical bars in cells are escaped.

    >>> print(markdown(["a", "b"], [["1", "x|y"]]), end="")
    | a | b |
    |---|---|
    | 1 | x\|y |
    """
    lines = [_line(head), "|---" * len(head) + "|", *map(_line, rows)]
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"
