"""The page of spending, for people and operators."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Annotated, Final, Literal
from zoneinfo import ZoneInfo

from allotment_spawner.core.errors import NotAllowed
from allotment_spawner.money_wire import BudgetView
from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, Response

from allotment_hub.broker.identity import Caller
from allotment_hub.broker.routes.context import PREFIX, Context, Ctx
from allotment_hub.broker.routes.usage import asked, time_span
from allotment_hub.broker.routes.visitors import person_of, visitor
from allotment_hub.broker.services.budget_views import Reader
from allotment_hub.broker.services.usage import Usage
from allotment_hub.dashboard.spending_page import GROUPED, GROUPED_ALL, Choice, spending_page

__all__ = ["router"]

router = APIRouter(include_in_schema=False)
_PAGE: Final = f"{PREFIX}/usage"
_SHOWN_ENTRIES: Final = 50
_Day = Annotated[str, Query(max_length=10, pattern=r"^([0-9]{4}-[0-9]{2}-[0-9]{2})?$")]
_Name = Annotated[str, Query(max_length=255, pattern=r"^[^\x00-\x1f\x7f]*$")]


@router.get("/usage")
async def page(
    context: Ctx,
    request: Request,
    from_: Annotated[_Day, Query(alias="from")] = "",
    to: _Day = "",
    whose: Literal["mine", "all", "group"] = "mine",
    user: _Name = "",
    group: _Name = "",
) -> Response:
    """What was spent, by size and by day; `to` is the last day and belongs to it."""
    here = f"{_PAGE}?{request.url.query}" if request.url.query else _PAGE
    found = await visitor(context, request, here)
    if isinstance(found, Response):
        return found
    _, caller = found
    choice = _choice(context.usage, person_of(caller), whose, user, group, from_, to)
    return HTMLResponse(await _written(context, caller, choice))


def _choice(
    usage: Usage,
    person: str,
    whose: Literal["mine", "all", "group"],
    user: str,
    group: str,
    first: str,
    last: str,
) -> Choice:
    """Names that do not belong to what is shown are dropped; days that mean nothing are refused."""
    zone = ZoneInfo(usage.zone)
    since, until = time_span(usage, first or None, _day_after(last) if last else None)
    return Choice(
        person=person,
        whose=whose if whose != "group" or group else "mine",
        user=user.strip() if whose == "all" else "",
        group=group.strip() if whose != "mine" else "",
        first=since.astimezone(zone).date(),
        last=(until - timedelta(microseconds=1)).astimezone(zone).date(),
        today=usage.now.astimezone(zone).date(),
    )


def _day_after(day: str) -> str:
    """What is no day stays as it is, and is refused with all others."""
    try:
        return (date.fromisoformat(day) + timedelta(days=1)).isoformat()
    except (ValueError, OverflowError):
        return day


async def _budgets(context: Context, caller: Caller, choice: Choice) -> list[BudgetView]:
    """Those that what is shown counts against."""
    everything = choice.whose == "all"
    reader = Reader(
        caller.name, caller.person, operator=everything, groups=caller.groups, everything=everything
    )
    if choice.whose == "group":
        reader = Reader(
            caller.name, caller.person, operator=caller.operator, groups=frozenset({choice.group})
        )
    found = await context.budgets.listed(reader)
    if choice.user:
        return [one for one in found if (one.scope, one.name) == ("user", choice.user)]
    if choice.group:
        return [one for one in found if (one.scope, one.name) == ("group", choice.group)]
    return found


async def _written(context: Context, caller: Caller, choice: Choice) -> str:
    usage, person = context.usage, choice.person
    if choice.whose == "all" and not caller.operator:
        raise NotAllowed(
            "Only operators may see what everybody spends.", "Open the page of your own spending."
        )
    minded = await usage.minded_by(person)
    if choice.whose == "group" and not (caller.operator or choice.group in minded):
        raise NotAllowed(
            "Only operators and the named owner of its budget may see what a group spends.",
            "Open the page of your own spending.",
        )
    since, until = time_span(usage, choice.first.isoformat(), (choice.last + timedelta(days=1)).isoformat())
    ask = await asked(
        context,
        caller,
        since,
        until,
        GROUPED if choice.whose == "mine" else GROUPED_ALL,
        user=person if choice.whose == "mine" else choice.user or None,
        group=choice.group or None,
    )
    report = await usage.report(ask, limit=1)
    return context.pages.spending(
        spending_page(
            choice,
            report,
            await usage.latest(ask, _SHOWN_ENTRIES),
            zone=usage.zone,
            titles=usage.titles,
            budgets=await _budgets(context, caller, choice),
            minded=minded,
            operator=caller.operator,
        ),
        person=person,
    )
