"""Who is connected: only a connected waiter gets a grant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

__all__ = ["Waiters"]

_RETURN_S = 5
"""After a start of the broker, waiters get this long to come back before others pass them."""


class Waiters:
    """Counts open requests and event streams by lease. In memory: a restart is a new count."""

    def __init__(self, *, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._started = clock()
        self._open: Counter[str] = Counter()
        self._left: dict[str, datetime] = {}

    @contextmanager
    def connected(self, lease_id: str) -> Iterator[None]:
        self._open[lease_id] += 1
        self._left.pop(lease_id, None)
        try:
            yield
        finally:
            self._open[lease_id] -= 1
            if self._open[lease_id] <= 0:
                del self._open[lease_id]
                self._left[lease_id] = self._clock()

    def is_connected(self, lease_id: str) -> bool:
        return lease_id in self._open

    def may_return(self, lease_id: str) -> bool:
        """Not back yet after the broker's start, and still expected: its turn is kept, not granted."""
        waited = self._clock() - self._started
        return (
            lease_id not in self._open
            and lease_id not in self._left
            and waited < timedelta(seconds=_RETURN_S)
        )

    def gone_for(self, lease_id: str) -> timedelta:
        """How long nobody has waited for this lease; zero while somebody does."""
        if lease_id in self._open:
            return timedelta(0)
        return self._clock() - self._left.get(lease_id, self._started)

    def keep_only(self, lease_ids: Collection[str]) -> None:
        """Forget leases that are over; their last waiter may hang up after their end."""
        for lease_id in [known for known in self._left if known not in lease_ids]:
            del self._left[lease_id]
