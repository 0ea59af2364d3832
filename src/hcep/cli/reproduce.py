"""`hcep reproduce`: the paper's figures and tables, one command each."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from hcep.errors import HCEPError, near_matches, quoted

if TYPE_CHECKING:
    from hcep.experiments.experiment import Experiment
    from hcep.experiments.problem import Problem
    from hcep.experiments.records import Records

RESULTS, SMOKE = Path("experiments/results"), Path("experiments/smoke")


def reproduce(
    names: Annotated[list[str] | None, typer.Argument(help="Experiments; none lists them.", metavar="NAME")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every experiment.")] = False,
    smoke: Annotated[bool, typer.Option(help="Settings that take seconds, to see that everything runs.")] = False,
    data: Annotated[
        Path | None,
        typer.Option(help="Your data: a store, an .npz or .parquet file, or with --encoder a folder of images."),
    ] = None,
    encoder: Annotated[
        str | None, typer.Option(help="Encoder of a folder of images, such as open_clip:ViT-L-14/openai.")
    ] = None,
    preprocessing: Annotated[str | None, typer.Option(help="What an ONNX file does not say (see hcep encode).")] = None,
    hierarchy: Annotated[
        str | None, typer.Option(help="Hierarchy file, `imagenet`, `cifar100`, or `flat`; found by the classes.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help=f"Folder; {RESULTS} by default.")] = None,
    fresh: Annotated[bool, typer.Option(help="Measure everything anew instead of resuming.")] = False,
    page: Annotated[
        Path | None, typer.Option(help="Write the results page from the rows on disk, such as docs/results.md.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print verdicts as JSON and nothing else.")] = False,
) -> None:
    """Run the paper's experiments: rows (JSON, Parquet), a figure (PNG, SVG) and what holds of what is claimed.

    Without --data an experiment runs on embeddings at hand: those in the folder HCEP_SHARED names (default ../shared),
    or the bundled sample. A stopped run goes on where it was; each cell is measured once.

    [bold]Examples[/]

      hcep reproduce                                   [dim]# list the experiments[/]

      hcep reproduce synthetic

      hcep reproduce imagenette --data photos/ --encoder open_clip:ViT-L-14/openai

      hcep reproduce fewshot --data store/ --hierarchy animals.csv

      hcep reproduce --all --smoke
    """
    from hcep.experiments.all_experiments import EXPERIMENTS

    results = output or (SMOKE if smoke else RESULTS)
    chosen = list(EXPERIMENTS) if everything else _known(names or [], EXPERIMENTS)
    if not chosen and page is None:
        _list(EXPERIMENTS, as_json)
        return
    given = _given_problem(data, encoder, preprocessing, hierarchy, results) if data is not None else None
    if data is None and (encoder or hierarchy):
        raise HCEPError("--encoder and --hierarchy belong to data of your own; say which with --data")
    console = Console(stderr=True)
    reports: dict[str, Any] = {}
    for name in chosen:
        experiment = EXPERIMENTS[name]
        # A folder of its own for the user's data: rows of other data stay.
        folder = results / name / f"{given.name}-{given.digest[:8]}" if given is not None else results / name
        records = _run(experiment, given, folder, smoke, fresh, console, skip=everything)
        if records is not None:
            reports[name] = _report(experiment, records, folder)
            if not as_json:
                _show(experiment, reports[name])
    if as_json:
        typer.echo(json.dumps(reports, indent=2, ensure_ascii=False))
    if page is not None:
        _write_page(EXPERIMENTS, results, page)


def _run(
    experiment: Experiment,
    given: Problem | None,
    folder: Path,
    smoke: bool,
    fresh: bool,
    console: Console,
    skip: bool,
) -> Records | None:
    """Run one experiment with a progress bar; under --all one whose data is not at hand is skipped with the reason."""
    from hcep.experiments.experiment import run

    if given is not None and not experiment.data:
        raise HCEPError(f"{experiment.name} makes its own data; leave --data out")
    try:
        problems = [given] if given is not None else experiment.problems(smoke=smoke)
    except HCEPError as error:
        if not skip:
            raise
        console.print(f"[yellow]skipped[/] {experiment.name}: {escape(str(error))}", soft_wrap=True)
        return None
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(experiment.name, total=None)

        def on_cell(what: str, done: int, total: int) -> None:
            progress.update(task, description=f"{experiment.name}: {escape(what)}", completed=done, total=total)

        try:
            return run(experiment, problems, folder, smoke=smoke, fresh=fresh, on_cell=on_cell)
        except KeyboardInterrupt:
            console.print(f"stopped; finished cells are in {folder}, run the same command again to go on")
            raise typer.Exit(130) from None


def _known(names: list[str], experiments: dict[str, Experiment]) -> list[str]:
    for name in names:
        if name not in experiments:
            raise HCEPError(
                f"no experiment {name!r}.{near_matches(name, experiments)} There are {quoted(experiments, 20)}"
            )
    return list(dict.fromkeys(names))


def _list(experiments: dict[str, Experiment], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({name: e.title for name, e in experiments.items()}, indent=2))
        return
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("experiment", "what", "in the paper"):
        table.add_column(column, overflow="fold")
    for name, experiment in experiments.items():
        table.add_row(name, experiment.title, experiment.paper.split(":")[0])
    Console().print(table)
    typer.echo("\nRun one with `hcep reproduce NAME`, all with `hcep reproduce --all`; `--smoke` takes seconds.")


def _given_problem(
    data: Path, encoder: str | None, preprocessing: str | None, hierarchy: str | None, results: Path
) -> Problem:
    """The user's data as a problem; a folder of images is encoded into a store beside the results first."""
    from hcep.cli.inputs import is_store, read_embeddings
    from hcep.experiments.problem import problem_from_arrays

    if encoder is not None and not is_store(data):
        data = _encoded(data, encoder, preprocessing, results)
    elif data.is_dir() and not is_store(data):
        raise HCEPError(f"{str(data)!r} is a folder of images: say with --encoder how to encode them")
    train = read_embeddings(data, _split(data, ("train",)))
    val = read_embeddings(data, _split(data, ("val", "validation", "test")))
    name = train.encoder.name if train.encoder else encoder or "unknown encoder"
    return problem_from_arrays(
        data.name,
        name,
        _hierarchy(hierarchy, sorted(set(train.y.tolist()))),
        (train.X, train.y),
        (val.X, val.y),
        ids=train.ids,
    )


def _split(data: Path, wanted: tuple[str, ...]) -> str:
    """The first of the wanted splits that the data has."""
    from hcep.cli.inputs import is_store
    from hcep.embeddings import EmbeddingStore, read_arrays

    splits = EmbeddingStore(data).splits if is_store(data) else read_arrays(data).splits
    known = set() if splits is None else {str(split) for split in splits.tolist() if split is not None}
    found = next((split for split in wanted if split in known), None)
    if found is None:
        have = quoted(sorted(known)) if known else "none"
        raise HCEPError(f"{str(data)!r} must have a {wanted[0]} split (and train, val or test in all); it has {have}")
    return found


def _encoded(images: Path, encoder: str, preprocessing: str | None, results: Path) -> Path:
    from hcep.cli.inputs import image_items, load_named_encoder
    from hcep.datasets import read_images
    from hcep.embeddings import encode_to_store

    dataset = read_images(images)
    digest = sha256(f"{images.resolve()} {encoder} {preprocessing}".encode()).hexdigest()[:8]
    store = results / "stores" / f"{images.resolve().name}-{digest}"
    store.mkdir(parents=True, exist_ok=True)
    model = load_named_encoder(encoder, preprocessing)
    encode_to_store(image_items(dataset, store / "images"), model, store, progress=True)
    return store


def _hierarchy(wanted: str | None, classes: list[str]) -> Any:
    from hcep.cli.inputs import find_hierarchy
    from hcep.datasets import cifar10_hierarchy, cifar100_hierarchy
    from hcep.hierarchy import Hierarchy

    own = {"cifar100": cifar100_hierarchy, "cifar10": cifar10_hierarchy}
    if wanted in own:
        return own[wanted]()
    if wanted is None:
        fitting = next((h for make in own.values() if set(classes) <= set((h := make()).leaves)), None)
        if fitting is not None:
            return fitting
    found = find_hierarchy(wanted, classes)
    return found if found is not None else Hierarchy.from_edges([("root", label) for label in classes])


def _report(experiment: Experiment, records: Records, folder: Path) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "rows": len(records.rows),
        "folder": str(folder),
        "seconds": records.provenance.get("seconds"),
        "data": [d["name"] for d in records.provenance.get("data", [])],
        "skipped": records.provenance.get("skipped", {}),
        "verdicts": [asdict(verdict) for verdict in experiment.verdicts(records.rows)],
    }


def _show(experiment: Experiment, report: dict[str, Any]) -> None:
    console = Console()
    of = f" on {', '.join(report['data'])}" if report["data"] else ""
    console.print(f"[bold]{experiment.name}[/]{escape(of)}: {report['rows']:,} rows, figure in {report['folder']}")
    for cell, reason in report["skipped"].items():
        console.print(f"  [yellow]skipped[/] {escape(cell)}: {escape(reason)}", soft_wrap=True)
    for verdict in report["verdicts"]:
        mark = "[green]✓[/]" if verdict["holds"] else "[red]✗[/]"
        console.print(f"  {mark} {escape(verdict['claim'])}: [dim]{escape(verdict['measured'])}[/]", soft_wrap=True)


def _write_page(experiments: dict[str, Experiment], results: Path, page: Path) -> None:
    from hcep.cli.outputs import write_text
    from hcep.experiments.page import MARK, results_page

    if page.exists() and not page.read_text(encoding="utf-8").startswith(MARK):
        raise HCEPError(f"{str(page)!r} was not written by this command; nothing is overwritten")
    write_text(page, results_page(experiments, results, page))
    typer.echo(f"{page}: written from {results}")
