"""The results page: what was run, what came out beside what the paper reports, and what could not be run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from hcep.experiments.experiment import Experiment, Verdict
from hcep.experiments.records import Records
from hcep.experiments.tables import markdown

MARK = "<!-- made by `hcep reproduce --page`; do not edit -->"
Done = list[tuple[Experiment, Records]]
INTRODUCTION = """\
Every figure and table of the paper, by one command each: `hcep reproduce NAME`. This page is drawn from the rows under
`{results}` alone (`hcep reproduce --page`), which also hold seeds, versions and hashes of the data. Intervals are
95 %: over seeds where there are several (t distribution of the mean), else over validation images (percentile
bootstrap). The paper prints its results as curves without numbers, so they are compared in words.

Read with care: the encoder at hand, EfficientNet-Lite2, was trained on ImageNet's classes. ImageNette and Tiny-ImageNet
exercise the method with it; they show which method recovers more of what an embedding holds, not how well a model would
do on classes its encoder never saw.
"""


def results_page(experiments: Mapping[str, Experiment], results: Path, page: Path) -> str:
    """Markdown of the page, from the rows on disk; experiments without rows are listed as not run."""
    done = [(experiment, found) for experiment in experiments.values() for found in _found(experiment, results)]
    parts = [MARK, "# Results", INTRODUCTION.format(results=_relative(results, page.parent.parent)), "## In short"]
    parts.append(_summary(done))
    missing = [name for name in experiments if name not in {experiment.name for experiment, _ in done}]
    parts += ["## What could not be run here", _not_run(done, missing)]
    for experiment, records in done:
        parts.append(_section(experiment, records, _relative(records.folder, page.parent)))
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _found(experiment: Experiment, results: Path) -> list[Records]:
    """The rows of an experiment: on the data at hand, and one folder for every data set of the user's own."""
    folders = [
        results / experiment.name,
        *sorted(file.parent for file in (results / experiment.name).glob("*/rows.json")),
    ]
    return [records for folder in folders if (records := Records(folder, experiment.name)).rows]


def _summary(done: Done) -> str:
    lines = []
    for experiment, records in done:
        verdicts = experiment.verdicts(records.rows)
        held = sum(verdict.holds for verdict in verdicts)
        lines.append((f"[`{experiment.name}`](#{_anchor(experiment.title)})", experiment.paper, _gap(verdicts, held)))
    return markdown(("experiment", "the paper reports", "we measure"), lines)


def _gap(verdicts: list[Verdict], held: int) -> str:
    """The gap in words: how many claims hold, and each that does not."""
    text = f"{held} of {len(verdicts)} claims hold"
    failed = [f"**not:** {verdict.claim} ({verdict.measured})" for verdict in verdicts if not verdict.holds]
    if failed:
        return "; ".join([text, *failed])
    return f"{text}; {verdicts[0].claim}: {verdicts[0].measured}" if verdicts else "see the table"


def _not_run(done: Done, missing: list[str]) -> str:
    notes: dict[str, list[str]] = {}
    for experiment, records in done:
        for data in records.provenance.get("data", []):
            if data["note"]:
                notes.setdefault(f"{data['name']}, {data['encoder']}: {data['note']}", []).append(
                    f"`{experiment.name}`"
                )
    lines = [f"- {note} ({', '.join(dict.fromkeys(names))})" for note, names in notes.items()]
    lines += [f"- `{name}` was not run" for name in missing]
    lines += [
        f"- `{experiment.name}`, {cell}: {reason}"
        for experiment, records in done
        for cell, reason in records.provenance.get("skipped", {}).items()
    ]
    lines.append(
        "- With the data, the paper's setting is the same command: "
        "`hcep reproduce imagenet --data imagenet/ --encoder open_clip:ViT-L-14/openai`, and for the second encoder "
        "`hcep reproduce siglip --data imagenet/ --encoder open_clip:ViT-B-16-SigLIP/webli`."
    )
    return "\n".join(lines)


def _section(experiment: Experiment, records: Records, folder: str) -> str:
    rows, provenance = records.rows, records.provenance
    verdicts = [
        f"- {'✓' if verdict.holds else '✗'} {verdict.claim}: {verdict.measured}"
        for verdict in experiment.verdicts(rows)
    ]
    settings = ", ".join(f"{name} {_setting(value)}" for name, value in provenance.get("config", {}).items())
    data = "; ".join(
        f"{d['name']} by {d['encoder']}, {d['n_train']:,} training and {d['n_val']:,} validation images, "
        f"{d['hierarchy']}, data {d['digest']}"
        for d in provenance.get("data", [])
    )
    versions = ", ".join(f"{name} {v}" for name, v in provenance.get("versions", {}).items() if v)
    parts = [
        f"## {experiment.title}",
        f"`hcep reproduce {experiment.name}`. {experiment.question}",
        f"**The paper:** {experiment.paper}",
        f"![{experiment.title}]({folder}/figure.png)",
        "\n".join(verdicts),
        f"**How we read it:** {experiment.reading}" if experiment.reading else "",
        experiment.table(rows),
        f"<details><summary>Settings</summary>\n\n{settings}.\n\n{data}\n\n{versions}; "
        f"{provenance.get('machine')}; {provenance.get('seconds')} s in all.\n\n</details>",
    ]
    return "\n\n".join(part for part in parts if part.strip())


def _setting(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _anchor(title: str) -> str:
    kept = [c for c in title.lower() if c.isalnum() or c in " -"]
    return "".join(kept).replace(" ", "-")


def _relative(path: Path, start: Path) -> str:
    return Path(os.path.relpath(path, start)).as_posix()
