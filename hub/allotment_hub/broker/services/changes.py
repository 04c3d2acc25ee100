"""Wake-ups: one signal a lease, and one coalesced version for everything that a form shows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager

__all__ = ["Bell", "Changes", "Signals"]

_AT_MOST_EVERY_S = 0.5


class Changes:
    """A version number that grows whenever flavors or places may have changed."""

    def __init__(self) -> None:
        self._version = 1
        self._waiting: set[asyncio.Event] = set()

    def bump(self) -> None:
        self._version += 1
        for event in self._waiting:
            event.set()

    async def subscribe(self) -> AsyncIterator[int]:
        """The current version, then each newer one, at most two a second."""
        event = asyncio.Event()
        self._waiting.add(event)
        try:
            while True:
                event.clear()
                yield self._version
                await event.wait()
                await asyncio.sleep(_AT_MOST_EVERY_S)
        finally:
            self._waiting.discard(event)


class Signals:
    """Who waits for news of which lease."""

    def __init__(self) -> None:
        self._events: dict[str, set[asyncio.Event]] = {}

    def touch(self, lease_ids: Iterable[str]) -> None:
        for lease_id in lease_ids:
            for event in self._events.get(lease_id, ()):
                event.set()

    @contextmanager
    def of(self, lease_id: str) -> Iterator[asyncio.Event]:
        """An event that is set at each change of this lease; the waiter clears it before it looks."""
        event = asyncio.Event()
        self._events.setdefault(lease_id, set()).add(event)
        try:
            yield event
        finally:
            waiting = self._events[lease_id]
            waiting.discard(event)
            if not waiting:
                del self._events[lease_id]


class Bell:
    """Wakes one loop early; rings before anybody waits are not lost."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def ring(self) -> None:
        self._event.set()

    async def wait(self, at_most_s: float) -> None:
        """Return at the next ring, or after this long."""
        try:
            async with asyncio.timeout(at_most_s):
                await self._event.wait()
        except TimeoutError:
            return
        finally:
            self._event.clear()
