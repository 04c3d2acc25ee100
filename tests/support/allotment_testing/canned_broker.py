"""The broker's real HTTP layer over services that give fixed answers, on a loopback port."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import fields
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from unittest.mock import MagicMock

import uvicorn
from allotment_hub.broker.app import create_app
from allotment_hub.broker.identity import Caller
from allotment_hub.broker.routes.context import Context
from allotment_hub.broker.services.disk import DiskView, PlaceView
from allotment_hub.broker.services.views import (
    DeviceHold,
    EngineHealthView,
    Explanation,
    FleetView,
    GpuView,
    HealthView,
    ProcessView,
    RuleView,
    SliceView,
    StrayView,
    WholeView,
)
from allotment_spawner.core.errors import NoSuchLease, SignInNeeded
from allotment_spawner.core.lease import EndReason, LeaseState
from allotment_spawner.wire import DeviceView, EnvironmentView, FlavorView, LeaseReply, LeaseView
from fastapi import Request

from allotment_testing.fake_things import some_quote

__all__ = ["ANN", "OPERATOR", "PERSON", "canned_context", "serve_canned_broker"]

OPERATOR = "token-of-an-operator"
PERSON = "token-of-a-person"
ANN = "ann"
_NOON = datetime(2026, 11, 2, 12, 0, tzinfo=UTC)
_GPU = "GPU-11111111-0000-0000-0000-000000000000"
_CARD = "GPU-22222222-0000-0000-0000-000000000000"
_SLICE = "MIG-33333333-0000-0000-0000-000000000000"


def lease(lease_id: str, **changes: Any) -> LeaseView:
    """An active lease of Ann's on a 1g.10gb slice, with `changes`."""
    device = DeviceView(uuid=_SLICE, node="node1", gpu_uuid=_GPU, profile="1g.10gb", placement=(0, 1))
    fields: dict[str, Any] = {
        "id": lease_id,
        "kind": "session",
        "user": ANN,
        "server": "",
        "environment": "minimal",
        "flavor": "gpu-10gb",
        "state": LeaseState.ACTIVE,
        "devices": (device,),
        "place": None,
        "expected_start": None,
        "class": "interactive",
        "granted_at": _NOON,
        "active_at": _NOON,
        "stopped_at": None,
        "ended_at": None,
        "end_reason": None,
        "price_per_hour": Decimal("0.40"),
    }
    return LeaseView.model_validate(fields | changes)


LEASES = (
    lease("lease-waits", state=LeaseState.QUEUED, devices=(), place=2, granted_at=None, active_at=None),
    lease("lease-runs", cost=Decimal("0.126670"), currency="credits"),
    lease(
        "lease-over", state=LeaseState.ENDED, ended_at=_NOON, end_reason=EndReason.STOPPED, server="second"
    ),
)


class CannedLeases:
    """Three leases of Ann's: one waits, one runs, one is over."""

    async def find(self, *, user: str | None, server: str | None, live: bool, limit: int) -> list[LeaseView]:
        found = [item for item in LEASES if user in (None, item.user)]
        return [item for item in found if not live or item.state != LeaseState.ENDED][:limit]

    async def get(self, lease_id: str) -> LeaseReply:
        for item in LEASES:
            if item.id == lease_id:
                return LeaseReply(lease=item, deadline_at=None, launch=None)
        raise NoSuchLease("There is no such lease.", "Look at your leases.")

    async def owner_of(self, lease_id: str) -> str:
        return (await self.get(lease_id)).lease.user


class CannedFleet:
    """Two simulated cards: one cut into slices, one whole and leased."""

    async def flavors(self, user: str) -> list[FlavorView]:
        shared: dict[str, Any] = {"resources": {}, "currency": "credits", "expected_wait_s": None}
        return [
            FlavorView.model_validate(shared | fields)
            for fields in (
                {"id": "cpu", "title": "CPU only", "free": None, "total": None, "price_per_hour": "0.05"}
                | {"available": True, "reason": None, "quote": some_quote("0.025", refusal="0.01 lacks.")},
                {"id": "gpu-10gb", "title": "10 GB GPU", "free": 5, "total": 7, "price_per_hour": "0.40"}
                | {"available": True, "reason": None},
                {"id": "gpu-2x", "title": "Two whole GPUs", "free": 0, "total": 0, "price_per_hour": "6.40"}
                | {"available": False, "reason": "This machine has no two whole cards."},
            )
        ]

    async def environments(self, user: str) -> list[EnvironmentView]:
        return [
            EnvironmentView(
                id="minimal", title="Minimal", description="", packages={"jupyterlab": "4"}, image=None,
                available=True, reason=None,
            )
        ]  # fmt: skip

    async def view(self) -> FleetView:
        return FleetView(
            node="node1", boot_id="boot-1", simulated=True, driver_version=None,
            agent=HealthView(ok=True), engine=EngineHealthView(name="local", ok=True),
            gpus=(_cut_card(), _whole_card()),
            strays=(StrayView(engine_ref="allotment-x-y", note="no lease explains it"),),
        )  # fmt: skip


def _cut_card() -> GpuView:
    leased = SliceView(
        uuid=_SLICE,
        profile="1g.10gb",
        start=0,
        size=1,
        state="leased",
        lease="lease-runs",
        user=ANN,
        since=_NOON,
    )
    idle = SliceView(uuid="MIG-4", profile="3g.40gb", start=4, size=4, state="idle")
    return GpuView(
        uuid=_GPU, index=0, model="A100-SXM4-80GB", memory_bytes=80 * 2**30, pool="mig", mig=True, axis=8,
        island=0, problem=None, slices=(leased, idle), whole=None,
        processes=(ProcessView(pid=4242, device_uuid=_SLICE, name="python", explained=False),),
    )  # fmt: skip


def _whole_card() -> GpuView:
    return GpuView(
        uuid=_CARD, index=1, model="A100-SXM4-80GB", memory_bytes=80 * 2**30, pool="whole", mig=False, axis=0,
        island=0, problem="Xid 79 was seen", slices=(), processes=(),
        whole=WholeView(state="leased", lease="lease-of-ben", user="ben"),
    )  # fmt: skip


class CannedExplainer:
    async def explain(self, lease_id: str, *, for_operator: bool) -> Explanation:
        holder = ANN if for_operator else "another person"
        return Explanation(
            lease=lease_id,
            state="queued",
            sentence="It waits because every slice of this size is taken.",
            rules=(RuleView(rule="no_room", sentence="No GPU has room for 1g.10gb."),),
            devices=(
                DeviceHold(
                    gpu_uuid=_GPU, placement=(0, 1), holder=holder, since=_NOON,
                    lease="lease-runs" if for_operator else None,
                ),
            ),
            help=("Choose CPU only to start now.",),
        )  # fmt: skip


class CannedDisk:
    async def view(self) -> DiskView:
        place = PlaceView(
            name="data",
            path="/srv/allotment",
            free_bytes=12 * 2**30,
            total_bytes=2**40,
            guarded=True,
            low=False,
        )
        return DiskView(ok=True, reason=None, floor_bytes=5 * 2**30, places=(place,), quota="xfs")


class CannedChanges:
    async def subscribe(self) -> AsyncIterator[int]:
        yield 1


class CannedAuth:
    """Knows two tokens; no hub is asked."""

    async def caller(self, request: Request) -> Caller:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if token == OPERATOR:
            return Caller(name="admin", kind="person", operator=True)
        if token == PERSON:
            return Caller(name=ANN, kind="person")
        raise SignInNeeded("The hub does not know this token; it may have expired.", "Make a new one.")


def canned_context(*, ready: bool = True) -> Context:
    """What the routes need, with fixed answers; parts that no reading route uses are empty."""
    canned: dict[str, Any] = {field.name: MagicMock(name=field.name) for field in fields(Context)}
    canned |= {
        "leases": CannedLeases(),
        "fleet": CannedFleet(),
        "disk": CannedDisk(),
        "explainer": CannedExplainer(),
        "changes": CannedChanges(),
        "auth": CannedAuth(),
        "simulated": True,
        "title": "Allotment",
        "currency": "credits",
        "engine": "local",
        "public_url": "http://127.0.0.1:8000",
        "version": "0.1.0",
        "ready": ready,
    }
    return Context(**canned)


@contextmanager
def serve_canned_broker(*, ready: bool = True) -> Iterator[str]:
    """The base URL, which ends in /services/allotment/, while the server runs in a thread."""
    app = create_app(canned_context(ready=ready))

    @app.get("/hub/api/")
    async def hub_version() -> dict[str, str]:
        return {"version": "6.1.1"}

    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_config=None, lifespan="off"))
    thread = threading.Thread(target=server.run, name="canned-broker")
    thread.start()
    try:
        deadline = time.monotonic() + 20
        while not server.started:
            assert time.monotonic() < deadline, "the canned broker did not start"
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}/services/allotment/"
    finally:
        server.should_exit = True
        thread.join(timeout=20)
