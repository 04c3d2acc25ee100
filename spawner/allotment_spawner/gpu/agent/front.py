"""The front: verbs with deadlines over a worker that can be replaced at any moment."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from allotment_spawner.core.errors import AgentUnavailable
from allotment_spawner.core.inventory import NodeInventory, Slice
from allotment_spawner.core.samples import DeviceSample, NodeSamples
from allotment_spawner.gpu.agent.child import CannotOpen, Child, Hung, Stopped
from allotment_spawner.gpu.agent.health import Health
from allotment_spawner.gpu.agent.link import FromWorker, Task
from allotment_spawner.gpu.agent.setup import Setup
from allotment_spawner.gpu.messages import HealthReport, Unhealthy
from allotment_spawner.gpu.refusals import marked, no_answer

__all__ = ["Deadlines", "Front"]

_log = logging.getLogger("allotment.agent")
_LATER = "Try again in a minute; if it goes on, tell your operator."


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds the hardware gets for each verb (for each GPU of an inventory or a sample), counted from
    when the worker begins with it."""

    start: float = 20.0
    inventory: float = 5.0
    ensure: float = 30.0
    destroy: float = 30.0
    sample: float = 5.0

    def of(self, task: Task) -> float:
        """The deadline of a worker's task."""
        match task.verb:
            case "observe":
                return self.inventory
            case "ensure":
                return self.ensure
            case "count" | "sample":
                return self.sample
            case _:
                return self.destroy


_WORDS = {
    "observe": "reading it",
    "ensure": "making a slice",
    "destroy": "removing a slice",
    "settle": "tidying",
    "count": "counting GPUs",
    "sample": "sampling it",
}


class Front:
    """Serialises all verbs: NVML wants one session with one call at a time.

    A missed deadline marks the GPU that was being touched, and only that one; the worker is
    replaced, and the next one is told to leave that GPU alone.
    """

    def __init__(
        self,
        *,
        setup: Setup,
        health: Health,
        worker_command: Sequence[str],
        deadlines: Deadlines,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._setup = setup
        self._health = health
        self._command = tuple(worker_command)
        self._deadlines = deadlines
        self._clock = clock
        self._turn = asyncio.Lock()
        self._child: Child | None = None
        self._boot_id: str | None = None

    async def open(self) -> None:
        """Start the first worker. CannotOpen, or Hung and Stopped, which are tried again later."""
        async with self._turn:
            await self._ready()

    async def close(self) -> None:
        """End the worker; a change it was at is settled at the next start."""
        if self._child is not None:
            await self._child.kill()
            self._child = None

    async def inventory(self) -> NodeInventory:
        """Every GPU; those that hang or are lost as last known, with their problem."""
        async with self._turn:
            while True:
                hanging = len(self._health.marks)
                try:
                    return await self._observe()
                except Hung:
                    # The GPU is marked now, so the next reading leaves it out. Nobody to blame: give up.
                    if len(self._health.marks) == hanging:
                        raise no_answer("inventory", self._deadlines.inventory) from None

    async def _observe(self) -> NodeInventory:
        while True:
            skip = self._health.hanging()
            said = await self._do(Task(verb="observe", skip=skip))
            if said.inventory is None:
                raise AgentUnavailable("The agent's worker gave no inventory.", _LATER)
            self._boot_id = said.inventory.boot_id
            if self._health.boot(said.inventory.boot_id) and skip:
                continue  # The machine was restarted: the GPUs left out are to be read as well.
            for uuid, reason in said.faults.items():
                self._health.mark(uuid, "fault", reason)
            return self._health.complete(said.inventory)

    async def samples(self) -> NodeSamples:
        """How hard each GPU works. One turn a GPU: a change waits for one reading at the most."""
        devices: list[DeviceSample] = []
        unread: dict[str, str] = {}
        for index in range(await self._count()):
            async with self._turn:
                if index in self._health.hanging():
                    continue
                said = await self._sample(index)
            if said is not None:
                devices += said.devices
                unread |= said.unread
        unread |= {mark.gpu_uuid: mark.reason for mark in self._health.marks if mark.kind == "hang"}
        return NodeSamples(
            node=self._setup.node,
            at=self._clock(),
            simulated=self._setup.gpus.startswith("sim:"),
            devices=tuple(devices),
            unread=unread,
        )

    async def _count(self) -> int:
        async with self._turn:
            task = Task(verb="count")
            try:
                return (await self._do(task)).count
            except Hung:
                raise no_answer(task.verb, self._deadlines.of(task)) from None

    async def _sample(self, index: int) -> FromWorker | None:
        """None when this GPU did not answer; it is marked then."""
        task = Task(verb="sample", index=index)
        marked_before = len(self._health.marks)
        try:
            said = await self._do(task)
        except Hung:
            if len(self._health.marks) == marked_before:
                raise no_answer(task.verb, self._deadlines.of(task)) from None
            return None
        for uuid, reason in said.faults.items():
            self._health.mark(uuid, "fault", reason)
        return said

    async def ensure_slice(self, gpu_uuid: str, profile: str, start: int) -> Slice:
        async with self._turn:
            if (mark := self._health.find(gpu_uuid)) is not None:
                raise marked(gpu_uuid, mark.reason)
            said = await self._change(Task(verb="ensure", gpu_uuid=gpu_uuid, profile=profile, start=start))
            if said.slice is None:
                raise AgentUnavailable("The agent's worker gave no slice.", _LATER)
            return said.slice

    async def destroy_slice(self, gpu_uuid: str, profile: str, start: int) -> None:
        async with self._turn:
            mark = self._health.find(gpu_uuid)
            if mark is not None and mark.kind == "hang":
                raise marked(gpu_uuid, mark.reason)
            await self._change(Task(verb="destroy", gpu_uuid=gpu_uuid, profile=profile, start=start))

    async def heal(self, gpu_uuid: str) -> None:
        """Trust a GPU again; if it still hangs, the next call marks it again."""
        async with self._turn:
            if self._health.heal(gpu_uuid):
                _log.info("GPU %s may be used again", gpu_uuid)
            # A change that the hang cut short is settled by the next verb on this GPU.

    def health(self) -> HealthReport:
        """At once, whatever the hardware does."""
        child = self._child
        return HealthReport(
            ok=child is not None and child.alive,
            node=self._setup.node,
            gpus=self._setup.gpus,
            boot_id=self._boot_id,
            worker_pid=child.pid if child is not None else None,
            unhealthy=tuple(
                Unhealthy(gpu_uuid=m.gpu_uuid, kind=m.kind, reason=m.reason, since=m.since)
                for m in self._health.marks
            ),
        )

    async def _change(self, task: Task) -> FromWorker:
        while True:
            marked_before = len(self._health.marks)
            try:
                return await self._do(task.model_copy(update={"skip": self._health.hanging()}))
            except Hung:
                own = self._health.find(task.gpu_uuid) is not None
                if own or len(self._health.marks) == marked_before:
                    raise no_answer(task.verb, self._deadlines.of(task)) from None
                # Another GPU hung on the way (a change of its own was to be settled first).

    async def _do(self, task: Task) -> FromWorker:
        """One task on a ready worker. Refusals are raised; Hung after the GPU was marked."""
        try:
            child = await self._ready()
            said = await child.do(task, deadline_s=self._deadlines.of(task))
        except Hung as hung:
            await self._replace(hung, task)
            raise
        except CannotOpen as error:
            raise AgentUnavailable(str(error), _LATER) from error
        except Stopped as error:
            await self.close()
            raise AgentUnavailable("The agent's worker stopped before it answered.", _LATER) from error
        if said.problem is not None:
            raise said.problem.refusal()
        return said

    async def _ready(self) -> Child:
        """A worker that has settled what could be settled. CannotOpen, Hung, Stopped."""
        while self._child is None or not self._child.alive:
            await self.close()
            child, ready = await Child.start(self._command, deadline_s=self._deadlines.start)
            self._child, self._boot_id = child, ready.boot_id
            self._health.boot(ready.boot_id)
            _log.info("worker %s is ready", child.pid)
            for gpu_uuid in ready.unsettled:
                if not await self._settle(child, gpu_uuid):
                    break
        return self._child

    async def _settle(self, child: Child, gpu_uuid: str) -> bool:
        """False when the worker is gone because a GPU, marked now, hung. Hung when nobody is to blame."""
        mark = self._health.find(gpu_uuid)
        if mark is not None and mark.kind == "hang":
            return True
        task = Task(verb="settle", gpu_uuid=gpu_uuid, skip=self._health.hanging())
        try:
            said = await child.do(task, deadline_s=self._deadlines.of(task))
        except Hung as hung:
            await self._replace(hung, task)
            if hung.touching is None:
                raise
            return False
        if said.problem is not None:
            # Nothing is lost: it stays in the journal, and the next verb on this GPU tries again.
            _log.warning("GPU %s: a half-done change is not settled: %s", gpu_uuid, said.problem.sentence)
        return True

    async def _replace(self, hung: Hung, task: Task) -> None:
        await self.close()
        touching = hung.touching
        if touching is None:
            _log.error("the driver did not answer within the deadline of %s; at no GPU's call", task.verb)
            return
        uuid = touching.uuid or self._health.uuid_at(touching.index) or f"GPU-unknown-{touching.index}"
        reason = (
            f"a call to the driver did not return within {self._deadlines.of(task):g} s, {_WORDS[task.verb]}"
        )
        _log.error("GPU %s: %s", uuid, reason)
        self._health.mark(uuid, "hang", reason, index=touching.index)
