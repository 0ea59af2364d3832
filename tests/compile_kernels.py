"""Fill numba's cache in two processes, before tests run side by side and each process would compile for itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numba  # noqa: F401  (a few images are searched without a compiler where it is not loaded)
import numpy as np

import hcep
from hcep.pursuit import SearchOptions, search

PACKAGE = Path(hcep.__file__).parent
#: What each process compiles; they take about as long.
KERNELS = {
    "beam and flat": [
        "pursuit/searches.py",
        "pursuit/along_path.py",
        "pursuit/flat_kernel.py",
        "pursuit/several_kernel.py",
    ],
    "others": [
        "pursuit/folded.py",
        "classify/left_out_kernel.py",
    ],
}


def compile_kernels() -> None:
    """Compile those whose source is newer than the cache beside it; two at a time."""
    stale = [part for part, files in KERNELS.items() if not all(is_compiled(PACKAGE / file) for file in files)]
    running = [subprocess.Popen([sys.executable, __file__, part]) for part in stale]
    for process in running:
        process.wait()


def is_compiled(source: Path) -> bool:
    indices = (source.parent / "__pycache__").glob(f"{source.stem}.*.nbi")
    return any(index.stat().st_mtime >= source.stat().st_mtime for index in indices)


def main(part: str) -> None:
    """Run kernels on three classes and a few images, in both precisions."""
    rng = np.random.default_rng(0)
    y = np.repeat(["cat", "dog", "car"], 4)
    X = rng.standard_normal((12, 5)) + 4.0 * np.repeat(np.eye(3, 5), 4, axis=0)
    tree = hcep.Hierarchy.from_edges([("thing", "pet"), ("pet", "cat"), ("pet", "dog"), ("thing", "car")])
    d = hcep.ConceptDictionary.from_images(tree, X, y)
    for images in (X, X.astype(np.float32)):
        if part == "beam and flat":
            search(images, d, SearchOptions(beam_width=2), explained=True)
            hcep.omp(images, d)
            hcep.hb_omp(images, d, anchor=0.3, n_paths=2)
        else:
            hcep.hb_omp(images, d, beam_width=None)
            hcep.HCEPClassifier(tree).fit(images, y).predict_proba(images)


if __name__ == "__main__":
    main(sys.argv[1])
