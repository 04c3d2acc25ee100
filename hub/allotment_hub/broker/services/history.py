"""When a waiting lease could start, from how long sessions lasted; unknown without history."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from allotment_spawner.core.geometry import geometry_of, mask
from allotment_spawner.core.lease import LeaseState
from allotment_spawner.core.request import Candidate, Request
from allotment_spawner.core.slices import profile_for
from allotment_spawner.core.snapshot import GpuState

from allotment_hub.accounting.queueing import MIN_SAMPLES, Expected, Option, expected_start
from allotment_hub.broker.services.book import Book
from allotment_hub.broker.services.pools import request_of
from allotment_hub.broker.services.situation import Situation
from allotment_hub.broker.store.records import Lease
from allotment_hub.broker.store.store import Store
from allotment_hub.catalog import Catalog
from allotment_hub.site import Site

__all__ = ["History"]

_DAYS = 30
_SAMPLES = 500
_FRESH_S = 5


class History:
    """Estimates by (flavor, how many are ahead), kept a few seconds so that a long queue costs little."""

    def __init__(
        self,
        *,
        site: Site,
        catalog: Catalog,
        store: Store,
        book: Book,
        situation: Situation,
        clock: Callable[[], datetime],
    ) -> None:
        self._site = site
        self._catalog = catalog
        self._store = store
        self._book = book
        self._situation = situation
        self._clock = clock
        self._durations: list[float] = []
        self._made_at = clock()
        self._kept: dict[tuple[str, frozenset[str] | None, int], Expected | None] = {}
        self._counted_at = -1
        self._ahead: dict[str, int] = {}
        self._all: dict[frozenset[str], int] = {}

    async def load(self) -> None:
        """Read how long the sessions of the last 30 days lasted."""
        since = self._clock() - timedelta(days=_DAYS)
        rows = await self._store.read(lambda tx: tx.durations(since, _SAMPLES))
        self._durations = sorted((stopped - active).total_seconds() for _, active, stopped in rows)

    @property
    def known(self) -> bool:
        return len(self._durations) >= MIN_SAMPLES

    def expected(self, lease: Lease) -> Expected | None:
        """For a queued lease, counting those before it that want the same pools."""
        if not self.known:
            return None
        request = self._request(lease.flavor, lease.pools)
        if request is None:
            return None
        return self._estimate(lease.flavor, lease.pools, request, self._count_ahead().get(lease.id, 0))

    def _count_ahead(self) -> dict[str, int]:
        """Lease -> how many before it want one of its pools; one walk for the whole queue."""
        if self._counted_at != self._book.version:
            self._counted_at = self._book.version
            self._ahead, self._all = {}, {}
            for lease in self._book.queue(self._clock()):
                wanted = _pools_of(self._request(lease.flavor, lease.pools))
                self._ahead[lease.id] = self._before(wanted)
                self._all[wanted] = self._all.get(wanted, 0) + 1
        return self._ahead

    def _before(self, wanted: frozenset[str]) -> int:
        return sum(count for pools, count in self._all.items() if pools & wanted)

    def wait_for(self, flavor_id: str, request: Request | None, free: int | None) -> float | None:
        """Seconds a new request of this flavor would wait; None = unknown."""
        if not self.known:
            return None
        if request is None:
            return 0.0
        self._count_ahead()
        pools = _pools_of(request)
        ahead = self._before(pools)
        if not ahead and free:
            return 0.0
        expected = self._estimate(flavor_id, pools, request, ahead)
        if expected is None:
            return None
        middle = expected.earliest + (expected.latest - expected.earliest) / 2
        return max(0.0, (middle - self._clock()).total_seconds())

    def _request(self, flavor_id: str, pools: frozenset[str] | None) -> Request | None:
        flavor = self._catalog.flavors.get(flavor_id)
        return None if flavor is None else request_of(flavor_id, flavor, self._site.pools, only=pools)

    def _estimate(
        self, flavor_id: str, pools: frozenset[str] | None, request: Request, ahead: int
    ) -> Expected | None:
        now = self._clock()
        if now - self._made_at > timedelta(seconds=_FRESH_S):
            self._kept.clear()
            self._made_at = now
        key = (flavor_id, pools, ahead)
        if key not in self._kept:
            options = [option for candidate in request.candidates for option in self._options(candidate)]
            ages = {
                lease.id: (now - lease.active_at).total_seconds()
                for lease in self._book.in_state(LeaseState.ACTIVE)
                if lease.active_at is not None
            }
            count = max((candidate.want.count for candidate in request.candidates), default=1)
            self._kept[key] = expected_start(
                options, ages, self._durations, needed=(ahead + 1) * count, now=now
            )
        return self._kept[key]

    def _options(self, candidate: Candidate) -> list[Option]:
        found = []
        holders = self._book.holders()
        for facts in self._situation.machine().gpus:
            state = facts.state
            if state is None or not state.usable or state.pool not in candidate.pools:
                continue
            held = [
                (
                    lease.id,
                    mask(device.start, device.size) if device.start is not None and device.size else ~0,
                )
                for lease in holders.get(state.gpu_uuid, ())
                for device in lease.devices
                if device.gpu_uuid == state.gpu_uuid
            ]
            for bits in _places(candidate, state):
                if bits & state.foreign == 0:
                    blockers = frozenset(lease for lease, taken in held if taken & bits)
                    found.append(Option(state.gpu_uuid, bits, blockers))
        return found


def _pools_of(request: Request | None) -> frozenset[str]:
    if request is None:
        return frozenset()
    return frozenset(pool for candidate in request.candidates for pool in candidate.pools)


def _places(candidate: Candidate, state: GpuState) -> list[int]:
    if candidate.want.kind == "whole":
        return [] if state.mig else [1]
    if not state.mig:
        return []
    profile = profile_for(candidate.want, geometry_of(state.axis, state.profiles))
    return [] if profile is None else [mask(start, profile.size) for start in profile.starts]
