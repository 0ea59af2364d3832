"""`hcep hierarchy lint`, `edit` and `diff`: what is wrong with a hierarchy, and what a repair or a change does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from itertools import combinations, pairwise
from pathlib import Path
from typing import Annotated, Any

import typer

from hcep import datasets, embeddings as emb, models, taxonomy
from hcep._checks import escape_markup as escape
from hcep._files import refuse_existing
from hcep._progress import progress
from hcep.cli.console import Console, say, say_json, show_notes, table_of
from hcep.cli.hierarchy import File, ReadAs, app as app, read
from hcep.cli.options import Force, Json, Label, Labels, ReaderOptions, Vectors, lines_in, option, reader_options
from hcep.errors import HCEPError, counted, quoted
from hcep.hierarchy import Hierarchy
from hcep.taxonomy import Add, Edit, Finding, Merge, Move, Remove, Rename, apply_edits, write_hierarchy
from hcep.taxonomy.files import class_ids, in_words, named_as_ids

Many = list[str] | None
Texts = Sequence[str]
Data = Annotated[Path | None, option("Labelled embeddings or photos, in any form `hcep fit` takes.", "--embeddings")]
Classes = Annotated[Path | None, option("Text file with the data's labels, one per line; the leaves by default.")]
Output = Annotated[Path | None, option("File to write the changed hierarchy to.", "--output", "-o")]

COLOURS = {"error": "red", "warning": "yellow", "note": "cyan", "-": "red", "+": "green", "~": "cyan", "=": "dim"}
#: What metrics are called in a terminal, where not by their name.
METRICS = {
    "support_f1": "support F1",
    "f1_above_chance": "support F1 above chance",
    "class_f1_before": "class F1 in the hierarchy before",
}


@app.command()
def diff(old: File, new: File, *, read_as: ReadAs = None, options: ReaderOptions = None, as_json: Json = False) -> None:
    """Tell what changed between two: - and + edges, ~ names, = what was merged; ids in brackets where names differ."""
    before, after = (read(place, read_as, options) for place in (old, new))
    _report([], before, taxonomy.diff(before, after), {}, True, None, as_json)


@app.command()
def lint(
    file: File,
    *,
    classes: Classes = None,
    embeddings: Data = None,
    vectors: Vectors = None,
    label: Label = None,
    labels: Labels = None,
    split: Annotated[str | None, option("Split to look at; train where there is one.")] = None,
    apply: Annotated[bool, option("Apply the safe repairs and show what changed.", "--fix")] = False,
    collapse: Annotated[bool, option("The same, and merge single-child chains.", "--collapse")] = False,
    fix_moves: Annotated[int, option("Also apply up to N moves with a clear gain.", min=0, metavar="N")] = 0,
    output: Output = None,
    in_place: Annotated[bool, option("Write the repaired hierarchy over FILE.", "--in-place")] = False,
    force: Force = False,
    images: Annotated[int, option("Images to name in a finding.", min=0)] = 3,
    max_moves: Annotated[int, option("Children nearer to another parent to measure.", min=0)] = 60,
    read_as: ReadAs = None,
    options: ReaderOptions = None,
    as_json: Json = False,
) -> None:
    """Check a hierarchy, on request against the data, and repair what can be repaired safely.

    Cycles, self-loops, orphans, several roots, chains, shortcuts, names that repeat or nearly do, classes that are
    missing, extra or not leaves, uneven depth. With --embeddings also concepts whose cone or atom is off, with the
    images that do it, and children that lie nearer to another parent in this encoder's space, with what moving them
    does to held-out images. Nothing is written without -o or --in-place. Exit code 1 while there are errors.
    """
    repairing = apply or collapse or fix_moves > 0
    if fix_moves and embeddings is None:
        raise HCEPError("--fix-moves: moves are measured on images; give --embeddings as well")
    if (output is not None or in_place) and not repairing:
        raise HCEPError("-o and --in-place write a repaired hierarchy; give --fix or --fix-moves as well")
    if output is not None and in_place:
        raise typer.BadParameter("give -o or --in-place, not both", param_hint="--in-place")
    if in_place and not Path(file).is_file():
        raise typer.BadParameter(f"{file} is not a file that can be written over; give -o", param_hint="--in-place")
    refuse_existing(output, force, "--output")
    parts: dict[str, Any] = {"vectors": vectors, "label": label, "labels": labels}
    data = None if embeddings is None else labelled(embeddings, split, **parts)
    others: emb.Embeddings | None = None  # images of val, where those of train are looked at
    if fix_moves and embeddings is not None and split in (None, "train"):
        with suppress(HCEPError):
            others = labelled(embeddings, "val", **parts)
    with ExitStack() as bars:

        def begin(n_moves: int) -> Callable[[], object]:
            advance = bars.enter_context(progress("measuring", n_moves, shown=not as_json))
            return lambda: advance(1)

        found = taxonomy.review(
            file,
            None if data is None else (data.X, data.y, data.ids),
            None if others is None else (others.X, others.y),
            classes=lines_in(classes),
            mend=apply or collapse,
            collapse=collapse,
            n_moves=fix_moves,
            n_images=images,
            max_moves=max_moves,
            progress=begin,
            format=read_as,
            **reader_options(options),
        )
    # What is asked for by -o is there afterwards, changed or not; a file in its place stays as it is without a change.
    written = None
    if found.after is not None and (found.changes or output is not None):
        written = Path(file) if in_place else output
    if written is not None and found.after is not None:
        show_notes(write_hierarchy(found.after, written))
    _report(found.findings, found.before, found.changes, found.effects, repairing, written, as_json)
    if not as_json and written is not None and found.after is not None:
        say(f"{written}: {in_words(found.after)}{'' if found.changes else ', unchanged'}")
    elif not as_json and found.changes:
        say("nothing written; give -o FILE or --in-place")
    elif not as_json and found.after is None and repairing:
        say("nothing written; mend the errors above by hand first")
    raise typer.Exit(int(bool(found.errors)))


@app.command()
def edit(
    file: File,
    *,
    move: Annotated[Many, option("Hang a concept from another parent.", metavar="CONCEPT[:OLD]:NEW")] = None,
    add: Annotated[
        Many, option("Add a concept, on request above children of PARENT.", metavar="NAME:PARENT[:CHILD,…]")
    ] = None,
    merge: Annotated[Many, option("Merge A into B, which takes its children.", metavar="A:B")] = None,
    remove: Annotated[Many, option("Remove it; its children go to its parents.", metavar="CONCEPT")] = None,
    rename: Annotated[Many, option("Change a name; separate ids stay.", metavar="CONCEPT:NAME")] = None,
    classes: Classes = None,
    embeddings: Data = None,
    vectors: Vectors = None,
    label: Label = None,
    labels: Labels = None,
    split: Annotated[str | None, option("To measure on: by folds of train, or val where FILE is a model.")] = None,
    output: Output = None,
    force: Force = False,
    read_as: ReadAs = None,
    options: ReaderOptions = None,
    as_json: Json = False,
) -> None:
    """Change a hierarchy, and see what it does to held-out images without fitting a model again.

    Options may be repeated; whatever their order here, they are applied as add, merge, move, remove, rename. Concepts
    are given by id, or by a name that only one has. Where FILE is a model folder its class means are used and the
    images of --embeddings are new to it; otherwise the images are held out in turn. Without -o nothing is written.
    """
    from hcep.taxonomy.edits import refuse_inner_classes
    from hcep.taxonomy.embedding_checks import ids_of
    from hcep.taxonomy.what_if import HeldOut, compare

    hierarchy = read(file, read_as, options)
    refuse_existing(output, force, "--output")
    edits = parse_edits(hierarchy, add or (), merge or (), move or (), remove or (), rename or ())
    if not edits:
        raise HCEPError("nothing to do: give --move, --add, --merge, --remove or --rename")
    known = None if classes is None else list(class_ids(hierarchy, lines_in(classes) or ()).values())
    after = apply_edits(hierarchy, edits, known)
    refuse_inner_classes(hierarchy, after, known)
    effects, kept, is_model = {}, {*(known or ())}, (Path(file) / "hierarchy.json").is_file()
    if embeddings is not None:
        data = labelled(embeddings, split, "val" if is_model else "train", vectors=vectors, label=label, labels=labels)
        if is_model:
            held_out = HeldOut.from_model(models.load_model(Path(file)), data.X, data.y)
        else:
            held_out = HeldOut.from_images(hierarchy, data.X, ids_of(hierarchy, data.y))
        kept |= {*held_out.classes}
        effects = {f"{len(held_out.y):,} held-out images of {data.source}": compare(held_out, after)}
    changes = taxonomy.diff(hierarchy, after)
    if not is_model and all(hierarchy.name(s) == s for s in hierarchy):  # who knows no ids need not see any
        after = named_as_ids(after, kept)
    if output is not None:
        show_notes(write_hierarchy(after, output))
    _report([], hierarchy, changes, effects, True, output, as_json)
    if not as_json:
        say(f"{output}: {in_words(after)}" if output is not None else "nothing written; give -o FILE")


def parse_edits(
    hierarchy: Hierarchy, add: Texts = (), merge: Texts = (), move: Texts = (), remove: Texts = (), rename: Texts = ()
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
    return edits + [Rename(*_parts("--rename", "CONCEPT:NAME", text, is_known, _anything)) for text in rename]


def _anything(text: str) -> bool:
    return bool(text.strip())


def _parts(option: str, form: str, text: str, *checks: Callable[[str], bool]) -> list[str]:
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


def labelled(place: Path, split: str | None, default: str = "train", **parts: Any) -> emb.Embeddings:
    """Images with labels, in any form that `hcep fit` takes; `parts` are --vectors, --label and --labels."""
    data = datasets.embeddings_of(place, split, default_split=default, **parts)
    show_notes(data.notes)
    _ = data.y  # says what is missing
    return data


def _report(
    findings: Sequence[Finding],
    hierarchy: Hierarchy | None,
    changes: Sequence[str],
    effects: dict[str, Any],
    repairing: bool,
    written: Path | None,
    as_json: bool,
) -> None:
    """Findings, changes and effects as text or JSON."""
    if as_json:
        shown = {where: _effect_record(effect) for where, effect in effects.items()}
        record = {"findings": list(map(_record, findings)), "diff": list(changes), "effects": shown, "output": written}
        say_json(record)
        return
    console = Console(soft_wrap=True, highlight=False)
    useless = [f for f in findings if f.severity == "note" and getattr(f, "measured", None) is not None]
    told = [finding for finding in findings if finding not in useless]
    if useless and hierarchy is not None:
        many = counted(len({finding.synsets[0] for finding in useless}), "concept")
        text = f"{many} nearer to another parent in this encoder's space, without a clear gain"
        named = ([repr(hierarchy.name(s)) for s in f.synsets] for f in useless)
        near = tuple(f"{child} to {other} than to {own}" for child, own, other in named)
        told.append(Finding("note", "nearer-parent; --json has the figures", text, (), examples=near))
    for finding in told:
        where = f"{finding.code}: {quoted(finding.synsets, 3)}" if finding.synsets else finding.code
        mark = f"[{COLOURS[finding.severity]}]{finding.severity}[/]"
        console.print(f"{mark} {escape(finding.message)} [dim]({escape(where)})[/]")
        examples = finding.examples[:5] if finding.code != "cycle" else ()
        if examples:
            more = f" and {len(finding.examples) - 5:,} more" if len(finding.examples) > 5 else ""
            console.print(f"     [dim]{escape('; '.join(examples) + more)}[/]")
    if findings or not repairing:
        of = "not a hierarchy" if hierarchy is None else in_words(hierarchy)
        more = "; names, depth and classes are looked at once the errors are mended" if hierarchy is None else ""
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
