"""Budgets: what is left of mine and my groups', and for operators and owners what changes them."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from allotment_spawner.money_wire import BudgetHistory, BudgetView
from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from allotment_hub.broker.identity import Caller
from allotment_hub.broker.routes.context import ONLY_OPERATORS, PROBLEMS, Context, Ctx, KnownCaller, whose
from allotment_hub.broker.routes.parameters import Attempt, UserQuery
from allotment_hub.broker.services.budget_views import NewBudget, Reader, Reason, Setting

__all__ = ["router"]

router = APIRouter(tags=["money"], responses=PROBLEMS)

BudgetId = Annotated[str, Path(max_length=64, pattern=r"^[0-9a-f]+$", description="The budget's id")]
Because = Annotated[Reason, Query(description="Why; kept for good")]
_Some = Field(ge=-(10**9), le=10**9, max_digits=16, decimal_places=6)
Difference = Annotated[Decimal, _Some]
Positive = Annotated[Decimal, Field(gt=0, le=10**9, max_digits=16, decimal_places=6)]


class _Body(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ChangeBody(_Body):
    """What is added to the current period; below 0 it is taken away."""

    amount: Difference
    reason: Reason


class TransferBody(_Body):
    """From this budget's current period to that of the budget with the id `to`."""

    to: Annotated[str, Field(max_length=64, pattern=r"^[0-9a-f]+$")]
    amount: Positive
    reason: Reason


@router.get("/budgets")
async def budgets(context: Ctx, caller: KnownCaller, user: UserQuery = None) -> list[BudgetView]:
    """Open budgets: my own, those of my groups, those that I own; all for operators. With `user` (the hub
    and operators) those that count for this person."""
    return await context.budgets.listed(await _reader(context, caller, user))


@router.get("/budgets/{budget_id}")
async def budget(
    context: Ctx, caller: KnownCaller, budget_id: BudgetId, user: UserQuery = None
) -> BudgetHistory:
    """One with its last changes, closed ones too. `user` says whose is meant by everybody's own."""
    return await context.budgets.one(await _reader(context, caller, user), budget_id)


@router.post("/budgets", status_code=201, dependencies=[ONLY_OPERATORS])
async def make_budget(context: Ctx, caller: KnownCaller, body: NewBudget) -> BudgetView:
    """One open budget for each scope, name, unit and period."""
    return await context.budgets.make(caller.name, body)


@router.put("/budgets/{budget_id}", dependencies=[ONLY_OPERATORS])
async def set_budget(context: Ctx, caller: KnownCaller, budget_id: BudgetId, body: Setting) -> BudgetView:
    """Replace amount, hardness, owner, note and days; what was used stays used."""
    return await context.budgets.set(caller.name, budget_id, body)


@router.delete("/budgets/{budget_id}", status_code=204, dependencies=[ONLY_OPERATORS])
async def close_budget(context: Ctx, caller: KnownCaller, budget_id: BudgetId, reason: Because) -> Response:
    """Nothing counts against it any more; its history stays. Idempotent."""
    await context.budgets.close(caller.name, budget_id, reason)
    return Response(status_code=204)


@router.post("/budgets/{budget_id}/changes", status_code=201, dependencies=[ONLY_OPERATORS])
async def change_budget(
    context: Ctx, caller: KnownCaller, budget_id: BudgetId, body: ChangeBody, key: Attempt = None
) -> BudgetView:
    """Add to the current period, or take from it. With an Idempotency-Key it is done once."""
    return await context.budgets.change(caller.name, budget_id, body.amount, body.reason, key)


@router.post("/budgets/{budget_id}/transfers", status_code=201)
async def transfer(
    context: Ctx, caller: KnownCaller, budget_id: BudgetId, body: TransferBody, key: Attempt = None
) -> BudgetView:
    """For operators and this budget's owner: at most what is left goes to another budget of the same unit."""
    reader = await _reader(context, caller, None)
    return await context.budgets.transfer(reader, budget_id, body.to, body.amount, body.reason, key)


async def _reader(context: Context, caller: Caller, user: str | None) -> Reader:
    if user is None and caller.operator:
        return Reader(caller.name, caller.person, operator=True, groups=caller.groups, everything=True)
    if caller.operator:
        assert user is not None
        return Reader(caller.name, user, operator=True, groups=await context.hub.groups_of(user))
    person = whose(caller, user)
    groups = caller.groups if caller.person == person else await context.hub.groups_of(person)
    return Reader(caller.name, person, groups=groups)
