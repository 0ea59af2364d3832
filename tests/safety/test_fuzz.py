"""Hostile bytes through every reader, in a process of bounded memory; ``HCEP_FUZZ`` cases in all."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

#: Their shares of the cases.
SHARES = {"hierarchies": 0.4, "arrays": 0.25, "models": 0.15, "stores": 0.1, "config": 0.1}
N_CASES = int(os.environ.get("HCEP_FUZZ", "500"))
ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize("reader", SHARES)
def test_no_bytes_crash_a_reader(reader):
    start = int(time.time()) if N_CASES > 500 else 0  # the same cases in every run, new ones by `make fuzz`
    command = [sys.executable, "-m", "tests.safety.fuzz", reader, str(int(N_CASES * SHARES[reader])), str(start)]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=600 + N_CASES
    )
    assert done.returncode == 0, done.stderr[-4000:]
