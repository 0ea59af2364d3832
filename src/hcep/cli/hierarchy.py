"""`hcep hierarchy`: look at a hierarchy, convert it: a file of any format, a folder, an address, a model, a name."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from hcep import datasets
from hcep._files import refuse_existing
from hcep.cli.console import Console, say, say_json, show_notes, table_of
from hcep.cli.options import Force, Json, ReaderOptions, argument, group, option, reader_options
from hcep.errors import HCEPError
from hcep.hierarchy import Hierarchy
from hcep.taxonomy import FORMATS, WordNet, write_hierarchy
from hcep.taxonomy.files import branch, in_words
from hcep.taxonomy.formats import find_format
from hcep.taxonomy.formats.writing import graph_loss

app = group("Look at a hierarchy, check it, convert it.")
_FILE = "Hierarchy: a file (see `hcep hierarchy formats`), a folder tree, an http(s):// address, a model folder, "
File = Annotated[str, argument(_FILE + "or `imagenet`.")]
ReadAs = Annotated[str | None, option("Format to read, where the ending does not tell it.", "--format")]
To = Annotated[str | None, option("Format to write, where the ending does not tell it.", "--to")]
Collapsed = Annotated[bool, option("Merge single-child chains.")]
Lossy = Annotated[bool, option("Write also what loses parents of a concept.")]


def read(
    place: str, format: str | None = None, options: Sequence[str] | None = None, *, described: bool = False
) -> Hierarchy:
    """The hierarchy at a place; on standard error what the reader passed over and, on request, what it took it for."""
    told: list[str] = []
    hierarchy = datasets.find_hierarchy(place, format=format, on_note=told.append, **reader_options(options))
    if hierarchy is None:
        raise HCEPError(f"{place!r} stands for no hierarchy; a file of that name is ./{place}")
    if described and told:
        say(told[0], err=True)
    show_notes(told[1:])
    return hierarchy


def _write(hierarchy: Hierarchy, target: Path, to: str | None, lossy: bool) -> None:
    """Write a hierarchy, tell what is lost, and say what the file holds: a tree, where the format keeps no more."""
    show_notes(write_hierarchy(hierarchy, target, to, lossy=lossy))
    written = hierarchy.as_tree() if graph_loss(find_format(target.name, to, to="write"), hierarchy) else hierarchy
    say(f"{target}: {in_words(written)}")


@app.command()
def show(
    file: File,
    *,
    depth: Annotated[int | None, option("Levels to draw.", min=0)] = None,
    children: Annotated[int | None, option("Children to draw of each concept.", min=1)] = 12,
    synset: Annotated[str | None, option("Draw what is below it only.", "--concept", "--synset")] = None,
    collapse: Collapsed = False,
    read_as: ReadAs = None,
    options: ReaderOptions = None,
    as_json: Json = False,
) -> None:
    """Draw a hierarchy as a tree; a concept marked ↑ stands further up as well, with all that is below it."""
    hierarchy = read(file, read_as, options, described=not as_json)
    hierarchy = hierarchy.collapse() if collapse else hierarchy
    if synset is not None:
        is_leaf = synset in hierarchy and hierarchy.is_leaf(synset)
        hierarchy = hierarchy.restrict([synset]) if is_leaf else branch(hierarchy, synset)
    if as_json:
        facts = {"root": hierarchy.root, "n_synsets": len(hierarchy), "n_leaves": len(hierarchy.leaves)}
        keys = ("n_edges", "depth", "max_branching", "is_tree", "edges")
        names = {synset: hierarchy.name(synset) for synset in hierarchy}
        say_json({**facts, **{key: getattr(hierarchy, key) for key in keys}, "names": names})
        return
    say(hierarchy.format_tree(depth, children))
    say(f"\n{in_words(hierarchy)}")


@app.command()
def convert(
    source: File,
    target: Annotated[Path, argument("File to write.")],
    *,
    read_as: ReadAs = None,
    options: ReaderOptions = None,
    to: To = None,
    collapse: Collapsed = False,
    tree: Annotated[str | None, option("Keep one parent per concept: first, shortest or longest.")] = None,
    lossy: Lossy = False,
    force: Force = False,
) -> None:
    """Convert between formats, on request to a tree or without chains; what is lost is told on standard error."""
    find_format(target.name, to, to="write")
    refuse_existing(target, force, "TARGET")
    hierarchy = read(source, read_as, options)
    hierarchy = hierarchy.as_tree(tree) if tree else hierarchy  # type: ignore[arg-type] # checked by as_tree
    _write(hierarchy.collapse() if collapse else hierarchy, target, to, lossy)


@app.command()
def formats(as_json: Json = False) -> None:
    """List the formats: their endings, whether they are read and written, and what they keep of a hierarchy."""
    if as_json:
        say_json([asdict(known) for known in FORMATS.values()])
        return
    rows = []
    for known in FORMATS.values():
        does = ("yes" if known.reads else "-", "yes" if known.writes else "-")
        rows.append((known.name, " ".join(known.extensions) or "-", *does, " ".join(known.keeps), known.about))
    Console().print(table_of(("format", "endings", "reads", "writes", "keeps", ""), rows, n_left=6, gap=1))


@app.command()
def wordnet(
    words: Annotated[list[str], argument("Words, synsets (cat.n.01), ids (n02121620), or text files, one per line.")],
    *,
    output: Annotated[Path, option("File to write.", "--output", "-o")],
    database: Annotated[Path | None, option("Folder with WordNet's data.noun and index.noun.")] = None,
    pos: Annotated[str, option("noun or verb.")] = "noun",
    first_sense: Annotated[bool, option("Take a word's most frequent sense instead of asking.")] = False,
    collapse: Collapsed = False,
    to: To = None,
    lossy: Lossy = False,
    force: Force = False,
) -> None:
    """Build a hierarchy from WordNet. A word of several senses lists them; nothing is written then."""
    find_format(output.name, to, to="write")
    refuse_existing(output, force, "--output")
    lines = [Path(w).read_text("utf-8-sig").splitlines() if Path(w).is_file() else [w] for w in words]
    wanted = [line.strip() for several in lines for line in several if line.strip()]
    source = WordNet(database, pos=pos)  # type: ignore[arg-type] # checked there
    hierarchy = source.hierarchy(wanted, on_ambiguous="first" if first_sense else "raise")
    _write(hierarchy.collapse() if collapse else hierarchy, output, to, lossy)
