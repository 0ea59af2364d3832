"""The one progress bar: on standard error, gone when done, silent where nobody looks."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Advance = Callable[[int], None]


@contextmanager
def progress(
    description: str, total: int, shown: bool = True, unit: str = "", stays: bool = False
) -> Iterator[Advance]:
    """Give a function that moves a bar on by n of `total` steps; one that is not `shown` costs nothing.

    The speed is shown in the `unit`, such as "images"; a bar that `stays` is left when done, in a log file too.
    """
    if not shown or not total:
        yield lambda n: None
        return
    from rich import progress as bars
    from rich.console import Console
    from rich.text import Text

    class Rate(bars.ProgressColumn):
        def render(self, task: bars.Task) -> Text:
            seconds = task.finished_time or task.elapsed  # of all: the last steps alone come in bursts
            return Text(f"{task.completed / seconds:,.1f} {unit}/s" if seconds and unit else "")

    columns = (bars.TextColumn("{task.description}", markup=False), bars.BarColumn(), bars.MofNCompleteColumn(), Rate())
    console = Console(stderr=True)
    look: dict[str, Any] = {"console": console, "transient": not stays, "disable": not (stays or console.is_terminal)}
    with bars.Progress(*columns, bars.TimeRemainingColumn(), **look) as bar:
        task = bar.add_task(description, total=total)
        yield lambda n: bar.advance(task, n)
