"""Progress bars: what a person reads while something runs."""

import time

from rich.console import Console

from hcep._progress import progress


def test_the_time_left_follows_the_average_and_not_the_last_burst(monkeypatch):
    """Two batches that end together must not make a person believe that the rest takes no time."""
    screen, now = Console(force_terminal=True, width=120, record=True), [0.0]
    monkeypatch.setattr("rich.console.Console", lambda **_: screen)
    monkeypatch.setattr(screen, "get_time", lambda: now[0])
    with screen.capture() as shown, progress("encoding", 300, unit="images", stays=True) as advance:
        for seconds in (100.0, 100.1):
            now[0] = seconds
            advance(64)
        time.sleep(0.3)  # the bar is drawn ten times a second
    assert "128/300" in shown.get()
    assert "0:02:15" in shown.get()
