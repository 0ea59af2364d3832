"""Compile on a second core, while the first run of the demo is busy, the kernels that it will need later."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import hcep.pursuit


def compile_ahead() -> subprocess.Popen[bytes] | None:
    """Start compiling into numba's cache, unless it is filled already or there is no second core."""
    if is_compiled() or len(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else [0, 0]) < 2:
        return None
    silent = subprocess.DEVNULL
    return subprocess.Popen([sys.executable, "-m", __name__], stdin=silent, stdout=silent, stderr=silent)


def is_compiled() -> bool:
    """Whether the beam's kernel is in numba's cache, beside the package or where NUMBA_CACHE_DIR says."""
    beside = Path(hcep.pursuit.__file__).parent / "__pycache__"
    cache = Path(os.environ.get("NUMBA_CACHE_DIR") or beside)
    return any(cache.rglob("beam.search_beam*.nbi"))


def main() -> None:
    """Run the searches once on two images of the sample, the longest compilation first."""
    from hcep.datasets import load_sample
    from hcep.dictionary import ConceptDictionary
    from hcep.pursuit import hb_omp, omp

    sample = load_sample()
    tree = sample.hierarchy.as_tree("first").collapse()
    dictionary = ConceptDictionary.from_images(tree, sample.X_train, sample.y_train)
    hb_omp(sample.X_val[:2], dictionary, beam_width=8)
    omp(sample.X_val[:2], dictionary)


if __name__ == "__main__":
    main()
