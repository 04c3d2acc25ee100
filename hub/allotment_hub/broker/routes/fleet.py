"""The whole machine for operators, and the news that something changed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing

from fastapi import APIRouter

from allotment_hub.broker.routes.context import ONLY_OPERATORS, PROBLEMS, ActAs, Ctx
from allotment_hub.broker.services.views import FleetView
from allotment_hub.broker.streams import EventStream

__all__ = ["changed_events", "router"]

router = APIRouter(responses=PROBLEMS)


@router.get("/fleet", tags=["operators"], dependencies=[ONLY_OPERATORS])
async def fleet(context: Ctx) -> FleetView:
    """Each GPU's slices with who holds them since when, processes, strays, health of agent and engine."""
    return await context.fleet.view()


@router.get("/events", tags=["leases (hub only)"], response_class=EventStream)
async def events(context: Ctx, caller: ActAs) -> EventStream:
    """`changed` with {"version": n} whenever flavors or places may differ; at most two a second."""
    return await context.streams.response(caller, changed_events(context.changes.subscribe()))


async def changed_events(versions: AsyncIterator[int]) -> AsyncIterator[tuple[str, dict[str, int]]]:
    """The service's version numbers as (event name, data)."""
    async with aclosing(versions) as numbers:  # type: ignore[type-var]
        async for version in numbers:
            yield "changed", {"version": version}
