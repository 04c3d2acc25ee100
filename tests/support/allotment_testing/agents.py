"""An agent without a socket or a worker: the real verbs over a simulated machine, for fast tests."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from allotment_spawner.core.errors import AgentUnavailable
from allotment_spawner.core.inventory import NodeInventory, Slice
from allotment_spawner.core.samples import DeviceSample, NodeSamples
from allotment_spawner.gpu.agent.hardware import Hooks, open_hardware
from allotment_spawner.gpu.agent.health import Health
from allotment_spawner.gpu.agent.setup import Setup
from allotment_spawner.gpu.refusals import marked
from allotment_spawner.gpu.simulator.control import SimControl

__all__ = ["InProcessAgent"]


class InProcessAgent:
    """`Agent` over the simulator whose state is `state_path` (a file in a folder of its own).

    Another InProcessAgent on the same path is the same machine with a restarted agent.
    A simulated hang raises AgentUnavailable at once; nothing here waits.
    """

    def __init__(
        self,
        state_path: Path,
        spec: str = "sim:1xA100-80GB:mig",
        *,
        node: str = "node-1",
        on_step: Callable[[str], None] = lambda _step: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if state_path.name != "sim.json":
            raise ValueError("the simulated machine's state file is called sim.json")
        self._silent = False
        self._node = node
        hooks = Hooks(on_step=on_step, pause=_hangs, sync=lambda _descriptor: None, clock=clock)
        self._verbs = open_hardware(Setup(gpus=spec, state_dir=state_path.parent, node=node), hooks)
        self._health = Health(path=state_path.parent / "health.json")
        self.control = SimControl(state_path)
        for gpu_uuid in self._verbs.unsettled():
            self._verbs.settle(gpu_uuid)

    def stop_answering(self) -> None:
        """Every verb raises AgentUnavailable until `answer_again`."""
        self._silent = True

    def answer_again(self) -> None:
        self._silent = False

    def heal(self, gpu_uuid: str) -> None:
        """An operator mended it."""
        assert self._health.heal(gpu_uuid), "it is not marked"

    async def inventory(self) -> NodeInventory:
        self._check()
        self._health.boot(self._verbs.boot_id())
        seen = self._verbs.observe(self._health.hanging())
        for uuid, reason in seen.faults.items():
            self._health.mark(uuid, "fault", reason)
        return self._health.complete(seen.inventory)

    async def samples(self) -> NodeSamples:
        self._check()
        self._health.boot(self._verbs.boot_id())
        devices: list[DeviceSample] = []
        unread = {m.gpu_uuid: m.reason for m in self._health.marks if m.kind == "hang"}
        for index in range(self._verbs.count()):
            if index not in self._health.hanging():
                sampled = self._verbs.sample(index)
                devices += sampled.devices
                unread |= sampled.unread
                for uuid, reason in sampled.faults.items():
                    self._health.mark(uuid, "fault", reason)
        return NodeSamples(self._node, datetime.now(UTC), True, tuple(devices), unread)

    async def ensure_slice(self, gpu_uuid: str, profile: str, start: int) -> Slice:
        self._check()
        mark = self._health.find(gpu_uuid)
        if mark is not None:
            raise marked(gpu_uuid, mark.reason)
        return self._verbs.ensure(gpu_uuid, profile, start)

    async def destroy_slice(self, gpu_uuid: str, profile: str, start: int) -> None:
        self._check()
        self._verbs.destroy(gpu_uuid, profile, start)

    def _check(self) -> None:
        if self._silent:
            raise AgentUnavailable("The agent does not answer.", "Try again in a minute.")


def _hangs(_seconds: float) -> None:
    raise AgentUnavailable("The agent missed its deadline.", "Try again in a minute.")
