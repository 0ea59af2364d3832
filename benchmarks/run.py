"""Measure our speed and that of other libraries, as ratios within one run.

    make bench          or          python benchmarks/run.py --images 20000 --turns 9
                                    python benchmarks/run.py --only predict --only tensors

For the pursuit, every solver is tried with each number of threads and uses the best one; the other areas (areas.py) use
as many as are allowed. All ways take turns, so that a slow moment of the machine affects all of them. Results are
medians, ratios are medians of the ratios of each turn, and the spread (slowest to fastest turn) is printed too. The
rows of the pursuit are written to experiments/results/bench, from which README's table is made, and everything
to bench.json in the same folder.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from areas import AREAS, Area
from numpy.typing import NDArray
from solvers import BARE, BEAM, EXACT, FLAT, SKLEARN, SOLVERS, SPAMS, Run, Solver
from speed_task import SpeedTask, make_task
from threadpoolctl import threadpool_limits

sys.path.append(str(Path(__file__).parents[1]))  # the folder `experiments` is not installed
from experiments.files import write_text
from experiments.records import Records

RESULTS = Path(__file__).parents[1] / "experiments" / "results" / "bench"
Times = dict[str, NDArray[np.float64]]


def clock(run: Run, threads: int) -> float:
    with threadpool_limits(threads):
        start = time.perf_counter()
        run()
        return time.perf_counter() - start


def best_threads(solver: Solver, task: SpeedTask, most: int) -> tuple[Run, int]:
    """Return the solver with the fastest number of threads in a short trial, after a run that compiles."""
    trials = []
    for threads in range(1, most + 1):
        run = solver.prepare(task, threads)
        clock(run, threads)
        trials.append((min(clock(run, threads) for _ in range(2)), threads, run))
    _, threads, run = min(trials, key=lambda trial: trial[:2])
    return run, threads


def measure(task: SpeedTask, n_turns: int, most: int) -> tuple[Times, dict[str, int]]:
    """Return the seconds per image of every solver in every turn, and its number of threads."""
    ready: dict[str, tuple[Run, int]] = {}
    for solver in SOLVERS:
        reason = solver.skip()
        if reason:
            print(f"{solver.name:34} skipped: {reason}")
        else:
            ready[solver.name] = best_threads(solver, task, most)
    turns = [[clock(*ready[name]) for name in ready] for _ in range(n_turns)]
    images = {solver.name: solver.n_images or len(task.X) for solver in SOLVERS}
    times = {name: seconds / images[name] for name, seconds in zip(ready, np.array(turns).T, strict=True)}
    return times, {name: threads for name, (_, threads) in ready.items()}


def ratios(times: Times) -> list[tuple[str, NDArray[np.float64], Callable[[float], bool], str]]:
    """Yield a name, its ratio in every turn, a test of the median, and the bound as text, for solvers that ran."""
    rows = [
        ("exact search / bare product, time", times[EXACT] / times[BARE], lambda r: r <= 1.6, "at most 1.6"),
        ("beam 32 / bare product, time", times[BEAM] / times[BARE], lambda r: r <= 3.0, "at most 3"),
    ]
    if SKLEARN in times:
        rows.append(
            ("exact / scikit-learn's OMP, images/s", times[SKLEARN] / times[EXACT], lambda r: r >= 100, "at least 100")
        )
    if SPAMS in times:
        rows.append(("exact / SPAMS' OMP, images/s", times[SPAMS] / times[EXACT], lambda r: r > 2, "more than 2"))
        rows.append(
            ("our flat OMP / SPAMS' OMP, images/s", times[SPAMS] / times[FLAT], lambda r: r >= 0.5, "at least 0.5")
        )
    return rows


def measure_area(area: Area, n_turns: int, threads: int) -> list[dict[str, Any]]:
    """Measure every way of an area in turns, and the ratio of our time to that of each other way."""
    reason = area.skip()
    if reason:
        print(f"{area.name:30} skipped: {reason}")
        return [{"area": area.name, "skipped": reason}]
    ready = {name: prepare() for name, prepare in area.ways.items()}
    for run in ready.values():
        run()  # compiles
    turns = np.array([[clock(run, threads) for run in ready.values()] for _ in range(n_turns)])
    times = dict(zip(ready, turns.T, strict=True))
    rows = []
    for name, own in times.items():
        ratio, goal = times[area.ours] / own, area.goals.get(name)
        middle = float(np.median(ratio))
        row = {"area": area.name, "way": name, "images_per_second": area.n_images / float(np.median(own))}
        row |= {"ratio": middle, "ratio_low": float(ratio.min()), "ratio_high": float(ratio.max())}
        row |= {"goal": goal, "ok": None if goal is None else middle <= goal, "turns": n_turns}
        rows.append(row)
        bound = "" if goal is None else f"at most {goal:.2f}  {'ok' if row['ok'] else 'MISSED'}"
        spread = f"{middle:7.2f} ({ratio.min():.2f} to {ratio.max():.2f})"
        speed = f"{row['images_per_second']:10,.0f} images/s"
        print(f"{area.name:30} {name:22} {speed}, ours takes {spread} × its time  {bound}")
    return rows


def saved(times: Times, threads: dict[str, int], options: argparse.Namespace, shape: str) -> None:
    """Write the rows of README's table."""
    records = Records(options.output, "bench")
    records.keep([])
    records.provenance = {"shape": shape, "machine": f"{platform.machine()}, {os.cpu_count()} cores", **vars(options)}
    records.provenance["output"] = options.output.name
    records.provenance.pop("only")
    rows = [
        {
            "label": f"`{name}`",
            "images_per_second": 1.0 / np.median(own),
            "speed_low": 1.0 / own.max(),
            "speed_high": 1.0 / own.min(),
            "bare_ratio": np.median(own / times[BARE]),
            "threads": threads[name],
            "turns": len(own),
        }
        for name, own in times.items()
    ]
    records.add("bench", rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=20_000)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2, help="maximum number of threads of a solver")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder for the rows")
    parser.add_argument("--only", action="append", help="part of an area's name, or `pursuit`; repeatable")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)  # for our threads, and for torch's

    def wanted(name: str) -> bool:
        return not options.only or any(part in name for part in options.only)

    failed, rows = measure_pursuit(options) if wanted("pursuit") else (0, [])
    for area in AREAS:
        rows += measure_area(area, options.turns, options.threads) if wanted(area.name) else []
    failed += sum(row.get("ok") is False for row in rows)
    facts = {"machine": f"{platform.machine()}, {os.cpu_count()} cores", "python": platform.python_version()}
    write_text(options.output / "bench.json", json.dumps({**facts, "rows": rows}, indent=1) + "\n")
    print(f"\n{options.output / 'bench.json'}")
    return int(failed > 0)


def measure_pursuit(options: argparse.Namespace) -> tuple[int, list[dict[str, Any]]]:
    """Measure the pursuit and other libraries; return the number of missed bounds, and the rows."""
    task = make_task(options.images)
    basis = task.dictionary.path_problem()
    shape = f"{len(task.X):,} images of {task.X.shape[1]} dimensions, float32; {task.n_nonzero} atoms for flat OMP; "
    shape += f"{len(basis.directions):,} distinct directions for {basis.tree.n_nodes - 1:,} nodes"
    print(f"{task.dictionary!r}\n{shape}; {options.turns} turns, 1 to {options.threads} threads\n")
    times, threads = measure(task, options.turns, options.threads)
    for name, own in times.items():
        speed, low, high = 1 / np.median(own), 1 / own.max(), 1 / own.min()
        print(
            f"{name:34} {speed:9,.0f} images/s ({low:,.0f} to {high:,.0f}), {threads[name]} threads, "
            f"{np.median(own / times[BARE]):7.2f} × bare product"
        )
    print()
    failed, rows = 0, []
    for what, found, good, bound in ratios(times):
        middle = float(np.median(found))
        failed += not good(middle)
        verdict = "ok" if good(middle) else "MISSED"
        print(f"{what:40} {middle:8.2f} ({found.min():.2f} to {found.max():.2f})   {bound:12} {verdict}")
        row = {"area": "pursuit", "way": what, "ratio": middle, "ratio_low": float(found.min())}
        rows.append(row | {"ratio_high": float(found.max()), "bound": bound, "turns": options.turns})
    print()
    saved(times, threads, options, shape)
    return failed, rows


if __name__ == "__main__":
    sys.exit(main())
