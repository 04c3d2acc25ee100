"""Reports of what was spent, as JSON or as a file; corrections and refunds by operators."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Final, Literal
from zoneinfo import ZoneInfo

from allotment_spawner.core.errors import NotAllowed
from allotment_spawner.money_wire import EntryView, UsageView
from allotment_spawner.wire import ONE_LINE
from fastapi import APIRouter, Query
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from allotment_hub.accounting.tariff import midnight
from allotment_hub.broker.identity import Caller
from allotment_hub.broker.problems import BadRequest
from allotment_hub.broker.routes.context import PROBLEMS, Context, Ctx, KnownCaller, Operator
from allotment_hub.broker.routes.parameters import RequiredKey, UserQuery
from allotment_hub.broker.routes.usage_download import MEDIA, download
from allotment_hub.broker.services.corrections import MOST, ByHand
from allotment_hub.broker.services.usage import GROUPS, Ask, Cursor, GroupBy, Usage
from allotment_hub.broker.store.usage import CHUNK, Wanted

__all__ = ["GroupQuery", "asked", "router", "time_span"]

router = APIRouter(prefix="/usage", tags=["money"], responses=PROBLEMS)
_FIRST_YEAR: Final = 2000
_LAST_YEAR: Final = 2199
_When = Annotated[str | None, Query(max_length=40, description="RFC 3339, or YYYY-MM-DD in the books' zone")]
_Cursor = Annotated[str | None, Query(pattern=r"^[0-9]{1,18}\.[0-9]{1,18}$", description="`next` of a page")]
GroupQuery = Annotated[str | None, Query(min_length=1, max_length=255, pattern=r"^[^\x00-\x1f\x7f]*$")]
_Id = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9-]+$")]


class CorrectionRequest(BaseModel):
    """What it is about, a lease or one entry; how much; and why, for whom it concerns."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    lease: _Id | None = None
    entry: _Id | None = None
    amount: Annotated[Decimal, Field(ge=-MOST, le=MOST, max_digits=16, decimal_places=6)]
    reason: Annotated[str, Field(min_length=1, max_length=500, pattern=ONE_LINE)]


@router.get(
    "",
    response_model=UsageView,
    responses={200: {"content": {media: {} for media in MEDIA.values()}, "description": "The report"}},
)
async def usage(
    context: Ctx,
    caller: KnownCaller,
    from_: Annotated[_When, Query(alias="from")] = None,
    to: _When = None,
    group_by: Annotated[str, Query(max_length=80)] = "",
    user: UserQuery = None,
    group: GroupQuery = None,
    after: _Cursor = None,
    limit: Annotated[int, Query(ge=1, le=CHUNK)] = CHUNK,
    format: Literal["json", "csv", "parquet"] = "json",  # noqa: A002 - the parameter's name
) -> UsageView | Response:
    """Entries that begin in [from, to); by default this month's, one's own, or everybody's for operators.

    `group_by`: user, group, flavor, environment, day, kind, with commas between them. As a file: the rows,
    or without `group_by` every entry.
    """
    since, until = time_span(context.usage, from_, to)
    names = _names(group_by)
    ask = await asked(context, caller, since, until, names, user=user, group=group)
    if format != "json":
        return await download(context.usage, ask, format)
    cursor = None if after is None else Cursor.read(after)
    return await context.usage.report(ask, cursor=cursor, limit=limit)


@router.post("/corrections", status_code=201)
async def correct(context: Ctx, caller: Operator, key: RequiredKey, body: CorrectionRequest) -> EntryView:
    """Charge more, or with an amount below 0 less: a new entry, beside those that it corrects."""
    return await context.corrections.make(_by_hand("correction", caller, key, body))


@router.post("/refunds", status_code=201)
async def refund(context: Ctx, caller: Operator, key: RequiredKey, body: CorrectionRequest) -> EntryView:
    """Give back this amount, at most what was charged: a new entry, below 0."""
    return await context.corrections.make(_by_hand("refund", caller, key, body))


def _by_hand(
    kind: Literal["refund", "correction"], caller: Caller, key: str, body: CorrectionRequest
) -> ByHand:
    return ByHand(
        kind=kind,
        operator=caller.name,
        amount=body.amount,
        reason=body.reason,
        key=key,
        lease=body.lease,
        entry=body.entry,
    )


async def asked(
    context: Context,
    caller: Caller,
    since: datetime,
    until: datetime,
    group_by: tuple[GroupBy, ...],
    *,
    user: str | None,
    group: str | None,
) -> Ask:
    """What this caller may read of it; raises `NotAllowed` where that is nothing.

    Operators and the hub read all. The named owner of a group's budget reads what was charged to the group,
    without names. Everybody else their own, also where they name a group.
    """
    if caller.operator or caller.act_as:
        return Ask(Wanted(since, until, owner=user, charged_to=group), group_by)
    person = caller.person
    if person is None:
        raise NotAllowed("A service has no usage of its own.", "Use a person's token.")
    if user not in (None, person):
        raise NotAllowed("You can ask only for your own usage.", "Leave ?user= away.")
    minded = group is not None and user is None and group in await context.usage.minded_by(person)
    owner = None if minded else person
    return Ask(Wanted(since, until, owner=owner, charged_to=group), group_by, reader=person)


def time_span(usage: Usage, since: str | None, until: str | None) -> tuple[datetime, datetime]:
    """Where nothing is said: the month that `until` ends in, and until the end of this one."""
    zone = usage.zone
    end = _month(usage.now, zone)[1] if until is None else _moment(until, "to", zone)
    begin = (
        _month(end - timedelta(microseconds=1), zone)[0] if since is None else _moment(since, "from", zone)
    )
    if begin >= end:
        raise BadRequest("The report's `from` is not before its `to`.", "Swap them, or leave one away.")
    return begin, end


def _month(moment: datetime, zone: str) -> tuple[datetime, datetime]:
    """Its first instant, and that of the month after."""
    first = moment.astimezone(ZoneInfo(zone)).date().replace(day=1)
    after = (first + timedelta(days=31)).replace(day=1)
    return midnight(first, zone), midnight(after, zone)


def _moment(text: str, name: str, zone: str) -> datetime:
    try:
        if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
            day = date.fromisoformat(text)
            if _FIRST_YEAR <= day.year <= _LAST_YEAR:
                return midnight(day, zone)
        else:
            moment = datetime.fromisoformat(text)
            if moment.tzinfo is not None and _FIRST_YEAR <= moment.year <= _LAST_YEAR:
                return moment.astimezone(UTC)
    except ValueError:
        pass
    raise BadRequest(
        f"`{name}` is no day or time of the years {_FIRST_YEAR} to {_LAST_YEAR}.",
        "Write it as 2030-01-31, or as 2030-01-31T12:00:00Z.",
    )


def _names(text: str) -> tuple[GroupBy, ...]:
    names = [name for name in text.split(",") if name] if text else []
    found = tuple(name for name in GROUPS if name in names)
    if len(found) != len(names):
        raise BadRequest(
            "`group_by` names something else, or something twice.",
            f"Choose from {', '.join(GROUPS)}, with commas between them.",
        )
    return tuple(sorted(found, key=names.index))
