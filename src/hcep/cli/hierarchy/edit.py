"""`hcep hierarchy edit`: change a hierarchy, and see what it does to held-out images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hcep._files import refuse_existing
from hcep.cli.console import say
from hcep.cli.data_options import Label, Labels, Vectors
from hcep.cli.hierarchy.files import File, Force, Json, Options, ReadAs, read, tell
from hcep.cli.hierarchy.report import Classes, Data, Output, labelled, labels_in, print_json, print_report
from hcep.curation import Add, Edit, Merge, Move, Remove, Rename, apply_edits, diff
from hcep.errors import HCEPError
from hcep.hierarchy import Hierarchy, write_hierarchy

if TYPE_CHECKING:
    from hcep.curation.what_if import Effect
    from hcep.embeddings import Embeddings

Check = Callable[[str], bool]
Many = list[str] | None


def edit(
    file: File,
    *,
    move: Annotated[Many, typer.Option(metavar="CONCEPT[:OLD]:NEW", help="Hang a concept from another parent.")] = None,
    add: Annotated[
        Many, typer.Option(metavar="NAME:PARENT[:CHILD,…]", help="Add a concept, on request above children of PARENT.")
    ] = None,
    merge: Annotated[Many, typer.Option(metavar="A:B", help="Merge A into B, which takes its children.")] = None,
    remove: Annotated[Many, typer.Option(metavar="CONCEPT", help="Remove it; its children go to its parents.")] = None,
    rename: Annotated[Many, typer.Option(metavar="CONCEPT:NAME", help="Change a display name; ids stay.")] = None,
    classes: Classes = None,
    embeddings: Data = None,
    vectors: Vectors = None,
    label: Label = None,
    labels: Labels = None,
    split: Annotated[
        str | None, typer.Option(help="Split to measure on: by folds of train, or val where FILE is a model.")
    ] = None,
    output: Output = None,
    force: Force = False,
    read_as: ReadAs = None,
    options: Options = None,
    as_json: Json = False,
) -> None:
    """Change a hierarchy, and see what it does to held-out images without fitting a model again.

    Options may be repeated; whatever their order here, they are applied as add, merge, move, remove, rename. Concepts
    are given by id, or by a name that only one has. Where FILE is a model folder its class means are used and the
    images of --embeddings are new to it; otherwise the images are held out in turn. Without -o nothing is written.

    [bold]Examples[/]

      hcep hierarchy edit animals.csv --move seal:fish -o moved.csv

      hcep hierarchy edit animals.csv --add pet:animal:cat,dog --embeddings store/

      hcep hierarchy edit model/ --move n01914609:n09428293 --embeddings store/
    """
    from hcep.curation.edits import refuse_inner_classes

    hierarchy = read(file, read_as, options)
    refuse_existing(output, force, "--output")
    edits = parse_edits(hierarchy, add or (), merge or (), move or (), remove or (), rename or ())
    if not edits:
        raise HCEPError("nothing to do: give --move, --add, --merge, --remove or --rename")
    known = labels_in(classes)
    after = apply_edits(hierarchy, edits, known)
    refuse_inner_classes(hierarchy, after, known)
    effects = {}
    if embeddings is not None:
        is_model = (Path(file) / "hierarchy.json").is_file()
        data = labelled(embeddings, split, "val" if is_model else "train", vectors=vectors, label=label, labels=labels)
        effects = _effect(Path(file) if is_model else None, hierarchy, after, data)
    changes = diff(hierarchy, after)
    if output is not None:
        tell(write_hierarchy(after, output))
    if as_json:
        print_json([], changes, effects, output)
        return
    print_report([], hierarchy, changes, effects, repairing=True)
    say(f"{output}: {after!r}" if output is not None else "nothing written; give -o FILE")


def _effect(model: Path | None, hierarchy: Hierarchy, after: Hierarchy, data: Embeddings) -> dict[str, Effect]:
    from hcep.curation.what_if import HeldOut, compare

    if model is not None:
        from hcep.models import load_model

        held_out = HeldOut.from_model(load_model(model), data.X, data.y)
    else:
        held_out = HeldOut.from_images(hierarchy, data.X, data.y)
    return {f"{len(held_out.y):,} held-out images of {data.source}": compare(held_out, after)}


def parse_edits(
    hierarchy: Hierarchy,
    add: Sequence[str] = (),
    merge: Sequence[str] = (),
    move: Sequence[str] = (),
    remove: Sequence[str] = (),
    rename: Sequence[str] = (),
) -> list[Edit]:
    """Edits in the order in which they are applied: add, merge, move, remove, rename.

    Parts are apart by colons. Where ids have colons of their own (``HP:0000118``), the one way to take the text apart
    into synsets that exist is taken. Raises HCEPError: too few parts, or several ways to take them apart.
    """
    known = {*hierarchy.ids, *(hierarchy.name(s).casefold() for s in hierarchy.ids)}

    def is_known(text: str) -> bool:
        return text in known or text.casefold() in known

    def all_known(text: str) -> bool:
        return all(map(is_known, text.split(",")))

    edits: list[Edit] = []
    for text in add:
        new, parent, *rest = _parts("--add", "NAME:PARENT[:CHILD,CHILD]", text, _anything, is_known, all_known)
        edits.append(Add(new, parent, tuple(rest[0].split(",")) if rest else ()))
        known.add(new)
    edits += [Merge(*_parts("--merge", "CONCEPT:INTO", text, is_known, is_known)) for text in merge]
    for text in move:
        form = "CONCEPT[:OLD_PARENT]:NEW_PARENT"
        synset, *old, target = _parts("--move", form, text, is_known, is_known, is_known)
        edits.append(Move(synset, target, *old))
    edits += [Remove(text) for text in remove]
    edits += [Rename(*_parts("--rename", "CONCEPT:NAME", text, is_known, _anything)) for text in rename]
    return edits


def _anything(text: str) -> bool:
    return bool(text.strip())


def _parts(option: str, form: str, text: str, *checks: Check) -> list[str]:
    """Two parts or more, at most one for each check, made of pieces apart by colons that may be joined again."""
    pieces = text.split(":")
    cuts = (cut for n in range(1, len(checks)) for cut in combinations(range(1, len(pieces)), n))
    taken = ([":".join(pieces[a:b]) for a, b in pairwise([0, *cut, len(pieces)])] for cut in cuts)
    ways = [parts for parts in taken if all(check(part) for check, part in zip(checks, parts, strict=False))]
    if len(ways) == 1:
        return ways[0]
    if pieces in ways and checks[0] is _anything:
        return pieces  # "pet:animal:cat" adds "pet"; that its new name be "pet:animal" is hardly meant
    if not ways and 2 <= len(pieces) <= len(checks) and all(pieces):
        return pieces  # a synset that is not there: the edit itself says which, with near matches
    what = "can be taken apart in several ways" if ways else "is not of this form, or names no concept"
    raise HCEPError(f"{option}: expected {form}; {text!r} {what}. Give concepts by id")
