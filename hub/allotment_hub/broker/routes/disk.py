"""Free space and what limits scratch folders, for operators."""

from __future__ import annotations

from fastapi import APIRouter

from allotment_hub.broker.routes.context import ONLY_OPERATORS, PROBLEMS, Ctx
from allotment_hub.broker.services.disk import DiskView

__all__ = ["router"]

router = APIRouter(responses=PROBLEMS)


@router.get("/disk", tags=["operators"], dependencies=[ONLY_OPERATORS])
async def disk(context: Ctx) -> DiskView:
    """Each folder that fills up with its free space, the floor, and why nothing new is started."""
    return await context.disk.view()
