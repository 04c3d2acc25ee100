"""What a person's groups may have at a time, as site.yaml limits it: sessions, devices, hours."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from allotment_spawner.core.errors import LimitReached, Refusal
from allotment_spawner.wire import Launch

from allotment_hub.broker.services.extras import Ask
from allotment_hub.broker.services.pools import EVERYONE, may_use
from allotment_hub.broker.store.records import Lease
from allotment_hub.catalog import Catalog
from allotment_hub.site import Limit

__all__ = ["LimitPart", "Limits"]

_HOUR_S = 3600


class Limits:
    """Pure: counts what it is given. Of several limits that are for a size, each must hold."""

    def __init__(self, *, limits: Sequence[Limit], catalog: Catalog) -> None:
        self._limits = tuple(limits)
        self._catalog = catalog

    @property
    def by_group(self) -> bool:
        return any(limit.groups != EVERYONE for limit in self._limits)

    def check(self, flavor_id: str, groups: frozenset[str], live: Collection[Lease]) -> None:
        """Whether one more of this size is allowed beside the person's `live` leases. `LimitReached`."""
        why = self.problem(flavor_id, groups, live)
        if why is not None:
            raise why

    def problem(self, flavor_id: str, groups: frozenset[str], live: Collection[Lease]) -> LimitReached | None:
        for limit in self._for(flavor_id, groups):
            counted = [lease for lease in live if limit.flavors == "all" or lease.flavor in limit.flavors]
            if limit.sessions is not None and len(counted) >= limit.sessions:
                return self._too_many(limit, "session", len(counted), limit.sessions)
            held = sum(self._devices(lease.flavor) for lease in counted)
            more = self._devices(flavor_id)
            if limit.devices is not None and more and held + more > limit.devices:
                return self._too_many(limit, "GPU or slice", held, limit.devices)
        return None

    def longest_s(self, flavor_id: str, groups: frozenset[str]) -> float | None:
        """How long a session of this size may run at a time; None: no limit."""
        hours = [limit.hours for limit in self._for(flavor_id, groups) if limit.hours is not None]
        return min(hours) * _HOUR_S if hours else None

    def _for(self, flavor_id: str, groups: frozenset[str]) -> list[Limit]:
        return [
            limit
            for limit in self._limits
            if may_use(limit.groups, groups) and (limit.flavors == "all" or flavor_id in limit.flavors)
        ]

    def _devices(self, flavor_id: str) -> int:
        """What a lease of this size holds; of a size that is not offered any more it is not known: 0."""
        flavor = self._catalog.flavors.get(flavor_id)
        if flavor is None or flavor.gpu is None:
            return 0
        return flavor.gpu.count if flavor.gpu.kind == "whole" else 1

    def _too_many(self, limit: Limit, what: str, have: int, most: int) -> LimitReached:
        plural = {"session": "sessions", "GPU or slice": "GPUs and slices"}[what]
        sizes = "" if limit.flavors == "all" else f" of {self._titles(limit.flavors)}"
        may = f"no {what}" if most == 0 else f"{most} {what if most == 1 else plural}"
        # another size helps where it is not counted: one that the limit does not name, or without a GPU
        other = limit.flavors != "all" or what != "session"
        steps = ["stop a session first"] * bool(have) + ["choose another size"] * other
        step = ", or ".join(steps) or "ask an operator"
        return LimitReached(
            f"You have {have} {what if have == 1 else plural}{sizes}, "
            f"and may have {most or 'none'} at a time."
            if have
            else f"You may have {may}{sizes} at a time, and this would be more.",
            f"{step[0].upper()}{step[1:]}.",
            limit=most,
        )

    def _titles(self, flavors: Collection[str]) -> str:
        titles = [found.title for name in flavors if (found := self._catalog.flavors.get(name))]
        return titles[0] if len(titles) == 1 else "the sizes " + ", ".join(titles)


class LimitPart:
    """The part "limits" of a start: how long it may run is decided at the request, as its price is."""

    def __init__(self, *, limits: Limits) -> None:
        self._limits = limits

    @property
    def needs_groups(self) -> bool:
        return self._limits.by_group

    async def check(self, ask: Ask) -> Mapping[str, Any]:
        longest = self._limits.longest_s(ask.body.flavor, ask.groups)
        return {} if longest is None else {"longest_s": longest}

    def ready(self, lease: Lease) -> bool:
        return True

    def problem(self, lease: Lease) -> Refusal | None:
        return None

    def complete(self, lease: Lease, launch: Launch) -> Launch:
        return launch
