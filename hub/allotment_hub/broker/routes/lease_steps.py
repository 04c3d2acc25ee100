"""The hub's steps in a lease's life: ask, renew, confirm, activate."""

from __future__ import annotations

from allotment_spawner.core.errors import Refusal
from allotment_spawner.wire import Activate, Confirm, LeaseReply, LeaseRequest
from fastapi import APIRouter

from allotment_hub.broker.routes.context import ONLY_THE_HUB, PROBLEMS, ActAs, Ctx, check_may_see
from allotment_hub.broker.routes.parameters import LeaseId, RequiredAttempt

__all__ = ["router"]

router = APIRouter(prefix="/leases", tags=["leases (hub only)"], responses=PROBLEMS)


@router.post("", status_code=201, dependencies=[ONLY_THE_HUB])
async def request_lease(context: Ctx, body: LeaseRequest, attempt: RequiredAttempt) -> LeaseReply:
    """A session's lease, queued or granted; the same attempt again gets the same answer."""
    try:
        return await context.leases.request(attempt=attempt, body=body)
    except Refusal as refusal:
        if "lease" not in refusal.details:  # what is kept as a lease is counted when it is written
            context.monitoring.refused(refusal.code)
        raise


@router.put("/{lease_id}/renew")
async def renew_lease(context: Ctx, caller: ActAs, lease_id: LeaseId, attempt: RequiredAttempt) -> LeaseReply:
    """Moves the grant's deadline on, while an image is pulled."""
    await check_may_see(context, caller, lease_id)
    return await context.leases.renew(lease_id=lease_id, attempt=attempt)


@router.put("/{lease_id}/confirm")
async def confirm_lease(
    context: Ctx, caller: ActAs, lease_id: LeaseId, body: Confirm, attempt: RequiredAttempt
) -> LeaseReply:
    """The fence: only after this answer may the made workload be started."""
    await check_may_see(context, caller, lease_id)
    return await context.leases.confirm(lease_id=lease_id, attempt=attempt, body=body)


@router.put("/{lease_id}/active")
async def activate_lease(
    context: Ctx, caller: ActAs, lease_id: LeaseId, body: Activate, attempt: RequiredAttempt
) -> LeaseReply:
    """The server is ready, on these devices."""
    await check_may_see(context, caller, lease_id)
    return await context.leases.activate(lease_id=lease_id, attempt=attempt, body=body)
