"""Counters since the broker's start: starts, refusals, how long people waited, Xid errors of GPUs."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from allotment_spawner.core.lease import EndReason, LeaseState

from allotment_hub.broker.metrics.rounds import Round
from allotment_hub.broker.store.records import Lease

__all__ = ["Histogram", "Tally"]

_WAIT_S: Final = (1.0, 5.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0)
_START_S: Final = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 180.0, 600.0)
_REMEMBERED: Final = 1000
_MOST_XIDS: Final = 64
"""Kinds of Xid errors told apart on one GPU; the driver has some 170 in all."""


class Histogram:
    """Counts by upper bound, as Prometheus wants them."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self.total_s = 0.0

    def add(self, seconds: float) -> None:
        """A clock that was set back makes no negative wait."""
        value = max(0.0, seconds)
        self._counts[bisect_left(self._bounds, value)] += 1
        self.total_s += value

    def buckets(self) -> list[tuple[str, float]]:
        """(upper bound, how many were at most that), the last is all."""
        found, sum_ = [], 0
        for bound, count in zip((*self._bounds, None), self._counts, strict=True):
            sum_ += count
            found.append(("+Inf" if bound is None else repr(bound), float(sum_)))
        return found


class Tally:
    """Told of each commit, each refusal and each round of samples."""

    def __init__(self) -> None:
        self.granted: Counter[str] = Counter()
        """Flavor -> how many."""
        self.ended: Counter[tuple[str, str]] = Counter()
        """(flavor, reason)."""
        self.refused: Counter[str] = Counter()
        """Code of the refusal."""
        self.waits: dict[str, Histogram] = {}
        """Flavor -> from the request to the grant."""
        self.starts: dict[str, Histogram] = {}
        """Flavor -> from the grant to the server that answers."""
        self.xids: Counter[tuple[str, str]] = Counter()
        """(GPU, Xid)."""
        self._states: dict[str, LeaseState] = {}
        self._over: OrderedDict[str, None] = OrderedDict()

    def load(self, leases: Iterable[Lease]) -> None:
        """What is there at the start has been counted before."""
        self._states = {lease.id: lease.state for lease in leases}

    def committed(self, changed: Sequence[Lease]) -> None:
        """A listener of the store."""
        for lease in changed:
            if lease.id in self._over:
                continue  # a commit that was not answered is told again with the next one
            before = self._states.get(lease.id)
            if lease.state is not before:
                self._entered(lease, before)
            if lease.state is LeaseState.ENDED:
                self._states.pop(lease.id, None)
                self._forget(lease.id)
            else:
                self._states[lease.id] = lease.state

    def _forget(self, lease_id: str) -> None:
        self._over[lease_id] = None
        if len(self._over) > _REMEMBERED:
            self._over.popitem(last=False)

    def refuse(self, code: str) -> None:
        """A start was refused when it was asked for."""
        self.refused[code] += 1

    def sampled(self, found: Round) -> None:
        """A round of samples is over."""
        for gpu_uuid, sample in found.gpus.items():
            for xid in sample.xids or ():
                self._xid(gpu_uuid, str(xid))

    def _xid(self, gpu_uuid: str, xid: str) -> None:
        known = (gpu_uuid, xid) in self.xids
        full = sum(gpu == gpu_uuid for gpu, _ in self.xids) >= _MOST_XIDS
        self.xids[gpu_uuid, xid if known or not full else "other"] += 1

    def _entered(self, lease: Lease, before: LeaseState | None) -> None:
        if lease.granted_at is not None and before in (None, LeaseState.QUEUED):
            self.granted[lease.flavor] += 1
            _add(self.waits, lease.flavor, _WAIT_S, lease.created_at, lease.granted_at)
        if lease.state is LeaseState.ACTIVE:
            _add(self.starts, lease.flavor, _START_S, lease.granted_at, lease.active_at)
        over = (LeaseState.ENDING, LeaseState.ENDED)
        if lease.state in over and before not in over:
            self.ended[lease.flavor, "unknown" if lease.end_reason is None else lease.end_reason.value] += 1
            if lease.end_reason is EndReason.REFUSED and lease.refusal is not None:
                self.refused[str(lease.refusal.get("code", "refused"))] += 1


def _add(
    found: dict[str, Histogram],
    flavor: str,
    bounds: Sequence[float],
    begin: datetime | None,
    end: datetime | None,
) -> None:
    if begin is not None and end is not None:
        found.setdefault(flavor, Histogram(bounds)).add((end - begin).total_seconds())
