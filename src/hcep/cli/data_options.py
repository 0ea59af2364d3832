"""Options of commands that take embeddings: what their parts are called in a file, and notes about them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Annotated

import typer

from hcep._escape import markup as escape
from hcep.cli.console import Console

_DATA = typer.Argument(
    metavar="DATA",
    help="Embeddings: a store, .npy, .npz, .parquet, .csv or .pt file, folder of a Hugging Face dataset; "
    "or a folder of photos.",
)
Data = Annotated[Path, _DATA]
OptionalData = Annotated[Path | None, _DATA]
Vectors = Annotated[
    str | None,
    typer.Option(help="Array, key or columns of the vectors in a file: a name, 'f*', 'a,b,c' or f0:f511."),
]
Label = Annotated[str | None, typer.Option(help="Array, key or column of the labels in a file.")]
Labels = Annotated[Path | None, typer.Option(help="File of labels, one per vector: .npy, .txt or .csv.")]
Ray = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="[ADDRESS]",
        help="Work on a Ray cluster: at this address, RAY_ADDRESS's, or one on this machine. docs/scale.md tells more.",
    ),
]
#: What follows --ray where it is an address; anything else is not its value.
_ADDRESS = re.compile(r"auto|local|(ray://)?[\w.-]+:\d+")


def with_ray_address(arguments: Sequence[str]) -> list[str]:
    """The arguments of a command, with the default for a --ray that has no address.

    Examples
    --------
    >>> from hcep.cli.data_options import with_ray_address
    >>> with_ray_address(["encode", "--ray", "photos/"]), with_ray_address(["encode", "--ray", "head:6379"])
    (['encode', '--ray', '', 'photos/'], ['encode', '--ray', 'head:6379'])
    """
    made: list[str] = []
    for one, after in zip_longest(arguments, arguments[1:], fillvalue=""):
        made += [one, ""] if one == "--ray" and not _ADDRESS.fullmatch(after) else [one]
    return made


def show_notes(notes: Iterable[str]) -> None:
    """Print notes about the data, a line each, on standard error."""
    for note in notes:
        Console(stderr=True, soft_wrap=True, highlight=False).print(f"[yellow]note:[/] {escape(note)}")
