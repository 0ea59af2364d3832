"""Requests that come while others are worked on are answered together."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

from hcep.errors import HCEPError

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class ServerBusyError(HCEPError):
    """Too many requests are waiting; the same request may be sent again in `seconds`."""

    def __init__(self, seconds: int = 2) -> None:
        self.seconds = seconds
        super().__init__(f"the server is busy; try again in {seconds} seconds")


class Batcher(Generic[Item, Answer]):
    """A function of up to `size` items, called in a thread of its own with all that have come since its last call.

    At most `limit` items wait; `n_calls` and `n_items` say what was done so far.
    """

    def __init__(self, function: Callable[[list[Item]], Sequence[Answer]], size: int, limit: int) -> None:
        self.function, self.size, self.limit = function, size, limit
        self.n_calls = self.n_items = 0
        self._waiting: deque[tuple[Item, asyncio.Future[Answer]]] = deque()
        self._thread = ThreadPoolExecutor(1)
        self._task: asyncio.Task[None] | None = None

    async def __call__(self, item: Item) -> Answer:
        """The answer to one item; raises ServerBusyError, or what the function raises of this item alone."""
        if len(self._waiting) >= self.limit:
            raise ServerBusyError
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, answer))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._answer_all())
        return await answer

    def __len__(self) -> int:
        return len(self._waiting)

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _answer_all(self) -> None:
        while self._waiting:
            taken = [self._waiting.popleft() for _ in range(min(self.size, len(self._waiting)))]
            if batch := [one for one in taken if not one[1].done()]:  # who asked may have gone meanwhile
                await self._answer(batch)

    async def _answer(self, batch: list[tuple[Item, asyncio.Future[Answer]]]) -> None:
        self.n_calls, self.n_items = self.n_calls + 1, self.n_items + len(batch)
        items = [item for item, _ in batch]
        try:
            found = await asyncio.get_running_loop().run_in_executor(self._thread, self.function, items)
        except Exception as error:
            if len(batch) == 1 and not batch[0][1].done():
                batch[0][1].set_exception(error)
            for one in batch if len(batch) > 1 else ():  # a bad one harms nobody else
                await self._answer([one])
            return
        for (_, answer), value in zip(batch, found, strict=True):
            if not answer.done():
                answer.set_result(value)
