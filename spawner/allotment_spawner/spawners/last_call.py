"""Before a server is stopped: its open pages save what they show, for a few seconds at most."""

from __future__ import annotations

import asyncio
import logging

from pydantic import ValidationError

from allotment_spawner.core.errors import Refusal
from allotment_spawner.spawners.broker_client import BrokerClient
from allotment_spawner.spawners.session import Session

__all__ = ["last_call"]

_WAIT_S = 3.0
_MARGIN_S = 1.0
_log = logging.getLogger(__name__)


async def last_call(session: Session, *, broker: BrokerClient) -> None:
    """Returns at once where nobody listens, and after 4 s whatever happens. Never raises a `Refusal`: a stop
    that was asked for is carried out."""
    if session.lease is None or session.workload is None:
        return
    try:
        async with asyncio.timeout(_WAIT_S + _MARGIN_S):
            told = await broker.last_call(session.lease, wait_s=_WAIT_S)
    except (Refusal, TimeoutError, ValidationError) as error:
        # the last one: a broker of another version, in the middle of an update
        _log.info("no last call for lease %s: %s", session.lease, type(error).__name__)
        return
    if told.listeners:
        _log.info(
            "last call for lease %s: %d documents saved, %d not", session.lease, told.saved, told.failed
        )
