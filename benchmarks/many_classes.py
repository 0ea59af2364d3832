"""Measure time and memory of a fit to many classes with the defaults, each in its own process.

    python benchmarks/many_classes.py                 1,000, 5,000 and 20,000 classes, 5 images each, 512 dimensions
    python benchmarks/many_classes.py 20000           one of them

The images and the tree are random (see areas.py). A fit to 20 classes compiles the kernels before the clock starts. It
fails if 20,000 classes take more than 90 s or 4 GB.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time

PER_CLASS = 5
SECONDS, GIGABYTES = 90.0, 4.0


def measure(n_classes: int) -> None:
    from areas import problem

    from hcep import HCEPClassifier

    tree, X, y = problem(20, PER_CLASS)
    HCEPClassifier(tree).fit(X, y)
    tree, X, y = problem(n_classes, PER_CLASS)
    start, busy = time.perf_counter(), time.process_time()
    HCEPClassifier(tree).fit(X, y)
    wall, busy = time.perf_counter() - start, time.process_time() - busy
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    text = (
        f"{n_classes:6,} classes, {len(X):7,} images: {wall:6.1f} s ({busy:.1f} s of processor time), {memory:.2f} GB"
    )
    print(text, flush=True)
    if n_classes >= 20_000 and (wall > SECONDS or memory > GIGABYTES):
        sys.exit(f"more than {SECONDS:.0f} s or {GIGABYTES:.0f} GB")


def main() -> int:
    sizes = sys.argv[1:] or ["1000", "5000", "20000"]
    if len(sizes) == 1:
        measure(int(sizes[0]))
        return 0
    return max(subprocess.run([sys.executable, __file__, size]).returncode for size in sizes)


if __name__ == "__main__":
    sys.exit(main())
