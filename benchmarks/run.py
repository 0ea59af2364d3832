"""Speed of the pursuit, as ratios inside one run.

    make bench          or          python benchmarks/run.py --images 20000

Every solver is warmed up, then timed in turns with the bare matrix product, so that a slow moment of the machine
hits both. The best of the turns counts.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

os.environ.setdefault("OMP_NUM_THREADS", "2")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "2")

from problem import Problem, make_problem
from solvers import BARE, SOLVERS, Run


@dataclass(frozen=True)
class Timing:
    """Seconds for a number of images, and for the bare product on all images in the same turns."""

    seconds: float
    n_images: int
    bare_seconds: float

    @property
    def speed(self) -> float:
        return self.n_images / self.seconds


def clock(run: Run) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def measure(problem: Problem, n_turns: int) -> dict[str, Timing]:
    bare = BARE.prepare(problem)
    timings: dict[str, Timing] = {}
    for solver in SOLVERS:
        reason = solver.skip()
        if reason:
            print(f"{solver.name:34} skipped: {reason}")
            continue
        run = solver.prepare(problem)
        run(), bare()
        pairs = [(clock(run), clock(bare)) for _ in range(n_turns)]
        n_images = solver.n_images or len(problem.X)
        timing = Timing(min(p[0] for p in pairs), n_images, min(p[1] for p in pairs))
        timings[solver.name] = timing
        full = timing.seconds * len(problem.X) / n_images
        print(f"{solver.name:34} {timing.speed:12,.0f} images/s {full / timing.bare_seconds:10.2f} × bare product")
    return timings


def verdicts(timings: dict[str, Timing]) -> list[tuple[str, float, Callable[[float], bool], str]]:
    """(what, ratio, whether it is good enough, the bound in words), for the peers that ran."""
    exact, beam, flat = (timings[name] for name in ("hb_omp, exact", "hb_omp, beam 32", "omp (flat)"))
    rows = [
        ("exact search / bare product, time", exact.seconds / exact.bare_seconds, lambda r: r <= 1.6, "at most 1.6"),
        ("beam 32 / bare product, time", beam.seconds / beam.bare_seconds, lambda r: r <= 3.0, "at most 3"),
    ]
    sklearn, spams = timings.get("scikit-learn orthogonal_mp_gram"), timings.get("SPAMS omp")
    if sklearn:
        rows.append(
            ("exact / scikit-learn's OMP, images/s", exact.speed / sklearn.speed, lambda r: r >= 100, "at least 100")
        )
    if spams:
        rows.append(("exact / SPAMS' OMP, images/s", exact.speed / spams.speed, lambda r: r > 2, "more than 2"))
        rows.append(
            ("our flat OMP / SPAMS' OMP, images/s", flat.speed / spams.speed, lambda r: r >= 0.5, "at least 0.5")
        )
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=20_000)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    problem = make_problem(options.images, n_threads=options.threads)
    basis = problem.dictionary.path_basis
    print(f"{problem.dictionary!r}")
    print(
        f"{len(problem.X):,} images, float32, {options.threads} threads, {problem.n_nonzero} atoms for flat OMP; "
        f"{len(basis.directions):,} distinct directions for {basis.tree.n_nodes - 1:,} nodes\n"
    )
    timings = measure(problem, options.turns)
    print()
    failed = 0
    for what, ratio, good, bound in verdicts(timings):
        failed += not good(ratio)
        print(f"{what:40} {ratio:8.2f}   {bound:12} {'ok' if good(ratio) else 'MISSED'}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
