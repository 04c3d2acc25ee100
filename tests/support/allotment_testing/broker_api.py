"""A whole broker behind its HTTP API: real services, store and agent verbs over simulated GPUs, fake hub."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import httpx
from allotment_hub.broker.app import API, create_app
from allotment_hub.broker.factory import build_broker
from allotment_hub.broker.hub_client import HubClient
from allotment_hub.broker.main import build_context
from allotment_hub.broker.routes.context import Context
from allotment_hub.broker.services.facade import Broker
from allotment_hub.broker.serving import Server, bind
from allotment_hub.broker.settings import Settings
from allotment_hub.catalog import Catalog, EnvironmentRule, Flavor, GpuWant
from allotment_hub.paths import Paths
from allotment_hub.runtime import EnvironmentImage, Runtime
from allotment_hub.site import HomeSettings, Policies, Site
from allotment_spawner.engines.base import Sampler, Workload
from allotment_spawner.engines.home_gauge import HomeGauge
from fastapi import FastAPI

from allotment_testing.agents import InProcessAgent
from allotment_testing.fake_hub_api import FakeHubApi

__all__ = ["API", "HUB_TOKEN", "MINIMAL", "BrokerApi", "EngineThatHolds", "broker_api", "until"]

HUB_TOKEN: Final = "hub-to-broker-secret-0123456789"
MINIMAL: Final = "sha256:" + "ab" * 32
SERVICE_TOKEN: Final = "broker-service-secret-0123456789"


@dataclass
class EngineThatHolds:
    """Runs nothing itself: shows the workloads that a test put in, takes one out when it is stopped."""

    name: str = "local"
    places: bool = True
    workloads: list[Workload] = field(default_factory=list)

    async def check(self) -> None:
        return None

    async def observe(self) -> Sequence[Workload]:
        return tuple(self.workloads)

    async def stop(self, engine_ref: str, *, grace_s: float) -> None:
        self.workloads = [one for one in self.workloads if one.engine_ref != engine_ref]


@dataclass
class BrokerApi:
    hub: FakeHubApi
    agent: InProcessAgent
    engine: EngineThatHolds
    broker: Broker
    context: Context
    app: FastAPI

    def client(self, token: str | None = None) -> httpx.AsyncClient:
        """Through ASGI, with this bearer token; paths are relative to the API."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        transport = httpx.ASGITransport(app=self.app, raise_app_exceptions=False)
        return httpx.AsyncClient(transport=transport, base_url=f"http://broker{API}/", headers=headers)

    async def lease(
        self, user: str, *, server: str = "", flavor: str = "gpu-10gb", attempt: str | None = None
    ) -> dict[str, object]:
        """The answer of the hub's request for a session of this person."""
        body = {"user": user, "server": server, "environment": "minimal", "flavor": flavor}
        async with self.client(HUB_TOKEN) as hub:
            key = {"Idempotency-Key": attempt or str(uuid4())}
            answer = await hub.post("leases", json=body, headers=key)
        assert answer.status_code == 201, answer.text
        reply: dict[str, object] = answer.json()
        return reply

    async def session(self, user: str, *, server: str = "", flavor: str = "cpu") -> str:
        """The id of a lease whose server runs, for the engine and for the hub."""
        attempt = str(uuid4())
        reply: Any = await self.lease(user, server=server, flavor=flavor, attempt=attempt)
        lease, devices = reply["lease"]["id"], reply["launch"]["devices"]
        running = Workload(
            engine_ref=lease,
            installation="0123abcd",
            lease=lease,
            user=user,
            server=server,
            state="running",
            devices=tuple(devices),
        )
        self.engine.workloads.append(running)
        self.hub.users[user].servers[server] = (None, True)
        async with self.client(HUB_TOKEN) as hub:
            key = {"Idempotency-Key": attempt}
            for step, body in (("confirm", {"engine_ref": lease}), ("active", {"devices_seen": devices})):
                answer = await hub.put(f"leases/{lease}/{step}", headers=key, json=body)
                assert answer.status_code == 200, answer.text
        return str(lease)

    @asynccontextmanager
    async def served(self) -> AsyncIterator[str]:
        """The base URL of a real server on loopback, for streams (ends in /services/allotment/)."""
        listening = bind("127.0.0.1", 0)
        port = listening.getsockname()[1]
        server = Server(self.app, streams=self.context.streams)
        serving = asyncio.ensure_future(server.serve(sockets=[listening]))
        try:
            await until(lambda: server.started or serving.done())
            yield f"http://127.0.0.1:{port}/services/allotment/"
        finally:
            server.stop()
            await serving


def _catalog() -> Catalog:
    def flavor(title: str, price: str, gpu: GpuWant | None = None, **more: object) -> Flavor:
        fields = {"title": title, "gpu": gpu, "cpu": 2, "memory_gib": 4, "price_per_hour": Decimal(price)}
        return Flavor.model_validate(fields | more)

    return Catalog(
        flavors={
            "cpu": flavor("CPU only", "0.05"),
            "gpu-10gb": flavor("10 GB GPU", "0.40", GpuWant(kind="slice", memory_gb=10)),
            "gpu-40gb": flavor("40 GB GPU", "1.60", GpuWant(kind="slice", memory_gb=40, compute_slices=3)),
            "gpu-full": flavor("Whole GPU", "3.20", GpuWant(kind="whole")),
            "staff": flavor("For staff", "9.00", groups=("staff",)),
        },
        environments={"minimal": EnvironmentRule(), "pytorch": EnvironmentRule()},
    )


def _settings(folder: Path, gpus: str, site: Site, *, engine: str) -> Settings:
    minimal = EnvironmentImage(
        title="Minimal",
        packages={"jupyterlab": "4.6.6"},
        image="allotment/minimal:0.1.0-cpu" if engine == "docker" else None,
        digest=MINIMAL if engine == "docker" else None,
        available=True,
    )
    pytorch = EnvironmentImage(title="PyTorch", available=False, reason="Build its image first.")
    runtime = Runtime(
        installation="0123abcd",
        engine="docker" if engine == "docker" else "local",
        gpus=gpus,
        public_url="http://127.0.0.1:8000",
        hub_api_url="http://hub/hub/api",
        broker_host="127.0.0.1",
        broker_port=0,
        broker_url_for_workloads="http://127.0.0.1:8000/services/allotment/",
        hub_api_url_for_workloads="http://hub/hub/api",
        proxy_api_url="http://127.0.0.1:1",
        agent_socket=str(folder / "agent.sock"),
        environments={"minimal": minimal, "pytorch": pytorch},
        trust_users=True,
    )
    return Settings(Paths(folder), runtime, site, _catalog(), HUB_TOKEN, SERVICE_TOKEN)


def _client(transport: httpx.AsyncBaseTransport) -> HubClient:
    return HubClient(api_url="http://hub/hub/api", token=SERVICE_TOKEN, transport=transport)


@asynccontextmanager
async def broker_api(
    folder: Path,
    *,
    gpus: str = "sim:1xA100-80GB:mig,1xA100-80GB:whole",
    policies: Policies | None = None,
    transport: httpx.AsyncBaseTransport | None = None,
    homes: HomeSettings | None = None,
    gauge: HomeGauge | None = None,
    engine_name: str = "local",
    site: Site | None = None,
    sampler: Sampler | None = None,
) -> AsyncIterator[BrokerApi]:
    """Started, reconciled and running; `transport` stands in for the fake hub's. With the engine "docker"
    sessions run from images, and minimal has the one called MINIMAL. `site` for all but these two."""
    parts = {"policies": policies or Policies(sessions_per_person=50), "homes": homes or HomeSettings()}
    settings = _settings(folder, gpus, (site or Site()).model_copy(update=parts), engine=engine_name)
    hub = FakeHubApi(service_token=SERVICE_TOKEN)
    client = _client(transport or hub.transport)
    settings.paths.agent_state.mkdir(parents=True)
    agent = InProcessAgent(settings.paths.simulator_state, gpus)
    engine = EngineThatHolds(name=engine_name)
    broker = build_broker(
        site=settings.site,
        catalog=settings.catalog,
        runtime=settings.runtime,
        paths=settings.paths,
        agent=agent,
        engines={engine.name: engine},
        hub=client,
        clock=_now,
        gauge=gauge,
        sampler=sampler,
    )
    context = build_context(settings, broker=broker, hub=client, clock=_now)
    try:
        async with _running(broker):
            context.ready = True
            yield BrokerApi(hub, agent, engine, broker, context, create_app(context))
    finally:
        await client.close()


@asynccontextmanager
async def _running(broker: Broker) -> AsyncIterator[None]:
    await broker.start()
    running = asyncio.ensure_future(broker.run())
    try:
        yield
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await broker.close()


def _now() -> datetime:
    return datetime.now(UTC)


async def until(condition: Callable[[], bool], *, deadline_s: float = 10.0) -> None:
    """Wait until `condition()` is true; fails when it is not within the deadline."""
    async with asyncio.timeout(deadline_s):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event of its own
            await asyncio.sleep(0.005)
