"""What there is to choose from, and what the operator sees of the machine."""

from __future__ import annotations

from collections.abc import Callable

from allotment_spawner.core.allocator import capacity
from allotment_spawner.core.geometry import geometry_of
from allotment_spawner.core.inventory import Gpu
from allotment_spawner.core.request import Request, Want
from allotment_spawner.core.slices import profile_for
from allotment_spawner.wire import EnvironmentView, FlavorView

from allotment_hub.broker.services.admission import Admission
from allotment_hub.broker.services.environment_views import EnvironmentViews
from allotment_hub.broker.services.history import History
from allotment_hub.broker.services.machine import GpuFacts, SliceFact
from allotment_hub.broker.services.observe import Observations
from allotment_hub.broker.services.pools import request_of
from allotment_hub.broker.services.quotes import Person, Quotes
from allotment_hub.broker.services.situation import Situation
from allotment_hub.broker.services.upkeep import Upkeep
from allotment_hub.broker.services.views import (
    EngineHealthView,
    FleetView,
    GpuView,
    HealthView,
    ProcessView,
    SliceView,
    StrayView,
    WholeView,
)
from allotment_hub.catalog import Catalog, Flavor
from allotment_hub.site import Site

__all__ = ["Fleet"]

_GIB = 2**30


class Fleet:
    """Implements `FleetApi` from memory only; no view asks agent or engine."""

    def __init__(
        self,
        *,
        site: Site,
        catalog: Catalog,
        environments: EnvironmentViews,
        admission: Admission,
        situation: Situation,
        observations: Observations,
        history: History,
        upkeep: Upkeep,
        quotes: Quotes,
        no_room: Callable[[], str | None],
    ) -> None:
        """`no_room`: why nothing new is started, whatever the size."""
        self._site = site
        self._catalog = catalog
        self._environments = environments
        self._admission = admission
        self._situation = situation
        self._seen = observations
        self._history = history
        self._upkeep = upkeep
        self._quotes = quotes
        self._no_room = no_room

    async def flavors(self, user: str) -> list[FlavorView]:
        groups = await self._admission.groups_of(user)
        person = await self._quotes.person(user, groups)
        return [
            self._flavor(person, flavor_id, flavor) for flavor_id, flavor in self._catalog.flavors.items()
        ]

    def _flavor(self, person: Person, flavor_id: str, flavor: Flavor) -> FlavorView:
        request = request_of(flavor_id, flavor, self._site.pools, groups=person.groups)
        reason = self._admission.why_not(person.user, flavor_id, person.groups) or self._no_room()
        free: int | None = None
        total: int | None = None
        if request is not None and self._situation.known:
            free, total = capacity(request, self._situation.machine().snapshot)
        gpu: dict[str, object] = {
            "kind": "none",
            "profile": None,
            "count": 0,
            "memory_bytes": None,
            "model": None,
        }
        if flavor.gpu is not None and request is not None:
            gpu = {"kind": flavor.gpu.kind, "count": flavor.gpu.count, **self._device_of(request)}
        return FlavorView(
            id=flavor_id,
            title=flavor.title,
            resources={"gpu": gpu, "cpu": flavor.cpu, "memory_bytes": int(flavor.memory_gib * _GIB)},
            free=free,
            total=total,
            price_per_hour=flavor.rate,
            currency=self._site.currency,
            available=reason is None,
            reason=reason,
            expected_wait_s=self._history.wait_for(flavor_id, request, free) if reason is None else None,
            quote=self._quotes.quote(person, flavor_id),
        )

    def _device_of(self, request: Request) -> dict[str, object]:
        """Profile, memory and model of the first device of this machine that would serve."""
        for candidate in request.candidates:
            for facts in self._situation.machine().gpus:
                if facts.state is not None and facts.state.pool in candidate.pools:
                    found = _described(facts.gpu, candidate.want)
                    if found is not None:
                        return found
        return {"profile": None, "memory_bytes": None, "model": None}

    async def environments(self, user: str) -> list[EnvironmentView]:
        groups = await self._admission.groups_of(user)
        return self._environments.all(groups)

    async def view(self) -> FleetView:
        inventory = self._seen.inventory
        machine = self._situation.machine()
        return FleetView(
            node=None if inventory is None else inventory.node,
            boot_id=None if inventory is None else inventory.boot_id,
            simulated=None if inventory is None else inventory.simulated,
            driver_version=None if inventory is None else inventory.driver_version,
            agent=HealthView(ok=self._seen.agent_problem is None, problem=self._seen.agent_problem),
            engine=EngineHealthView(
                name=self._seen.engine_name,
                ok=self._seen.engine_problem is None,
                problem=self._seen.engine_problem,
            ),
            gpus=tuple(self._gpu(facts) for facts in machine.gpus),
            strays=tuple(
                StrayView(
                    engine_ref=workload.engine_ref,
                    note="It bears this installation's label, but its lease is not known. It is left alone "
                    "and its devices are held; remove it by hand if nobody needs it.",
                )
                for workload in self._seen.strays
            ),
        )

    def _gpu(self, facts: GpuFacts) -> GpuView:
        gpu = facts.gpu
        whole: WholeView | None = None
        if facts.whole is not None:
            state, lease, note = facts.whole
            whole = WholeView.model_validate(
                {
                    "state": state,
                    "lease": None if lease is None else lease.id,
                    "user": None if lease is None else lease.user,
                    "since": None if lease is None else lease.granted_at,
                    "note": note,
                }
            )
        return GpuView(
            uuid=gpu.uuid,
            index=gpu.index,
            model=gpu.model,
            memory_bytes=gpu.memory_bytes,
            pool=None if facts.pool is None else facts.pool.name,
            mig=gpu.mig,
            axis=gpu.axis,
            island=gpu.island,
            problem=facts.problem or self._upkeep.remarks.get(gpu.uuid),
            slices=tuple(_slice(fact) for fact in facts.slices),
            whole=whole,
            processes=tuple(
                ProcessView(
                    pid=process.pid, device_uuid=process.device_uuid, name=process.name, explained=explained
                )
                for process, explained in facts.processes
            ),
        )


def _described(gpu: Gpu, want: Want) -> dict[str, object] | None:
    if want.kind == "whole":
        return None if gpu.mig else {"profile": None, "memory_bytes": gpu.memory_bytes, "model": gpu.model}
    profile = profile_for(want, geometry_of(gpu.axis, gpu.profiles)) if gpu.mig else None
    if profile is None:
        return None
    return {"profile": profile.name, "memory_bytes": profile.memory_bytes, "model": gpu.model}


def _slice(fact: SliceFact) -> SliceView:
    lease = fact.lease
    return SliceView.model_validate(
        {
            "uuid": fact.slice.uuid,
            "profile": fact.slice.profile,
            "start": fact.slice.start,
            "size": fact.slice.size,
            "state": fact.state,
            "lease": None if lease is None else lease.id,
            "user": None if lease is None else lease.user,
            "since": None if lease is None else lease.granted_at,
            "note": fact.note,
        }
    )
