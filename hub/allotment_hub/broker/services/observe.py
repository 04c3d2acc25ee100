"""What agent and engine said last, and since when one of them has not answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

from allotment_spawner.core.errors import AgentUnavailable, EngineUnavailable, Refusal
from allotment_spawner.core.inventory import NodeInventory, contradiction
from allotment_spawner.engines.base import Engine, Workload
from allotment_spawner.gpu.client import Agent

__all__ = ["Observations"]

_LOOK_LIMIT_S = 20
_TROUBLE_S = 10


class Observations:
    """The last answers. `inventory` and `workloads` stay what they were while nobody answers, so
    that views can show them; `agent_problem` and `engine_problem` say that they are old."""

    def __init__(self, *, agent: Agent, engine: Engine, clock: Callable[[], datetime]) -> None:
        self._agent = agent
        self._engine = engine
        self._clock = clock
        self.inventory: NodeInventory | None = None
        self.agent_problem: str | None = "The agent has not answered yet."
        self.workloads: Mapping[str, Sequence[Workload]] = {}
        self.unnamed: Sequence[Workload] = ()
        self.engine_problem: str | None = "The engine has not answered yet."
        self.strays: Sequence[Workload] = ()
        self.outage_since: datetime | None = None
        """From when the engine did not answer until the look that just succeeded; None otherwise."""
        self.down_since: datetime | None = None
        """From when the engine has not answered; None while it does."""
        self._troubles: dict[str, tuple[str, datetime]] = {}
        self.version = 0

    @property
    def engine_name(self) -> str:
        return self._engine.name

    def resume_outage(self, since: datetime) -> None:
        """An earlier broker saw it begin."""
        self.down_since = since

    async def look_at_engine(self) -> None:
        now = self._clock()
        try:
            async with asyncio.timeout(_LOOK_LIMIT_S):
                found = await self._engine.observe()
        except (EngineUnavailable, TimeoutError) as error:
            self.down_since = self.down_since or now
            self.engine_problem = _sentence(error, "The engine did not answer in time.")
            self.version += 1
            return
        self.outage_since, self.down_since = self.down_since, None
        self.engine_problem = None
        by_lease: dict[str, list[Workload]] = {}
        for workload in found:
            if workload.lease is not None:
                by_lease.setdefault(workload.lease, []).append(workload)
        unnamed = tuple(workload for workload in found if workload.lease is None)
        if by_lease != self.workloads or unnamed != self.unnamed:
            self.version += 1
        self.workloads, self.unnamed = by_lease, unnamed

    async def look_at_agent(self) -> None:
        try:
            async with asyncio.timeout(_LOOK_LIMIT_S):
                found = await self._agent.inventory()
        except (AgentUnavailable, TimeoutError) as error:
            self.agent_problem = _sentence(error, "The agent did not answer in time.")
            self.version += 1
            return
        nonsense = contradiction(found)
        if nonsense is not None:
            self.agent_problem = f"The agent says what cannot be: {nonsense}."
            self.version += 1
            return
        if found != self.inventory or self.agent_problem is not None:
            self.version += 1
        self.agent_problem = None
        self.inventory = found

    def set_strays(self, strays: Sequence[Workload]) -> None:
        if tuple(strays) != tuple(self.strays):
            self.strays = tuple(strays)
            self.version += 1

    def trouble(self, gpu_uuid: str, sentence: str) -> None:
        """Leave this GPU alone for a while: cutting it failed, and trying at once would fail again."""
        self._troubles[gpu_uuid] = (sentence, self._clock() + timedelta(seconds=_TROUBLE_S))
        self.version += 1

    def troubles(self) -> dict[str, str]:
        now = self._clock()
        latest = now + timedelta(seconds=_TROUBLE_S)  # further off when the clock was set back
        for gpu_uuid in [uuid for uuid, (_, until) in self._troubles.items() if not now < until <= latest]:
            del self._troubles[gpu_uuid]
            self.version += 1
        return {uuid: sentence for uuid, (sentence, _) in self._troubles.items()}


def _sentence(error: BaseException, otherwise: str) -> str:
    return error.sentence if isinstance(error, Refusal) else otherwise
