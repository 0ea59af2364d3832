"""Compiled kernels are cached on disk, but not used after one of their sources has changed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hcep
from hcep.pursuit import compiled

PACKAGE = Path(hcep.__file__).parent
#: Two leaves that tie exactly, because they are the two children of one parent and the signed rule is off.
TIE = """
import numpy as np
from hcep import ConceptDictionary, Hierarchy, hb_omp
from hcep.pursuit.search import FEW
h = Hierarchy.from_edges([("r", "a"), ("r", "b")])
d = ConceptDictionary.from_leaf_embeddings(h, {"a": [1.0, 0], "b": [-1.0, 0]})
print(hb_omp(np.ones((FEW + 1, 2)), d, beam_width=None, n_best=2).paths[0][0])
"""


def answer_of(package: Path, cache: Path) -> str:
    environment = os.environ | {"PYTHONPATH": str(package.parent), "HCEP_CACHE": str(cache)}
    environment.pop("NUMBA_CACHE_DIR", None)
    run = subprocess.run(
        [sys.executable, "-c", TIE], capture_output=True, text=True, check=True, env=environment, cwd=cache
    )
    return run.stdout.strip()


@pytest.mark.slow
def test_editing_a_function_that_kernels_of_other_files_call_takes_effect(tmp_path):
    package, cache = tmp_path / "src" / "hcep", tmp_path / "cache"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    cache.mkdir()
    assert answer_of(package, cache) == "a"
    source = package / "pursuit" / "compiled.py"
    before = source.read_text(encoding="utf-8")
    reversed_tie = before.replace("score_a == score_b and node_a < node_b", "score_a == score_b and node_a > node_b")
    assert reversed_tie != before
    source.write_text(reversed_tie, encoding="utf-8")
    assert answer_of(package, cache) == "b"
    assert len(list((cache / "kernels").iterdir())) == 2


def test_the_cache_depends_on_every_file_with_a_kernel():
    counted = compiled.kernel_sources(PACKAGE)
    marked = [
        file
        for file in PACKAGE.rglob("*.py")
        if any(line.startswith(("@kernel", "@piece", "@summing", "@njit")) for line in file.read_text().splitlines())
    ]
    assert marked
    assert set(marked) <= set(counted)


def test_kernels_work_without_a_writable_cache(monkeypatch):
    monkeypatch.setattr(compiled, "_CACHED", False)
    double = compiled.kernel(lambda x: 2.0 * x)
    np.testing.assert_array_equal(double(np.ones(3)), 2.0)


def test_cache_folders_are_removed_after_two_months(tmp_path):
    old, recent = tmp_path / ("0" * 16), tmp_path / ("1" * 16)
    for folder in (old, recent):
        folder.mkdir()
    os.utime(old, (0, 0))
    assert compiled._writable(tmp_path / ("2" * 16))
    assert sorted(folder.name[0] for folder in tmp_path.iterdir()) == ["1", "2"]
