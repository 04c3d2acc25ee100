"""A stand-in for the broker that can be late, refuse, lose streams and be killed; for failures only."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import uvicorn
from allotment_spawner.core.errors import Refusal
from allotment_spawner.core.lease import LIVE, EndReason, LeaseState
from allotment_spawner.money_wire import QuoteView
from allotment_spawner.wire import (
    DatasetView,
    DeviceView,
    EnvironmentView,
    FlavorView,
    HomeView,
    Launch,
    LeaseEvent,
    LeaseReply,
    LeaseRequest,
    LeaseView,
    MountView,
    Problem,
    VersionView,
    Work,
)
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from allotment_testing.fake_broker_routes import add_routes
from allotment_testing.fake_things import some_home

__all__ = ["TOKEN", "FakeBroker", "FakeLease"]

PREFIX = "/services/allotment/api/v1"
TOKEN = "token-of-the-hub"


class _QuietServer(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The test's signals are not this server's."""
        yield


@dataclass
class FakeLease:
    id: str
    attempt: str
    request: LeaseRequest
    state: LeaseState = LeaseState.QUEUED
    device: str | None = None
    reason: EndReason | None = None
    engine_ref: str | None = None
    confirmed: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass
class FakeBroker:
    """`slices` devices for every flavor but cpu, first come first served.

    Injection: `refusals` maps "METHOD tail" (such as "PUT confirm") to what is answered next;
    `delay_s` is waited before each answer; `down()` and `up()` kill and start it on the same port.
    """

    slices: int = 7
    delay_s: float = 0.0
    simulated: bool = True
    lie_about_devices: bool = False
    """Whether the launch names another device than the one that is leased."""
    versions: tuple[VersionView, ...] = ()
    """Of the environment minimal; the first is the one that is offered."""
    reasons: dict[str, str] = field(default_factory=dict)
    """Why minimal cannot run on a flavor."""
    quotes: dict[str, QuoteView] = field(default_factory=dict)
    """Flavor -> what it would cost; none for the others."""
    mounts: list[MountView] = field(default_factory=list)
    datasets: list[DatasetView] = field(default_factory=list)
    used_bytes: int | None = None
    """Of everybody's home; None is unknown."""
    closed: str | None = None
    """Why nothing new is started at all."""
    waits_for: Work | None = None
    """What every queued lease waits for; such a lease is granted nothing."""
    leases: dict[str, FakeLease] = field(default_factory=dict)
    refusals: dict[str, list[Refusal]] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    held_calls: list[str] = field(default_factory=list)
    port: int = 0
    _count: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _holding: str = ""
    _go_on: asyncio.Event = field(default_factory=asyncio.Event)
    _server: uvicorn.Server | None = None
    _task: asyncio.Task[None] | None = None
    _changes: asyncio.Event = field(default_factory=asyncio.Event)
    _version: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/services/allotment/"

    def write_token(self, folder: Path) -> Path:
        path = folder / "hub-to-broker"
        path.write_text(TOKEN)
        path.chmod(0o600)
        return path

    async def up(self) -> None:
        listening = socket.socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", self.port))
        self.port = listening.getsockname()[1]
        config = uvicorn.Config(_app(self), log_config=None, lifespan="off", timeout_graceful_shutdown=0)
        self._server = _QuietServer(config)
        self._task = asyncio.create_task(self._server.serve(sockets=[listening]))
        while not self._server.started:  # noqa: ASYNC110 - the server has no event to wait for
            await asyncio.sleep(0.005)

    async def down(self) -> None:
        """As a kill: open streams break."""
        assert self._server is not None
        assert self._task is not None
        self._server.should_exit = self._server.force_exit = True
        for lease in self.leases.values():
            self.wake(lease)
        self._tell()
        await self._task

    def hold(self, what: str) -> None:
        """Answer no call such as "PUT active" until `let_go()`; they stand in `held_calls`."""
        self._holding, self._go_on = what, asyncio.Event()

    def let_go(self) -> None:
        self._holding = ""
        self._go_on.set()

    async def held(self, what: str) -> None:
        if what == self._holding:
            self.held_calls.append(what)
            await self._go_on.wait()

    # -- rules ---------------------------------------------------------------------------------

    def queue(self) -> list[FakeLease]:
        return [one for one in self.leases.values() if one.state is LeaseState.QUEUED]

    def of(self, user: str, server: str = "") -> FakeLease:
        """The newest of this server."""
        wanted = (user, server)
        return [one for one in self.leases.values() if (one.request.user, one.request.server) == wanted][-1]

    def live(self) -> list[FakeLease]:
        return [one for one in self.leases.values() if one.state in LIVE]

    def enter(self, attempt: str, request: LeaseRequest) -> FakeLease:
        for lease in self.leases.values():
            if lease.attempt == attempt:
                return lease
        lease = FakeLease(id=f"l{next(self._count):04d}", attempt=attempt, request=request)
        self.leases[lease.id] = lease
        self.schedule()
        return lease

    def schedule(self) -> None:
        taken = {one.device for one in self.leases.values() if one.state in LIVE | {LeaseState.ENDING}}
        free = [f"MIG-{number}" for number in range(self.slices) if f"MIG-{number}" not in taken]
        for lease in self.queue() if self.waits_for is None else ():
            if lease.request.flavor != "cpu":
                if not free:
                    continue
                lease.device = free.pop(0)
            lease.state = LeaseState.GRANTED
        for lease in self.leases.values():
            self.wake(lease)
        self._tell()

    def end(self, lease: FakeLease, reason: EndReason) -> None:
        if lease.state is not LeaseState.ENDED:
            lease.state, lease.reason = LeaseState.ENDED, reason
            self.schedule()

    def wake(self, lease: FakeLease) -> None:
        lease.changed.set()
        lease.changed = asyncio.Event()

    def _tell(self) -> None:
        self._version += 1
        self._changes.set()
        self._changes = asyncio.Event()

    # -- views ---------------------------------------------------------------------------------

    def reply(self, lease: FakeLease) -> LeaseReply:
        launch = self._launch(lease) if lease.state in (LeaseState.GRANTED, LeaseState.ACTIVE) else None
        deadline = datetime.now(UTC) + timedelta(seconds=30) if lease.state is LeaseState.GRANTED else None
        waits = self.waits_for if lease.state is LeaseState.QUEUED else None
        return LeaseReply(lease=self.view(lease), deadline_at=deadline, launch=launch, waits_for=waits)

    def view(self, lease: FakeLease) -> LeaseView:
        queue = self.queue()
        device = lease.device and DeviceView(
            uuid=lease.device, node="node1", gpu_uuid="GPU-0", profile="1g.10gb", placement=(0, 1)
        )
        return LeaseView.model_validate(
            {
                **lease.request.model_dump(exclude={"charge_to"}),
                "charged_to": lease.request.charge_to,
                "version": lease.request.version or next((one.version for one in self.versions), None),
                "id": lease.id,
                "kind": "session",
                "state": lease.state,
                "devices": (device,) if device else (),
                "place": queue.index(lease) + 1 if lease in queue else None,
                "expected_start": None,
                "class": "interactive",
                "granted_at": None,
                "active_at": None,
                "stopped_at": None,
                "ended_at": None,
                "end_reason": lease.reason,
                "price_per_hour": "0.40",
            }
        )

    def _launch(self, lease: FakeLease) -> Launch:
        devices = (lease.device,) if lease.device else ()
        if self.lie_about_devices:
            devices = ("MIG-of-somebody-else",)
        env = {
            "ALLOTMENT_URL": self.url,
            "ALLOTMENT_LEASE": lease.id,
            "ALLOTMENT_DEVICES": ",".join(devices),
            "CUDA_VISIBLE_DEVICES": ",".join(devices),
        }
        return Launch(
            installation="feedbeef",
            engine="local",
            image=None,
            image_digest=None,
            cpu=1,
            memory_bytes=2**30,
            shm_bytes=2**26,
            pids=1024,
            env=env,
            devices=devices,
            simulated=self.simulated,
        )

    def flavors(self) -> list[FlavorView]:
        free = self.slices - len([one for one in self.live() if one.device])
        found = [
            _flavor("cpu", "CPU only", "0.05", _gpu("none", count=0)),
            _flavor("gpu-10gb", "10 GB GPU", "0.40", _gpu("slice", profile="1g.10gb"), free, self.slices),
            _flavor("gpu-2x", "Two whole GPUs", "6.40", _gpu("whole", count=2), 0, 0)
            .model_copy(update={"available": False, "reason": "This machine has no two whole cards."}),
        ]  # fmt: skip
        return [one.model_copy(update={"quote": self.quotes.get(one.id)}) for one in found]

    def environments(self) -> list[EnvironmentView]:
        packages = {"jupyterlab": "4.6.6", "python": "3.11", "ipykernel": "7.1", "numpy": "2.3", "pip": "26"}
        why = (
            "It needs the Docker engine: run `images/build pytorch`, then `./deploy/down` and "
            "`./deploy/up --engine docker`."
        )
        return [
            EnvironmentView(
                id="minimal",
                title="Minimal",
                description="JupyterLab and Python, nothing else",
                packages=packages,
                image=None,
                available=True,
                reason=None,
                versions=self.versions,
                reasons=self.reasons,
            ),
            EnvironmentView(
                id="pytorch",
                title="PyTorch",
                description="PyTorch with CUDA",
                packages={"torch": "2.13.0"},
                image=None,
                available=False,
                reason=why,
            ),
        ]

    def home(self, user: str) -> HomeView:
        return some_home(user, used_bytes=self.used_bytes)

    def next_refusal(self, what: str) -> Refusal | None:
        waiting = self.refusals.get(what)
        return waiting.pop(0) if waiting else None

    async def lease_events(self, lease: FakeLease, attempt: str) -> AsyncIterator[str]:
        last = ""
        while lease.attempt == attempt and not (self._server and self._server.should_exit):
            changed = lease.changed
            kind = {LeaseState.ENDING: "ended"}.get(lease.state, str(lease.state))
            event = LeaseEvent.model_validate({"type": kind, "reply": self.reply(lease)})
            text = f"event: {kind}\ndata: {event.model_dump_json(by_alias=True)}\n\n"
            if text != last:
                yield text
                last = text
            if kind in ("granted", "ended"):
                return
            await changed.wait()

    async def change_events(self) -> AsyncIterator[str]:
        yield ": hello\n\n"
        while not (self._server and self._server.should_exit):
            # as the broker: the current version first, so that no change before the listening is missed
            changes = self._changes
            yield f'event: changed\ndata: {{"version": {self._version}}}\n\n'
            await changes.wait()


def _gpu(kind: str, *, profile: str | None = None, count: int = 1) -> dict[str, object]:
    model = None if kind == "none" else "A100-SXM4-80GB"
    return {"kind": kind, "profile": profile, "count": count, "memory_bytes": None, "model": model}


def _flavor(
    flavor: str,
    title: str,
    price: str,
    gpu: dict[str, object],
    free: int | None = None,
    total: int | None = None,
) -> FlavorView:
    return FlavorView.model_validate(
        {
            "id": flavor,
            "title": title,
            "resources": {"gpu": gpu, "cpu": 2.0, "memory_bytes": 4 * 2**30},
            "free": free,
            "total": total,
            "price_per_hour": price,
            "currency": "credits",
            "available": True,
            "reason": None,
            "expected_wait_s": None,
        }
    )


def _app(fake: FakeBroker) -> FastAPI:
    app = FastAPI()

    @app.exception_handler(Refusal)
    async def refused(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, Refusal)
        problem = Problem(
            type=f"urn:allotment:problem:{error.code}",
            title=error.code,
            status=409,
            detail=error.sentence,
            code=error.code,
            next_step=error.next_step,
        )
        return JSONResponse(problem.model_dump(), status_code=409, media_type="application/problem+json")

    @app.middleware("http")
    async def inject(request: Request, call_next: Any) -> Any:
        tail = request.url.path.rsplit("/", 1)[-1]
        what = f"{request.method} {tail}"
        fake.calls.append(what)
        await asyncio.sleep(fake.delay_s)
        await fake.held(what)
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            return JSONResponse({}, status_code=401)
        if (refusal := fake.next_refusal(what)) is not None:
            return await refused(request, refusal)
        return await call_next(request)

    add_routes(app, fake, PREFIX)
    return app
