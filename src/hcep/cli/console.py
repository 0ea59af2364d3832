"""Printing: markup and control characters in names are shown, not interpreted; tables and paths for a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import rich.console
import rich.markup
import typer
from rich.color import Color
from rich.style import Style
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from hcep import explain
from hcep._checks import escape_terminal

if TYPE_CHECKING:
    from PIL.Image import Image

Texts = Sequence[str]


class Console(rich.console.Console):
    """Rich's console without emoji codes: a name such as ``:cat:`` is printed as it is."""

    def __init__(self, **options: Any) -> None:
        super().__init__(emoji=False, **options)


def escape(text: str) -> str:
    """Text for rich's markup, on one line: markup and control characters in it are shown, not interpreted."""
    return rich.markup.escape(escape_terminal(text, keep=""))


def say(text: object, err: bool = False) -> None:
    """Print text without markup; control characters are shown as escapes."""
    typer.echo(escape_terminal(str(text)), err=err)


def say_json(value: object) -> None:
    """Print a value as JSON."""
    say(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def tell(text: str, kind: str = "note", colour: str = "yellow") -> None:
    """Print a line on standard error that starts with its kind."""
    Console(stderr=True, soft_wrap=True, highlight=False).print(f"[{colour}]{kind}:[/] {escape(text)}")


def show_notes(notes: Iterable[str]) -> None:
    """Print notes on standard error, one per line."""
    for note in notes:
        tell(note)


def table_of(heads: Texts | None, rows: Iterable[Texts], n_left: int = 1, styles: Texts = (), gap: int = 2) -> Table:
    """A table without lines; the first `n_left` columns, or all without heads, are aligned to the left."""
    table = Table(box=None, padding=(0, gap, 0, 0), header_style="bold", show_header=heads is not None)
    for i, head in enumerate(heads or ()):
        table.add_column(head, justify="left" if i < n_left else "right", overflow="fold")
    for i, row in enumerate(rows):
        table.add_row(*row, style=styles[i] if styles else None)
    return table


def verdict(one: explain.Answer, path: bool = False) -> str:
    """The answer as `Answer.line` words it, coloured; green only if there is no doubt about the class."""
    colour = "green" if one.is_sure else "yellow" if one.doubt else "default"
    answer, perhaps = one.headline_parts()
    remarks = "".join(f", [yellow]{escape(remark)}[/]" for remark in one.remarks())
    line = f"[bold {colour}]{escape(answer)}[/]{escape(perhaps)}{remarks}"
    return line + escape(one.line().removeprefix(one.summary())) if path else line


def half_blocks(picture: Image, indent: int = 0) -> Text:
    """A small picture in characters: each is a half-block with one pixel above another."""
    text, pixels = Text(), np.asarray(picture.convert("RGB")).tolist()
    for upper, lower in zip(pixels[::2], pixels[1::2], strict=False):
        text.append(" " * indent)
        for above, below in zip(upper, lower, strict=True):
            text.append("▀", Style(color=Color.from_rgb(*above), bgcolor=Color.from_rgb(*below)))
        text.append("\n")
    text.rstrip()
    return text


def path_tree(answer: explain.Answer) -> Tree:
    """The path as a rich tree: each concept with its coefficient and its share of the evidence, its meaning below."""
    from hcep.explain.answer import percent

    explained = sum(step.share for step in answer.path) or 1.0
    branch = tree = Tree(f"[dim]{escape(answer.root)}[/]", guide_style="dim")
    for step in answer.path:
        merged = f" [dim]({escape(', '.join(step.merged))})[/]" if step.merged else ""
        meaning = f"\n[italic]{escape(step.meaning)}[/]" if step.meaning else ""
        colour = "red" if step.coefficient < 0 else "default"
        branch = branch.add(
            f"[bold]{escape(step.name)}[/]  [{colour}]{step.coefficient:+.2f}[/]  "
            f"[cyan]{percent(step.share / explained)} of the evidence[/]{merged}{meaning}"
        )
    return tree
