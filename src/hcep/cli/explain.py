"""`hcep explain`, `hcep predict`: photos and embeddings into rooted paths; `hcep correct`: what people say of them."""

from __future__ import annotations

import getpass
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from textwrap import indent
from typing import Annotated, Any, Literal, cast

import typer
from rich.padding import Padding

from hcep import explain as explaining, models, ray as distributed
from hcep._checks import escape_markup as escape
from hcep._files import refuse_existing, replacing, write_text
from hcep.cli import options as opt
from hcep.cli.console import Console, path_tree, say, say_json, verdict
from hcep.cli.options import option
from hcep.errors import HCEPError
from hcep.hierarchy import Hierarchy

#: A runner-up of at least this probability is named where the answer is not sure.
NAMED = 0.05
#: Photos whose maps fit one picture.
MAX_STRIPS = 100
Concepts = list[str] | None


def explain(
    images: opt.Images,
    *,
    model: opt.ModelOption = None,
    encoder: opt.OwnEncoder = None,
    preprocessing: opt.Preprocessing = None,
    tree: Annotated[bool, option("Draw each path as a tree.", "--tree")] = False,
    n_best: Annotated[int | None, option("Classes to show for each image.", "--n-best", "-n", min=1)] = None,
    where: Annotated[bool, option("Map where in the photo each concept is.", "--where")] = False,
    where_png: Annotated[Path | None, option("Write the maps as one PNG, a row per photo.")] = None,
    html: Annotated[Path | None, option("Write an HTML report with the photos.")] = None,
    store: Annotated[
        Path | None, option("Store of training photos, to show the nearest; a model may have one.")
    ] = None,
    coverage: opt.Coverage = None,
    why_not: Annotated[Concepts, option("Class or concept to compare the answer with; may be repeated.")] = None,
    force: Annotated[Concepts, option("Concept that must be on the path; may be repeated, as all these.")] = None,
    forbid: Annotated[Concepts, option("Concept that must not be on the path.")] = None,
    objects: Annotated[str | None, option("Several objects in a photo: at most N, or all.", metavar="N|auto")] = None,
    change: Annotated[Concepts, option("New coefficient of a concept on the path: dog=0, or dog*2.", "--set")] = None,
    corrections: opt.CorrectionsFile = None,
    replace: Annotated[bool, option("Replace files that are there already.", "--replace")] = False,
    as_json: opt.Json = False,
    strict: opt.Strict = False,
    config: opt.Config = None,
) -> None:
    """Explain images: one line each, as a tree, as JSON or as an HTML report."""
    from hcep.explain.finding import refuse_no_images

    model, images = _model_and_images(model, images)
    files = explaining.find_images(images)
    refuse_no_images(files)
    for path, flag in ((html, "--html"), (where_png, "--where-png")):
        refuse_existing(path, replace, flag, "--replace")
    if where_png is not None and len(files) > MAX_STRIPS:
        raise HCEPError(f"--where-png: {len(files):,} photos are too many for one picture; use --where --html")
    from hcep.explain.photos import ExplainOptions, answer_batches

    if objects not in (None, "auto") and not (objects.isdigit() and int(objects) > 0):
        raise HCEPError(f"--objects: a number of objects or `auto`, got {objects!r}")
    opened = models.builtin_model() if model is None else models.read_model(model)
    if objects == "auto" and opened.path_model.stopping is None:
        learn = "`hcep fit --several-objects` learns one"
        Console(stderr=True).print(f"note: the model has no rule of its own for the number of objects ({learn})")
    kept = explaining.Answers()
    drawn = html is not None or where_png is not None
    if where and not drawn and not as_json:
        Console(stderr=True).print("note: maps are drawn in a report (--html FILE) or a picture (--where-png FILE)")
    options = ExplainOptions(
        where=where or where_png is not None,
        n_best=n_best or 3,
        encoder=encoder,
        preprocessing=preprocessing,
        training=store or html is not None,
        coverage=coverage,
        n_paths=int(objects) if objects and objects.isdigit() else cast(Literal["auto"] | None, objects),
        why_not=why_not or (),
        force=force or (),
        forbid=forbid or (),
        corrections=opt.kept_corrections(corrections, opened.path_model.hierarchy),
        progress=not as_json and not sys.stdout.isatty(),  # lines on a terminal are progress enough
    )
    batches = answer_batches(files, opened, options, None if strict else kept.skipped)
    each = _each(batches, change or [], kept, drawn)
    if as_json:
        n_found = _print_json(each)
    else:
        n_found = _print(each, tree, n_best is not None, opened.path_model.hierarchy, files=len(files) > 1)
    if html is not None:
        write_text(html, explaining.report.photo_report(kept))
    if where_png is not None and kept:
        from hcep.explain.map_drawing import stacked

        with replacing(where_png) as partial:
            stacked([one.strip() for one in kept]).save(partial, "PNG")
    for what, path in (("report", html), ("maps", where_png if kept else None)):
        if path is not None and not as_json:
            Console().print(f"{what}: [bold]{escape(str(path))}[/]", soft_wrap=True)
    if not n_found:
        raise typer.Exit(1)


def predict(
    context: typer.Context,
    model: opt.Model,
    data: opt.Data,
    *,
    output: Annotated[Path, option("File to write: .parquet or .csv; with --ray, a folder.", "--output", "-o")],
    split: opt.Split = None,
    vectors: opt.Vectors = None,
    label: opt.Label = None,
    labels: opt.Labels = None,
    encoder: opt.Encoder = None,
    coverage: opt.Coverage = None,
    corrections: opt.CorrectionsFile = None,
    force: opt.Force = False,
    ray: opt.Ray = None,
    as_json: opt.Json = False,
    config: opt.Config = None,
) -> None:
    """Predict class and rooted path of every image into a Parquet or CSV file.

    Columns: id, label (where known), predicted, probability, path, names, coefficients, residual_norm; with --coverage
    also answer, answer_name, answer_probability and kind.
    """
    from hcep.explain.predictions import BLOCK, write_predictions

    if ray is not None:
        if coverage is not None or corrections is not None:
            raise HCEPError("--coverage and --corrections are for one process: leave out --ray")
        n = distributed.predict(model, data, output, split=split, force=force, address=ray, progress=not as_json)
    else:
        if output.suffix not in (".parquet", ".csv"):
            known = "predictions are Parquet or CSV; expected a name ending in .parquet or .csv"
            raise HCEPError(f"--output: {known}, got {str(output)!r}")
        kept = output.with_name(output.name + ".toml")
        for path in (output, kept):
            refuse_existing(path, force, "--output")
        saved = models.read_model(model)
        columns: dict[str, Any] = {"vectors": vectors, "label": label, "labels": labels, "in_memory": BLOCK}
        found = opt.embeddings_for(saved, data, split, encoder=encoder, progress=not as_json, **columns)
        limits, n = opt.corrected_limits(corrections, saved.hierarchy, found), len(found.X)
        told: dict[str, Any] = {"ids": found.ids, "labels": found.labels, "limits": limits, "coverage": coverage}
        write_predictions(saved.path_model, found.X, output, **told, progress=not as_json)
        opt.save_resolved(context, kept)
    if as_json:
        say_json({"predictions": output, "n_images": n})
    else:
        say(f"{output}: {n:,} images")


def correct(
    images: opt.Images,
    *,
    label: Annotated[str | None, option("The true class.", "--class")] = None,
    force: Annotated[list[str] | None, option("Concept that is right, such as mammal.")] = None,
    forbid: Annotated[list[str] | None, option("Concept that is wrong; both may be repeated.")] = None,
    undo: Annotated[bool, option("Take the last correction of each image back.", "--undo")] = False,
    why: Annotated[str, option("The reason.")] = "",
    who: Annotated[str | None, option("Who says so; the user's name by default.")] = None,
    model: opt.ModelOption = None,
    corrections: Annotated[Path, option("The file; it is only ever added to.")] = Path("corrections.jsonl"),
    config: opt.Config = None,
) -> None:
    """Correct the answer for photos, for good: predict, explain, evaluate and fit honour the file with --corrections.

    A photo is known by its content: it may be moved and renamed. Concepts are ids, names or synonyms of the model's own
    hierarchy: give the model folder that is to honour them first.
    """
    from hcep.explain.corrections import Corrections, class_meant, image_hash, request_of

    if undo == bool(label or force or forbid):
        raise HCEPError("say what is right or wrong (--class, --force, --forbid), or --undo")
    model, images = _model_and_images(model, images)
    hierarchy = (models.builtin_model() if model is None else models.read_model(model)).path_model.hierarchy
    asked, kept = request_of(hierarchy, force or (), forbid or ())._asdict(), Corrections(corrections, missing=True)
    request_of(hierarchy, force or (), forbid or (), label)  # a class that is not below these
    label = label and class_meant(hierarchy, label)
    hashes = {file: image_hash(file) for file in explaining.find_images(images)}
    for file, image in hashes.items():
        if undo and image not in kept:
            raise HCEPError(f"{str(file)!r} has no correction in {str(corrections)!r}")
    name = who if who is not None else getpass.getuser()
    for file, image in hashes.items():
        kept.add(image, **asked, label=label, undo=undo, file=str(file), who=name, why=why)
    n = len(hashes)
    whose = f", in the concepts of {model or 'ImageNet, the built-in model; of your own: hcep correct MODEL PHOTO'}"
    done = "taken back" if undo else f"added{whose}"
    say(f"{corrections}: {n:,} correction{'' if n == 1 else 's'} {done}")


def _each(
    batches: Iterator[list[explaining.Answer]], change: list[str], kept: explaining.Answers, drawn: bool
) -> Iterator[explaining.Answer]:
    """Images as they are explained, with what --set says; those that were skipped are told, those to draw are kept."""
    told = 0

    def tell() -> int:
        for file, reason in kept.skipped[told:]:
            Console(stderr=True).print(f"[yellow]skipped[/] {escape(file)}: {escape(reason)}", highlight=False)
        return len(kept.skipped)

    for batch in batches:
        told = tell()
        for one in batch:
            done = one.with_coefficients(change) if change else one
            kept += [done] if drawn else []
            yield done
    tell()


def _print_json(found: Iterable[explaining.Answer]) -> int:
    """Print a JSON list, an image at a time; return how many."""
    n, last = 0, "["
    for one in found:
        say(last)
        n, last = n + 1, indent(json.dumps(one.to_dict(), indent=2, ensure_ascii=False), "  ") + ","
    say(last.removesuffix(",") + "\n]")
    return n


def _model_and_images(model: Path | None, images: list[str]) -> tuple[Path | None, list[str]]:
    """The model, which may also be the first of the arguments; None for the built-in one."""
    if model is not None or not (Path(images[0]) / "model.json").exists():
        return model, images
    if len(images) == 1:
        raise HCEPError(f"{images[0]!r} is a model; say which images it is to explain")
    return Path(images[0]), images[1:]


def _print(found: Iterable[explaining.Answer], tree: bool, all_rivals: bool, h: Hierarchy, files: bool) -> int:
    """Print images one after the other; return how many."""
    console, n = Console(), 0
    for n, one in enumerate(found, start=1):  # noqa: B007 - the last one is returned
        file = f"{escape(Path(one.file).name)}: " if files or tree else ""
        head = [file + verdict(one) + ("" if tree else f" ({escape(one.names())})"), *_answers(one, h)]
        tail = list(_rivals(one, all_rivals))
        if not tree:
            steps = [step for step in one.path if step.meaning]
            tail = [f"{escape(step.name)}: [italic]{escape(str(step.meaning))}[/]" for step in steps] + tail
        console.print("\n  ".join(head), soft_wrap=True, highlight=False)
        if tree:
            console.print(Padding(path_tree(one), (0, 0, 1, 2)))
        for line in tail:
            console.print(f"  {line}", soft_wrap=True, highlight=False)
    return n


def _answers(one: explaining.Answer, h: Hierarchy) -> Iterator[str]:
    """Lines above the path: what was asked for, the answer that is promised, the objects."""
    from hcep.explain.answer import percent

    if one.correction is not None:
        yield f"[bold]{escape(one.correction.summary())}[/]"
    for what, names in (("with", one.force), ("without", one.forbid)):
        if names:
            asked = ", ".join(h.name(h.find(name)) for name in names)
            yield f"[dim]as asked, {what} {escape(asked)}[/]"
    if one.hedged is not None:
        yield f"answer: [bold]{escape(str(one.hedged))}[/]"
    for part in one.objects if len(one.objects) > 1 else ():
        yield f"{percent(part.share)} [bold]{escape(part.name)}[/] ({escape(' → '.join(part.names))})"


def _rivals(one: explaining.Answer, all_rivals: bool) -> Iterator[str]:
    """Lines below the path: what else it may be, photos like it, why it is not another."""
    from hcep.explain.answer import percent

    if all_rivals:
        for rival in one.rivals:
            yield f"[dim]or {escape(rival.name)}, {percent(rival.probability)} ({escape(rival.trail())})[/]"
    elif one.doubt and one.rivals:
        named = [r for r in one.rivals if r.probability >= NAMED] or list(one.rivals[:1])
        yield f"[dim]or {'; '.join(f'{escape(r.name)}, {percent(r.probability)}' for r in named)}[/]"
    if one.nearest:
        like = [f"{escape(Path(photo.file).name)} ({escape(photo.name)})" for photo in one.nearest]
        yield f"[dim]like {', '.join(like)}[/]"
    for why in one.contrasts:
        yield from (f"{'  ' if i else ''}{escape(line)}" for i, line in enumerate(why.lines()))
