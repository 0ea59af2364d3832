"""Processes killed at random moments: one harness for whatever writes."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

# What is slow to import and prepare is done once; each run is a fork of that, begun when it prints its number.
_SERVER = """
import os, sys
exec(sys.argv[1])
while sys.stdin.readline():
    child = os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        work()
        os._exit(0)
    print(child, flush=True)
    sys.stdin.readline()
    status = os.waitpid(child, 0)[1]
    print("killed" if os.WIFSIGNALED(status) else "done" if status == 0 else "failed", flush=True)
"""


def kill_at_random(
    code: str, arguments: Sequence[object], check: Callable[[], None], *, n_kills: int, longest: float, seed: int = 0
) -> int:
    """Kill work `n_kills` times at random moments, and `check` what is left each time.

    `code` prepares and defines ``work()``; the arguments are in ``sys.argv[2:]``. A run that is done before it is to be
    killed, up to `longest` seconds after it began, does not count. Returns the number of runs.
    """
    rng, n_runs, most = random.Random(seed), 0, 20 * n_kills
    command = [sys.executable, "-c", _SERVER, code, *map(str, arguments)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        while n_kills:
            n_runs += 1
            server.stdin.write("run\n")
            server.stdin.flush()
            child = int(server.stdout.readline())
            time.sleep(rng.uniform(0, longest))
            os.kill(child, signal.SIGKILL)  # its number is its own until the server waits for it, which is now
            server.stdin.write("reap\n")
            server.stdin.flush()
            outcome = server.stdout.readline().strip()
            assert outcome in ("killed", "done")
            n_kills -= outcome == "killed"
            check()
            assert n_runs < most, "it is nearly always done before it is killed"
    return n_runs
