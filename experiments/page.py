"""The results page and README's tables: what came out beside what the paper reports, and what could not be run."""

import os
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from experiments.experiment import Experiment
from experiments.measuring import CONTROLS, labelled, method_cell
from experiments.quality import table as quality_table
from experiments.readings import MARKS, by_method, by_metric, counted
from experiments.records import TEXTS, Records, Row
from experiments.sparsity import BEAM, MAIN, full_depth
from hcep._tables import markdown
from hcep.errors import HCEPError, near_matches

MARK = "<!-- made by `hcep reproduce --page`; do not edit -->"
Done = list[tuple[Experiment, Records]]
WORDS = TEXTS["page"]


def results_page(experiments: Mapping[str, Experiment], results: Path, page: Path) -> str:
    """Markdown of the page, from the rows on disk; experiments without rows are listed as not run."""
    done = [(experiment, found) for experiment in experiments.values() for found in _found(experiment, results)]
    missing = [name for name in experiments if name not in {experiment.name for experiment, _ in done}]
    introduction = WORDS["introduction"].format(results=Path(os.path.relpath(results, page.parent.parent)).as_posix())
    parts = [
        *(MARK, "# Results", introduction, "## In short"),
        *(_summary(done), WORDS["how_to_read"], "## What could not be run here", _not_run(done, missing)),
        *(_section(experiment, records, os.path.relpath(records.folder, page.parent)) for experiment, records in done),
    ]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _found(experiment: Experiment, results: Path) -> list[Records]:
    """The rows of an experiment: on the data at hand, and one folder for every data set of the user's own."""
    places = [results / name for name in dict.fromkeys((experiment.on_hand, experiment.name))]
    folders = [place for own in places for place in (own, *sorted(file.parent for file in own.glob("*/rows.json")))]
    return [records for folder in folders if (records := Records(folder, experiment.name)).rows]


def heading(experiment: Experiment, records: Records) -> str:
    """The title with the data that really ran."""
    data = ", ".join(dict.fromkeys(d["name"] for d in records.provenance.get("data", [])))
    if not data or experiment.title.endswith(data):
        return experiment.title
    is_stand_in = experiment.stand_in and records.folder.name == experiment.stand_in
    return f"{experiment.title}, {data} standing in" if is_stand_in else f"{experiment.title} ({data})"


def _summary(done: Done) -> str:
    lines = []
    for experiment, records in done:
        verdicts = experiment.verdicts(records.rows)
        title = heading(experiment, records)
        counts = (counted(v for v in verdicts if v.paper is paper) for paper in (True, False))
        name = experiment.on_hand if records.folder.name == experiment.on_hand else experiment.name
        anchor = "".join(c for c in title.lower() if c.isalnum() or c in " -").replace(" ", "-")
        lines.append((f"[`{name}`](#{anchor})", *counts, experiment.short))
    return markdown(("experiment", "the paper's claims", "ours", "how we read it"), lines)


def _not_run(done: Done, missing: list[str]) -> str:
    notes: dict[str, list[str]] = {}
    skipped = []
    for experiment, records in done:
        for data in (data for data in records.provenance.get("data", []) if data["note"]):
            note = f"{data['name']}, {data['encoder']}: {data['note']}"
            notes.setdefault(note, []).append(f"`{experiment.on_hand}`")
        left = records.provenance.get("skipped", {})
        skipped += [f"- `{experiment.name}`, {cell}: {reason}" for cell, reason in left.items()]
    lines = [f"- {note} ({', '.join(dict.fromkeys(names))})" for note, names in notes.items()]
    return "\n".join([*lines, *(f"- `{name}` was not run" for name in missing), *skipped, WORDS["paper_setting"]])


def _section(experiment: Experiment, records: Records, folder: str) -> str:
    rows, provenance, title = records.rows, records.provenance, heading(experiment, records)
    verdicts = [
        f"- {MARKS[v.outcome]} {v.claim}{' (as published)' if v.paper else ''}: {v.measured}"
        for v in experiment.verdicts(rows)
    ]
    config = {k: ", ".join(map(str, v)) if isinstance(v, list) else v for k, v in provenance.get("config", {}).items()}
    settings = ", ".join(f"{name} {value}" for name, value in config.items())
    data = "; ".join(
        f"{d['name']} by {d['encoder']}, {d['n_train']:,} training and {d['n_val']:,} validation images, "
        f"{d['hierarchy']}, data {d['digest']}"
        for d in provenance.get("data", [])
    )
    versions = ", ".join(f"{name} {v}" for name, v in provenance.get("versions", {}).items() if v)
    parts = [
        f"## {title}",
        f"`hcep reproduce {experiment.name}`. {experiment.question}",
        f"**The paper:** {experiment.paper}",
        f"![{title}]({Path(folder).as_posix()}/figure.png)",
        f"**How we read it:** {experiment.reading}" if experiment.reading else "",
        experiment.table(rows),
        "<details><summary>Every claim</summary>\n\n" + "\n".join(verdicts) + "\n\n</details>" if verdicts else "",
        f"<details><summary>Settings</summary>\n\n{settings}.\n\n{data}\n\n{versions}; "
        f"{provenance.get('machine')}; {provenance.get('seconds')} s in all.\n\n</details>",
    ]
    return "\n\n".join(part for part in parts if part.strip())


#: Begin and end of a table in another page: `<!-- rows: NAME -->` … `<!-- end of rows -->`.
TABLE_MARKS = re.compile(r"(<!-- rows: ([\w-]+) -->\n)(.*?)(<!-- end of rows -->)", re.DOTALL)


def with_tables(text: str, experiments: Mapping[str, Experiment], results: Path) -> str:
    """A page with every marked table made anew from the rows on disk."""

    def made(found: re.Match[str]) -> str:
        name = found[2]
        if name not in TABLES:
            raise HCEPError(f"no table {name!r}.{near_matches(name, TABLES)} There are {', '.join(TABLES)}")
        experiment, table = TABLES[name]
        folder = results / (experiments[experiment].on_hand if experiment in experiments else experiment)
        rows = Records(folder, experiment).rows
        if not rows:
            raise HCEPError(f"table {name!r}: no rows in {str(folder)!r}; run hcep reproduce {experiment}")
        return f"{found[1]}{table(rows)}{found[4]}"

    return TABLE_MARKS.sub(made, text)


#: The methods of a short table of few shots.
IN_SHORT = ("omp", "hnn", "cbm", "nn", "hb-omp", *CONTROLS, "hcep")


def _fewshot_table(rows: list[Row], data: str) -> str:
    wanted = [labelled(method_cell(name, BEAM)) for name in IN_SHORT]
    chosen = [r for label in wanted for r in rows if r["data"] == data and r["label"] == label]
    return by_method(chosen, "shots", MAIN)


def _bench_table(rows: list[Row]) -> str:
    heads = ("", "images/s", "slowest to fastest", "time, as a multiple of the bare `X @ Q.T`", "threads")
    lines = []
    for r in rows:
        speeds = (f"{r['images_per_second']:,.0f}", f"{r['speed_low']:,.0f} to {r['speed_high']:,.0f}")
        lines.append((r["label"], *speeds, f"{r['bare_ratio']:.2f}", str(r["threads"])))
    return markdown(heads, lines)


#: Tables that other pages may hold: the experiment whose rows they are, and how they are drawn.
TABLES: dict[str, tuple[str, Callable[[list[Row]], str]]] = {
    "sample": ("sample", lambda rows: by_metric(full_depth(rows), MAIN)),
    "fewshot-tiny-imagenet": ("fewshot", partial(_fewshot_table, data="Tiny-ImageNet-200")),
    "fewshot-imagenette": ("fewshot", partial(_fewshot_table, data="ImageNette")),
    "bench": ("bench", _bench_table),
    "quality": ("quality", quality_table),
}
