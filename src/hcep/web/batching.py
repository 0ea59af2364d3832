"""Answer requests together if they arrive while others are being worked on."""

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

    seconds = 2

    def __init__(self) -> None:
        super().__init__(f"the server is busy; try again in {self.seconds} seconds")


class Batcher(Generic[Item, Answer]):
    """Call a function of up to `size` items in its own thread, each time with the items that arrived meanwhile.

    At most `limit` items wait; `n_calls` and `n_items` count the work done.
    """

    def __init__(self, function: Callable[[list[Item]], Sequence[Answer]], size: int, limit: int) -> None:
        self.function, self.size, self.limit = function, size, limit
        self.n_calls = self.n_items = 0
        self._waiting: deque[tuple[Item, asyncio.Future[Answer]]] = deque()
        self._thread = ThreadPoolExecutor(1)
        self._task: asyncio.Task[None] | None = None

    async def __call__(self, item: Item) -> Answer:
        """The answer to one item; raises ServerBusyError, or what the function raises for this item alone."""
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
            if batch := [pair for pair in taken if not pair[1].done()]:  # the client may have left meanwhile
                await self._answer(batch)

    async def _answer(self, batch: list[tuple[Item, asyncio.Future[Answer]]]) -> None:
        self.n_calls, self.n_items = self.n_calls + 1, self.n_items + len(batch)
        items = [item for item, _ in batch]
        try:
            answers = await asyncio.get_running_loop().run_in_executor(self._thread, self.function, items)
        except Exception as error:
            if len(batch) == 1 and not batch[0][1].done():
                batch[0][1].set_exception(error)
            for pair in batch if len(batch) > 1 else ():  # one bad item does not spoil the others
                await self._answer([pair])
            return
        for (_, answer), value in zip(batch, answers, strict=True):
            if not answer.done():
                answer.set_result(value)
