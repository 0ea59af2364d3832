"""Count the calls of functions while some code runs: work that is to be done once."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType


@contextmanager
def counting(functions: Mapping[str, tuple[str, str]]) -> Iterator[Counter[str]]:
    """Count calls, also those of threads that are started meanwhile.

    Parameters
    ----------
    functions : by what a call is counted as, the end of the function's file below hcep/ and its qualified name
    """
    counts: Counter[str] = Counter()

    def look(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            for what, (file, name) in functions.items():
                if frame.f_code.co_qualname == name and frame.f_code.co_filename.endswith(f"hcep/{file}"):
                    counts[what] += 1

    sys.setprofile(look)
    threading.setprofile(look)
    try:
        yield counts
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
