"""A simulated machine, an engine and a hub, with as many brokers in turn on them as a test kills."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path

from allotment_hub.broker.disk_parts import Room
from allotment_hub.broker.factory import Broker, build_broker
from allotment_hub.catalog import Catalog, EnvironmentRule, Flavor, GpuWant
from allotment_hub.paths import Paths
from allotment_hub.runtime import EnvironmentImage, Runtime
from allotment_hub.site import Policies, Site
from allotment_spawner.core.inventory import NodeInventory, Slice
from allotment_spawner.core.samples import NodeSamples
from allotment_spawner.engines.base import Workload

from allotment_testing.agents import InProcessAgent
from allotment_testing.manual_clock import ManualClock
from allotment_testing.memory_engine import MemoryEngine
from allotment_testing.memory_hub import MemoryHub

__all__ = ["BrokerWorld", "small_catalog", "until"]

INSTALLATION = "0123abcd"


def small_catalog() -> Catalog:
    def flavor(title: str, price: str, gpu: GpuWant | None = None) -> Flavor:
        return Flavor(title=title, gpu=gpu, cpu=1, memory_gib=1, price_per_hour=Decimal(price))

    return Catalog(
        flavors={
            "cpu": flavor("CPU only", "0.05"),
            "gpu-10gb": flavor("10 GB GPU", "0.40", GpuWant(kind="slice", memory_gb=10)),
            "gpu-20gb": flavor("20 GB GPU", "0.80", GpuWant(kind="slice", memory_gb=20, compute_slices=2)),
            "gpu-40gb": flavor("40 GB GPU", "1.60", GpuWant(kind="slice", memory_gb=40, compute_slices=3)),
            "gpu-full": flavor("Whole GPU", "3.20", GpuWant(kind="whole")),
            "gpu-2x": flavor("Two whole GPUs", "6.40", GpuWant(kind="whole", count=2)),
        },
        environments={"minimal": EnvironmentRule(), "pytorch": EnvironmentRule()},
    )


class BrokerWorld:
    """Everything outside of the broker stays when a broker dies; `broker()` builds a new one on it."""

    def __init__(
        self,
        folder: Path,
        *,
        spec: str = "sim:1xA100-80GB:mig,1xA100-80GB:whole",
        site: Site | None = None,
        catalog: Catalog | None = None,
        engine: str = "docker",
        trust_users: bool = False,
    ) -> None:
        self.paths = Paths(folder)
        self.site = site or Site(policies=Policies(sessions_per_person=50))
        self.catalog = catalog or small_catalog()
        self.clock = ManualClock()
        self.hub = MemoryHub()
        self.settle_s = 2.0
        self.room: Room | None = None
        self.started: dict[int, str] = {}
        """Process -> the lease whose workload it is."""
        self.engine = MemoryEngine(installation=INSTALLATION, name=engine)
        self.engine.on_removed = self._processes_end
        self.paths.agent_state.mkdir(parents=True, exist_ok=True)
        self._spec = spec
        self.agent = InProcessAgent(self.paths.simulator_state, spec)
        self.runtime = self._runtime(engine, trust_users)

    def _runtime(self, engine: str, trust_users: bool) -> Runtime:
        image = {"image": "allotment/minimal", "digest": "sha256:0", "available": True}
        return Runtime(
            installation=INSTALLATION,
            engine="local" if engine == "local" else "docker",
            gpus=self._spec,
            public_url="http://127.0.0.1:8000",
            hub_api_url="http://127.0.0.1:8081/hub/api",
            broker_host="127.0.0.1",
            broker_port=1,
            broker_url_for_workloads="http://172.30.0.1:8082/services/allotment/",
            hub_api_url_for_workloads="http://172.30.0.1:8081/hub/api",
            proxy_api_url="http://127.0.0.1:8001",
            agent_socket=str(self.paths.agent_socket),
            environments={
                "minimal": EnvironmentImage(title="Minimal", **image),  # type: ignore[arg-type]
                "pytorch": EnvironmentImage(title="PyTorch", available=False, reason="It is not built."),
            },
            trust_users=trust_users,
        )

    def restart_agent(self) -> None:
        """The same machine with a new agent process."""
        self.agent = InProcessAgent(self.paths.simulator_state, self._spec)

    def _processes_end(self, workload: Workload) -> None:
        for pid in workload.pids:
            self.agent.control.unload(pid=pid)

    def build(self, on_step: Callable[[str], None] = lambda _step: None) -> Broker:
        return build_broker(
            site=self.site,
            catalog=self.catalog,
            runtime=self.runtime,
            paths=self.paths,
            agent=_AgentLine(self),
            engines={self.runtime.engine: self.engine},
            hub=self.hub,
            clock=self.clock,
            on_step=on_step,
            settle_s=self.settle_s,
            room=self.room,
        )

    @asynccontextmanager
    async def broker(self) -> AsyncIterator[Broker]:
        """Started and reconciled; its loop is not running: tests ask for rounds."""
        broker = self.build()
        await broker.start()
        try:
            yield broker
        finally:
            await broker.close()

    async def rounds(self, broker: Broker, count: int = 1, *, seconds: float = 1.0) -> None:
        """Rounds of the reconciler `seconds` apart, each with everything it started done."""
        for _ in range(count):
            self.clock.advance(seconds)
            await broker.reconciler.once()
            await broker.jobs.idle()


class _AgentLine:
    """The broker's end of the socket: whichever agent runs now answers."""

    def __init__(self, world: BrokerWorld) -> None:
        self._world = world

    async def inventory(self) -> NodeInventory:
        return await self._world.agent.inventory()

    async def samples(self) -> NodeSamples:
        return await self._world.agent.samples()

    async def ensure_slice(self, gpu_uuid: str, profile: str, start: int) -> Slice:
        return await self._world.agent.ensure_slice(gpu_uuid, profile, start)

    async def destroy_slice(self, gpu_uuid: str, profile: str, start: int) -> None:
        await self._world.agent.destroy_slice(gpu_uuid, profile, start)


async def until(condition: Callable[[], bool], *, deadline_s: float = 10.0) -> None:
    """Wait until it is true; fails when it is not within the deadline."""
    async with asyncio.timeout(deadline_s):
        while not condition():  # noqa: ASYNC110 - a condition has no event
            await asyncio.sleep(0.002)
