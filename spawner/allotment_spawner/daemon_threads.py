"""Blocking calls that may never return, a few at a time; the process ends without waiting for them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

__all__ = ["DaemonThreads"]

T = TypeVar("T")


class DaemonThreads:
    """For name services and file servers. A pool of concurrent.futures is waited for at the end of the
    process: one call that hangs would keep a service from stopping.

    A call that was given up keeps its place until it returns, so that no hung server gathers threads.
    """

    def __init__(self, count: int, *, name: str) -> None:
        self._free = asyncio.Semaphore(count)
        self._name = name

    async def run(self, work: Callable[[], T]) -> T:
        """What `work` returns or raises; cancelling stops the waiting, not the work."""
        await self._free.acquire()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def settle(result: Callable[[], None]) -> None:
            self._free.release()
            if not future.done():
                result()

        def body() -> None:
            found: Callable[[], None]
            try:
                value = work()
            except Exception as error:  # noqa: BLE001 - it is the caller's, in the caller's task
                failure = error
                found = lambda: future.set_exception(failure)  # noqa: E731
            else:
                found = lambda: future.set_result(value)  # noqa: E731
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(settle, found)

        threading.Thread(target=body, name=self._name, daemon=True).start()
        return await future
