"""What sessions are told: messages, announced ends, and the last call before a stop."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import ExitStack, aclosing
from typing import Annotated, Literal

from allotment_spawner.core.errors import NotAllowed
from allotment_spawner.wire import ONE_LINE, LastCall, NoticeView
from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from allotment_hub.broker.identity import Caller
from allotment_hub.broker.routes.context import (
    ONLY_OPERATORS,
    PROBLEMS,
    ActAs,
    Context,
    Ctx,
    KnownCaller,
    check_may_see,
)
from allotment_hub.broker.routes.parameters import LeaseId
from allotment_hub.broker.services.notices import Event, Words
from allotment_hub.broker.streams import EventStream

__all__ = ["router"]

router = APIRouter(tags=["notices"], responses=PROBLEMS)

_WEEK_S = 7 * 86400
Line = Annotated[str, Field(max_length=500, pattern=ONE_LINE)]
Text = Annotated[Line, Field(min_length=1)]
Count = Annotated[int, Field(ge=0, le=100_000)]


class _Body(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Say(_Body):
    """One line of text, shown as it is."""

    level: Literal["info", "warning", "error"] = "info"
    sentence: Text
    next_step: Line = ""

    def words(self) -> Words:
        return Words(self.level, self.sentence, self.next_step)


class Stop(_Body):
    """End the session in `after_s` seconds; `sentence` says why."""

    after_s: Annotated[float, Field(ge=0, le=_WEEK_S)] = 0
    sentence: Line = ""


class Call(_Body):
    """How long the answers of the session's pages may take, in seconds."""

    wait_s: Annotated[float, Field(ge=0, le=10)] = 3.0


class Saved(_Body):
    """A session's answer to a last call: documents saved, and those that could not be."""

    call: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    saved: Count
    failed: Count


class Told(_Body):
    """How many sessions, or announcements, it was."""

    count: int


@router.post("/notices", status_code=201, dependencies=[ONLY_OPERATORS])
async def tell_everybody(context: Ctx, caller: KnownCaller, body: Say) -> Told:
    """Show this in every session that runs."""
    return Told(count=await context.notices.tell_all(body.words(), made_by=caller.name))


@router.get("/leases/{lease_id}/notices")
async def list_notices(context: Ctx, caller: KnownCaller, lease_id: LeaseId) -> list[NoticeView]:
    """What the session was told, oldest first."""
    await check_may_see(context, caller, lease_id)
    return await context.notices.of(lease_id)


@router.post("/leases/{lease_id}/notices", status_code=201, dependencies=[ONLY_OPERATORS])
async def tell_session(context: Ctx, caller: KnownCaller, lease_id: LeaseId, body: Say) -> NoticeView:
    """Show this in one session."""
    await check_may_see(context, caller, lease_id)
    return await context.notices.tell(lease_id, body.words(), made_by=caller.name)


@router.get("/leases/{lease_id}/notices/events", response_class=EventStream)
async def notice_events(
    context: Ctx,
    caller: KnownCaller,
    lease_id: LeaseId,
    listening: Annotated[bool, Query(description="The session itself: it answers last calls")] = False,
) -> EventStream:
    """Server-sent events: `notices` with the whole list, then `notice`, `withdrawn` and `last_call`."""
    owner = await check_may_see(context, caller, lease_id)
    if listening and caller.person != owner:
        raise NotAllowed("Only the session itself can answer.", "Leave ?listening= away.")
    return await context.streams.response(caller, _events(context, lease_id, listening=listening))


@router.post("/leases/{lease_id}/stop", status_code=201)
async def announce_stop(context: Ctx, caller: KnownCaller, lease_id: LeaseId, body: Stop) -> NoticeView:
    """Say that the session ends then, and end it: a person's own, an operator anybody's."""
    owner = await _check_may_stop(context, caller, lease_id)
    why = body.sentence or ("You asked for it." if owner == caller.person else "An operator asked for it.")
    words = Words("warning", f"This session is going to be stopped. {why}", "Save what you need.")
    return await context.notices.announce_stop(lease_id, words, after_s=body.after_s, made_by=caller.name)


@router.delete("/leases/{lease_id}/stop")
async def withdraw_stop(context: Ctx, caller: KnownCaller, lease_id: LeaseId) -> Told:
    """Take announced ends back: operators all, people those that they announced themselves."""
    await _check_may_stop(context, caller, lease_id)
    made_by = None if caller.operator else caller.name
    return Told(count=await context.notices.withdraw_stop(lease_id, made_by=made_by))


@router.post("/leases/{lease_id}/last-call")
async def last_call(context: Ctx, caller: ActAs, lease_id: LeaseId, body: Call) -> LastCall:
    """For the hub, before it stops a server: have the session's open pages save, and wait for them."""
    await check_may_see(context, caller, lease_id)
    return await context.last_calls.call(lease_id, wait_s=body.wait_s)


@router.put("/leases/{lease_id}/saved", status_code=204)
async def saved(context: Ctx, caller: KnownCaller, lease_id: LeaseId, body: Saved) -> None:
    """The session's answer to a last call."""
    if await check_may_see(context, caller, lease_id) != caller.person:
        raise NotAllowed("Only the session itself can answer.", "Nothing is to be done.")
    context.last_calls.answer(lease_id, body.call, saved=body.saved, failed=body.failed)


async def _check_may_stop(context: Context, caller: Caller, lease_id: str) -> str:
    owner = await check_may_see(context, caller, lease_id)
    if not caller.operator and owner != caller.person:
        raise NotAllowed("The hub stops servers itself.", "Use the hub's own API.")
    return owner


async def _events(context: Context, lease_id: str, *, listening: bool) -> AsyncIterator[Event]:
    with ExitStack() as open_:
        async with aclosing(context.notices.watch(lease_id)) as events:  # type: ignore[type-var]
            async for event in events:
                yield event
                if listening and event[0] == "notices":
                    # only once the box is open: a call before that would wait for nobody
                    open_.enter_context(context.last_calls.listening(lease_id))
