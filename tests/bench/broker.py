"""bench-broker: durable grants a second, and exec to first answer with 1,000 live leases."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from decimal import Decimal
from itertools import product
from pathlib import Path
from statistics import median
from uuid import uuid4

import httpx
from allotment_hub.broker.factory import Broker, build_broker
from allotment_hub.broker.store.connect import sqlite_url
from allotment_hub.broker.store.records import Device
from allotment_hub.broker.store.store import Store
from allotment_hub.broker.store.transaction import Transaction
from allotment_hub.paths import Paths
from allotment_hub.runtime import Runtime
from allotment_spawner.core.inventory import NodeInventory, Slice
from allotment_spawner.core.lease import EndReason, LeaseState
from allotment_spawner.wire import LeaseRequest
from allotment_testing.agent_process import AgentProcess
from allotment_testing.agents import InProcessAgent
from allotment_testing.broker_world import BrokerWorld

GOAL_START_S = 2.0
CLIENTS = (1, 8, 32)
SPEC = "sim:8xA100-80GB:mig"
API = "/services/allotment/"


@dataclass(frozen=True)
class Rate:
    """`clients` at a time asked for and gave back `grants` leases of `flavor` in `seconds`."""

    flavor: str
    clients: int
    grants: int
    seconds: float

    @property
    def per_second(self) -> float:
        return self.grants / self.seconds


@dataclass(frozen=True)
class Start:
    """Seconds from exec to the first answer of the API, one a run."""

    leases: int
    seconds: list[float]


def main() -> int:
    """Exit 0 when the start is under its goal, 1 otherwise (with --quick always 0)."""
    parser = argparse.ArgumentParser(prog="tests/run bench-broker", description=__doc__)
    parser.add_argument("--grants", type=int, default=300, help="leases a measurement (300)")
    parser.add_argument("--leases", type=int, default=1000, help="live leases at the start (1000)")
    parser.add_argument("--starts", type=int, default=5, help="starts that are timed (5)")
    parser.add_argument("--quick", action="store_true", help="few of each: does it run at all")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    if options.quick:
        options.grants, options.leases, options.starts = 16, 100, 1
    with tempfile.TemporaryDirectory(prefix="allotment-bench-") as folder:
        rates = asyncio.run(_rates(Path(folder) / "rates", options.grants))
        start = asyncio.run(_starts(Path(folder) / "start", options.leases, options.starts))
    if options.json:
        rows = [asdict(rate) | {"per_second": rate.per_second} for rate in rates]
        print(json.dumps({"rates": rows, "start": asdict(start), "goal_start_s": GOAL_START_S}, indent=2))
    else:
        _print(rates, start)
    return 0 if options.quick or median(start.seconds) < GOAL_START_S else 1


def _print(rates: Sequence[Rate], start: Start) -> None:
    print("durable grants a second (SQLite, synchronous=FULL; request, grant, release, end)")
    for rate in rates:
        print(f"  {rate.flavor:9} {rate.clients:3} at a time  {rate.per_second:8.0f}/s")
    times = ", ".join(f"{one:.2f}" for one in sorted(start.seconds))
    print(f"exec to first answer with {start.leases} live leases: {median(start.seconds):.2f} s ({times});")
    print(f"  goal: under {GOAL_START_S:.0f} s")


async def _rates(folder: Path, grants: int) -> list[Rate]:
    world = BrokerWorld(folder, spec=SPEC)
    found = []
    broker = build_broker(
        site=world.site,
        catalog=world.catalog,
        runtime=world.runtime,
        paths=world.paths,
        agent=world.agent,
        engines={world.runtime.engine: world.engine},
        hub=world.hub,
        clock=lambda: datetime.now(UTC),
    )
    await broker.start()
    running = asyncio.ensure_future(broker.run())
    try:
        for flavor, clients in product(("cpu", "gpu-10gb"), CLIENTS):
            found.append(await _rate(broker, flavor, clients, grants))
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await broker.close()
    return found


async def _rate(broker: Broker, flavor: str, clients: int, grants: int) -> Rate:
    left = iter(range(grants))

    async def client(number: int) -> None:
        body = LeaseRequest(user=f"p{number}", environment="minimal", flavor=flavor)
        for _ in left:
            attempt = str(uuid4())
            reply = await broker.leases.request(attempt=attempt, body=body)
            # with the attempt: only a connected waiter is granted anything
            async for event in broker.leases.watch(lease_id=reply.lease.id, attempt=attempt):
                if event.type == "granted":
                    break
            await broker.leases.release(lease_id=reply.lease.id, reason=EndReason.STOPPED, attempt=None)

    begun = time.perf_counter()
    await asyncio.gather(*(client(number) for number in range(clients)))
    return Rate(flavor, clients, grants, time.perf_counter() - begun)


async def _starts(folder: Path, leases: int, starts: int) -> Start:
    folder.mkdir()
    with ExitStack() as stack:
        agent = AgentProcess(folder / "a", spec=SPEC)
        agent.folder.mkdir()
        prepared = InProcessAgent(agent.state_dir / "sim.json", SPEC)
        inventory = await _cut(prepared, leases)
        async with agent:
            paths, runtime = _installation(folder, agent.socket)
            names = await _fill(paths, inventory, leases)
            _sessions(stack, names, runtime.installation)
            seconds = [await _start(paths, runtime, leases) for _ in range(starts)]
    return Start(leases, seconds)


async def _cut(agent: InProcessAgent, leases: int) -> NodeInventory:
    """As many slices as the cards hold; the other leases are CPU sessions."""
    for gpu in (await agent.inventory()).gpus:
        for start in range(min(7, leases)):
            await agent.ensure_slice(gpu.uuid, "1g.10gb", start)
    return await agent.inventory()


def _installation(folder: Path, agent_socket: Path) -> tuple[Paths, Runtime]:
    """A data directory as `up` writes it, for the local engine and a hub that is not there."""
    world = BrokerWorld(folder / "data", engine="local", trust_users=True)
    paths = world.paths
    for made in (paths.runtime.parent, paths.secrets, paths.site.parent, paths.logs):
        made.mkdir(parents=True, exist_ok=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    runtime = world.runtime.model_copy(update={"broker_port": port, "agent_socket": str(agent_socket)})
    paths.runtime.write_text(runtime.model_dump_json(), encoding="utf-8")
    for name in ("hub-to-broker", "broker-service"):
        (paths.secrets / name).touch(mode=0o600)
        (paths.secrets / name).write_text(uuid4().hex + "\n", encoding="ascii")
    examples = Path(__file__).resolve().parents[2] / "deploy" / "config"
    for target in (paths.site, paths.catalog):
        shutil.copy(examples / target.name, target)
    return paths, runtime


async def _fill(paths: Paths, inventory: NodeInventory, leases: int) -> list[str]:
    """Active leases in the database; returns their ids."""
    store = Store(url=sqlite_url(paths.broker_database))
    await store.open()
    slices = [(gpu.uuid, piece) for gpu in inventory.gpus for piece in gpu.slices]
    names = [f"{number:016x}" for number in range(leases)]

    def work(tx: Transaction) -> None:
        now = datetime.now(UTC)
        for number, name in enumerate(names):
            tx.add_lease(
                id=name,
                kind="session",
                queue_class="interactive",
                user=f"p{number}",
                server="",
                environment="minimal",
                flavor="gpu-10gb" if number < len(slices) else "cpu",
                state=LeaseState.ACTIVE,
                attempt=name,
                engine_ref=name,
                price_per_hour=Decimal("0.4"),
                created_at=now,
                granted_at=now,
                confirmed_at=now,
                active_at=now,
                boot_id=inventory.boot_id,
            )
            if number < len(slices):
                tx.reserve(name, [_device(inventory.node, *slices[number])])

    await store.write("fill", work)
    await store.close()
    return names


def _device(node: str, gpu_uuid: str, piece: Slice) -> Device:
    return Device(
        gpu_uuid=gpu_uuid,
        node=node,
        profile=piece.profile,
        start=piece.start,
        size=piece.size,
        uuid=piece.uuid,
    )


def _sessions(stack: ExitStack, names: Sequence[str], installation: str) -> None:
    """One idle process a lease: without them the leases would rightly end at the first look."""
    processes: list[subprocess.Popen[bytes]] = []

    def end() -> None:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()

    stack.callback(end)
    for name in names:
        env = {"ALLOTMENT_LEASE": name, "ALLOTMENT_INSTALLATION": installation, "ALLOTMENT_DEVICES": ""}
        processes.append(subprocess.Popen(["/bin/sleep", "3600"], env=env, stdout=subprocess.DEVNULL))


async def _start(paths: Paths, runtime: Runtime, leases: int) -> float:
    """Seconds from exec to the first answer with every lease live; the broker is killed afterwards."""
    command = [str(Path(sys.executable).with_name("allotment-broker")), "--data-dir", str(paths.data)]
    token = (paths.secrets / "hub-to-broker").read_text(encoding="ascii").strip()
    url = f"http://127.0.0.1:{runtime.broker_port}{API}api/v1/leases?live=true&limit=50"
    log = (paths.logs / "bench-broker.log").open("ab")
    begun = time.perf_counter()
    process = subprocess.Popen(  # noqa: ASYNC220 - the exec itself is what is timed
        command, stdout=log, stderr=log, env={"PATH": os.environ["PATH"]}
    )
    try:
        async with httpx.AsyncClient(headers={"Authorization": f"Bearer {token}"}) as client:
            while time.perf_counter() - begun < 60:
                if process.poll() is not None:
                    raise RuntimeError(f"the broker ended with {process.returncode}: {paths.logs}")
                try:
                    answer = await client.get(url)
                except httpx.TransportError:
                    await asyncio.sleep(0.01)
                    continue
                if answer.status_code == 200:
                    seconds = time.perf_counter() - begun
                    assert len(answer.json()) == min(50, leases)
                    return seconds
                await asyncio.sleep(0.01)
        raise RuntimeError("the broker did not answer within 60 s")
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        log.close()


if __name__ == "__main__":
    sys.exit(main())
