"""What `hcep hierarchy` reads and writes: a file of any format, a folder, a web address, a model, a known name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from hcep.cli.console import say
from hcep.errors import HCEPError
from hcep.hierarchy import Hierarchy, write_hierarchy
from hcep.hierarchy.files import in_words
from hcep.hierarchy.formats import find_format
from hcep.hierarchy.formats.writing import graph_loss

File = Annotated[
    str,
    typer.Argument(
        help="Hierarchy: a file (see `hcep hierarchy formats`), a folder tree, an http(s):// address, a model folder, "
        "or `imagenet`."
    ),
]
ReadAs = Annotated[str | None, typer.Option("--format", help="Format to read, where the ending does not tell it.")]
HierarchyFormat = Annotated[
    str | None, typer.Option(help="Format of the hierarchy, where the file's ending does not tell it.")
]
Options = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        "-O",
        metavar="KEY=VALUE",
        help="Option of the hierarchy's reader, such as root=animal, levels=family,genus, parent=1, encoding=cp1252.",
    ),
]
To = Annotated[str | None, typer.Option("--to", help="Format to write, where the ending does not tell it.")]
Collapsed = Annotated[bool, typer.Option(help="Merge single-child chains.")]
Lossy = Annotated[bool, typer.Option(help="Write also what loses parents of a concept.")]
Force = Annotated[bool, typer.Option(help="Overwrite the file to write.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
LISTS = ("levels", "relationships")
NUMBERS = {"max_bytes": int, "timeout": float}


def read(
    place: str, format: str | None = None, options: Sequence[str] | None = None, *, described: bool = False
) -> Hierarchy:
    """The hierarchy at a place; on standard error what the reader passed over and, on request, what it took it for."""
    from hcep.datasets import find_hierarchy

    told: list[str] = []
    hierarchy = find_hierarchy(place, format=format, on_note=told.append, **parsed(options))
    if hierarchy is None:
        raise HCEPError(f"{place!r} stands for no hierarchy; a file of that name is ./{place}")
    if described and told:
        say(told[0], err=True)
    tell(told[1:])
    return hierarchy


def parsed(options: Sequence[str] | None) -> dict[str, Any]:
    """Options as the reader takes them: lists apart by commas, numbers as such."""
    found: dict[str, Any] = {}
    for option in options or ():
        key, equals, value = option.partition("=")
        if not equals:
            raise typer.BadParameter(f"expected KEY=VALUE, got {option!r}", param_hint="--option")
        try:
            found[key] = value.split(",") if key in LISTS else NUMBERS.get(key, str)(value)
        except ValueError:
            raise typer.BadParameter(f"{key} must be a number, got {value!r}", param_hint="--option") from None
    return found


def tell(notes: Iterable[str]) -> None:
    """Notes and losses, one per line, on standard error."""
    for note in notes:
        say(f"note: {note}", err=True)


def write(hierarchy: Hierarchy, target: Path, to: str | None, lossy: bool) -> None:
    """Write a hierarchy, tell what is lost, and say what the file holds: a tree, where the format keeps no more."""
    tell(write_hierarchy(hierarchy, target, to, lossy=lossy))
    written = hierarchy.as_tree() if graph_loss(find_format(target.name, to, to="write"), hierarchy) else hierarchy
    say(f"{target}: {in_words(written)}")
