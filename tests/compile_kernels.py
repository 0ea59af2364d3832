"""Fill numba's cache in two processes, before tests run side by side and each process would compile for itself."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np

import hcep
from hcep.pursuit import SearchOptions, search, search_several
from hcep.pursuit.compiled import kernel_folder
from hcep.pursuit.search import FEW

#: What the two processes compile; they take about as long.
PARTS = ("beam and flat", "others")


def compile_kernels() -> None:
    """Compile what has not been compiled for this checkout and the present state of the sources; two at a time."""
    running = [subprocess.Popen([sys.executable, __file__, part]) for part in PARTS if not stamp(part).exists()]
    for process in running:
        process.wait()


def stamp(part: str) -> Path:
    """A file that says that a part is compiled."""
    package = hashlib.sha256(hcep.__file__.encode()).hexdigest()[:8]
    return kernel_folder() / f"{package}-{part.replace(' ', '-')}"


def main(part: str) -> None:
    """Run kernels on three classes of images, in both precisions."""
    rng = np.random.default_rng(0)
    y = np.repeat(["cat", "dog", "car"], 4)
    X = rng.standard_normal((12, 5)) + 4.0 * np.repeat(np.eye(3, 5), 4, axis=0)
    X, y = np.tile(X, (FEW, 1)), np.tile(y, FEW)  # more than few, which need no compiler
    tree = hcep.Hierarchy.from_edges([("thing", "pet"), ("pet", "cat"), ("pet", "dog"), ("thing", "car")])
    d = hcep.ConceptDictionary.from_images(tree, X, y)
    for images in (X, X.astype(np.float32)):
        if part == "beam and flat":
            search(images, d, SearchOptions(beam_width=2))
            search(images, d, SearchOptions(beam_width=None), n_best=2)
            hcep.omp(images, d)
            search_several(images, d, SearchOptions(anchor=0.3), 2)
        else:
            hcep.hb_omp(images, d, beam_width=None)
            hcep.HCEPClassifier(tree).fit(images, y).predict_proba(images)
    stamp(part).touch()


if __name__ == "__main__":
    main(sys.argv[1])
