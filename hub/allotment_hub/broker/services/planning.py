"""Who gets what in one pass over the queue (pure)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from allotment_spawner.core.allocator import NoRoom, place
from allotment_spawner.core.demand import Demand
from allotment_spawner.core.request import Request
from allotment_spawner.core.snapshot import Placement, Snapshot

from allotment_hub.broker.store.records import Lease

__all__ = ["Step", "plan", "pools_in"]


@dataclass(frozen=True, slots=True)
class Step:
    """This lease may go now; `placement` is None for a CPU flavor."""

    lease: Lease
    placement: Placement | None


def plan(
    queue: Sequence[Lease],
    snapshot: Snapshot,
    demand: Demand,
    *,
    request_for: Callable[[Lease], Request | None],
    connected: Callable[[str], bool],
    may_return: Callable[[str], bool],
) -> list[Step]:
    """First come first served. A lease is passed only where that cannot delay it: by CPU flavors, and by
    leases that take from pools it cannot use. A lease that nobody waits for is passed, and keeps its place.
    """
    steps: list[Step] = []
    closed: set[str] = set()
    for lease in queue:
        if lease.reserved:
            continue
        request = request_for(lease)
        if not connected(lease.id):
            if request is not None and may_return(lease.id):
                closed |= pools_in(request)
            continue
        if request is None:
            steps.append(Step(lease, None))
            continue
        left = _without(request, closed)
        if not left.candidates:
            continue
        answer = place(left, snapshot, demand)
        if isinstance(answer, NoRoom):
            # what the hardware can never give must not hold up those who could be served
            if not (answer.never and left == request):
                closed |= pools_in(request)
            continue
        steps.append(Step(lease, answer))
        snapshot = snapshot.after(answer)
    return steps


def pools_in(request: Request) -> frozenset[str]:
    return frozenset(pool for candidate in request.candidates for pool in candidate.pools)


def _without(request: Request, closed: set[str]) -> Request:
    if not closed:
        return request
    narrowed = (replace(candidate, pools=candidate.pools - closed) for candidate in request.candidates)
    return Request(tuple(candidate for candidate in narrowed if candidate.pools))
