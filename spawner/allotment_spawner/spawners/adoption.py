"""Sessions that outlived the hub: found, waited for while silent, reported active if that was missed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from allotment_spawner.core.errors import DeviceMismatch, Refusal
from allotment_spawner.core.lease import EndReason, LeaseState
from allotment_spawner.spawners.broker_client import BrokerClient
from allotment_spawner.spawners.probe import answers
from allotment_spawner.spawners.session import Session, compare_devices
from allotment_spawner.spawners.workload import Workload
from allotment_spawner.wire import Activate

__all__ = ["Silence", "report_active", "wait_for_answer"]

_LOOK_EVERY_S = 0.5
_REPORT_FOR_S = 600.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Silence:
    """What to do about a server that does not answer the hub's start-up check.

    `wanted` says whether it is still this hub's server (nobody stopped it meanwhile); `bear` is
    called once after `patience_s`: from then on the hub shows it as running, so that its person can
    stop it. It is never stopped for being silent.
    """

    wanted: Callable[[], bool]
    bear: Callable[[str | None], None]
    """Called with the URL, as far as the platform says it."""
    patience_s: float = 5.0


async def wait_for_answer(workload: Workload, silence: Silence) -> str | None:
    """The URL once the server answers; None once the platform says that it is gone.

    Raises CancelledError when the server was stopped on request meanwhile: the check that called
    has nothing left to decide, and anything it did would hit the person's next server.
    """
    clock = asyncio.get_running_loop().time
    patient_until: float | None = clock() + silence.patience_s
    url: str | None = None
    while silence.wanted():
        try:
            url = await workload.url()
            if await answers(url):
                return url
            if await workload.exited() is not None:
                return None
        except Refusal as refusal:
            _log.info("cannot look at %s: %s", workload.engine_ref, refusal.code)
        await asyncio.sleep(_LOOK_EVERY_S)
        if patient_until is not None and clock() >= patient_until:
            patient_until = None
            _log.warning("%s is silent; it is left running", workload.engine_ref)
            silence.bear(url)
    raise asyncio.CancelledError


async def report_active(session: Session, *, broker: BrokerClient, grace_s: float) -> None:
    """Finish a start that the hub did not live to finish: inspect the devices, tell the broker.

    A wrong device ends the session, as at an ordinary start. A refusal of any other kind is the
    broker's to act upon: it sees the workload and its lease.
    """
    workload, lease = session.workload, session.lease
    if workload is None or lease is None:
        return
    try:
        reply = await broker.get(lease)
        if reply.lease.state != LeaseState.GRANTED:
            return
        seen = await workload.devices()
        compare_devices(tuple(device.uuid for device in reply.lease.devices), seen)
        await broker.activate(lease, attempt=session.attempt, body=Activate(devices_seen=seen))
    except DeviceMismatch:
        await workload.remove(grace_s=grace_s)
        await broker.release(
            lease, reason=EndReason.DEVICE_MISMATCH, attempt=session.attempt, retry_for_s=_REPORT_FOR_S
        )
    except Refusal as refusal:
        _log.warning("lease %s was not reported active: %s", lease, refusal.sentence)
