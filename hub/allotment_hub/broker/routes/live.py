"""How hard sessions work right now, as a stream."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Annotated

from allotment_spawner.core.errors import NotAllowed
from fastapi import APIRouter, Query

from allotment_hub.broker.routes.context import PROBLEMS, Ctx, KnownCaller, whose
from allotment_hub.broker.streams import EventStream

__all__ = ["router"]

router = APIRouter(tags=["metrics"], responses=PROBLEMS)

Everybody = Annotated[bool, Query(alias="all", description="Everybody's sessions; for operators")]


@router.get("/metrics/stream", response_class=EventStream)
async def metrics_stream(context: Ctx, caller: KnownCaller, everybody: Everybody = False) -> EventStream:
    """`sample` at once and then after each round: {at, every_s, leases: [{lease, user, server, flavor,
    flavor_title, environment, state, since, simulated, price_per_hour, currency, cost, charged_to, budget,
    ends_at, devices: [{uuid, gpu_uuid, profile, model, sm_percent, …}], workload: {cpu_cores_used, …}}]}.
    null is unknown. A comment every 10 s while there is nothing new.
    """
    if everybody and not caller.operator:
        raise NotAllowed("Only operators may see everybody's sessions.", "Leave ?all= away to see yours.")
    user = None if everybody else whose(caller, None)
    return await context.streams.response(caller, _samples(context.monitoring.watch(user)))


async def _samples(texts: AsyncIterator[str]) -> AsyncIterator[tuple[str, str]]:
    async with aclosing(texts) as rounds:  # type: ignore[type-var]
        async for text in rounds:
            yield "sample", text
