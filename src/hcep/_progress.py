"""The one progress bar: on standard error, gone when done, silent where nobody looks."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[int], None]


@contextmanager
def progress(
    description: str, total: int, shown: bool = True, unit: str = "", stays: bool = False
) -> Iterator[Advance]:
    """Give a function that moves a bar on by n steps.

    Parameters
    ----------
    description : what is under way
    total : number of steps
    shown : False draws nothing, and costs nothing
    unit : such as "images": the speed is shown in it
    stays : leave the finished bar where it is, in a log file too

    Examples
    --------
    >>> from hcep._progress import progress
    >>> with progress("adding", 3, shown=False) as advance:
    ...     advance(1)
    """
    if not shown or not total:
        yield lambda n: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeRemainingColumn as Eta,
    )
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            seconds = task.finished_time or task.elapsed  # of all: the last steps alone come in bursts
            return Text(f"{task.completed / seconds:,.1f} {unit}/s" if seconds and unit else "")

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), Rate(), Eta())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=not stays, disable=not (stays or console.is_terminal)) as bar:
        task = bar.add_task(description, total=total)
        yield lambda n: bar.advance(task, n)
