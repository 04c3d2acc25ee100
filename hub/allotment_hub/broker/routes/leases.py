"""Leases as people and the hub read them: list, one, its events, why, and giving one up."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from allotment_spawner.core.errors import BadOptions, NoSuchLease, NotAllowed
from allotment_spawner.core.lease import LIVE, EndReason, LeaseState
from allotment_spawner.wire import LeaseEvent, LeaseReply, LeaseView
from fastapi import APIRouter, Response

from allotment_hub.broker.identity import Caller
from allotment_hub.broker.routes.context import (
    PROBLEMS,
    Context,
    Ctx,
    KnownCaller,
    check_may_see,
    no_such_lease,
)
from allotment_hub.broker.routes.parameters import (
    Attempt,
    AttemptQuery,
    LeaseId,
    Limit,
    ServerQuery,
    UserQuery,
)
from allotment_hub.broker.services.views import Explanation
from allotment_hub.broker.streams import EventStream

__all__ = ["router"]

router = APIRouter(prefix="/leases", tags=["leases"], responses=PROBLEMS)

SPAWNER_REASONS = frozenset(
    {
        EndReason.STOPPED,
        EndReason.CANCELLED,
        EndReason.WAIT_LIMIT,
        EndReason.START_FAILED,
        EndReason.DEVICE_MISMATCH,
        EndReason.WORKLOAD_EXITED,
    }
)


@router.get("")
async def list_leases(
    context: Ctx,
    caller: KnownCaller,
    user: UserQuery = None,
    server: ServerQuery = None,
    live: bool = False,
    limit: Limit = 50,
) -> list[LeaseView]:
    """Newest first. People see their own; the hub and operators anybody's, or all without `user`.

    `live`: only queued, granted and active ones.
    """
    if not (caller.act_as or caller.operator):
        if caller.person is None or user not in (None, caller.person):
            raise NotAllowed("You can list only your own leases.", "Leave ?user= away.")
        user = caller.person
    return await context.leases.find(user=user, server=server, live=live, limit=limit)


@router.get("/{lease_id}")
async def one_lease(context: Ctx, caller: KnownCaller, lease_id: LeaseId) -> LeaseReply | LeaseView:
    """The lease; for the hub with its deadline and what to launch."""
    await check_may_see(context, caller, lease_id)
    return _shown(caller, await _reply(context, lease_id))


@router.get("/{lease_id}/events", response_class=EventStream)
async def lease_events(
    context: Ctx, caller: KnownCaller, lease_id: LeaseId, attempt: AttemptQuery = None
) -> EventStream:
    """`LeaseEvent`s as server-sent events, the current state first, a comment every 10 s.

    For the hub with `attempt`: it counts as the connected waiter, and the stream ends with granted
    or ended. For others an onlooker's view, which ends with ended.
    """
    await check_may_see(context, caller, lease_id)
    waiter = attempt if caller.act_as else None
    watched = context.leases.watch(lease_id=lease_id, attempt=waiter)
    return await context.streams.response(caller, _events(watched, with_launch=caller.act_as))


@router.get("/{lease_id}/explain")
async def explain_lease(context: Ctx, caller: KnownCaller, lease_id: LeaseId) -> Explanation:
    """Why it waits, runs or was refused: which rule, which devices, what would help."""
    await check_may_see(context, caller, lease_id)
    try:
        return await context.explainer.explain(lease_id, for_operator=caller.operator)
    except NoSuchLease:
        raise no_such_lease() from None


@router.delete("/{lease_id}", responses={202: {"model": LeaseView}})
async def end_lease(
    context: Ctx,
    caller: KnownCaller,
    response: Response,
    lease_id: LeaseId,
    reason: EndReason | None = None,
    attempt: Attempt = None,
) -> LeaseReply | LeaseView:
    """Give it up; idempotent. The hub says why; of a person a queued one is cancelled, and of a
    running one the server is stopped through the hub (202: it ends when the server is gone)."""
    owner = await check_may_see(context, caller, lease_id)
    if caller.act_as:
        chosen = EndReason.STOPPED if reason is None else reason
        if chosen not in SPAWNER_REASONS:
            raise BadOptions("This reason is the broker's own to give.", "Use stopped, cancelled or another.")
        return await context.leases.release(lease_id=lease_id, reason=chosen, attempt=attempt)
    lease = (await _reply(context, lease_id)).lease
    if lease.state is LeaseState.QUEUED:
        reply = await context.leases.release(lease_id=lease_id, reason=EndReason.CANCELLED, attempt=None)
        return reply.lease
    if lease.state in LIVE:
        await context.hub.stop_server(owner, lease.server)
        response.status_code = 202
        lease = (await _reply(context, lease_id)).lease
    return lease


async def _reply(context: Context, lease_id: str) -> LeaseReply:
    try:
        return await context.leases.get(lease_id)
    except NoSuchLease:
        raise no_such_lease() from None


def _shown(caller: Caller, reply: LeaseReply) -> LeaseReply | LeaseView:
    return reply if caller.act_as else reply.lease


async def _events(
    watched: AsyncIterator[LeaseEvent], *, with_launch: bool
) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    """People get no `launch`: what is made for a session is between the hub and the broker."""
    async with aclosing(watched) as events:  # type: ignore[type-var]
        async for event in events:
            if not with_launch:
                event = event.model_copy(update={"reply": event.reply.model_copy(update={"launch": None})})
            yield event.type, event.model_dump(mode="json", by_alias=True)
