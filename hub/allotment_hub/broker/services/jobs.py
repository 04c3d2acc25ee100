"""Side effects in the background, one at a time per key."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

__all__ = ["Jobs"]

_log = logging.getLogger(__name__)


class Jobs:
    """Tasks by key: starting a key that runs already does nothing, so a slow engine is asked once."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._closed = False
        self.failure: BaseException | None = None

    def running(self, key: str) -> bool:
        return key in self._tasks

    def start(self, key: str, work: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Whether it was started now."""
        if self._closed or key in self._tasks:
            return False
        task = asyncio.get_running_loop().create_task(work(), name=key)
        self._tasks[key] = task
        task.add_done_callback(lambda done: self._ended(key, done))
        return True

    def _ended(self, key: str, task: asyncio.Task[None]) -> None:
        self._tasks.pop(key, None)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            # the next round of the reconciler finds what this job left undone
            self.failure = error
            _log.error("background job failed", extra={"job": key}, exc_info=error)

    async def idle(self) -> None:
        """Return when no job runs."""
        while self._tasks:
            await asyncio.wait(list(self._tasks.values()))
            await asyncio.sleep(0)

    async def close(self) -> None:
        """Cancel what runs; what was half done is found again at the next start."""
        self._closed = True
        tasks: list[Awaitable[None]] = list(self._tasks.values())
        for task in list(self._tasks.values()):
            task.cancel()
        if tasks:
            await asyncio.gather(*tasks, return_exceptions=True)
