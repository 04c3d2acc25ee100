"""How hard sessions work right now, as a stream."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Annotated

from allotment_spawner.core.errors import NotAllowed, Refusal
from fastapi import APIRouter, Query, Request

from allotment_hub.broker.routes.context import PROBLEMS, Context, Ctx, KnownCaller, whose
from allotment_hub.broker.services.ports import HubUnavailable
from allotment_hub.broker.streams import EventStream

__all__ = ["AGAIN_S", "router"]

router = APIRouter(tags=["metrics"], responses=PROBLEMS)

Everybody = Annotated[bool, Query(alias="all", description="Everybody's sessions; for operators")]


AGAIN_S = 60.0
"""How often it is asked whether a listener may still see what it sees: a stream may be open for days."""


@router.get("/metrics/stream", response_class=EventStream)
async def metrics_stream(
    context: Ctx, request: Request, caller: KnownCaller, everybody: Everybody = False
) -> EventStream:
    """`sample` at once and then after each round: {at, every_s, leases: [{lease, user, server, flavor,
    flavor_title, environment, state, since, simulated, price_per_hour, currency, cost, charged_to, budget,
    ends_at, devices: [{uuid, gpu_uuid, profile, model, sm_percent, …}], workload: {cpu_cores_used, …}}]}.
    null is unknown. A comment every 10 s while there is nothing new. It ends when the token is revoked, or
    its owner may not see it any more.
    """
    if everybody and not caller.operator:
        raise NotAllowed("Only operators may see everybody's sessions.", "Leave ?all= away to see yours.")
    user = None if everybody else whose(caller, None)

    async def may_see() -> bool:
        return await _may_see(context, request, caller.name, everybody=everybody)

    return await context.streams.response(caller, _samples(context.monitoring.watch(user), may_see))


async def _samples(
    texts: AsyncIterator[str], may_see: Callable[[], Awaitable[bool]]
) -> AsyncIterator[tuple[str, str]]:
    asked = time.monotonic()
    async with aclosing(texts) as rounds:  # type: ignore[type-var]
        async for text in rounds:
            if time.monotonic() - asked > AGAIN_S:
                asked = time.monotonic()
                if not await may_see():
                    return
            yield "sample", text


async def _may_see(context: Context, request: Request, name: str, *, everybody: bool) -> bool:
    """A hub that cannot be asked takes nothing away."""
    try:
        caller = await context.auth.caller(request)
    except HubUnavailable:
        return True
    except Refusal:
        return False
    return caller.name == name and (caller.operator or not everybody)
