"""One attempt to start a session: ask, wait, make, confirm, start, inspect, probe, activate."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from uuid import uuid4

from allotment_spawner.core.errors import BrokerUnavailable, DeviceMismatch, Refusal, StartFailed, WaitTooLong
from allotment_spawner.core.lease import EndReason
from allotment_spawner.spawners.broker_client import BrokerClient
from allotment_spawner.spawners.probe import wait_until_answers
from allotment_spawner.spawners.progress import Board
from allotment_spawner.spawners.wait import wait_for_grant
from allotment_spawner.spawners.workload import Workload
from allotment_spawner.wire import Activate, Confirm, Launch, LeaseReply, LeaseRequest

__all__ = ["Limits", "Session", "compare_devices", "end_reason", "start_session"]

_RENEW_EVERY_S = 8.0

Build = Callable[[Launch, "Session"], Awaitable[Workload]]
"""Describe the workload of a granted lease; makes nothing yet."""


@dataclass
class Session:
    """What one attempt holds. Filled in step by step, so that a clean-up at any step knows what to undo."""

    user: str
    server: str
    attempt: str = field(default_factory=lambda: uuid4().hex)
    asked: bool = False
    """Whether the broker may have heard of this attempt."""
    lease: str | None = None
    version: str | None = None
    """Which image of the environment it runs on."""
    devices: tuple[str, ...] = ()
    workload: Workload | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds: for the wait in the queue; from the start of the workload to its first answer."""

    wait_s: float
    ready_s: float


async def start_session(
    session: Session,
    *,
    broker: BrokerClient,
    request: LeaseRequest,
    build: Build,
    board: Board,
    limits: Limits,
    on_step: Callable[[str], None] = lambda _: None,
) -> str:
    """Run the attempt to its end and return the server's URL; the lease is active then.

    Raises a `Refusal`. Nothing is undone here: on any exception the caller hands `session` to clean-up.
    """
    attempt = session.attempt
    on_step("request")
    session.asked = True
    reply = await broker.request(request, attempt=attempt)
    session.lease = lease = reply.lease.id
    on_step("wait")
    reply = await wait_for_grant(broker, reply, attempt=attempt, limit_s=limits.wait_s, board=board)
    launch = _launch_of(reply)
    session.devices, session.version = launch.devices, reply.lease.version
    board.making()
    on_step("create")
    async with _renewed(broker, lease, attempt):
        workload = session.workload = await build(launch, session)
        await workload.make()
    on_step("confirm")
    await broker.confirm(lease, attempt=attempt, body=Confirm(engine_ref=workload.engine_ref))
    on_step("start")
    board.starting()
    await workload.start()
    seen = compare_devices(launch.devices, await workload.devices())
    url = await wait_until_answers(workload.url, workload.exited, limit_s=limits.ready_s)
    board.answering()
    on_step("activate")
    await broker.activate(lease, attempt=attempt, body=Activate(devices_seen=seen))
    on_step("active")
    return url


def _launch_of(reply: LeaseReply) -> Launch:
    if reply.launch is None:
        raise StartFailed("The broker granted a device without saying what to start.", "Tell an operator.")
    return reply.launch


def compare_devices(leased: tuple[str, ...], seen: tuple[str, ...]) -> tuple[str, ...]:
    """`seen`; raises `DeviceMismatch` unless the workload has exactly the leased devices."""
    if sorted(leased) != sorted(seen):
        raise DeviceMismatch(
            "The server was stopped, because it did not get exactly the device that was set apart for it.",
            "Start again; tell an operator if it happens again.",
        )
    return seen


def end_reason(error: BaseException) -> EndReason:
    """Why the lease of a failed attempt ends."""
    if isinstance(error, WaitTooLong):
        return EndReason.WAIT_LIMIT
    if isinstance(error, DeviceMismatch):
        return EndReason.DEVICE_MISMATCH
    if isinstance(error, asyncio.CancelledError):
        return EndReason.CANCELLED
    return EndReason.START_FAILED


@asynccontextmanager
async def _renewed(broker: BrokerClient, lease: str, attempt: str) -> AsyncIterator[None]:
    """Keep the grant's deadline away while the container is made (a slow disk, a pull)."""

    async def renew() -> None:
        while True:
            await asyncio.sleep(_RENEW_EVERY_S)
            with suppress(BrokerUnavailable):
                await broker.renew(lease, attempt=attempt)

    task = asyncio.create_task(renew())
    try:
        yield
    finally:
        task.cancel()
        # a refused renewal is not judged here: the confirm that follows is refused for the same reason
        with suppress(asyncio.CancelledError, Refusal):
            await task
