"""`hcep hierarchy lint` and `hcep hierarchy edit`: what is wrong with a hierarchy, and what a change would do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from hcep.cli.hierarchy.edits import parse_edits
from hcep.cli.hierarchy.files import File, Options, ReadAs, parsed, read, refuse_existing, tell
from hcep.cli.hierarchy.findings import changes_of, print_json, print_report
from hcep.curation import Finding, apply_edits, diff, fix, lint, lint_file
from hcep.curation.edits import refuse_inner_classes
from hcep.errors import HCEPError
from hcep.hierarchy import Hierarchy, write_hierarchy

if TYPE_CHECKING:
    from hcep.cli.inputs import Embeddings
    from hcep.curation.held_out import HeldOut
    from hcep.curation.what_if import Effect

Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
Data = Annotated[
    Path | None, typer.Option("--embeddings", help="Store, or .npy/.npz/.parquet file of labelled embeddings.")
]
Classes = Annotated[
    Path | None, typer.Option(help="Text file with the data's labels, one a line; the leaves by default.")
]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="File to write the changed hierarchy to.")]
Force = Annotated[bool, typer.Option(help="Overwrite the output.")]
Many = list[str] | None


def register(app: typer.Typer) -> None:
    """Add the two commands to `hcep hierarchy`."""
    app.command(name="lint")(lint_command)
    app.command(name="edit")(edit_command)


def lint_command(
    file: File,
    classes: Classes = None,
    embeddings: Data = None,
    split: Annotated[str | None, typer.Option(help="Split to look at; train where there is one.")] = None,
    apply: Annotated[bool, typer.Option("--fix", help="Apply the safe repairs and show what changed.")] = False,
    fix_moves: Annotated[
        int, typer.Option("--fix-moves", min=0, metavar="N", help="Also apply the best N measured moves.")
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
    missing, extra or not leaves, uneven depth. With --embeddings also synsets whose cone or atom is off, with the
    images that do it, and children nearer to another parent than to their own, with what moving them does to held-out
    images. Nothing is written without -o or --in-place. Exit code 1 while there are errors.

    [bold]Examples[/]

      hcep hierarchy lint animals.csv

      hcep hierarchy lint animals.csv --classes labels.txt --fix -o repaired.csv

      hcep hierarchy lint imagenet --embeddings store/ --fix-moves 5 -o moved.json
    """
    if fix_moves and embeddings is None:
        raise HCEPError("--fix-moves: moves are measured on images; give --embeddings as well")
    if (output is not None or in_place) and not (apply or fix_moves):
        raise HCEPError("-o and --in-place write a repaired hierarchy; give --fix or --fix-moves as well")
    target = _target(file, output, in_place, force) if apply or fix_moves else None
    data = None if embeddings is None else _labelled(embeddings, split)
    labels = _lines(classes) if classes is not None else None if data is None else sorted(set(data.y.tolist()))
    findings, hierarchy = _lint(file, labels, read_as, options)
    held_out = None
    if data is not None and hierarchy is not None:
        held_out, found = _lint_images(hierarchy, data, images, max_moves, quiet=as_json)
        findings = [*findings, *found]
    after, effects = hierarchy, dict[str, "Effect"]()
    if hierarchy is not None and (apply or fix_moves):
        moves, effects = _moves(held_out, findings, fix_moves, embeddings, split)
        protected = [*(labels or ()), *map(hierarchy.class_of, hierarchy.leaves)]
        after = apply_edits(hierarchy, moves, protected)
        after = fix(after, labels) if apply else after
    changes = [] if hierarchy is None or after is None else changes_of(findings, hierarchy, after, apply)
    # What is asked for by -o is there afterwards, changed or not; a file in its place stays as it is without a change.
    written = target if after is not None and (changes or output is not None) else None
    if written is not None and after is not None:
        tell(write_hierarchy(after, written))
    left = [f for f in findings if f.severity == "error" and not (apply and f.safe and after is not None)]
    if as_json:
        print_json(findings, changes, effects, written)
    else:
        print_report(findings, hierarchy, changes, effects, repairing=apply or fix_moves > 0)
        if written is not None:
            typer.echo(f"{written}: {after!r}{'' if changes else ', unchanged'}")
        elif changes:
            typer.echo("nothing written; give -o FILE or --in-place")
        elif after is None and (apply or fix_moves):
            typer.echo("nothing written; mend the errors above by hand first")
    raise typer.Exit(int(bool(left)))


def edit_command(
    file: File,
    move: Annotated[Many, typer.Option(metavar="SYNSET[:OLD]:NEW", help="Hang a synset from another parent.")] = None,
    add: Annotated[
        Many, typer.Option(metavar="NAME:PARENT[:CHILD,…]", help="Add a synset, on request above children of PARENT.")
    ] = None,
    merge: Annotated[Many, typer.Option(metavar="A:B", help="Merge A into B, which takes its children.")] = None,
    remove: Annotated[Many, typer.Option(metavar="SYNSET", help="Remove it; its children go to its parents.")] = None,
    rename: Annotated[Many, typer.Option(metavar="SYNSET:NAME", help="Change a display name; ids stay.")] = None,
    classes: Classes = None,
    embeddings: Data = None,
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

    Options may be repeated; whatever their order here, they are applied as add, merge, move, remove, rename. Synsets
    are given by id, or by a name that only one has. Where FILE is a model folder its class means are used and the
    images of --embeddings are new to it; otherwise the images are held out in turn. Without -o nothing is written.

    [bold]Examples[/]

      hcep hierarchy edit animals.csv --move seal:fish -o moved.csv

      hcep hierarchy edit animals.csv --add pet:animal:cat,dog --embeddings store/

      hcep hierarchy edit model/ --move n01914609:n09428293 --embeddings store/
    """
    hierarchy = read(file, read_as, options)
    if output is not None:
        refuse_existing(output, force, "--output")
    edits = parse_edits(hierarchy, add or (), merge or (), move or (), remove or (), rename or ())
    if not edits:
        raise HCEPError("nothing to do: give --move, --add, --merge, --remove or --rename")
    labels = None if classes is None else _lines(classes)
    after = apply_edits(hierarchy, edits, labels)
    refuse_inner_classes(hierarchy, after, labels)
    effects = {} if embeddings is None else _edit_effect(file, hierarchy, after, embeddings, split, as_json)
    changes = diff(hierarchy, after)
    if output is not None:
        tell(write_hierarchy(after, output))
    if as_json:
        print_json([], changes, effects, output)
        return
    print_report([], hierarchy, changes, effects, repairing=True)
    typer.echo(f"{output}: {after!r}" if output is not None else "nothing written; give -o FILE")


# -- reading ----------------------------------------------------------------------------------------------------------


def _target(file: str, output: Path | None, in_place: bool, force: bool) -> Path | None:
    if output is not None and in_place:
        raise typer.BadParameter("give -o or --in-place, not both", param_hint="--in-place")
    if in_place and not Path(file).is_file():
        raise typer.BadParameter(f"{file} is not a file that can be written over; give -o", param_hint="--in-place")
    if output is not None:
        refuse_existing(output, force, "--output")
    return Path(file) if in_place else output


def _lint(
    file: str, labels: list[str] | None, read_as: str | None, options: Sequence[str] | None
) -> tuple[list[Finding], Hierarchy | None]:
    path = Path(file)
    if file == "imagenet" and not path.exists():
        hierarchy = read(file)
        return lint(hierarchy, labels), hierarchy
    place = str(path / "hierarchy.json") if read_as is None and (path / "hierarchy.json").is_file() else file
    return lint_file(place, labels, read_as, **parsed(options or ()))


def _lines(file: Path) -> list[str]:
    try:
        return [line.strip() for line in file.read_text("utf-8-sig").splitlines() if line.strip()]
    except UnicodeDecodeError as error:
        raise HCEPError(f"--classes: {str(file)!r} is not text in UTF-8 ({error}); expected one label a line") from None


def _labelled(place: Path, split: str | None, default: str | None = "train") -> Embeddings:
    from hcep.cli.inputs import read_embeddings

    data = read_embeddings(place, split, default_split=default)
    if data.labels is None:
        _ = data.y  # says what is missing
    return data


# -- measuring --------------------------------------------------------------------------------------------------------


def _lint_images(
    hierarchy: Hierarchy, data: Embeddings, n_images: int, max_moves: int, quiet: bool
) -> tuple[HeldOut | None, list[Finding]]:
    """Findings on the images whose class is in the hierarchy; a class that is missing has a finding already."""
    import numpy as np

    from hcep.curation.embedding_checks import lint_embeddings
    from hcep.curation.held_out import HeldOut

    y = data.y
    known = np.array([label in hierarchy or label in hierarchy.own_leaves for label in y.tolist()])
    if len(np.unique(y[known])) < 2:
        return None, []
    X, y, ids = data.X[known], y[known], data.ids[known]
    with _progress(quiet) as bar:
        held_out = HeldOut.from_images(hierarchy, X, y)
        found = lint_embeddings(
            hierarchy, X, y, ids, n_images=n_images, max_moves=max_moves, held_out=held_out, progress=bar
        )
    return held_out, found


def _moves(
    held_out: HeldOut | None, findings: Sequence[Finding], n_moves: int, place: Path | None, split: str | None
) -> tuple[list[Any], dict[str, Effect]]:
    """The best moves together, and their effects: where they were chosen, and on val images where there are any."""
    from hcep.curation.embedding_checks import MoveFinding
    from hcep.curation.moves import best_moves
    from hcep.curation.what_if import what_if

    if held_out is None or not n_moves:
        return [], {}
    measured = [f.measured for f in findings if isinstance(f, MoveFinding) and f.measured is not None]
    chosen = best_moves(held_out, measured, n_moves)
    effects = {"the images they were chosen on": chosen}
    other = _other_split(held_out, place, split)
    if other is not None:
        effects["images of split val, which had no part in it"] = what_if(other, chosen.edits)
    return list(chosen.edits), effects


def _other_split(held_out: HeldOut, place: Path | None, split: str | None) -> HeldOut | None:
    import numpy as np

    assert place is not None
    if split is not None and split != "train":
        return None
    try:
        data = _labelled(place, "val")
    except HCEPError:
        return None
    known = np.isin(data.y, held_out.classes)
    return held_out.on(data.X[known], data.y[known]) if known.any() else None


def _edit_effect(
    file: str, hierarchy: Hierarchy, after: Hierarchy, place: Path, split: str | None, quiet: bool
) -> dict[str, Effect]:
    from hcep.curation.held_out import HeldOut
    from hcep.curation.what_if import compare

    with _progress(quiet) as bar:
        step = bar(1)
        if (Path(file) / "hierarchy.json").is_file():
            from hcep.models import load_model

            data = _labelled(place, split, "val")
            held_out = HeldOut.from_model(load_model(Path(file)), data.X, data.y)
        else:
            data = _labelled(place, split)
            held_out = HeldOut.from_images(hierarchy, data.X, data.y)
        effect = compare(held_out, after)
        step()
    return {f"{len(held_out.y):,} held-out images of {data.source}": effect}


@contextmanager
def _progress(quiet: bool) -> Iterator[Callable[[int], Callable[[], object]]]:
    """A bar on standard error; yields what takes the number of steps and returns what is called after each."""
    columns = (TextColumn("measuring"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=quiet) as progress:
        task = progress.add_task("measuring", total=None)

        def begin(n_steps: int) -> Callable[[], object]:
            progress.update(task, total=n_steps)
            return lambda: progress.advance(task)

        yield begin
