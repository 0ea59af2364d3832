"""`hcep reproduce`: the paper's figures and tables, one command each."""

from __future__ import annotations

import json
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from hcep._escape import markup as escape
from hcep._files import write_text
from hcep.cli.console import Console, say
from hcep.cli.hierarchy.files import Options, parsed
from hcep.errors import HCEPError, near_matches, quoted

if TYPE_CHECKING:
    from hcep.experiments.experiment import Experiment
    from hcep.experiments.records import Records
    from hcep.experiments.tasks import Task

RESULTS, SMOKE = Path("experiments/results"), Path("experiments/smoke")
#: The encoder of what is fetched, where no other is said: it needs no model hub.
BUILT_IN = "efficientnet-lite2"
STYLES = {"better": "green", "tied": "yellow", "worse": "red"}


def reproduce(
    names: Annotated[list[str] | None, typer.Argument(help="Experiments; none lists them.", metavar="NAME")] = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="Every experiment.")] = False,
    smoke: Annotated[bool, typer.Option(help="Short settings, to see that everything runs.")] = False,
    data: Annotated[
        Path | None,
        typer.Option(help="Your data: a store, an .npz or .parquet file, or with --encoder a folder of images."),
    ] = None,
    download: Annotated[
        str | None,
        typer.Option(help="Public dataset to fetch, encode and run on; `hcep data` lists them.", metavar="DATASET"),
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option(
            help=f"Encoder of a folder of images, such as open_clip:ViT-L-14/openai; of --download {BUILT_IN}."
        ),
    ] = None,
    preprocessing: Annotated[str | None, typer.Option(help="What an ONNX file does not say (see hcep encode).")] = None,
    hierarchy: Annotated[
        str | None, typer.Option(help="Hierarchy file, `imagenet`, `cifar100`, or `flat`; found by the classes.")
    ] = None,
    options: Options = None,
    shots: Annotated[
        str | None,
        typer.Option(help="Training images per class, or `all`; where an experiment has one number of them."),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(help="Measure these again and keep the other rows: names with commas, such as hcep,nn."),
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help=f"Folder; {RESULTS} by default.")] = None,
    fresh: Annotated[bool, typer.Option(help="Measure everything anew instead of resuming.")] = False,
    page: Annotated[
        Path | None, typer.Option(help="Write the results page from the rows on disk, such as docs/results.md.")
    ] = None,
    readme: Annotated[
        Path | None, typer.Option(help="Fill the tables marked `<!-- rows: NAME -->` of a page from the rows on disk.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print verdicts as JSON and nothing else.")] = False,
) -> None:
    """Run the paper's experiments: rows (JSON, Parquet), a figure (PNG, SVG) and what holds of what is claimed.

    Without --data an experiment runs on embeddings at hand: those in the folder HCEP_SHARED names (default ../shared),
    or the bundled sample; where that is not the paper's data, name and title say so. A stopped run goes on where it
    was; each cell is measured once.
    """
    from hcep.experiments.all_experiments import EXPERIMENTS

    results = output or (SMOKE if smoke else RESULTS)
    chosen = list(EXPERIMENTS) if everything else _known(names or [], EXPERIMENTS)
    if not chosen and page is None and readme is None:
        _list(EXPERIMENTS, as_json)
        return
    if download is not None:
        data, encoder = _fetched(download, data, as_json), encoder or BUILT_IN
    given = _given_task(data, encoder, preprocessing, (hierarchy, options), results) if data is not None else None
    if data is None and (encoder or hierarchy):
        raise HCEPError("--encoder and --hierarchy belong to data of your own; say which with --data")
    only = None if methods is None else _methods(methods)
    console, reports = Console(stderr=True), {}
    if smoke and chosen and given is None:
        seconds = sum(EXPERIMENTS[name].smoke_seconds for name in chosen)
        console.print(f"[dim]short settings: about {seconds} s on two idle cores[/]")
    for name in chosen:
        experiment, folder = _placed(EXPERIMENTS[name], given, shots, results)
        records = _run(experiment, given, folder, console, skip=everything, smoke=smoke, fresh=fresh, methods=only)
        if records is not None:
            reports[name] = _report(experiment, records, folder)
            if not as_json:
                _show(experiment, records, reports[name])
    if as_json:
        say(json.dumps(reports, indent=2, ensure_ascii=False))
    _write_pages(EXPERIMENTS, results, page, readme)


def _fetched(name: str, data: Path | None, quiet: bool) -> Path:
    from hcep.datasets import fetch

    if data is not None:
        raise HCEPError("--data and --download exclude each other; leave one out")
    return fetch(name, progress=not quiet)


def _placed(experiment: Experiment, given: Task | None, shots: str | None, results: Path) -> tuple[Experiment, Path]:
    """The experiment with the number of shots asked for, and the folder of its rows: other data and numbers have
    folders of their own, so that rows stay.
    """
    folder = results / (experiment.on_hand if given is None else experiment.name)
    if given is not None:
        folder /= f"{given.name}-{given.digest[:8]}"
    if shots is None:
        return experiment, folder
    if shots != "all" and not (shots.isdigit() and int(shots) > 0):
        raise HCEPError(f"--shots: a number of images per class or `all`, got {shots!r}")
    changed = experiment.with_shots(None if shots == "all" else int(shots))
    return changed, folder if changed.config == experiment.config else folder / f"shots-{shots}"


def _methods(given: str) -> list[str]:
    from hcep.classify.methods import METHODS

    names = [name.strip() for name in given.split(",") if name.strip()]
    for name in names:
        if name not in METHODS:
            raise HCEPError(
                f"--methods: no method {name!r}.{near_matches(name, METHODS)} There are {quoted(METHODS, 30)}"
            )
    return names


def _run(
    experiment: Experiment, given: Task | None, folder: Path, console: Console, *, skip: bool, **options: Any
) -> Records | None:
    """Run one experiment with a progress bar; under --all one whose data is not at hand is skipped with the reason."""
    from hcep.experiments.experiment import run

    if given is not None and not experiment.data:
        raise HCEPError(f"{experiment.name} makes its own data; leave --data out")
    try:
        tasks = [given] if given is not None else experiment.tasks(smoke=options["smoke"])
    except HCEPError as error:
        if not skip:
            raise
        console.print(f"[yellow]skipped[/] {experiment.name}: {escape(str(error))}", soft_wrap=True)
        return None
    if given is None and experiment.stand_in:
        console.print(
            f"[yellow]{experiment.name} on other data than the paper's[/]: {experiment.stand_in}, "
            f"{escape(', '.join(task.name for task in tasks if task))}; give the paper's with --data",
            soft_wrap=True,
        )
    for sentence in experiment.missing(tasks, smoke=options["smoke"]):
        console.print(f"[yellow]{experiment.name}[/]: {escape(sentence)}", soft_wrap=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task(experiment.name, total=None)

        def on_cell(what: str, done: int, total: int) -> None:
            progress.update(bar, description=f"{experiment.name}: {escape(what)}", completed=done, total=total)

        try:
            return run(experiment, tasks, folder, on_cell=on_cell, **options)
        except KeyboardInterrupt:
            console.print(f"stopped; finished cells are in {folder}, run the same command again to go on")
            raise typer.Exit(130) from None


def _known(names: list[str], experiments: dict[str, Experiment]) -> list[str]:
    """Experiments by name, or by the name of their stand-in."""
    by_name = {experiment.on_hand: name for name, experiment in experiments.items()} | {n: n for n in experiments}
    for name in names:
        if name not in by_name:
            raise HCEPError(f"no experiment {name!r}.{near_matches(name, by_name)} There are {quoted(by_name, 20)}")
    return list(dict.fromkeys(by_name[name] for name in names))


def _list(experiments: dict[str, Experiment], as_json: bool) -> None:
    if as_json:
        say(json.dumps({name: e.title for name, e in experiments.items()}, indent=2))
        return
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("experiment", "what", "in the paper", "without --data", "--smoke"):
        table.add_column(column, overflow="fold")
    for name, e in experiments.items():
        hand = e.stand_in or ", ".join(e.data) or "made by itself"
        table.add_row(name, e.title, e.paper.split(":")[0], hand, f"{e.smoke_seconds} s")
    Console().print(table)
    say("\nRun one with `hcep reproduce NAME`, all with `hcep reproduce --all`; `--smoke` takes seconds.")


def _given_task(
    data: Path,
    encoder: str | None,
    preprocessing: str | None,
    hierarchy: tuple[str | None, list[str] | None],
    results: Path,
) -> Task:
    """The user's data as a task; a folder of images is encoded into a store beside the results first."""
    from hcep.datasets import find_hierarchy
    from hcep.embeddings import is_store, read_embeddings
    from hcep.experiments.tasks import task_from_arrays
    from hcep.hierarchy import Hierarchy

    if encoder is not None and not is_store(data):
        data = _encoded(data, encoder, preprocessing, results)
    elif data.is_dir() and not is_store(data):
        raise HCEPError(f"{str(data)!r} is a folder of images: say with --encoder how to encode them")
    train = read_embeddings(data, _split(data, ("train",)))
    val = read_embeddings(data, _split(data, ("val", "validation", "test")))
    classes = sorted(set(train.y.tolist()))
    named, options = hierarchy
    found = find_hierarchy(named, classes, on_note=lambda note: say(note, err=True), **parsed(options))
    tree = found or Hierarchy.from_edges([("root", label) for label in classes])
    name = train.encoder.name if train.encoder else encoder or "unknown encoder"
    return task_from_arrays(data.name, name, tree, (train.X, train.y), (val.X, val.y), ids=train.ids)


def _split(data: Path, wanted: tuple[str, ...]) -> str:
    """The first of the wanted splits that the data has."""
    from hcep.embeddings import EmbeddingStore, is_store, read_arrays

    splits = EmbeddingStore(data).splits if is_store(data) else read_arrays(data).splits
    known = set() if splits is None else {str(split) for split in splits.tolist() if split is not None}
    found = next((split for split in wanted if split in known), None)
    if found is None:
        have = quoted(sorted(known)) if known else "none"
        raise HCEPError(f"{str(data)!r} must have a {wanted[0]} split (and train, val or test in all); it has {have}")
    return found


def _encoded(images: Path, encoder: str, preprocessing: str | None, results: Path) -> Path:
    from hcep.datasets import encode_images

    digest = sha256(f"{images.resolve()} {encoder} {preprocessing}".encode()).hexdigest()[:8]
    store = results / "stores" / f"{images.resolve().name}-{digest}"
    encode_images(images, encoder, store, preprocessing=preprocessing, progress=True)
    return store


def _report(experiment: Experiment, records: Records, folder: Path) -> dict[str, Any]:
    verdicts = experiment.verdicts(records.rows)
    return {
        "rows": len(records.rows),
        "folder": str(folder),
        "seconds": records.provenance.get("seconds"),
        "data": [d["name"] for d in records.provenance.get("data", [])],
        "skipped": records.provenance.get("skipped", {}),
        "verdicts": [{**asdict(verdict), "holds": verdict.holds} for verdict in verdicts],
    }


def _show(experiment: Experiment, records: Records, report: dict[str, Any]) -> None:
    from hcep.experiments.page import heading
    from hcep.experiments.readings import MARKS

    console = Console()
    title = escape(heading(experiment, records))
    console.print(f"[bold]{experiment.name}[/]: {title}; {report['rows']:,} rows, figure in {report['folder']}")
    for cell, reason in report["skipped"].items():
        console.print(f"  [yellow]skipped[/] {escape(cell)}: {escape(reason)}", soft_wrap=True)
    for verdict in report["verdicts"]:
        mark = f"[{STYLES[verdict['outcome']]}]{MARKS[verdict['outcome']]}[/]"
        source = " (as published)" if verdict["paper"] else ""
        text = f"{escape(verdict['claim'])}{source}: [dim]{escape(verdict['measured'])}[/]"
        console.print(f"  {mark} {text}", soft_wrap=True)
    if report["verdicts"]:
        console.print("  [dim]✓ better, ≈ tied (the paired 95 % interval contains 0), ✗ worse[/]")


def _write_pages(experiments: dict[str, Experiment], results: Path, page: Path | None, readme: Path | None) -> None:
    from hcep.experiments.page import MARK, results_page, with_tables

    if page is not None:
        if page.exists() and not page.read_text(encoding="utf-8").startswith(MARK):
            raise HCEPError(f"{str(page)!r} was not written by this command; nothing is overwritten")
        write_text(page, results_page(experiments, results, page))
        say(f"{page}: written from {results}")
    if readme is not None:
        write_text(readme, with_tables(readme.read_text(encoding="utf-8"), experiments, results))
        say(f"{readme}: tables filled from {results}")
