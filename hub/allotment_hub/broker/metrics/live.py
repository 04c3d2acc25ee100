"""Each round of samples for everybody who listens: worked out once, however many there are."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from datetime import datetime

from allotment_hub.broker.metrics.frames import Frame, LeaseReading
from allotment_hub.broker.metrics.rounds import Round
from allotment_hub.broker.store.records import Lease

__all__ = ["Live"]


class Live:
    """Nothing is worked out while nobody listens."""

    def __init__(
        self,
        *,
        latest: Callable[[], Round],
        subscribe: Callable[[], AsyncIterator[int]],
        leases: Callable[[], Sequence[Lease]],
        reading: Callable[[Lease, Round, datetime], LeaseReading],
        book_version: Callable[[], int],
        every_s: float,
        clock: Callable[[], datetime],
    ) -> None:
        """`subscribe`: at once, then after each round."""
        self._latest = latest
        self._subscribe = subscribe
        self._leases = leases
        self._reading = reading
        self._book_version = book_version
        self._every_s = every_s
        self._clock = clock
        self._frame: Frame | None = None
        self._frame_of: tuple[Round, int] | None = None
        self.listeners = 0
        self.computed = 0
        """Frames that were made since the start, one for all who listen."""

    def frame(self) -> Frame:
        """Of the last round and the book as it is; the same one until either changes."""
        latest, version = self._latest(), self._book_version()
        known = self._frame_of
        if self._frame is None or known is None or known[0] is not latest or known[1] != version:
            now = self._clock()
            self._frame = Frame(
                at=latest.at,
                every_s=self._every_s,
                leases=self._leases(),
                reading=lambda lease: self._reading(lease, latest, now),
            )
            self._frame_of = (latest, version)
            self.computed += 1
        return self._frame

    async def watch(self, user: str | None) -> AsyncIterator[str]:
        """JSON of each round, the last one first: this person's sessions, or everybody's for None."""
        self.listeners += 1
        try:
            async with aclosing(self._subscribe()) as rounds:  # type: ignore[type-var]
                async for _ in rounds:
                    yield await self.frame().text(user)
        finally:
            self.listeners -= 1
