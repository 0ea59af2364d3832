"""What `lint` and `edit` share: labels and images to measure on; findings, changes and effects as text or JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from hcep._escape import markup as escape
from hcep.cli.console import Console, say
from hcep.cli.data_options import show_notes
from hcep.curation import Finding
from hcep.errors import HCEPError, quoted
from hcep.hierarchy import Hierarchy

if TYPE_CHECKING:
    from hcep.curation.what_if import Effect
    from hcep.embeddings import Embeddings

Data = Annotated[
    Path | None, typer.Option("--embeddings", help="Labelled embeddings or photos, in any form that `hcep fit` takes.")
]
Classes = Annotated[
    Path | None, typer.Option(help="Text file with the data's labels, one per line; the leaves by default.")
]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="File to write the changed hierarchy to.")]

COLOURS = {"error": "red", "warning": "yellow", "note": "cyan", "-": "red", "+": "green", "~": "cyan", "=": "dim"}
#: What the metrics are called in a terminal.
METRICS = {
    "accuracy": "accuracy",
    "support_precision": "support precision",
    "support_recall": "support recall",
    "support_f1": "support F1",
    "f1_above_chance": "support F1 above chance",
    "class_f1_before": "class F1 in the hierarchy before",
}


def labels_in(file: Path | None) -> list[str] | None:
    """The labels of --classes."""
    if file is None:
        return None
    try:
        return [line.strip() for line in file.read_text("utf-8-sig").splitlines() if line.strip()]
    except UnicodeDecodeError as error:
        raise HCEPError(
            f"--classes: {str(file)!r} is not text in UTF-8 ({error}); expected one label per line"
        ) from None


def labelled(place: Path, split: str | None, default: str = "train", **parts: Any) -> Embeddings:
    """Images with labels, in any form that `hcep fit` takes; `parts` are --vectors, --label and --labels."""
    from hcep.datasets import embeddings_of

    data = embeddings_of(place, split, default_split=default, **parts)
    show_notes(data.notes)
    _ = data.y  # says what is missing
    return data


def print_json(
    findings: Sequence[Finding], changes: Sequence[str], effects: dict[str, Effect], written: Path | None
) -> None:
    record = {
        "findings": [_record(finding) for finding in findings],
        "diff": list(changes),
        "effects": {where: _effect_record(effect) for where, effect in effects.items()},
        "output": None if written is None else str(written),
    }
    say(json.dumps(record, indent=2, ensure_ascii=False))


def _record(finding: Finding) -> dict[str, Any]:
    own = {key: value for key, value in vars(finding).items() if key != "measured"}
    measured = getattr(finding, "measured", None)
    effect = None if measured is None else _effect_record(measured.effect)
    return own | {"fixes": list(map(str, finding.fixes)), "effect": effect}


def _effect_record(effect: Effect) -> dict[str, Any]:
    return {name: change._asdict() for name, change in effect.metrics.items()}


def print_report(
    findings: Sequence[Finding],
    hierarchy: Hierarchy | None,
    changes: Sequence[str],
    effects: dict[str, Effect],
    repairing: bool,
) -> None:
    console = Console(soft_wrap=True, highlight=False)
    useless = [f for f in findings if f.severity == "note" and getattr(f, "measured", None) is not None]
    for finding in findings:
        if finding not in useless:
            _print_finding(console, finding)
    if useless:
        text = f"{len(useless)} more: another parent is nearer in this encoder's space, without a clear gain"
        console.print(f"[cyan]note[/] {text} [dim](nearer-parent: --json lists them)[/]")
    if findings or not repairing:
        of = "not a hierarchy" if hierarchy is None else repr(hierarchy)
        console.print(f"{escape(of)}: {len(findings) or 'no'} finding{'' if len(findings) == 1 else 's'}")
    for line in changes:
        console.print(f"[{COLOURS[line[0]]}]{escape(line)}[/]")
    if repairing and not changes and hierarchy is not None:
        console.print("nothing to change")
    for where, effect in effects.items():
        console.print(f"\non {escape(where)}:")
        console.print(_effect_table(effect), soft_wrap=False)


def _print_finding(console: Console, finding: Finding) -> None:
    where = f"{finding.code}: {quoted(finding.synsets, 3)}" if finding.synsets else finding.code
    colour = COLOURS[finding.severity]
    console.print(f"[{colour}]{finding.severity}[/] {escape(finding.message)} [dim]({escape(where)})[/]")
    shown = finding.examples[:5] if finding.code != "cycle" else ()
    if shown:
        more = f" and {len(finding.examples) - len(shown):,} more" if len(finding.examples) > len(shown) else ""
        console.print(f"     [dim]{escape('; '.join(shown) + more)}[/]")


def _effect_table(effect: Effect) -> Table:
    """Metrics before and after, with the paired difference and its standard error."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("", "before", "after", "difference", "± s.e."):
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
    for name, change in effect.metrics.items():
        difference = f"{change.difference:+.4f}"
        table.add_row(METRICS[name], f"{change.before:.4f}", f"{change.after:.4f}", difference, f"{change.error:.4f}")
    return table
