"""Progress on standard error: a bar and a spinner, hidden when output is not a terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Advance = Callable[[int], None]


@contextmanager
def progress(
    description: str, total: int, shown: bool = True, unit: str = "", stays: bool = False
) -> Iterator[Advance]:
    """Show a progress bar; the context gives a function that advances it by n of `total` steps.

    The speed is shown in `unit`, such as "images". A bar that `stays` is still shown when it is done, even in a log.
    Nothing is imported for a bar that is not `shown`.
    """
    if not shown or not total:
        yield lambda n: None
        return
    from rich import progress as bars
    from rich.console import Console
    from rich.text import Text

    class Rate(bars.ProgressColumn):
        def render(self, task: bars.Task) -> Text:
            seconds = task.finished_time or task.elapsed  # over all steps: the last ones come in bursts
            return Text(f"{task.completed / seconds:,.1f} {unit}/s" if seconds and unit else "")

    columns = (bars.TextColumn("{task.description}", markup=False), bars.BarColumn(), bars.MofNCompleteColumn(), Rate())
    console = Console(stderr=True)
    look: dict[str, Any] = {"console": console, "transient": not stays, "disable": not (stays or console.is_terminal)}
    with bars.Progress(*columns, bars.TimeRemainingColumn(), **look) as bar:
        task = bar.add_task(description, total=total)
        yield lambda n: bar.advance(task, n)


@contextmanager
def waiting(description: str, shown: bool = True) -> Iterator[None]:
    """Show a spinner while something of unknown length runs."""
    if not shown:
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(description):
        yield
