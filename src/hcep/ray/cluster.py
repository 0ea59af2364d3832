"""Tasks on the actors of a Ray cluster, by Ray Data: numbers and names go in, records come out, vectors stay on disk.

An actor that dies is started again and its tasks with it, on another machine if need be. So whatever a task writes, it
writes whole, under a name of its own and the same every time, and looks first whether it is there already.
"""

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from socket import create_connection
from typing import Any

from hcep._checks import require, require_positive
from hcep._progress import progress as progress_bar
from hcep.errors import HCEPError, MissingExtraError

#: An address that stands for a cluster on this machine alone.
HERE = "local"
#: Bytes that Ray may set aside on this machine: what passes through it is small.
OBJECT_STORE = 200_000_000
#: Tasks an actor has at a time: one under way, one to go on with. No more are begun, whatever the number of images.
IN_FLIGHT = 2

#: What an actor calls with a task; it returns a mapping with the task's ``n_images``.
Work = Callable[[Mapping[str, Any]], Mapping[str, Any]]


@dataclass(frozen=True)
class Cluster:
    """Where work is done.

    Parameters
    ----------
    address : str, optional
        Of the cluster's head (``host:6379``; ``auto`` for one that runs on this machine). By default ``RAY_ADDRESS`` of
        the environment, or else a cluster on this machine alone (``local``), which ends with the program.
    n_workers : actors; as many as the cluster has CPUs by default
    n_gpus : of each actor
    progress : show a bar on this machine
    """

    address: str | None = None
    n_workers: int | None = None
    n_gpus: float = 0.0
    progress: bool = False

    def __post_init__(self) -> None:
        require_positive("n_workers", self.n_workers, "one per CPU")

    def connect(self) -> Any:
        """Ray, connected."""
        os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # else it writes on the terminal what only it can use
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
            if host:  # Ray itself would try for minutes
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
        """What becomes of each task, in the order in which they end; each actor calls `make` once for what it does."""
        if not tasks:
            return
        data = self.connect().data
        pool = data.ActorPoolStrategy(size=min(self.n_actors, len(tasks)), max_tasks_in_flight_per_actor=IN_FLIGHT)
        given = data.from_items([dict(task) for task in tasks], override_num_blocks=len(tasks))
        options = {"batch_size": 1, "compute": pool, "num_cpus": 1, "num_gpus": self.n_gpus or None}
        with progress_bar(description, n_images, self.progress, "images", stays=True) as advance:
            for row in given.map_batches(_Actor, fn_constructor_args=(make,), **options).iter_rows():
                if row["error"]:
                    raise HCEPError(row["error"])
                yield row
                advance(row["n_images"])


class _Actor:
    """Takes a task at a time, as Ray Data's batches of one. An error about the input is an answer, not a crash."""

    def __init__(self, make: Callable[[], Work]) -> None:
        self.make = cache(make)

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, list[Any]]:
        made: dict[str, Any] = {}
        error = ""
        try:
            made = dict(self.make()({name: column[0] for name, column in batch.items()}))
        except (HCEPError, MissingExtraError) as problem:
            error = str(problem)
        return {name: [value] for name, value in (made | {"error": error}).items()}
