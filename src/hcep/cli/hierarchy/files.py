"""What `hcep hierarchy` reads: a file of any format, a folder, a web address, a model, or ImageNet's hierarchy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from hcep.hierarchy import Hierarchy, write_hierarchy
from hcep.hierarchy.files import read_with_notes
from hcep.hierarchy.formats import find_format
from hcep.hierarchy.formats.writing import graph_loss

File = Annotated[
    str,
    typer.Argument(
        help="Hierarchy: a file (see `hcep hierarchy formats`), a folder tree, an http(s):// address, a model folder, "
        "or `imagenet`."
    ),
]
ReadAs = Annotated[
    str | None, typer.Option("--format", help="Format to read, where the file's ending does not tell it.")
]
Options = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        "-O",
        metavar="KEY=VALUE",
        help="Option of the reader, such as root=animal, repeated=merge, levels=family,genus or language=de.",
    ),
]
LISTS = ("levels", "relationships")
NUMBERS = {"max_bytes": int, "timeout": float}


def read(place: str, format: str | None = None, options: Sequence[str] | None = None) -> Hierarchy:
    """The hierarchy at a place; what the reader passed over is told on standard error."""
    path = Path(place)
    if place == "imagenet" and not path.exists():
        from hcep.datasets import imagenet_hierarchy

        return imagenet_hierarchy()
    if format is None and (path / "hierarchy.json").is_file():
        place = str(path / "hierarchy.json")
    hierarchy, notes = read_with_notes(place, format, **parsed(options or ()))
    tell(notes)
    return hierarchy


def parsed(options: Sequence[str]) -> dict[str, Any]:
    """Options as the reader takes them: lists apart by commas, numbers as such."""
    found: dict[str, Any] = {}
    for option in options:
        key, equals, value = option.partition("=")
        if not equals:
            raise typer.BadParameter(f"expected KEY=VALUE, got {option!r}", param_hint="--option")
        try:
            found[key] = value.split(",") if key in LISTS else NUMBERS.get(key, str)(value)
        except ValueError:
            raise typer.BadParameter(f"{key} must be a number, got {value!r}", param_hint="--option") from None
    return found


def tell(notes: Sequence[str]) -> None:
    """Notes and losses, one a line, on standard error."""
    for note in notes:
        typer.echo(f"note: {note}", err=True)


def write(hierarchy: Hierarchy, target: Path, to: str | None, lossy: bool) -> None:
    """Write a hierarchy, tell what is lost, and say what the file holds: a tree, where the format keeps no more."""
    tell(write_hierarchy(hierarchy, target, to, lossy=lossy))
    written = hierarchy.as_tree() if graph_loss(find_format(target.name, to, to="write"), hierarchy) else hierarchy
    typer.echo(f"{target}: {written!r}")


def refuse_existing(target: Path, force: bool, hint: str) -> None:
    """An existing target is overwritten on request only."""
    if target.exists() and not force:
        raise typer.BadParameter(f"{target} exists; pass --force to overwrite it", param_hint=hint)
