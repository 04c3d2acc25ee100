"""How hard a session worked, for its owner and for operators."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Final

from fastapi import APIRouter, Query
from pydantic import AwareDatetime

from allotment_hub.broker.routes.context import PROBLEMS, Ctx, KnownCaller, check_may_see
from allotment_hub.broker.routes.parameters import LeaseId
from allotment_hub.broker.services.sample_views import LeaseMetrics

__all__ = ["router"]

router = APIRouter(prefix="/leases", tags=["leases"], responses=PROBLEMS)
_MOST_S: Final = 31 * 86400
"""Of one window."""
_EARLIEST: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST: Final = datetime(2200, 1, 1, tzinfo=UTC)

Since = Annotated[AwareDatetime | None, Query(alias="from", description="RFC 3339; its start by default")]
Until = Annotated[AwareDatetime | None, Query(alias="to", description="RFC 3339; its end, or now")]
Step = Annotated[
    int | None,
    Query(ge=1, le=_MOST_S, description="Seconds in a window; below 60 each sample; chosen if left away"),
]


@router.get("/{lease_id}/metrics")
async def lease_metrics(
    context: Ctx,
    caller: KnownCaller,
    lease_id: LeaseId,
    since: Since = None,
    until: Until = None,
    step: Step = None,
) -> LeaseMetrics:
    """CPU, memory, disk and network of the session and how busy its devices were, with gaps as null.

    Samples are kept for an hour, means and maxima by the minute for 30 days and by the hour for two years,
    unless site.yaml says otherwise.
    """
    await check_may_see(context, caller, lease_id)
    reply = await context.leases.get(lease_id)
    return await context.series.of(reply.lease, since=_bounded(since), until=_bounded(until), step_s=step)


def _bounded(moment: datetime | None) -> datetime | None:
    """No session is older or younger; further off, sums of times overflow."""
    return None if moment is None else min(max(moment, _EARLIEST), _LATEST)
