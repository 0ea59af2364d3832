"""Options of commands that take embeddings: what their parts are called in a file, and notes about them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from hcep._escape import markup as escape
from hcep.cli.console import Console

Data = Annotated[
    Path,
    typer.Argument(
        help="Embeddings: a store, .npy, .npz, .parquet, .csv or .pt file, folder of a Hugging Face dataset; "
        "or a folder of photos."
    ),
]
Vectors = Annotated[
    str | None,
    typer.Option(help="Array, key or columns of the vectors in a file: a name, 'f*', 'a,b,c' or f0:f511."),
]
Label = Annotated[str | None, typer.Option(help="Array, key or column of the labels in a file.")]
Labels = Annotated[Path | None, typer.Option(help="File of labels, one per vector: .npy, .txt or .csv.")]


def show_notes(notes: Iterable[str]) -> None:
    """Print notes about the data, a line each, on standard error."""
    for note in notes:
        Console(stderr=True, soft_wrap=True, highlight=False).print(f"[yellow]note:[/] {escape(note)}")
