"""`hcep hierarchy`: look at a hierarchy, check it, convert it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from hcep.errors import quoted
from hcep.hierarchy import Hierarchy, lint, read_hierarchy, write_hierarchy

app = typer.Typer(no_args_is_help=True, help="Look at a hierarchy, check it, convert it.", rich_markup_mode="rich")

File = Annotated[
    Path,
    typer.Argument(
        help="Hierarchy: .json (ours), .csv / .tsv of parent, child[, name], a model folder, or `imagenet`."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
COLOURS = {"error": "red", "warning": "yellow", "note": "cyan"}


@app.command()
def show(
    file: File,
    depth: Annotated[int | None, typer.Option(min=0, help="Levels to draw.")] = None,
    children: Annotated[int | None, typer.Option(min=1, help="Children to draw of each synset.")] = 12,
    synset: Annotated[str | None, typer.Option(help="Draw what is below this synset only.")] = None,
    collapse: Annotated[bool, typer.Option(help="Merge single-child chains first.")] = False,
    as_json: Json = False,
) -> None:
    """Draw a hierarchy as a tree; a synset met before is marked ↑.

    [bold]Examples[/]

      hcep hierarchy show animals.csv

      hcep hierarchy show wordnet.json --depth 3 --collapse
    """
    hierarchy = _read(file)
    hierarchy = hierarchy.collapse() if collapse else hierarchy
    if synset is not None:
        hierarchy = _below(hierarchy, synset)
    if as_json:
        typer.echo(json.dumps(_summary(hierarchy), indent=2, ensure_ascii=False))
        return
    typer.echo(hierarchy.format_tree(depth, children))
    typer.echo(f"\n{hierarchy!r}")


@app.command(name="lint")
def lint_file(
    file: File,
    classes: Annotated[
        Path | None, typer.Option(help="Text file with the data's labels, one a line, to compare with the leaves.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check a hierarchy: chains, shortcuts, repeated names, classes that are missing. Exit code 1 on an error.

    [bold]Examples[/]

      hcep hierarchy lint animals.csv

      hcep hierarchy lint wordnet.json --classes labels.txt --json
    """
    hierarchy = _read(file)
    labels = None if classes is None else [line for line in classes.read_text("utf-8").splitlines() if line.strip()]
    findings = lint(hierarchy, labels)
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in findings], indent=2, ensure_ascii=False))
    else:
        console = Console()
        for finding in findings:
            console.print(
                f"[{COLOURS[finding.severity]}]{finding.severity}[/] {escape(finding.message)} "
                f"[dim]({finding.code}: {escape(quoted(finding.synsets, 3))})[/]"
            )
        console.print(f"{hierarchy!r}: {len(findings) or 'no'} finding{'' if len(findings) == 1 else 's'}")
    raise typer.Exit(int(any(finding.severity == "error" for finding in findings)))


@app.command()
def convert(
    source: File,
    target: Annotated[Path, typer.Argument(help="File to write, ending in .json, .csv or .tsv.")],
    collapse: Annotated[bool, typer.Option(help="Merge single-child chains.")] = False,
    tree: Annotated[str | None, typer.Option(help="Keep one parent a synset: first, shortest or longest.")] = None,
    force: Annotated[bool, typer.Option(help="Overwrite the target.")] = False,
) -> None:
    """Convert between formats, on request to a tree or without chains.

    [bold]Examples[/]

      hcep hierarchy convert animals.csv animals.json

      hcep hierarchy convert wordnet.json tree.tsv --tree first --collapse
    """
    hierarchy = _read(source)
    hierarchy = hierarchy.as_tree(tree) if tree else hierarchy  # type: ignore[arg-type] # checked by as_tree
    hierarchy = hierarchy.collapse() if collapse else hierarchy
    if target.exists() and not force:
        raise typer.BadParameter(f"{target} exists; pass --force to overwrite it", param_hint="TARGET")
    write_hierarchy(hierarchy, target)
    typer.echo(f"{target}: {hierarchy!r}")


def _read(place: Path) -> Hierarchy:
    """A hierarchy file, the hierarchy of a model folder, or WordNet's above ImageNet by its name."""
    if str(place) == "imagenet" and not place.exists():
        from hcep.datasets import imagenet_hierarchy

        return imagenet_hierarchy()
    return read_hierarchy(place / "hierarchy.json" if place.is_dir() else place)


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
