"""Asking something that may be slow, hang or fail, without ever waiting longer than a round allows."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from allotment_spawner.core.errors import Refusal

__all__ = ["Source"]

_log = logging.getLogger(__name__)
T = TypeVar("T")


class Source(Generic[T]):
    """One call at a time. What is not back in time goes on, so that it is neither doubled nor cut off;
    its late answer is dropped, because it tells of another moment. `late` is told of it before the next
    question, for what is said only once."""

    def __init__(
        self, *, name: str, limit_s: float, late: Callable[[T], None] = lambda _answer: None
    ) -> None:
        self.name = name
        self._limit_s = limit_s
        self._told_late = late
        self._late: asyncio.Future[T] | None = None

    async def ask(self, call: Callable[[], Awaitable[T]]) -> tuple[T | None, str | None]:
        """(answer, None), or (None, why there is none this time)."""
        if self._late is not None:
            if not self._late.done():
                return None, f"The {self.name} has not answered yet."
            self._drop(self._late)
            self._late = None
        task: asyncio.Future[T] = asyncio.ensure_future(call())
        try:
            done, _ = await asyncio.wait({task}, timeout=self._limit_s)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if not done:
            self._late = task
            return None, f"The {self.name} did not answer within {self._limit_s:g} s."
        try:
            return task.result(), None
        except Refusal as refusal:
            return None, refusal.sentence
        except Exception as error:  # noqa: BLE001 - one broken source must not stop all sampling
            _log.warning("the %s could not be sampled", self.name, exc_info=error)
            return None, f"The {self.name} could not be sampled."

    async def close(self) -> None:
        """Give up what is still out."""
        late, self._late = self._late, None
        if late is not None:
            late.cancel()
            await asyncio.gather(late, return_exceptions=True)

    def _drop(self, late: asyncio.Future[T]) -> None:
        if late.cancelled():
            return
        if late.exception() is None:
            self._told_late(late.result())
        else:
            _log.debug("the %s answered late with an error: %s", self.name, late.exception())
