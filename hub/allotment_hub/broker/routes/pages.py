"""The dashboard's routes: the page, its changing part, its news, its files."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from allotment_spawner.core.errors import NoSuchLease
from allotment_spawner.core.lease import LeaseState
from allotment_spawner.wire import LeaseView
from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from allotment_hub.broker.identity import Caller
from allotment_hub.broker.routes.context import Context, Ctx, KnownCaller
from allotment_hub.broker.routes.fleet import changed_events
from allotment_hub.broker.routes.sign_in import HOME
from allotment_hub.broker.routes.visitors import person_of, visitor
from allotment_hub.broker.streams import EventStream
from allotment_hub.dashboard.render import BoardData

__all__ = ["router"]

router = APIRouter(include_in_schema=False)
_SHOWN_LEASES: Final = 30
_EXPLAINED: Final = 5


@router.get("")
async def without_slash() -> Response:
    return RedirectResponse(HOME, status_code=308)


@router.get("/")
async def page(context: Ctx, request: Request) -> Response:
    """The page; without a valid sign-in the browser is sent to the hub first."""
    found = await visitor(context, request, HOME)
    if isinstance(found, Response):
        return found
    session, caller = found
    data = await _data(context, caller)
    html = context.pages.page(data, person=person_of(caller), csrf=session.csrf)
    return HTMLResponse(html)


@router.get("/board")
async def board(context: Ctx, caller: KnownCaller) -> Response:
    """The page's changing part, rendered again."""
    return HTMLResponse(context.pages.board(await _data(context, caller)))


@router.get("/live")
async def live(context: Ctx, caller: KnownCaller) -> EventStream:
    """`changed` events for the page's script."""
    person_of(caller)
    return await context.streams.response(caller, changed_events(context.changes.subscribe()))


async def _data(context: Context, caller: Caller) -> BoardData:
    person = person_of(caller)
    leases, flavors, environments = await asyncio.gather(
        context.leases.find(user=person, server=None, live=False, limit=_SHOWN_LEASES),
        context.fleet.flavors(person),
        context.fleet.environments(person),
    )
    fleet = (await context.fleet.view()).model_dump() if caller.operator else None
    return BoardData(
        leases=leases,
        flavors=flavors,
        environments=environments,
        explanations=await _explanations(context, leases),
        fleet=fleet,
    )


async def _explanations(context: Context, leases: list[LeaseView]) -> dict[str, Any]:
    """Why each waiting one waits, and what ended the last one, in the words that its owner may read."""
    waiting = [lease.id for lease in leases if lease.state is LeaseState.QUEUED][:_EXPLAINED]
    over = [lease.id for lease in leases if lease.state is LeaseState.ENDED][:1]
    found: dict[str, Any] = {}
    for lease_id in waiting + over:
        try:
            found[lease_id] = await context.explainer.explain(lease_id, for_operator=False)
        except NoSuchLease:
            continue
    return found
