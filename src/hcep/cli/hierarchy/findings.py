"""Findings, diffs and effects as text or JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.markup import escape

from hcep.cli.hierarchy.edits import effect_record, effect_table
from hcep.curation import Finding, diff
from hcep.errors import quoted
from hcep.hierarchy import Hierarchy

if TYPE_CHECKING:
    from hcep.curation.what_if import Effect

COLOURS = {"error": "red", "warning": "yellow", "note": "cyan", "-": "red", "+": "green", "~": "cyan", "=": "dim"}


def changes_of(findings: Sequence[Finding], before: Hierarchy, after: Hierarchy, apply: bool) -> list[str]:
    """The diff, with the rows of the file that the reader had to drop in front."""
    dropped = [f for f in findings if apply and f.safe and f.code in ("self-loop", "duplicate-edge")]
    return [*(f"- {f.code}, {example}" for f in dropped for example in f.examples), *diff(before, after)]


def print_json(
    findings: Sequence[Finding], changes: Sequence[str], effects: dict[str, Effect], written: Path | None
) -> None:
    record = {
        "findings": [_record(finding) for finding in findings],
        "diff": list(changes),
        "effects": {where: effect_record(effect) for where, effect in effects.items()},
        "output": None if written is None else str(written),
    }
    typer.echo(json.dumps(record, indent=2, ensure_ascii=False))


def _record(finding: Finding) -> dict[str, Any]:
    measured = getattr(finding, "measured", None)
    return {
        "severity": finding.severity,
        "code": finding.code,
        "message": finding.message,
        "synsets": finding.synsets,
        "fixes": [str(edit) for edit in finding.fixes],
        "safe": finding.safe,
        "examples": finding.examples,
        "effect": None if measured is None else effect_record(measured.effect),
    }


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
        text = f"{len(useless)} more: another parent is nearer, but the move does not help"
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
        console.print(effect_table(effect), soft_wrap=False)


def _print_finding(console: Console, finding: Finding) -> None:
    where = f"{finding.code}: {quoted(finding.synsets, 3)}" if finding.synsets else finding.code
    colour = COLOURS[finding.severity]
    console.print(f"[{colour}]{finding.severity}[/] {escape(finding.message)} [dim]({escape(where)})[/]")
    shown = finding.examples[:5] if finding.code != "cycle" else ()
    if shown:
        more = f" and {len(finding.examples) - len(shown):,} more" if len(finding.examples) > len(shown) else ""
        console.print(f"     [dim]{escape('; '.join(shown) + more)}[/]")
