"""`hcep hierarchy`: look at a hierarchy, check it, convert it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from hcep.cli.hierarchy import lint as hierarchy_lint
from hcep.cli.hierarchy.files import File, Options, ReadAs, read as _read, refuse_existing, write
from hcep.cli.hierarchy.wordnet import wordnet
from hcep.hierarchy import FORMATS, Hierarchy
from hcep.hierarchy.formats import find_format

app = typer.Typer(no_args_is_help=True, help="Look at a hierarchy, check it, convert it.", rich_markup_mode="rich")
app.command(name="wordnet")(wordnet)
hierarchy_lint.register(app)

Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]


@app.command()
def show(
    file: File,
    depth: Annotated[int | None, typer.Option(min=0, help="Levels to draw.")] = None,
    children: Annotated[int | None, typer.Option(min=1, help="Children to draw of each synset.")] = 12,
    synset: Annotated[str | None, typer.Option(help="Draw what is below this synset only.")] = None,
    collapse: Annotated[bool, typer.Option(help="Merge single-child chains first.")] = False,
    read_as: ReadAs = None,
    options: Options = None,
    as_json: Json = False,
) -> None:
    """Draw a hierarchy as a tree; a synset met before is marked ↑.

    [bold]Examples[/]

      hcep hierarchy show animals.csv

      hcep hierarchy show hp.obo -O root="Abnormality of the eye" --depth 2

      hcep hierarchy show wordnet.json --depth 3 --collapse
    """
    hierarchy = _read(file, read_as, options)
    hierarchy = hierarchy.collapse() if collapse else hierarchy
    if synset is not None:
        hierarchy = _below(hierarchy, synset)
    if as_json:
        typer.echo(json.dumps(_summary(hierarchy), indent=2, ensure_ascii=False))
        return
    typer.echo(hierarchy.format_tree(depth, children))
    typer.echo(f"\n{hierarchy!r}")


@app.command()
def convert(
    source: File,
    target: Annotated[Path, typer.Argument(help="File to write.")],
    read_as: ReadAs = None,
    options: Options = None,
    to: Annotated[str | None, typer.Option("--to", help="Format to write, where the ending does not tell it.")] = None,
    collapse: Annotated[bool, typer.Option(help="Merge single-child chains.")] = False,
    tree: Annotated[str | None, typer.Option(help="Keep one parent a synset: first, shortest or longest.")] = None,
    lossy: Annotated[bool, typer.Option(help="Write also what loses parents of a synset.")] = False,
    force: Annotated[bool, typer.Option(help="Overwrite the target.")] = False,
) -> None:
    """Convert between formats, on request to a tree or without chains; what is lost is told on standard error.

    [bold]Examples[/]

      hcep hierarchy convert animals.csv animals.json

      hcep hierarchy convert taxonomy.csv tree.nwk -O levels=kingdom,family,species

      hcep hierarchy convert wordnet.json tree.tsv --tree first --collapse
    """
    find_format(target.name, to, to="write")
    hierarchy = _read(source, read_as, options)
    hierarchy = hierarchy.as_tree(tree) if tree else hierarchy  # type: ignore[arg-type] # checked by as_tree
    hierarchy = hierarchy.collapse() if collapse else hierarchy
    refuse_existing(target, force, "TARGET")
    write(hierarchy, target, to, lossy)


@app.command()
def formats(as_json: Json = False) -> None:
    """List the formats: their endings, whether they are read and written, and what they keep of a hierarchy.

    [bold]Example[/]

      hcep hierarchy formats
    """
    if as_json:
        typer.echo(json.dumps([asdict(known) for known in FORMATS.values()], indent=2))
        return
    table = Table(box=None, pad_edge=False)
    for column in ("format", "endings", "reads", "writes", "keeps", ""):
        table.add_column(column, overflow="fold")
    for known in FORMATS.values():
        does = ("yes" if known.reads else "-", "yes" if known.writes else "-")
        table.add_row(known.name, " ".join(known.extensions) or "-", *does, " ".join(known.keeps), known.about)
    Console().print(table)


def _below(hierarchy: Hierarchy, synset: str) -> Hierarchy:
    edges = [(a, b) for a in (synset, *hierarchy.descendants(synset)) for b in hierarchy.children(a)]
    edges = edges or [(hierarchy.parents(synset)[0], synset)]
    return Hierarchy.from_edges(edges, {s: hierarchy.name(s) for edge in edges for s in edge})


def _summary(hierarchy: Hierarchy) -> dict[str, object]:
    return {
        "root": hierarchy.root,
        "n_synsets": len(hierarchy),
        "n_leaves": len(hierarchy.leaves),
        "n_edges": hierarchy.n_edges,
        "depth": hierarchy.depth,
        "max_branching": hierarchy.max_branching,
        "is_tree": hierarchy.is_tree,
        "edges": hierarchy.edges,
        "names": {synset: hierarchy.name(synset) for synset in hierarchy},
    }
