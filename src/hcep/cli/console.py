"""What commands write with: a name is shown as it is, and never obeyed."""

from __future__ import annotations

from typing import Any

import rich.console
import typer

from hcep._escape import terminal


class Console(rich.console.Console):
    """Rich's console, in which a colon is a colon: no name of a concept becomes an emoji."""

    def __init__(self, **options: Any) -> None:
        super().__init__(emoji=False, **options)


def say(text: object, err: bool = False) -> None:
    """Print text, without markup; controls in it are shown as escapes."""
    typer.echo(terminal(str(text)), err=err)
