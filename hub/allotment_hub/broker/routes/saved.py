"""Saved environments: people ask, operators decide."""

from __future__ import annotations

from typing import Annotated

from allotment_spawner.core.errors import NotAllowed
from fastapi import APIRouter, Path

from allotment_hub.broker.identity import Caller
from allotment_hub.broker.routes.context import ONLY_OPERATORS, PROBLEMS, Ctx, KnownCaller
from allotment_hub.broker.services.saved_views import Approve, RefuseSaved, Save, SavedView

__all__ = ["router"]

router = APIRouter(prefix="/saved", tags=["environments"], responses=PROBLEMS)
Name = Annotated[str, Path(max_length=40, pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", description="Its name")]
"""Also the name of an image, whose rules are the narrowest."""


@router.get("")
async def list_saved(context: Ctx, caller: KnownCaller) -> list[SavedView]:
    """One's own and the approved ones; all for operators."""
    return await context.saved.listed(_person(caller), operator=caller.operator)


@router.get("/{name}")
async def one_saved(context: Ctx, caller: KnownCaller, name: Name) -> SavedView:
    return await context.saved.one(_person(caller), name, operator=caller.operator)


@router.put("/{name}")
async def save(context: Ctx, caller: KnownCaller, name: Name, body: Save) -> SavedView:
    """Ask for an environment with these packages, or change what was asked; an operator decides."""
    return await context.saved.save(_person(caller), name, body)


@router.delete("/{name}", status_code=204)
async def drop_saved(context: Ctx, caller: KnownCaller, name: Name) -> None:
    """Forget it; the owner only before it is approved. An image that was built stays."""
    await context.saved.drop(_person(caller), name, operator=caller.operator)


@router.post("/{name}/approve", dependencies=[ONLY_OPERATORS])
async def approve(context: Ctx, caller: KnownCaller, name: Name, body: Approve) -> SavedView:
    """Agree to exactly what has this checksum."""
    return await context.saved.approve(_person(caller), name, body)


@router.post("/{name}/refuse", dependencies=[ONLY_OPERATORS])
async def refuse(context: Ctx, caller: KnownCaller, name: Name, body: RefuseSaved) -> SavedView:
    return await context.saved.refuse(_person(caller), name, body.because)


def _person(caller: Caller) -> str:
    if caller.person is None:
        raise NotAllowed("Only people save environments.", "Use a person's token.")
    return caller.person
