"""Examples below the `--help` of every command, from examples.txt: first what runs as typed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import typer

from hcep._escape import markup as escape


def add_examples(app: typer.Typer, above: str = "hcep") -> None:
    """Give every command of the app, and of those below it, its examples."""
    lines = [line for line in Path(__file__).with_name("examples.txt").read_text("utf-8").splitlines() if line]
    for command in app.registered_commands:
        assert command.callback is not None
        own = f"{above} {command.name or command.callback.__name__.replace('_', '-')}"
        command.epilog = _epilog(own, [line for line in lines if not line.startswith("#")])
    for group in app.registered_groups:
        assert group.typer_instance is not None
        add_examples(group.typer_instance, f"{above} {group.name}")


def _epilog(command: str, lines: list[str]) -> str:
    """What runs as typed, after what makes the files that it reads; then more of it, on other files."""
    first = next((line for line in lines if f"{line.split(' && ')[-1]} ".startswith(f"{command} ")), "")
    after = lines[lines.index(first) + 1 :] if first else []
    more = after[: next((i for i, line in enumerate(after) if not line.startswith(" ")), None)]
    typed = [*_before(first, [line for line in lines if not line.startswith(" ")]), first]
    parts = ["[bold]Example[/], as typed", *map(escape, typed)] if first else []
    return "\n\n".join(parts + (["[bold]More[/], on your own files", *map(escape, more)] if more else []))


def _before(line: str, lines: list[str]) -> list[str]:
    """The lines that make what a line reads, and what they read."""
    words = {word.partition("/")[0] for word in shlex.split(line)}
    found: list[str] = []
    for earlier in lines[: lines.index(line)] if line else []:
        made = {place.partition("/")[0] for place in re.findall(r" -[od] (\S+)", earlier)}
        if made & words:
            found += [*_before(earlier, lines), earlier]
    return list(dict.fromkeys(found))
