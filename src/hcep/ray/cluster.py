"""Run tasks on the actors of a Ray cluster with Ray Data: numbers and names go in, records come out.

Vectors stay on disk. An actor that dies is restarted with its tasks, perhaps on another machine. Therefore a task
writes each file whole, under the same name every time, and first checks whether the file exists.
"""

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from socket import create_connection
from typing import Any

from hcep._checks import require, require_positive
from hcep._files import not_writable
from hcep._progress import progress as progress_bar
from hcep.errors import HCEPError, MissingExtraError

#: The address of a cluster on this machine only.
HERE = "local"
#: Bytes that Ray may reserve on this machine; little data passes through it.
OBJECT_STORE = 200_000_000
#: Tasks per actor at a time: one that runs and one that waits, however many images there are.
IN_FLIGHT = 2

#: A function that an actor calls with a task; its result has the task's ``n_images``.
Work = Callable[[Mapping[str, Any]], Mapping[str, Any]]


@dataclass(frozen=True)
class Cluster:
    """A Ray cluster, and how to use it.

    Parameters
    ----------
    address : str, optional
        Address of the cluster's head (``host:6379``, or ``auto`` for one on this machine). By default the environment's
        ``RAY_ADDRESS``, or otherwise a cluster on this machine (``local``), which ends with the program.
    n_workers : number of actors; by default one per CPU of the cluster
    n_gpus : GPUs per actor
    progress : show a progress bar on this machine
    """

    address: str | None = None
    n_workers: int | None = None
    n_gpus: float = 0.0
    progress: bool = False

    def __post_init__(self) -> None:
        require_positive("n_workers", self.n_workers, "one per CPU")

    def connect(self) -> Any:
        """The module `ray`, connected to the cluster."""
        os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # its messages on the terminal help nobody
        ray = require("ray", "ray", "work on a cluster")
        require("ray.data", "ray", "work on a cluster")
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        ray.data.DataContext.get_current().enable_progress_bars = False
        if ray.is_initialized():
            return ray
        address = self.address or os.environ.get("RAY_ADDRESS") or HERE
        own = {"include_dashboard": False, "object_store_memory": OBJECT_STORE} if address == HERE else {}
        host, _, port = address.removeprefix("ray://").rpartition(":")
        try:
            if host:  # Ray itself would keep trying for minutes
                create_connection((host, int(port)), timeout=10).close()
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **own)
        except (OSError, ValueError, RuntimeError) as error:
            raise HCEPError(f"no Ray cluster at {address!r}: {str(error).splitlines()[0]}") from None
        return ray

    @property
    def n_actors(self) -> int:
        return self.n_workers or int(self.connect().cluster_resources().get("CPU", 1)) or 1

    def run(
        self, tasks: Sequence[Mapping[str, Any]], make: Callable[[], Work], description: str, n_images: int
    ) -> Iterator[dict[str, Any]]:
        """The results of tasks, in the order in which they end; each actor calls `make` once to get its function."""
        if not tasks:
            return
        data = self.connect().data
        pool = data.ActorPoolStrategy(size=min(self.n_actors, len(tasks)), max_tasks_in_flight_per_actor=IN_FLIGHT)
        items = data.from_items([dict(task) for task in tasks], override_num_blocks=len(tasks))
        options = {"batch_size": 1, "compute": pool, "num_cpus": 1, "num_gpus": self.n_gpus or None}
        with progress_bar(description, n_images, self.progress, "images", stays=True) as advance:
            for row in items.map_batches(_Actor, fn_constructor_args=(make,), **options).iter_rows():
                if row["error"]:
                    raise HCEPError(row["error"]) from (OSError(row["errno"], row["error"]) if row["errno"] else None)
                yield row
                advance(row["n_images"])


class _Actor:
    """Takes one task at a time, as a batch of Ray Data; an error in the input is a result, not a crash."""

    def __init__(self, make: Callable[[], Work]) -> None:
        self.make = cache(make)

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, list[Any]]:
        result: dict[str, Any] = {"error": "", "errno": 0}
        try:
            result |= self.make()({name: column[0] for name, column in batch.items()})
        except (HCEPError, MissingExtraError) as error:
            result |= {"error": str(error), "errno": not_writable(error)}
        return {name: [value] for name, value in result.items()}
