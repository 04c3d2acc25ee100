"""One random life of an installation in which the broker dies again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from pathlib import Path

from allotment_hub.broker.factory import Broker
from allotment_hub.site import Policies, Site
from allotment_spawner.core.errors import Refusal
from allotment_spawner.core.lease import EndReason

from allotment_testing.books_check import BooksCheck
from allotment_testing.broker_world import BrokerWorld
from allotment_testing.crashes import Crash, CrashPoint, Invariants
from allotment_testing.protocol_spawner import ProtocolSpawner

__all__ = ["OPERATIONS", "CrashRun", "Deed"]

OPERATIONS = (
    *("run",) * 7,
    *("advance",) * 4,
    *("round",) * 3,
    *("stop",) * 2,
    *("release",) * 2,
    *("heal",) * 4,
    *("later",) * 2,
    "next_day",
    "request",
    "cancel",
    "exit",
    "linger",
    "linger",
    "hub_dies",
    "hub_away",
    "engine_silent",
    "agent_silent",
    "engine_restarts",
    "reboot",
    "stops_fail",
    "agent_restarts",
)
FLAVORS = ("cpu", "gpu-10gb", "gpu-20gb", "gpu-40gb", "gpu-full", "gpu-2x")
POLICIES = Policies(
    sessions_per_person=50, grant_deadline_s=20, start_limit_s=30, keep_place_s=20, stop_grace_s=1
)


@dataclass(frozen=True)
class Deed:
    """`crash`: die so many steps from here, in this deed or a later one; None: live on."""

    operation: str
    person: int
    flavor: int
    crash: int | None


class CrashRun:
    """The world outlives the broker; `do` one deed at a time, `settle` at the end."""

    def __init__(self, folder: Path) -> None:
        self.world = BrokerWorld(
            folder, spec="sim:1xA100-80GB:mig,2xA100-80GB:whole", site=Site(policies=POLICIES)
        )
        self.world.settle_s = 0.05
        self.invariants = Invariants(self.world)
        self.books = BooksCheck(self.world.paths.broker_database)
        self.point = CrashPoint()
        self.broker: Broker | None = None
        self.spawners: dict[int, ProtocolSpawner] = {}
        self.steps: dict[int, str] = {}
        self.watches: list[asyncio.Task[object]] = []
        self.deaths: list[str] = []
        self.agent_silent = False
        self._real_stop = self.world.engine.stop
        self.world.engine.stop = self._watched_stop  # type: ignore[method-assign]

    async def _watched_stop(self, engine_ref: str, *, grace_s: float) -> None:
        workload = self.world.engine.workloads.get(engine_ref)
        if workload is not None and workload.lease is not None:
            state = self.invariants.state_of(workload.lease)
            assert state in ("ending", "ended"), f"a live session ({state}) was killed"
        await self._real_stop(engine_ref, grace_s=grace_s)

    @property
    def blind(self) -> bool:
        return self.world.engine.silent or self.agent_silent

    async def start(self) -> None:
        """A new broker process on what the last one left; it may die while it starts, too."""
        self.point = CrashPoint()
        self.broker = self.world.build(self.point)
        await self.broker.start()
        await self.broker.jobs.idle()
        self.invariants.check()

    async def bury(self) -> None:
        broker, self.broker = self.broker, None
        for task in self.watches:
            task.cancel()
        await asyncio.gather(*self.watches, return_exceptions=True)
        self.watches.clear()
        if broker is not None:
            await broker.close()

    async def do(self, deed: Deed) -> None:
        assert self.broker is not None
        blind = self.blind
        freed = self.invariants.ended_holders() if blind else set()
        healthy = self.invariants.healthy()
        if deed.crash is not None:
            self.point.arm(deed.crash)
        await self._survive(self._deed(deed))
        await self._survive(self.broker.jobs.idle())
        if self.point.dead or self.broker.jobs.failure is not None:
            failure = self.broker.jobs.failure
            assert failure is None or isinstance(failure, Crash), repr(failure)
            self.deaths.append(str(self.point.died_at))
            await self.bury()
            await self.start()
        if blind and self.blind:
            self.invariants.nothing_freed_since(freed)
        self._nobody_lost_a_session(healthy, deed)
        self.invariants.check()
        self.books.check_unchanged()

    def _nobody_lost_a_session(self, before: dict[str, str], deed: Deed) -> None:
        """What runs and is ready goes on, whatever dies or is silent; only its own person may end it."""
        running = {one.lease for one in self.world.engine.workloads.values() if one.state == "running"}
        for lease, user in before.items():
            mine = user == f"p{deed.person}"
            ready = self.world.hub.servers.get((user, "")) == "ready"
            if lease in running and ready and not mine and deed.operation != "reboot":
                state = self.invariants.state_of(lease)
                assert state == "active", f"a live session became {state} by {deed.operation}"

    async def _survive(self, work: Awaitable[object]) -> None:
        try:
            await work
        except (Crash, Refusal, KeyError):
            return  # death, a polite no, or a container that was removed under the spawner's hands

    async def _deed(self, deed: Deed) -> None:
        assert self.broker is not None
        name = deed.operation
        if name in ("run", "request", "advance", "stop", "release", "cancel", "exit", "linger"):
            await getattr(self, f"_{name}")(deed)
        elif name == "round":
            await self.world.rounds(self.broker)
        elif name == "later":
            await self.world.rounds(self.broker, seconds=7.0 * (1 + deed.flavor))
        elif name == "next_day":
            await self.world.rounds(self.broker, seconds=86_400.0 * (1 + deed.flavor % 2))
        else:
            self._outside(name)
            await self.world.rounds(self.broker)

    def _outside(self, name: str) -> None:
        world = self.world
        if name == "heal":
            world.hub.away = world.engine.silent = world.engine.stops_fail = False
            world.agent.answer_again()
            self.agent_silent = False
        elif name == "agent_restarts":
            world.restart_agent()
            if self.agent_silent:
                world.agent.stop_answering()
        elif name == "hub_dies":
            self.spawners.clear()
            world.hub.servers = {key: state for key, state in world.hub.servers.items() if state == "ready"}
        elif name == "hub_away":
            world.hub.away = True
        elif name == "engine_silent":
            world.engine.silent = True
        elif name == "stops_fail":
            world.engine.stops_fail = True
        elif name == "agent_silent":
            world.agent.stop_answering()
            self.agent_silent = True
        elif name == "engine_restarts":
            world.engine.restart_without_live_restore()
        elif name == "reboot":
            world.engine.restart_without_live_restore()
            world.agent.control.reboot()
            world.agent.control.set_mig_mode("0", on=True)

    async def _request(self, deed: Deed) -> None:
        assert self.broker is not None
        spawner = ProtocolSpawner(self.world, f"p{deed.person}", flavor=FLAVORS[deed.flavor])
        self.spawners[deed.person], self.steps[deed.person] = spawner, "requested"
        await spawner.request(self.broker)

    async def _run(self, deed: Deed) -> None:
        """A whole start, or as much of it as the queue and the deaths allow."""
        if self.steps.get(deed.person) == "active" or deed.person not in self.spawners:
            await self._request(deed)
        for _ in range(4):
            await self._advance(deed)

    async def _advance(self, deed: Deed) -> None:
        """The next step of this person's start: wait, create, confirm, start, activate."""
        assert self.broker is not None
        spawner = self.spawners.get(deed.person)
        if spawner is None or spawner.reply is None:
            return
        step = self.steps[deed.person]
        if step == "requested" and spawner.reply.launch is None:
            self.watches.append(asyncio.ensure_future(self._watch(spawner, self.broker)))
            await self.world.rounds(self.broker)
        elif step == "requested":
            spawner.create()
            self.steps[deed.person] = "created"
        elif step == "created":
            await spawner.confirm(self.broker)
            self.steps[deed.person] = "confirmed"
        elif step == "confirmed":
            spawner.start()
            self.steps[deed.person] = "started"
        elif step == "started":
            await spawner.activate(self.broker)
            self.steps[deed.person] = "active"

    async def _watch(self, spawner: ProtocolSpawner, broker: Broker) -> None:
        try:
            await spawner.wait(broker)
        except (Crash, Refusal):
            return

    async def _stop(self, deed: Deed) -> None:
        assert self.broker is not None
        spawner = self.spawners.pop(deed.person, None)
        if spawner is not None and spawner.reply is not None:
            await spawner.stop(self.broker)

    async def _release(self, deed: Deed) -> None:
        """The hub's stop failed, but the lease is given back: the broker must end the workload."""
        assert self.broker is not None
        spawner = self.spawners.pop(deed.person, None)
        if spawner is not None and spawner.reply is not None:
            await self.broker.leases.release(lease_id=spawner.lease, reason=EndReason.STOPPED, attempt=None)

    async def _cancel(self, deed: Deed) -> None:
        assert self.broker is not None
        spawner = self.spawners.pop(deed.person, None)
        if spawner is None or spawner.reply is None:
            return
        self.world.hub.servers.pop((spawner.body.user, ""), None)
        await self.broker.leases.release(
            lease_id=spawner.lease, reason=EndReason.CANCELLED, attempt=spawner.attempt
        )

    async def _exit(self, deed: Deed) -> None:
        spawner = self.spawners.get(deed.person)
        if spawner is not None and spawner.ref is not None and spawner.pid is not None:
            self.world.engine.exit(spawner.ref)

    async def _linger(self, deed: Deed) -> None:
        """The container is gone, but its process still sits on the device."""
        spawner = self.spawners.get(deed.person)
        if spawner is None or spawner.ref is None or spawner.pid is None:
            return
        keep, self.world.engine.on_removed = self.world.engine.on_removed, lambda _workload: None
        self.world.engine.remove(spawner.ref)
        self.world.engine.on_removed = keep

    async def settle(self) -> None:
        """Everything answers again, the hub has forgotten all: within 60 s nothing is held or runs."""
        assert self.broker is not None
        self.world.hub.away = self.world.engine.silent = self.world.engine.stops_fail = False
        self.world.agent.answer_again()
        self.world.hub.servers.clear()
        for task in self.watches:
            task.cancel()
        await asyncio.gather(*self.watches, return_exceptions=True)
        running = {pid for workload in self.world.engine.workloads.values() for pid in workload.pids}
        for process in self.world.agent.control.processes():
            if process.pid not in running:
                self.world.agent.control.unload(pid=process.pid)
        self.point.disarm()
        for _ in range(60):
            await self.world.rounds(self.broker)
            if not self.invariants.unended() and not self.world.engine.workloads:
                break
        self.invariants.check()
        assert self.invariants.unended() == [], "not settled within 60 s"
        assert self.invariants.slots() == 0
        self.books.check_ended()
        assert self.world.engine.workloads == {}
