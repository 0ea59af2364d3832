"""`hcep hierarchy lint`: what is wrong with a hierarchy, and what a repair changes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from hcep._files import refuse_existing
from hcep._progress import progress
from hcep.cli.console import say
from hcep.cli.data_options import Label, Labels, Vectors
from hcep.cli.hierarchy.files import File, Force, Json, Options, ReadAs, parsed, tell
from hcep.cli.hierarchy.report import Classes, Data, Output, labelled, labels_in, print_json, print_report
from hcep.errors import HCEPError
from hcep.hierarchy import write_hierarchy


def lint(
    file: File,
    *,
    classes: Classes = None,
    embeddings: Data = None,
    vectors: Vectors = None,
    label: Label = None,
    labels: Labels = None,
    split: Annotated[str | None, typer.Option(help="Split to look at; train where there is one.")] = None,
    apply: Annotated[bool, typer.Option("--fix", help="Apply the safe repairs and show what changed.")] = False,
    fix_moves: Annotated[
        int,
        typer.Option("--fix-moves", min=0, metavar="N", help="Also apply up to N moves with a clear gain."),
    ] = 0,
    output: Output = None,
    in_place: Annotated[bool, typer.Option("--in-place", help="Write the repaired hierarchy over FILE.")] = False,
    force: Force = False,
    images: Annotated[int, typer.Option(min=0, help="Images to name in a finding.")] = 3,
    max_moves: Annotated[int, typer.Option(min=0, help="Children nearer to another parent to measure.")] = 60,
    read_as: ReadAs = None,
    options: Options = None,
    as_json: Json = False,
) -> None:
    """Check a hierarchy, on request against the data, and repair what can be repaired safely.

    Cycles, self-loops, orphans, several roots, chains, shortcuts, names that repeat or nearly do, classes that are
    missing, extra or not leaves, uneven depth. With --embeddings also concepts whose cone or atom is off, with the
    images that do it, and children that lie nearer to another parent in this encoder's space, with what moving them
    does to held-out images. Nothing is written without -o or --in-place. Exit code 1 while there are errors.

    [bold]Examples[/]

      hcep hierarchy lint animals.csv

      hcep hierarchy lint animals.csv --classes labels.txt --fix -o repaired.csv

      hcep hierarchy lint imagenet --embeddings store/ --fix-moves 5 -o moved.json
    """
    from hcep.curation import review

    repairing = apply or fix_moves > 0
    if fix_moves and embeddings is None:
        raise HCEPError("--fix-moves: moves are measured on images; give --embeddings as well")
    if (output is not None or in_place) and not repairing:
        raise HCEPError("-o and --in-place write a repaired hierarchy; give --fix or --fix-moves as well")
    target = _target(file, output, in_place, force)
    parts: dict[str, Any] = {"vectors": vectors, "label": label, "labels": labels}
    data = None if embeddings is None else labelled(embeddings, split, **parts)
    with ExitStack() as bars:

        def begin(n_moves: int) -> Callable[[], object]:
            advance = bars.enter_context(progress("measuring", n_moves, shown=not as_json))
            return lambda: advance(1)

        found = review(
            file,
            None if data is None else (data.X, data.y, data.ids),
            _other_split(embeddings, split, parts) if fix_moves and embeddings is not None else None,
            classes=labels_in(classes),
            mend=apply,
            n_moves=fix_moves,
            n_images=images,
            max_moves=max_moves,
            progress=begin,
            format=read_as,
            **parsed(options),
        )
    # What is asked for by -o is there afterwards, changed or not; a file in its place stays as it is without a change.
    written = target if found.after is not None and (found.changes or output is not None) else None
    if written is not None and found.after is not None:
        tell(write_hierarchy(found.after, written))
    if as_json:
        print_json(found.findings, found.changes, found.effects, written)
    else:
        print_report(found.findings, found.before, found.changes, found.effects, repairing)
        if written is not None:
            say(f"{written}: {found.after!r}{'' if found.changes else ', unchanged'}")
        elif found.changes:
            say("nothing written; give -o FILE or --in-place")
        elif found.after is None and repairing:
            say("nothing written; mend the errors above by hand first")
    raise typer.Exit(int(bool(found.errors)))


def _target(file: str, output: Path | None, in_place: bool, force: bool) -> Path | None:
    if output is not None and in_place:
        raise typer.BadParameter("give -o or --in-place, not both", param_hint="--in-place")
    if in_place and not Path(file).is_file():
        raise typer.BadParameter(f"{file} is not a file that can be written over; give -o", param_hint="--in-place")
    refuse_existing(output, force, "--output")
    return Path(file) if in_place else output


def _other_split(place: Path, split: str | None, parts: dict[str, Any]) -> tuple[Any, Any] | None:
    """Images of val, where those of train are looked at."""
    if split not in (None, "train"):
        return None
    try:
        data = labelled(place, "val", **parts)
    except HCEPError:
        return None
    return data.X, data.y
