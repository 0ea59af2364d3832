"""`hcep hierarchy lint`, `edit` and `compare`: what is wrong with a hierarchy, and what a change does to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from hcep import embeddings as emb, models, taxonomy
from hcep._files import refuse_existing
from hcep._progress import progress
from hcep.cli import options as opt
from hcep.cli.console import Console, escape, say, say_json, show_notes, table_of
from hcep.cli.hierarchy import read
from hcep.cli.options import argument, option
from hcep.errors import HCEPError, counted, quoted
from hcep.hierarchy import Hierarchy, write_hierarchy
from hcep.hierarchy.files import in_words
from hcep.taxonomy.checks import Finding
from hcep.taxonomy.edits import parse_edits

COLOURS = {"error": "red", "warning": "yellow", "note": "cyan", "-": "red", "+": "green", "~": "cyan", "=": "dim"}
#: Titles of metrics, if they differ from their names.
METRICS = {
    "support_f1": "support F1",
    "f1_above_chance": "support F1 above chance",
    "class_f1_before": "class F1 in the old hierarchy",
}


def lint(
    tree: opt.Tree,
    *,
    classes: opt.Classes = None,
    data: opt.LabelledData = None,
    split: opt.Split = None,
    fix: Annotated[bool, option("Apply the safe repairs and show what changed.", "--fix")] = False,
    collapse: opt.Collapse = False,
    fix_moves: Annotated[
        int, option("Also apply up to N moves that clearly improve the results.", "--fix-moves N", min=0)
    ] = 0,
    output: opt.OptionalOutput = None,
    in_place: Annotated[bool, option("Overwrite the file with the repaired hierarchy.", "--in-place")] = False,
    overwrite: opt.Overwrite = False,
    as_json: opt.Json = False,
    options: opt.ReaderOptions = None,
    vectors: opt.Vectors = None,
    labels: opt.Labels = None,
    parameter: opt.Parameter = None,
) -> None:
    """Check a hierarchy, alone or against labelled images, and repair what can be repaired safely.

    Finds cycles, self-loops, orphans, several roots, chains, shortcuts, repeated and similar names, uneven depth, and
    classes that are missing, extra or inner concepts. With --data it also finds concepts whose photos look unlike the
    others of their parent, or more like another parent, with the effect of a move on held-out images; images with a
    coarse label are left out. Nothing is written without --output or --in-place. --collapse includes --fix. The exit
    code is 1 while there are errors. Parameters: n_images (named in a finding), max_moves (that are measured).
    """
    repairing = fix or collapse or fix_moves > 0
    if fix_moves and data is None:
        raise HCEPError("--fix-moves: moves are measured on images; give --data as well")
    if (output is not None or in_place) and not repairing:
        raise HCEPError("--output and --in-place write a repaired hierarchy; give --fix or --fix-moves as well")
    if output is not None and in_place:
        raise HCEPError("give --output or --in-place, not both")
    if in_place and not Path(tree).is_file():
        raise HCEPError(f"--in-place: {tree!r} is not a file that can be overwritten; give --output")
    refuse_existing(output, overwrite, "--output")
    columns = opt.columns(vectors, labels)
    images = None if data is None else labelled(data, split, **columns)
    others: emb.Embeddings | None = None  # images of val, if those of train are checked
    if fix_moves and data is not None and split in (None, "train"):
        with suppress(HCEPError):
            others = labelled(data, "val", **columns)
    with ExitStack() as bars:

        def begin(n_moves: int) -> Callable[[], object]:
            advance = bars.enter_context(progress("measuring", n_moves, shown=not as_json))
            return lambda: advance(1)

        review = taxonomy.review(
            tree,
            None if images is None else (images.X, images.y, images.image_ids),
            None if others is None else (others.X, others.y),
            classes=opt.lines_in(classes),
            mend=fix or collapse,
            collapse=collapse,
            n_moves=fix_moves,
            progress=begin,
            **opt.parameters(parameter, also=("n_images", "max_moves")),
            **opt.reader_options(options),
        )
    # --output is written even without a change; a file in its place stays as it is without one.
    written = None
    if review.after is not None and (review.changes or output is not None):
        written = Path(tree) if in_place else output
    if written is not None and review.after is not None:
        show_notes(write_hierarchy(review.after, written))
    report(review.findings, review.before, review.changes, review.effects, repairing, written, as_json)
    if not as_json and written is not None and review.after is not None:
        say(f"{written}: {in_words(review.after)}{'' if review.changes else ', unchanged'}")
    elif not as_json and review.changes:
        say("nothing was written; give --output FILE or --in-place")
    elif not as_json and review.after is None and repairing:
        say("nothing was written; fix the errors above by hand first")
    raise typer.Exit(int(bool(review.errors)))


def edit(
    tree: opt.Tree,
    *,
    move: opt.Move = None,
    add: Annotated[
        opt.Names,
        option(
            "Add a concept below PARENT; the listed children of PARENT move below it.", "--add NAME:PARENT[:CHILD,…]"
        ),
    ] = None,
    merge: Annotated[opt.Names, option("Merge concept A into B; A's children move below B.", "--merge A:B")] = None,
    remove: opt.Remove = None,
    rename: opt.Rename = None,
    classes: opt.Classes = None,
    data: opt.LabelledData = None,
    split: opt.Split = None,
    output: opt.OptionalOutput = None,
    overwrite: opt.Overwrite = False,
    as_json: opt.Json = False,
    options: opt.ReaderOptions = None,
    vectors: opt.Vectors = None,
    labels: opt.Labels = None,
) -> None:
    """Edit a hierarchy and measure what the edits do to held-out images, without fitting a model again.

    Edits are repeatable and are applied in this order: add, merge, move, remove, rename. Concepts are given by id, or
    by a name that only one concept has. For a model folder, the effect is measured with its class means on new images
    (split `val`); otherwise images of --data are held out in turn (split `train`). Nothing is written without --output.
    """
    from hcep.taxonomy.effects import edit_hierarchy

    hierarchy = read(tree, options)
    refuse_existing(output, overwrite, "--output")
    edits = parse_edits(
        hierarchy, add=add or (), merge=merge or (), move=move or (), remove=remove or (), rename=rename or ()
    )
    if not edits:
        raise HCEPError("nothing to do: give --move, --add, --merge, --remove or --rename")
    model = models.load(Path(tree)) if (Path(tree) / "model.json").is_file() else None
    images = None
    if data is not None:
        images = labelled(data, split, "train" if model is None else "val", **opt.columns(vectors, labels))
    edited = edit_hierarchy(hierarchy, edits, classes=opt.lines_in(classes), images=images, model=model)
    if output is not None:
        show_notes(write_hierarchy(edited.after, output))
    report([], hierarchy, edited.changes, edited.effects, True, output, as_json)
    if not as_json:
        say(f"{output}: {in_words(edited.after)}" if output is not None else "nothing was written; give --output FILE")


def compare(
    before: Annotated[str, argument("A hierarchy: a file, `imagenet` or a model folder.", metavar="BEFORE")],
    after: Annotated[str, argument("The hierarchy to compare it with.", metavar="AFTER")],
    *,
    as_json: opt.Json = False,
    options: opt.ReaderOptions = None,
) -> None:
    """Show what changed between two hierarchies: - and + are edges, ~ names, = merged concepts; ids are in brackets."""
    old, new = read(before, options), read(after, options)
    report([], old, taxonomy.diff(old, new), {}, True, None, as_json)


def labelled(place: Path, split: str | None, default: str = "train", **parts: Any) -> emb.Embeddings:
    """Labelled images, in any form that `hcep fit` takes; `parts` come from --vectors and --labels."""
    from hcep.datasets.encoding import embeddings_of

    images = embeddings_of(place, split, default_split=default, **parts)
    show_notes(images.notes)
    _ = images.y  # raises if labels are missing
    return images


def report(
    findings: Sequence[Finding],
    hierarchy: Hierarchy | None,
    changes: Sequence[str],
    effects: dict[str, Any],
    repairing: bool,
    written: Path | None,
    as_json: bool,
) -> None:
    """Print findings, changes and effects as text or JSON."""
    if as_json:
        shown = {where: _effect_record(effect) for where, effect in effects.items()}
        record = {"findings": list(map(_record, findings)), "diff": list(changes), "effects": shown, "output": written}
        say_json(record)
        return
    console = Console(soft_wrap=True, highlight=False)
    useless = [f for f in findings if f.severity == "note" and getattr(f, "measured", None) is not None]
    shown_findings = [finding for finding in findings if finding not in useless]
    if useless and hierarchy is not None:
        many = counted(len({finding.synsets[0] for finding in useless}), "concept")
        text = f"{many} with photos that look more like another parent; moving them brings no clear improvement"
        named = ([repr(hierarchy.name(s)) for s in f.synsets] for f in useless)
        near = tuple(f"{child} is more like {other} than {own}" for child, own, other in named)
        shown_findings.append(Finding("note", "nearer-parent; --json has the numbers", text, (), examples=near))
    for finding in shown_findings:
        where = f"{finding.code}: {quoted(finding.synsets, 3)}" if finding.synsets else finding.code
        mark = f"[{COLOURS[finding.severity]}]{finding.severity}[/]"
        console.print(f"{mark} {escape(finding.message)} [dim]({escape(where)})[/]")
        examples = finding.examples[:5] if finding.code != "cycle" else ()
        if examples:
            more = f" and {len(finding.examples) - 5:,} more" if len(finding.examples) > 5 else ""
            console.print(f"     [dim]{escape('; '.join(examples) + more)}[/]")
    if findings or not repairing:
        of = "not a hierarchy" if hierarchy is None else in_words(hierarchy)
        more = "; names, depth and classes are checked once the errors are fixed" if hierarchy is None else ""
        console.print(f"{escape(of)}: {counted(len(findings), 'finding') if findings else 'no findings'}{more}")
    for line in changes:
        console.print(f"[{COLOURS[line[0]]}]{escape(line)}[/]")
    if repairing and not changes and hierarchy is not None:
        console.print("no change")
    for where, effect in effects.items():
        console.print(f"\non {escape(where)}:")
        rows = [
            (METRICS.get(name, name.replace("_", " ")), f"{before:.4f}", f"{after:.4f}", f"{gap:+.4f}", f"{error:.4f}")
            for name, (before, after, gap, error) in effect.metrics.items()
        ]
        console.print(table_of(("", "before", "after", "difference", "± s.e."), rows), soft_wrap=False)


def _record(finding: Finding) -> dict[str, Any]:
    own = {key: value for key, value in vars(finding).items() if key != "measured"}
    measured = getattr(finding, "measured", None)
    effect = None if measured is None else _effect_record(measured.effect)
    return own | {"fixes": list(map(str, finding.fixes)), "effect": effect}


def _effect_record(effect: Any) -> dict[str, Any]:
    return {name: change._asdict() for name, change in effect.metrics.items()}
