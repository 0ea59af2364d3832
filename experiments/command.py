"""The command line: choose experiments, run them with a progress bar, show the verdicts, write the results page."""

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from experiments import all_experiments
from experiments.baselines.methods import METHODS
from experiments.claims import MARKS
from experiments.experiment import Experiment, run
from experiments.files import write_text
from experiments.page import MARK, heading, results_page, with_tables
from experiments.records import Records
from experiments.tasks import Task, task_from_arrays
from hcep import Hierarchy, datasets, embeddings
from hcep.embeddings.files import is_store
from hcep.errors import HCEPError, MissingExtraError, near_matches, quoted

RESULTS, SMOKE = Path("experiments/results"), Path("experiments/smoke")
#: The default encoder for downloaded images: it needs no model hub.
BUILT_IN = "efficientnet-lite2"
COLOURS = {"better": "green", "tied": "yellow", "worse": "red"}
EXAMPLES = """\
[bold]Examples[/]

python -m experiments

python -m experiments beam-ablation --smoke

python -m experiments imagenette --data photos/ --encoder open_clip:ViT-L-14/openai

python -m experiments fewshot --download tiny-imagenet

python -m experiments fewshot --methods hcep

python -m experiments --all --page docs/results.md
"""
app = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)


def main() -> None:
    """Run the command; print an error about the input as one line and exit with code 2."""
    try:
        app(prog_name="python -m experiments")
    except (HCEPError, MissingExtraError, OSError) as error:
        _console(stderr=True).print(f"[bold red]error:[/] {escape(' '.join(str(error).split()))}", soft_wrap=True)
        sys.exit(2)


def _console(*, stderr: bool = False) -> Console:
    return Console(stderr=stderr, emoji=False, highlight=False)


@app.command(epilog=EXAMPLES)
def run_experiments(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Experiments to run.")] = None,
    *,
    everything: Annotated[
        bool, typer.Option("--all", help="Run every experiment, or those that are named, but for those without data.")
    ] = False,
    smoke: Annotated[bool, typer.Option("--smoke", help="Use short settings, to see that everything runs.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Measure everything again instead of resuming.")] = False,
    methods: Annotated[
        str | None, typer.Option(help="Measure only these methods again and keep the other rows, such as hcep,nn.")
    ] = None,
    shots: Annotated[str | None, typer.Option(help="Training images per class: a number, or `all`.")] = None,
    data: Annotated[Path | None, typer.Option(help="Your own embeddings, or a folder of images.")] = None,
    download: Annotated[
        str | None, typer.Option(metavar="DATASET", help="Public dataset to download (see `hcep data`).")
    ] = None,
    encoder: Annotated[
        str | None, typer.Option(help=f"Encoder for a folder of images (default for --download: {BUILT_IN}).")
    ] = None,
    hierarchy: Annotated[
        str | None, typer.Option(help="Hierarchy file, `imagenet`, `cifar100` or `flat` (default: by the classes).")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help=f"Folder for rows and figures (default: {RESULTS}).")
    ] = None,
    page: Annotated[Path | None, typer.Option(help="Write the results page, such as docs/results.md.")] = None,
    readme: Annotated[
        Path | None, typer.Option(help="Update the tables between `<!-- rows: NAME -->` marks in this file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
) -> None:
    """Run the paper's experiments. Without a name, list them.

    Each experiment writes its rows (JSON and Parquet), draws a figure (PNG and SVG) and reports which claims hold. A
    stopped run resumes where it stopped.

    Without --data, an experiment runs on the embeddings in the folder HCEP_SHARED (default: ../shared), or on the
    bundled sample. If these are not the paper's data, the experiment's name and title say so.
    """
    experiments = all_experiments.EXPERIMENTS
    results = output or (SMOKE if smoke else RESULTS)
    names_on_hand = {experiment.on_hand: name for name, experiment in experiments.items()}
    known = names_on_hand | {name: name for name in experiments}
    names = [name.replace("_", "-") for name in names or []]
    chosen = list(experiments) if everything and not names else _chosen(names, known, "no experiment")
    if not chosen and page is None and readme is None:
        _list(experiments, as_json)
        return
    if download is not None:
        if data is not None:
            raise HCEPError("--data and --download exclude each other; pass only one of them")
        data, encoder = datasets.fetch(download, progress=not as_json), encoder or BUILT_IN
    if data is None and (encoder or hierarchy):
        raise HCEPError("--encoder and --hierarchy describe your own data; pass it with --data")
    own_task = None if data is None else user_task(data, encoder, hierarchy, results)
    only = None
    if methods is not None:
        wanted = [name.strip() for name in methods.split(",") if name.strip()]
        only = _chosen(wanted, {name: name for name in METHODS}, "--methods: no method")
    if smoke and chosen and own_task is None:
        seconds = sum(experiments[name].smoke_seconds for name in chosen)
        _console(stderr=True).print(f"[dim]short settings: about {seconds} s on two idle cores[/]")
    reports = {}
    for name in chosen:
        experiment, folder = _placed(experiments[name], own_task, shots, results)
        options = {"smoke": smoke, "fresh": fresh, "methods": only}
        records = _run(experiment, own_task, folder, skip_without_data=everything, **options)
        if records is None:
            continue
        reports[name] = _report(experiment, records, folder)
        if not as_json:
            _show(experiment, records, reports[name])
    if as_json:
        typer.echo(json.dumps(reports, indent=2, ensure_ascii=False, default=str))
    _write_pages(experiments, results, page, readme)


def _chosen(names: Iterable[str], known: Mapping[str, str], problem: str) -> list[str]:
    """Look up each name once; an unknown name is an error."""
    for name in names:
        if name not in known:
            raise HCEPError(f"{problem} {name!r}.{near_matches(name, known)} There are {quoted(known, 30)}")
    return list(dict.fromkeys(known[name] for name in names))


def _placed(experiment: Experiment, own_task: Task | None, shots: str | None, results: Path) -> tuple[Experiment, Path]:
    """The experiment with the requested number of shots, and its folder.

    Other data and other numbers of shots get folders of their own, so that they never replace rows.
    """
    folder = results / (experiment.on_hand if own_task is None else experiment.name)
    if own_task is not None:
        folder /= f"{own_task.name}-{own_task.digest[:8]}"
    if shots is None:
        return experiment, folder
    if shots != "all" and not (shots.isdigit() and int(shots) > 0):
        raise HCEPError(f"--shots must be a positive number of images per class or `all`, got {shots!r}")
    changed = experiment.with_shots(None if shots == "all" else int(shots))
    return changed, folder if changed.config == experiment.config else folder / f"shots-{shots}"


def _run(
    experiment: Experiment, own_task: Task | None, folder: Path, *, skip_without_data: bool, **options: Any
) -> Records | None:
    """Run one experiment with a progress bar; with `--all`, skip it if its data are missing."""
    console = _console(stderr=True)
    if own_task is not None and not experiment.data:
        raise HCEPError(f"{experiment.name} generates its own data; leave --data out")
    try:
        tasks = [own_task] if own_task is not None else experiment.tasks(smoke=options["smoke"])
    except HCEPError as error:
        if not skip_without_data:
            raise
        console.print(f"[yellow]skipped[/] {experiment.name}: {escape(str(error))}", soft_wrap=True)
        return None
    if own_task is None and experiment.stand_in:
        names = escape(", ".join(task.name for task in tasks if task))
        message = f"[yellow]{experiment.name} does not run on the paper's data[/] but on {experiment.stand_in}, {names}"
        console.print(f"{message}; pass the paper's data with --data", soft_wrap=True)
    for sentence in experiment.missing(tasks, smoke=options["smoke"]):
        console.print(f"[yellow]{experiment.name}[/]: {escape(sentence)}", soft_wrap=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task(experiment.name, total=None)

        def on_cell(cell: str, done: int, total: int) -> None:
            progress.update(bar, description=f"{experiment.name}: {escape(cell)}", completed=done, total=total)

        try:
            return run(experiment, tasks, folder, on_cell=on_cell, **options)
        except KeyboardInterrupt:
            console.print(f"stopped; finished cells are in {folder}; run the same command again to resume")
            raise typer.Exit(130) from None


def user_task(data: Path, encoder: str | None, hierarchy: str | None, results: Path) -> Task:
    """The user's data as a task; a folder of images is first encoded into a store next to the results."""
    if encoder is not None and not is_store(data):
        digest = sha256(f"{data.resolve()} {encoder} None".encode()).hexdigest()[:8]
        store = results / "stores" / f"{data.resolve().name}-{digest}"
        datasets.encode_images(data, encoder, store, progress=True)
        data = store
    elif data.is_dir() and not is_store(data):
        raise HCEPError(f"{str(data)!r} is a folder of images; pass --encoder to encode them")
    train, val = (
        embeddings.read_embeddings(data, _split(data, wanted)) for wanted in (("train",), ("val", "validation", "test"))
    )
    classes = sorted(set(train.y.tolist()))
    note = _console(stderr=True).print
    tree = datasets.find_hierarchy(hierarchy, classes, on_note=lambda text: note(escape(text), soft_wrap=True))
    tree = tree or Hierarchy.from_edges([("root", label) for label in classes])
    name = train.encoder.name if train.encoder else encoder or "unknown encoder"
    return task_from_arrays(data.name, name, tree, (train.X, train.y), (val.X, val.y), ids=train.image_ids)


def _split(data: Path, wanted: tuple[str, ...]) -> str:
    """The first of the wanted splits that the data have."""
    read = embeddings.EmbeddingStore if is_store(data) else embeddings.read_embeddings
    splits = read(data).splits
    known = set() if splits is None else {str(split) for split in splits.tolist() if split is not None}
    for split in wanted:
        if split in known:
            return split
    have = quoted(sorted(known)) if known else "none"
    raise HCEPError(f"{str(data)!r} must have a train split and a val or test split; its splits: {have}")


def _list(experiments: Mapping[str, Experiment], as_json: bool) -> None:
    if as_json:
        titles = {name: experiment.title for name, experiment in experiments.items()}
        typer.echo(json.dumps(titles, indent=2, ensure_ascii=False))
        return
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for head in ("experiment", "title", "in the paper", "data without --data", "--smoke"):
        table.add_column(head, overflow="fold")
    for name, experiment in experiments.items():
        data = experiment.stand_in or ", ".join(experiment.data) or "generated"
        table.add_row(name, experiment.title, experiment.paper.split(":")[0], data, f"{experiment.smoke_seconds} s")
    console = _console()
    console.print(table)
    console.print("\nRun one with `python -m experiments NAME` and all of them with `python -m experiments --all`.")


def _report(experiment: Experiment, records: Records, folder: Path) -> dict[str, Any]:
    provenance, verdicts = records.provenance, experiment.verdicts(records.rows)
    return {
        "rows": len(records.rows),
        "folder": str(folder),
        "seconds": provenance.get("seconds"),
        "data": [data["name"] for data in provenance.get("data", [])],
        "skipped": provenance.get("skipped", {}),
        "verdicts": [{**asdict(verdict), "holds": verdict.holds} for verdict in verdicts],
    }


def _show(experiment: Experiment, records: Records, report: Mapping[str, Any]) -> None:
    console = _console()
    title = escape(heading(experiment, records))
    console.print(f"[bold]{experiment.name}[/]: {title}; {report['rows']:,} rows, figure in {report['folder']}")
    for cell, reason in report["skipped"].items():
        console.print(f"  [yellow]skipped[/] {escape(cell)}: {escape(reason)}", soft_wrap=True)
    for verdict in report["verdicts"]:
        mark = f"[{COLOURS[verdict['outcome']]}]{MARKS[verdict['outcome']]}[/]"
        source = " (as published)" if verdict["paper"] else ""
        console.print(
            f"  {mark} {escape(verdict['claim'])}{source}: [dim]{escape(verdict['measured'])}[/]", soft_wrap=True
        )
    if report["verdicts"]:
        console.print("  [dim]✓ better, ≈ tied (the paired 95 % interval contains 0), ✗ worse[/]")


def _write_pages(experiments: Mapping[str, Experiment], results: Path, page: Path | None, readme: Path | None) -> None:
    if page is not None:
        if page.exists() and not page.read_text(encoding="utf-8").startswith(MARK):
            raise HCEPError(f"--page: {str(page)!r} was not written by this command and is not overwritten")
        write_text(page, results_page(experiments, results, page))
        typer.echo(f"wrote {page} from {results}")
    if readme is not None:
        write_text(readme, with_tables(readme.read_text(encoding="utf-8"), experiments, results))
        typer.echo(f"updated the tables in {readme} from {results}")
