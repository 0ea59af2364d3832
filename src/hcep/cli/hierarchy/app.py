"""`hcep hierarchy`: look at a hierarchy, check it, convert it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from hcep._files import refuse_existing
from hcep.cli.console import Console, say
from hcep.cli.hierarchy.edit import edit, lint, report
from hcep.cli.hierarchy.files import Collapsed, File, Force, Json, Lossy, Options, ReadAs, To, read as _read, write
from hcep.curation import diff as changes_between
from hcep.hierarchy import FORMATS, Hierarchy
from hcep.hierarchy.files import branch, in_words
from hcep.hierarchy.formats import find_format

app = typer.Typer(no_args_is_help=True, help="Look at a hierarchy, check it, convert it.", rich_markup_mode="rich")


@app.command()
def show(
    file: File,
    *,
    depth: Annotated[int | None, typer.Option(min=0, help="Levels to draw.")] = None,
    children: Annotated[int | None, typer.Option(min=1, help="Children to draw of each concept.")] = 12,
    synset: Annotated[str | None, typer.Option("--concept", "--synset", help="Draw what is below it only.")] = None,
    collapse: Collapsed = False,
    read_as: ReadAs = None,
    options: Options = None,
    as_json: Json = False,
) -> None:
    """Draw a hierarchy as a tree; a concept marked ↑ stands further up as well, with all that is below it."""
    hierarchy = _read(file, read_as, options, described=not as_json)
    hierarchy = hierarchy.collapse() if collapse else hierarchy
    if synset is not None:
        is_leaf = synset in hierarchy and hierarchy.is_leaf(synset)
        hierarchy = hierarchy.restrict([synset]) if is_leaf else branch(hierarchy, synset)
    if as_json:
        facts = {
            "root": hierarchy.root,
            "n_synsets": len(hierarchy),
            "n_leaves": len(hierarchy.leaves),
            **{name: getattr(hierarchy, name) for name in ("n_edges", "depth", "max_branching", "is_tree", "edges")},
            "names": {synset: hierarchy.name(synset) for synset in hierarchy},
        }
        say(json.dumps(facts, indent=2, ensure_ascii=False))
        return
    say(hierarchy.format_tree(depth, children))
    say(f"\n{in_words(hierarchy)}")


@app.command()
def diff(old: File, new: File, *, read_as: ReadAs = None, options: Options = None, as_json: Json = False) -> None:
    """Tell what changed between two: - and + edges, ~ names, = what was merged; ids in brackets where names differ."""
    before, after = (_read(place, read_as, options) for place in (old, new))
    report([], before, changes_between(before, after), {}, True, None, as_json)


@app.command()
def convert(
    source: File,
    target: Annotated[Path, typer.Argument(help="File to write.")],
    *,
    read_as: ReadAs = None,
    options: Options = None,
    to: To = None,
    collapse: Collapsed = False,
    tree: Annotated[str | None, typer.Option(help="Keep one parent per concept: first, shortest or longest.")] = None,
    lossy: Lossy = False,
    force: Force = False,
) -> None:
    """Convert between formats, on request to a tree or without chains; what is lost is told on standard error."""
    find_format(target.name, to, to="write")
    refuse_existing(target, force, "TARGET")
    hierarchy = _read(source, read_as, options)
    hierarchy = hierarchy.as_tree(tree) if tree else hierarchy  # type: ignore[arg-type] # checked by as_tree
    hierarchy = hierarchy.collapse() if collapse else hierarchy
    write(hierarchy, target, to, lossy)


@app.command()
def formats(as_json: Json = False) -> None:
    """List the formats: their endings, whether they are read and written, and what they keep of a hierarchy."""
    if as_json:
        say(json.dumps([asdict(known) for known in FORMATS.values()], indent=2))
        return
    table = Table(box=None, pad_edge=False)
    for column in ("format", "endings", "reads", "writes", "keeps", ""):
        table.add_column(column, overflow="fold")
    for known in FORMATS.values():
        does = ("yes" if known.reads else "-", "yes" if known.writes else "-")
        table.add_row(known.name, " ".join(known.extensions) or "-", *does, " ".join(known.keeps), known.about)
    Console().print(table)


@app.command()
def wordnet(
    words: Annotated[
        list[str],
        typer.Argument(help="Words, synset names (cat.n.01), ids (n02121620), or text files with one per line."),
    ],
    *,
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write.")],
    database: Annotated[Path | None, typer.Option(help="Folder with WordNet's data.noun and index.noun.")] = None,
    pos: Annotated[str, typer.Option(help="noun or verb.")] = "noun",
    first_sense: Annotated[bool, typer.Option(help="Take a word's most frequent sense instead of asking.")] = False,
    collapse: Collapsed = False,
    to: To = None,
    lossy: Lossy = False,
    force: Force = False,
) -> None:
    """Build a hierarchy from WordNet. A word of several senses lists them; nothing is written then."""
    find_format(output.name, to, to="write")
    refuse_existing(output, force, "--output")
    lines = [Path(w).read_text("utf-8-sig").splitlines() if Path(w).is_file() else [w] for w in words]
    hierarchy = Hierarchy.from_wordnet(
        [line.strip() for several in lines for line in several if line.strip()],
        database,
        pos=pos,  # type: ignore[arg-type] # checked there
        on_ambiguous="first" if first_sense else "raise",
    )
    hierarchy = hierarchy.collapse() if collapse else hierarchy
    write(hierarchy, output, to, lossy)


app.command()(lint)
app.command()(edit)
