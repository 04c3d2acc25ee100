"""Waiting for a device: through broker restarts, until granted, refused, or the wait's own limit."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing

from allotment_spawner.core.errors import BrokerUnavailable, WaitTooLong
from allotment_spawner.core.lease import LeaseState
from allotment_spawner.spawners.broker_client import BrokerClient
from allotment_spawner.spawners.progress import Board
from allotment_spawner.spawners.refusals import ended_refusal
from allotment_spawner.wire import LeaseReply

__all__ = ["wait_for_grant"]

_PAUSES_S = (0.1, 0.2, 0.5, 1.0, 2.0)
_log = logging.getLogger(__name__)


async def wait_for_grant(
    broker: BrokerClient, reply: LeaseReply, *, attempt: str, limit_s: float, board: Board
) -> LeaseReply:
    """The granted reply (with `launch`) of the lease in `reply`.

    While this runs the waiter holds an event stream, which is what makes it eligible. A broker
    that is away ends no wait. Raises `WaitTooLong` after `limit_s` seconds, or the refusal with
    which the lease ended.
    """
    try:
        async with asyncio.timeout(limit_s):
            return await _follow(broker, reply, attempt, board)
    except TimeoutError:
        raise WaitTooLong(
            f"No device became free within {_span(limit_s)}, the longest wait that this site allows.",
            "Choose a smaller size or CPU only, or start again later.",
        ) from None


async def _follow(broker: BrokerClient, reply: LeaseReply, attempt: str, board: Board) -> LeaseReply:
    tries = 0
    while True:
        if (granted := _judge(reply, board)) is not None:
            return granted
        try:
            async with aclosing(broker.events(reply.lease.id, attempt=attempt)) as events:
                async for event in events:
                    tries = 0
                    reply = event.reply
                    if (granted := _judge(reply, board)) is not None:
                        return granted
        except BrokerUnavailable:
            if tries:
                board.broker_away()
            _log.info("broker away while %s waits; trying again", reply.lease.id)
        await asyncio.sleep(_PAUSES_S[min(tries, len(_PAUSES_S) - 1)])
        tries += 1


def _judge(reply: LeaseReply, board: Board) -> LeaseReply | None:
    """The reply once it carries the launch; None while it waits. Raises when it is over."""
    state = reply.lease.state
    if state in (LeaseState.ENDING, LeaseState.ENDED):
        raise ended_refusal(reply)
    if state == LeaseState.QUEUED or reply.launch is None:
        board.queued(reply)
        return None
    board.granted(reply)
    return reply


def _span(seconds: float) -> str:
    for size, name in ((3600, "hour"), (60, "minute")):
        if seconds >= size:
            count = round(seconds / size)
            return f"{count} {name}{'s' * (count != 1)}"
    return f"{round(seconds)} seconds"
