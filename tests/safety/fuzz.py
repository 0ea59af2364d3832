"""Hostile bytes through every reader; run as a program: ``python -m tests.safety.fuzz READER N_CASES [SEED]``.

Each case is a valid file with pieces cut, repeated, flipped or replaced, or bytes of no meaning at all. It must be
read, or refused by one of the package's own errors in a short message, within `SECONDS` and `BYTES` of memory. A case
that fails is kept in the folder `cases`, which a test reads again in every run.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import signal
import sys
import tempfile
import time
from pathlib import Path

import pyarrow
from hypothesis import HealthCheck, Phase, given, seed, settings, strategies as st

from hcep.errors import HCEPError, MissingExtraError
from tests.safety.reading import READERS, Reader

#: Limits of a case: seconds, bytes of memory besides those of the imports, characters of a message.
SECONDS, BYTES, MESSAGE = 10, 1 << 30, 1_000
CASES = Path(__file__).with_name("cases")

TOKENS = (b"9" * 5000, b"[" * 3000, b"\x00", b"\xff\xfe", b"\x1b[2J", b"-1", b"1e999", b"NaN", b"../../x", b"\n", b'"')
TOKENS += (b" " * 20_000, b":" * 20_000, b"''" * 5_000, b"'a''b'," * 40, b"a > " * 3_000, b"\t" * 9_000, b"{" * 9_000)
TOKENS += (b"x" * 5_000, b",,,,", b"<" * 5_000, b'<!DOCTYPE x [<!ENTITY a "b">]>', b"&a;" * 100, b"[]", b"{}", b"null")


@st.composite
def damaged(draw: st.DrawFn, valid: dict[str, bytes]) -> tuple[str, bytes]:
    """A kind of file and bytes that may be anything, most of the time nearly valid."""
    kind = draw(st.sampled_from(sorted(valid)))
    data = bytearray(draw(st.binary(max_size=200)) if draw(st.integers(0, 9)) == 0 else valid[kind])
    for _ in range(draw(st.integers(1, 4))):
        at, n = draw(st.integers(0, len(data))), draw(st.integers(0, 40))
        how = draw(st.integers(0, 4))
        piece = bytes(data[at : at + n])
        if how == 0:
            data[at : at + n] = b""
        elif how == 1:
            data[at:at] = piece * draw(st.sampled_from([1, 2, 50, 2000]))
        elif how == 2:
            data[at : at + n] = draw(st.binary(max_size=n + 4))
        elif how == 3:
            data[at:at] = draw(st.sampled_from(TOKENS))
        elif at < len(data):
            data[at] ^= 1 << draw(st.integers(0, 7))
    return kind, bytes(data)


class TooSlowError(BaseException):
    """A case takes too long; not an Exception, which a reader might take for a problem of the file."""


def too_slow(*_: object) -> None:
    raise TooSlowError(f"not read within {SECONDS} s")


def judge(read: Reader, kind: str, data: bytes) -> None:
    """Give a reader one case; raises an error unless it is read or refused as it should be."""
    pyarrow.allocate_buffer(1 << 16)  # on its first use, Arrow reserves 1 GB of addresses, which is no memory
    with tempfile.TemporaryDirectory() as folder, open("/proc/self/statm") as memory:
        before, most = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (int(memory.read().split()[0]) * resource.getpagesize() + BYTES, most))
        # Seconds of this process, so that other work on the machine does not count; and a case that only waits.
        signal.signal(signal.SIGPROF, too_slow)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        signal.signal(signal.SIGALRM, too_slow)
        signal.alarm(30 * SECONDS)
        start = time.process_time()
        try:
            messages = list(read(Path(folder), kind, data))
        except (HCEPError, MissingExtraError) as error:
            messages = [str(error)]
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.alarm(0)
            resource.setrlimit(resource.RLIMIT_AS, (before, most))
    if time.process_time() - start > SECONDS or any("needs more memory" in message for message in messages):
        raise ValueError(f"it took {time.process_time() - start:.1f} s, or more than {BYTES:,} bytes: {messages}")
    long = [message for message in messages if len(message.replace(folder, "")) > MESSAGE]
    if long:
        raise ValueError(f"a message of {len(long[0]):,} characters: {long[0]}")


def fuzz(name: str, n_cases: int, start: int) -> None:
    """Give a reader hostile bytes; a case that it neither reads nor refuses is kept, and its error is raised."""
    make, read = READERS[name]
    valid = make()
    failed: list[tuple[str, bytes]] = []

    @seed(start)
    @settings(
        max_examples=n_cases,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(damaged(valid))
    def case(made: tuple[str, bytes]) -> None:
        try:
            judge(read, *made)
        except BaseException:
            failed.append(made)
            raise

    try:
        case()
    except BaseException as error:
        kind, data = failed[-1]  # the smallest
        CASES.mkdir(exist_ok=True)
        kept = CASES / f"{name}--{hashlib.sha256(data).hexdigest()[:8]}--{kind}"
        kept.write_bytes(data)
        error.add_note(f"seed {start}; the case is kept as {kept}: add it to the repository with the fix")
        raise


if __name__ == "__main__":
    os.environ.setdefault("HCEP_CACHE", tempfile.mkdtemp())
    fuzz(sys.argv[1], int(sys.argv[2]), int((sys.argv[3:] or ["0"])[0]))
    print(json.dumps({"reader": sys.argv[1], "cases": int(sys.argv[2])}))
