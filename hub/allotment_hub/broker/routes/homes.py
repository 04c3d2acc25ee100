"""Homes: how full they are, and what became of those whose people left."""

from __future__ import annotations

from typing import Annotated, Literal

from allotment_spawner.core.errors import NotAllowed
from allotment_spawner.wire import HomeView
from fastapi import APIRouter, Path
from pydantic import BaseModel, ConfigDict

from allotment_hub.broker.identity import Caller
from allotment_hub.broker.routes.context import ONLY_OPERATORS, PROBLEMS, Ctx, KnownCaller
from allotment_hub.broker.routes.parameters import UserQuery

__all__ = ["router"]

router = APIRouter(prefix="/homes", tags=["homes"], responses=PROBLEMS)
User = Annotated[str, Path(min_length=1, max_length=255, pattern=r"^[^\x00-\x1f\x7f]*$", description="Whose")]


class Became(BaseModel):
    """What became of the home of a person who left."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    state: Literal["live", "archived", "erased"]


@router.get("")
async def list_homes(context: Ctx, caller: KnownCaller, user: UserQuery = None) -> list[HomeView]:
    """One person's, or for operators all that were ever measured, the fullest first."""
    if user is None and (caller.operator or caller.act_as):
        return await context.homes.all()
    return [await context.homes.of(_own(caller, user))]


@router.get("/me")
async def my_home(context: Ctx, caller: KnownCaller) -> HomeView:
    return await context.homes.of(_own(caller, None))


@router.post("/{user}/measure")
async def measure_home(context: Ctx, caller: KnownCaller, user: User) -> HomeView:
    """Measure it now; may take a minute."""
    return await context.homes.measure(_own(caller, user))


@router.put("/{user}", dependencies=[ONLY_OPERATORS])
async def settle_home(context: Ctx, user: User, body: Became) -> HomeView:
    """Say what became of it; nothing is done to the home here."""
    return await context.homes.settle(user, body.state)


def _own(caller: Caller, user: str | None) -> str:
    """Whose home is asked for; others' only for operators and the hub."""
    if caller.operator or caller.act_as:
        whose = user or caller.person
        if whose is None:
            raise NotAllowed("A service has no home of its own.", "Say whose: ?user=NAME.")
        return whose
    if caller.person is None or user not in (None, caller.person):
        raise NotAllowed("You can ask only for your own home.", "Use homes/me.")
    return caller.person
