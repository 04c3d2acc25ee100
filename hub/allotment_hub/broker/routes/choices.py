"""What a person can pick: flavors and environments, and who they are."""

from __future__ import annotations

from typing import Literal

from allotment_spawner.wire import EnvironmentView, FlavorView, StartsView
from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict

from allotment_hub.broker.routes.context import PROBLEMS, Ctx, KnownCaller, whose
from allotment_hub.broker.routes.parameters import UserQuery

__all__ = ["MeView", "router"]

router = APIRouter(tags=["choices"], responses=PROBLEMS)


class MeView(BaseModel):
    """The caller as the broker sees it. `simulated`: this installation's GPUs are simulated."""

    model_config = ConfigDict(frozen=True)

    name: str
    kind: Literal["person", "service"]
    operator: bool
    act_as: bool
    groups: list[str]
    currency: str
    engine: str
    simulated: bool
    version: str


@router.get("/flavors")
async def flavors(context: Ctx, caller: KnownCaller, user: UserQuery = None) -> list[FlavorView]:
    """Every flavor in the catalogue's order, with what is free now and why one can't be had."""
    return await context.fleet.flavors(whose(caller, user))


@router.get("/environments")
async def environments(context: Ctx, caller: KnownCaller, user: UserQuery = None) -> list[EnvironmentView]:
    return await context.fleet.environments(whose(caller, user))


@router.get("/starts")
async def starts(context: Ctx, caller: KnownCaller) -> StartsView:
    """Whether anything new is started now at all, and why not."""
    reason = context.disk.reason()
    return StartsView(ok=reason is None, reason=reason)


@router.get("/me")
async def me(context: Ctx, caller: KnownCaller) -> MeView:
    return MeView(
        name=caller.name,
        kind=caller.kind,
        operator=caller.operator,
        act_as=caller.act_as,
        groups=sorted(caller.groups),
        currency=context.currency,
        engine=context.engine,
        simulated=context.simulated,
        version=context.version,
    )
