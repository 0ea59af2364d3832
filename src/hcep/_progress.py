"""Progress on standard error: a bar and a spinner, hidden when output is not a terminal; or told to a listener."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from typing import Any

Advance = Callable[[int], None]
#: Called with a description, the steps done and their total; a spinner has 0 of 1.
Listener = Callable[[str, int, int], object]
_LISTENER: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Tell a listener about all progress of this thread inside the context, whether it is shown or not."""
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)


@contextmanager
def progress(
    description: str, total: int, shown: bool = True, unit: str = "", stays: bool = False
) -> Iterator[Advance]:
    """Show a progress bar; the context gives a function that advances it by n of `total` steps.

    The speed is shown in `unit`, such as "images". A bar that `stays` is still shown when it is done, even in a log.
    Nothing is imported for a bar that is not `shown`.
    """
    listener, n_done = _LISTENER.get(), 0

    def tell(n: int) -> None:
        nonlocal n_done
        n_done += n
        if listener is not None:
            listener(description, n_done, total)

    if not shown or not total:
        yield tell
        return
    from rich import progress as bars
    from rich.console import Console
    from rich.text import Text

    class Rate(bars.ProgressColumn):
        def render(self, task: bars.Task) -> Text:
            seconds = task.finished_time or task.elapsed  # over all steps: the last ones come in bursts
            return Text(f"{task.completed / seconds:,.1f} {unit}/s" if seconds and unit else "")

    class Remaining(bars.ProgressColumn):
        def render(self, task: bars.Task) -> Text:
            if task.finished or not (task.completed and task.elapsed and task.total):
                return Text("" if task.finished else "-:--:--")
            seconds = task.elapsed * (task.total - task.completed) / task.completed
            return Text(str(timedelta(seconds=round(seconds))))

    columns = (bars.TextColumn("{task.description}", markup=False), bars.BarColumn(), bars.MofNCompleteColumn(), Rate())
    console = Console(stderr=True)
    look: dict[str, Any] = {"console": console, "transient": not stays, "disable": not (stays or console.is_terminal)}
    with bars.Progress(*columns, Remaining(), **look) as bar:
        task = bar.add_task(description, total=total)

        def advance(n: int) -> None:
            tell(n)
            bar.advance(task, n)

        yield advance


@contextmanager
def waiting(description: str, shown: bool = True) -> Iterator[None]:
    """Show a spinner while something of unknown length runs."""
    if (listener := _LISTENER.get()) is not None:
        listener(description, 0, 1)
    if not shown:
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(description):
        yield
