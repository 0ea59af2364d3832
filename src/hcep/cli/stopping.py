"""Ctrl-C: answered at once and obeyed within two seconds, whatever the command is busy with."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

from hcep._files import remove_unfinished

#: Seconds to end by itself, with what was done so far kept; then the process ends as it is. Outputs are written whole
#: or not at all, so the old one stays.
GRACE = 1.5


def answer_interrupts() -> None:
    """From now on, say that the command is stopping when it is asked to, and see that it does.

    Compiled code keeps Python from noticing a signal until it returns, so a thread of its own waits for it.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(reader,), daemon=True).start()


def _watch(reader: int) -> None:
    while os.read(reader, 1) != bytes([signal.SIGINT]):
        pass
    os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, b"\nstopping ...\n")
    time.sleep(GRACE)
    remove_unfinished()
    os._exit(130)
