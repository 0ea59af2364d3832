"""`hcep reproduce`: the paper's figures and tables, one command each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from hcep import datasets, embeddings
from hcep._escape import markup as escape
from hcep._files import write_text
from hcep.cli.console import Console, say, say_json, table_of
from hcep.cli.options import Json, ReaderOptions, argument, option, reader_options
from hcep.errors import HCEPError, near_matches, quoted

if TYPE_CHECKING:
    from experiments.experiment import Experiment
    from experiments.records import Records
    from experiments.tasks import Task

RESULTS, SMOKE = Path("experiments/results"), Path("experiments/smoke")
#: The encoder of what is fetched, where no other is said: it needs no model hub.
BUILT_IN = "efficientnet-lite2"
STYLES = {"better": "green", "tied": "yellow", "worse": "red"}


def reproduce(
    names: Annotated[list[str] | None, argument("Experiments; none lists them.", metavar="NAME")] = None,
    *,
    everything: Annotated[bool, option("Every experiment.", "--all")] = False,
    smoke: Annotated[bool, option("Short settings, to see that everything runs.")] = False,
    data: Annotated[Path | None, option("Your data: a store or file; with --encoder a folder of images.")] = None,
    download: Annotated[
        str | None, option("Public dataset to fetch, encode and run on; `hcep data` lists them.", metavar="DATASET")
    ] = None,
    encoder: Annotated[str | None, option(f"Of a folder of images; of --download {BUILT_IN} by default.")] = None,
    preprocessing: Annotated[str | None, option("What an ONNX file does not say (see hcep encode).")] = None,
    hierarchy: Annotated[str | None, option("File, `imagenet`, `cifar100`, or `flat`; found by the classes.")] = None,
    options: ReaderOptions = None,
    shots: Annotated[str | None, option("Training images per class, or `all`, where there is one number.")] = None,
    methods: Annotated[str | None, option("Measure these again, keep other rows: with commas, as hcep,nn.")] = None,
    output: Annotated[Path | None, option(f"Folder; {RESULTS} by default.", "--output", "-o")] = None,
    fresh: Annotated[bool, option("Measure everything anew instead of resuming.")] = False,
    page: Annotated[Path | None, option("Write the results page from the rows, such as docs/results.md.")] = None,
    readme: Annotated[Path | None, option("Fill the tables marked `<!-- rows: NAME -->` of a page.")] = None,
    as_json: Json = False,
) -> None:
    """Run the paper's experiments: rows (JSON, Parquet), a figure (PNG, SVG) and what holds of what is claimed.

    Without --data an experiment runs on embeddings at hand: those in the folder HCEP_SHARED names (default ../shared),
    or the bundled sample; where that is not the paper's data, name and title say so. A stopped run goes on where it
    was; each cell is measured once.
    """
    from experiments.all_experiments import EXPERIMENTS
    from hcep.classify.methods import METHODS

    results = output or (SMOKE if smoke else RESULTS)
    by_name = {experiment.on_hand: name for name, experiment in EXPERIMENTS.items()} | {n: n for n in EXPERIMENTS}
    chosen = list(EXPERIMENTS) if everything else _known(names or [], by_name, "no experiment")
    if not chosen and page is None and readme is None:
        _list(EXPERIMENTS, as_json)
        return
    if download is not None:
        if data is not None:
            raise HCEPError("--data and --download exclude each other; leave one out")
        data, encoder = datasets.fetch(download, progress=not as_json), encoder or BUILT_IN
    if data is None and (encoder or hierarchy):
        raise HCEPError("--encoder and --hierarchy belong to data of your own; say which with --data")
    given = None if data is None else _given_task(data, encoder, preprocessing, (hierarchy, options), results)
    only = None
    if methods is not None:
        wanted = [name.strip() for name in methods.split(",") if name.strip()]
        only = _known(wanted, {name: name for name in METHODS}, "--methods: no method")
    console, reports = Console(stderr=True), {}
    if smoke and chosen and given is None:
        seconds = sum(EXPERIMENTS[name].smoke_seconds for name in chosen)
        console.print(f"[dim]short settings: about {seconds} s on two idle cores[/]")
    for name in chosen:
        experiment, folder = _placed(EXPERIMENTS[name], given, shots, results)
        records = _run(experiment, given, folder, console, skip=everything, smoke=smoke, fresh=fresh, methods=only)
        if records is None:
            continue
        about, verdicts = records.provenance, experiment.verdicts(records.rows)
        reports[name] = {
            "rows": len(records.rows),
            "folder": str(folder),
            "seconds": about.get("seconds"),
            "data": [d["name"] for d in about.get("data", [])],
            "skipped": about.get("skipped", {}),
            "verdicts": [{**asdict(verdict), "holds": verdict.holds} for verdict in verdicts],
        }
        if not as_json:
            _show(experiment, records, reports[name])
    if as_json:
        say_json(reports)
    _write_pages(EXPERIMENTS, results, page, readme)


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


def _known(names: Iterable[str], known: Mapping[str, str], refusal: str) -> list[str]:
    """What the names stand for, each once; others are refused."""
    for name in (name for name in names if name not in known):
        raise HCEPError(f"{refusal} {name!r}.{near_matches(name, known)} There are {quoted(known, 30)}")
    return list(dict.fromkeys(known[name] for name in names))


def _run(
    experiment: Experiment, given: Task | None, folder: Path, console: Console, *, skip: bool, **options: Any
) -> Records | None:
    """Run one experiment with a progress bar; under --all one whose data is not at hand is skipped with the reason."""
    from experiments.experiment import run

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
        hand = f"{experiment.stand_in}, {escape(', '.join(task.name for task in tasks if task))}"
        told = f"[yellow]{experiment.name} on other data than the paper's[/]: {hand}; give the paper's with --data"
        console.print(told, soft_wrap=True)
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


def _list(experiments: dict[str, Experiment], as_json: bool) -> None:
    if as_json:
        say_json({name: e.title for name, e in experiments.items()})
        return
    heads = ("experiment", "what", "in the paper", "without --data", "--smoke")
    rows = []
    for name, e in experiments.items():
        hand = e.stand_in or ", ".join(e.data) or "made by itself"
        rows.append((name, e.title, e.paper.split(":")[0], hand, f"{e.smoke_seconds} s"))
    Console().print(table_of(heads, rows, n_left=len(heads)))
    say("\nRun one with `hcep reproduce NAME`, all with `hcep reproduce --all`; `--smoke` takes seconds.")


def _given_task(data: Path, encoder: str | None, preprocessing: str | None, hierarchy: Any, results: Path) -> Task:
    """The user's data as a task; a folder of images is encoded into a store beside the results first."""
    from experiments.tasks import task_from_arrays
    from hcep.hierarchy import Hierarchy

    if encoder is not None and not embeddings.is_store(data):
        digest = sha256(f"{data.resolve()} {encoder} {preprocessing}".encode()).hexdigest()[:8]
        store = results / "stores" / f"{data.resolve().name}-{digest}"
        datasets.encode_images(data, encoder, store, preprocessing=preprocessing, progress=True)
        data = store
    elif data.is_dir() and not embeddings.is_store(data):
        raise HCEPError(f"{str(data)!r} is a folder of images: say with --encoder how to encode them")
    train, val = (
        embeddings.read_embeddings(data, _split(data, wanted)) for wanted in (("train",), ("val", "validation", "test"))
    )
    classes = sorted(set(train.y.tolist()))
    named, options = hierarchy[0], reader_options(hierarchy[1])
    found = datasets.find_hierarchy(named, classes, on_note=partial(say, err=True), **options)
    tree = found or Hierarchy.from_edges([("root", label) for label in classes])
    name = train.encoder.name if train.encoder else encoder or "unknown encoder"
    return task_from_arrays(data.name, name, tree, (train.X, train.y), (val.X, val.y), ids=train.ids)


def _split(data: Path, wanted: tuple[str, ...]) -> str:
    """The first of the wanted splits that the data has."""
    read = embeddings.EmbeddingStore if embeddings.is_store(data) else embeddings.read_arrays
    splits = read(data).splits
    known = set() if splits is None else {str(split) for split in splits.tolist() if split is not None}
    found = next((split for split in wanted if split in known), None)
    if found is None:
        have = quoted(sorted(known)) if known else "none"
        raise HCEPError(f"{str(data)!r} must have a {wanted[0]} split (and train, val or test in all); it has {have}")
    return found


def _show(experiment: Experiment, records: Records, report: dict[str, Any]) -> None:
    from experiments.page import heading
    from experiments.readings import MARKS

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
    from experiments.page import MARK, results_page, with_tables

    if page is not None:
        if page.exists() and not page.read_text(encoding="utf-8").startswith(MARK):
            raise HCEPError(f"{str(page)!r} was not written by this command; nothing is overwritten")
        write_text(page, results_page(experiments, results, page))
        say(f"{page}: written from {results}")
    if readme is not None:
        write_text(readme, with_tables(readme.read_text(encoding="utf-8"), experiments, results))
        say(f"{readme}: tables filled from {results}")
