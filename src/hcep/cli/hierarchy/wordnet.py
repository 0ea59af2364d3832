"""`hcep hierarchy wordnet`: the hierarchy of WordNet above words, synset names or ids."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hcep.cli.hierarchy.files import refuse_existing, write
from hcep.hierarchy import Hierarchy
from hcep.hierarchy.formats import find_format


def wordnet(
    words: Annotated[
        list[str],
        typer.Argument(help="Words, synset names (cat.n.01), ids (n02121620), or text files with one a line."),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write.")],
    database: Annotated[Path | None, typer.Option(help="Folder with WordNet's data.noun and index.noun.")] = None,
    pos: Annotated[str, typer.Option(help="noun or verb.")] = "noun",
    first_sense: Annotated[bool, typer.Option(help="Take a word's most frequent sense instead of asking.")] = False,
    collapse: Annotated[bool, typer.Option(help="Merge single-child chains.")] = False,
    to: Annotated[str | None, typer.Option("--to", help="Format to write, where the ending does not tell it.")] = None,
    lossy: Annotated[bool, typer.Option(help="Write also what loses parents of a synset.")] = False,
    force: Annotated[bool, typer.Option(help="Overwrite the output.")] = False,
) -> None:
    """Build a hierarchy from WordNet. A word of several senses lists them; nothing is written then.

    [bold]Examples[/]

      hcep hierarchy wordnet tench "golden retriever" cat.n.01 -o animals.json

      hcep hierarchy wordnet wnids.txt -o imagenet.json --database /usr/share/wordnet
    """
    find_format(output.name, to, to="write")
    refuse_existing(output, force, "--output")
    hierarchy = Hierarchy.from_wordnet(
        _asked(words),
        database,
        pos=pos,  # type: ignore[arg-type] # checked there
        on_ambiguous="first" if first_sense else "raise",
    )
    hierarchy = hierarchy.collapse() if collapse else hierarchy
    write(hierarchy, output, to, lossy)


def _asked(words: list[str]) -> list[str]:
    """The words themselves, with the lines of those that are files."""
    asked: list[str] = []
    for word in words:
        lines = Path(word).read_text("utf-8-sig").splitlines() if Path(word).is_file() else [word]
        asked += [line.strip() for line in lines if line.strip()]
    return asked
