"""Hostile bytes through every reader, with another seed in every run; ``HCEP_FUZZ`` cases in all in `make test-all`.

``HCEP_FUZZ_SEED`` repeats a run: the header of the tests has its number, as has a failure.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.safety.fuzz import CASES, fuzz, judge
from tests.safety.reading import READERS

#: Their shares of the cases.
SHARES = {"hierarchies": 0.3, "arrays": 0.15, "models": 0.05, "stores": 0.05, "config": 0.05}
SHARES |= {"annotations": 0.15, "scores": 0.15, "lists": 0.1}
N_CASES = int(os.environ.get("HCEP_FUZZ", "500"))
SEED = int(os.environ["HCEP_FUZZ_SEED"])
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("reader", SHARES)
def test_a_few_new_cases_crash_no_reader(reader):
    fuzz(reader, 8, SEED)


@pytest.mark.slow
@pytest.mark.parametrize("reader", SHARES)
def test_no_bytes_crash_a_reader(reader):
    command = [sys.executable, "-m", "tests.safety.fuzz", reader, str(int(N_CASES * SHARES[reader])), str(SEED)]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=600 + N_CASES
    )
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.parametrize("kept", sorted(path.name for path in CASES.iterdir()))
def test_cases_that_failed_once_are_read_or_refused(kept):
    reader, _, kind = kept.split("--")
    judge(READERS[reader][1], kind, (CASES / kept).read_bytes())
