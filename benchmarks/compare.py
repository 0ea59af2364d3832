"""Compare our speed with another revision on this machine; fails if the median is more than 15 % slower.

    python benchmarks/compare.py main          compares the working copy with the revision `main`

Each revision runs in its own process, from its own checkout, with the tasks of this folder: first once to compile, then
in turns. The ratios of the turns are compared, so that a slow moment of the machine affects both.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).parent
#: The largest allowed ratio of the new time to the old one.
LIMIT = 1.15


def ours() -> dict[str, Callable[[], Callable[[], object]]]:
    """Return our part of every area that can run, and of the pursuit."""
    from areas import AREAS
    from solvers import BEAM, EXACT, FLAT, SOLVERS
    from speed_task import make_task

    found = {area.name: area.ways[area.ours] for area in AREAS if area.skip() is None}
    for solver in (one for one in SOLVERS if one.name in (EXACT, BEAM, FLAT)):
        found[solver.name] = lambda solver=solver: solver.prepare(make_task(4000), 1)
    return found


def serve() -> None:
    """Answer each name on standard input with seconds, or with the reason why it cannot run."""
    runs: dict[str, Callable[[], object]] = {}
    for line in sys.stdin:
        name = line.strip()
        try:
            if name not in runs:
                runs[name] = ours()[name]()
                runs[name]()  # compiles
            start = time.perf_counter()
            runs[name]()
            answer: object = time.perf_counter() - start
        except Exception as error:  # a revision may not have it
            answer = f"{type(error).__name__}: {error}"
        print(json.dumps(answer), file=sys.__stdout__, flush=True)


class Revision:
    """Start a process that measures one checkout."""

    def __init__(self, source: Path) -> None:
        environment = dict(os.environ, PYTHONPATH=f"{source}{os.pathsep}{HERE}")
        command = [sys.executable, str(HERE / "compare.py"), "--serve"]
        self.process = subprocess.Popen(
            command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def seconds(self, name: str) -> float | str:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(name + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()


def judge(before: list[float], after: list[float], limit: float = LIMIT) -> tuple[float, float, float, bool]:
    """Return the median, smallest and largest ratio of the turns, and whether the change is too slow."""
    ratios = sorted(b / a for a, b in zip(before, after, strict=True))
    middle = ratios[len(ratios) // 2] if len(ratios) % 2 else sum(ratios[len(ratios) // 2 - 1 :][:2]) / 2
    return middle, ratios[0], ratios[-1], middle > limit


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revision", nargs="?", default="HEAD", help="revision to compare the working copy with")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--only", action="append", help="part of a name; repeatable")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve()
        return 0
    names = [n for n in ours() if not options.only or any(part in n for part in options.only)]
    too_slow = 0
    with TemporaryDirectory(prefix="hcep-before-") as folder:
        git = ["git", "-C", str(HERE.parent)]
        subprocess.run([*git, "worktree", "add", "--quiet", "--detach", folder, options.revision], check=True)
        try:
            revisions = Revision(Path(folder, "src")), Revision(HERE.parent / "src")
            for name in names:
                turns = [[one.seconds(name) for one in revisions] for _ in range(options.turns)]
                odd = [answer for turn in turns for answer in turn if isinstance(answer, str)]
                if odd:
                    print(f"{name:34} not compared: {odd[0]}")
                    continue
                middle, low, high, slow = judge(*map(list, zip(*turns, strict=True)))
                too_slow += slow
                print(f"{name:34} {middle:6.2f} × before ({low:.2f} to {high:.2f})  {'TOO SLOW' if slow else 'ok'}")
            for one in revisions:
                one.close()
        finally:
            subprocess.run([*git, "worktree", "remove", "--force", folder], check=True)
    return int(too_slow > 0)


if __name__ == "__main__":
    sys.exit(main())
