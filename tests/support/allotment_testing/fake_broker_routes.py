"""The routes of the fake broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from allotment_spawner.core.errors import DeviceMismatch, NoSuchLease, StaleAttempt, WrongState
from allotment_spawner.core.lease import EndReason, LeaseState
from allotment_spawner.wire import (
    Activate,
    Confirm,
    DatasetView,
    EnvironmentView,
    FlavorView,
    HomeView,
    LastCall,
    LeaseReply,
    LeaseRequest,
    LeaseView,
    MountView,
    StartsView,
)
from fastapi import FastAPI, Header
from fastapi.responses import StreamingResponse

if TYPE_CHECKING:
    from allotment_testing.fake_broker import FakeBroker, FakeLease

__all__ = ["add_routes"]

Attempt = Annotated[str, Header(alias="Idempotency-Key")]
MaybeAttempt = Annotated[str | None, Header(alias="Idempotency-Key")]


def _known(fake: FakeBroker, lease_id: str, attempt: str | None) -> FakeLease:
    if lease_id not in fake.leases:
        raise NoSuchLease("There is no such lease.", "Look at your leases.")
    lease = fake.leases[lease_id]
    if attempt is not None and lease.attempt != attempt:
        raise StaleAttempt("A newer attempt took over.", "Look there.")
    return lease


def add_routes(app: FastAPI, fake: FakeBroker, prefix: str) -> None:
    """The calls that a spawner makes."""
    _add_reads(app, fake, prefix)
    _add_steps(app, fake, prefix)
    _add_lists(app, fake, prefix)


def _add_reads(app: FastAPI, fake: FakeBroker, prefix: str) -> None:
    @app.post(f"{prefix}/leases", status_code=201)
    async def request(body: LeaseRequest, attempt: Attempt) -> LeaseReply:
        return fake.reply(fake.enter(attempt, body))

    @app.get(f"{prefix}/leases")
    async def leases(
        user: str | None = None, server: str | None = None, live: bool = False
    ) -> list[LeaseView]:
        found = fake.live() if live else list(fake.leases.values())
        found = [one for one in found if user in (None, one.request.user)]
        found = [one for one in found if server in (None, one.request.server)]
        return [fake.view(one) for one in reversed(found)]

    @app.get(f"{prefix}/leases/{{lease_id}}")
    async def one(lease_id: str) -> LeaseReply:
        return fake.reply(_known(fake, lease_id, None))

    @app.get(f"{prefix}/leases/{{lease_id}}/events")
    async def events(lease_id: str, attempt: str) -> StreamingResponse:
        lease = _known(fake, lease_id, attempt)
        return StreamingResponse(fake.lease_events(lease, attempt), media_type="text/event-stream")

    @app.get(f"{prefix}/leases/{{lease_id}}/explain")
    async def explain(lease_id: str) -> dict[str, Any]:
        _known(fake, lease_id, None)
        return {
            "lease": lease_id,
            "state": "queued",
            "sentence": "All seven slices of 10 GB are in use by other people.",
            "rules": [],
            "devices": [{"gpu_uuid": "GPU-0", "holder": "another person"}],
            "help": ["One of them has to stop, or you start on CPU."],
        }


def _add_steps(app: FastAPI, fake: FakeBroker, prefix: str) -> None:
    @app.put(f"{prefix}/leases/{{lease_id}}/renew")
    async def renew(lease_id: str, attempt: Attempt) -> LeaseReply:
        return fake.reply(_known(fake, lease_id, attempt))

    @app.put(f"{prefix}/leases/{{lease_id}}/confirm")
    async def confirm(lease_id: str, body: Confirm, attempt: Attempt) -> LeaseReply:
        lease = _known(fake, lease_id, attempt)
        if lease.state is not LeaseState.GRANTED:
            raise WrongState("It is not granted.", "Start again.")
        lease.engine_ref, lease.confirmed = body.engine_ref, True
        return fake.reply(lease)

    @app.put(f"{prefix}/leases/{{lease_id}}/active")
    async def active(lease_id: str, body: Activate, attempt: Attempt) -> LeaseReply:
        lease = _known(fake, lease_id, attempt)
        if list(body.devices_seen) != ([lease.device] if lease.device else []):
            raise DeviceMismatch("Another device.", "Start again.")
        lease.state = LeaseState.ACTIVE
        return fake.reply(lease)

    @app.delete(f"{prefix}/leases/{{lease_id}}")
    async def release(
        lease_id: str, reason: EndReason = EndReason.STOPPED, attempt: MaybeAttempt = None
    ) -> LeaseReply:
        lease = _known(fake, lease_id, attempt)
        fake.end(lease, reason)
        return fake.reply(lease)

    @app.post(f"{prefix}/leases/{{lease_id}}/last-call")
    async def last_call(lease_id: str) -> LastCall:
        _known(fake, lease_id, None)
        return LastCall(listeners=1, answered=1, saved=1, failed=0)


def _add_lists(app: FastAPI, fake: FakeBroker, prefix: str) -> None:
    @app.get(f"{prefix}/flavors")
    async def flavors(user: str) -> list[FlavorView]:
        return fake.flavors()

    @app.get(f"{prefix}/environments")
    async def environments(user: str) -> list[EnvironmentView]:
        return fake.environments()

    @app.get(f"{prefix}/homes")
    async def home(user: str) -> list[HomeView]:
        return [fake.home(user)]

    @app.get(f"{prefix}/starts")
    async def starts() -> StartsView:
        return StartsView(ok=fake.closed is None, reason=fake.closed)

    @app.get(f"{prefix}/mounts")
    async def mounts(user: str) -> list[MountView]:
        return fake.mounts

    @app.get(f"{prefix}/datasets")
    async def datasets(user: str) -> list[DatasetView]:
        return fake.datasets

    @app.get(f"{prefix}/events")
    async def changes() -> StreamingResponse:
        return StreamingResponse(fake.change_events(), media_type="text/event-stream")
