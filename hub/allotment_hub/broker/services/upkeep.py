"""Upkeep of the hardware's book: static layouts made, slices that are gone forgotten."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from allotment_spawner.core.errors import Refusal
from allotment_spawner.gpu.client import Agent

from allotment_hub.broker.services.cutting import Cutting
from allotment_hub.broker.services.jobs import Jobs
from allotment_hub.broker.services.layouts import LayoutImpossible, missing_slices
from allotment_hub.broker.services.machine import GpuFacts
from allotment_hub.broker.services.observe import Observations
from allotment_hub.broker.services.situation import Situation
from allotment_hub.broker.store.records import Cut
from allotment_hub.broker.store.store import Store
from allotment_hub.site import Layout

__all__ = ["Upkeep"]

_SETTLED_S = 120
"""A cut that was recorded this long ago and is not there will not appear any more."""


class Upkeep:
    """Called once a round, after agent and engine were looked at."""

    def __init__(
        self,
        *,
        agent: Agent,
        store: Store,
        situation: Situation,
        observations: Observations,
        cutting: Cutting,
        jobs: Jobs,
        clock: Callable[[], datetime],
        on_step: Callable[[str], None],
    ) -> None:
        self._agent = agent
        self._store = store
        self._situation = situation
        self._seen = observations
        self._cutting = cutting
        self._jobs = jobs
        self._clock = clock
        self._on_step = on_step
        self.remarks: dict[str, str] = {}
        """GPU UUID -> why its layout is not what site.yaml says; its slices are used all the same."""

    async def round(self) -> None:
        if self._seen.agent_problem is not None or self._seen.inventory is None:
            return
        await self._forget_cuts()
        for facts in self._situation.machine().gpus:
            if facts.pool is not None and isinstance(facts.pool.layout, Layout) and facts.problem is None:
                self._check_layout(facts, facts.pool.layout)

    def _check_layout(self, facts: GpuFacts, layout: Layout) -> None:
        gpu = facts.gpu
        present = [(piece.profile, piece.start, piece.size) for piece in gpu.slices]
        try:
            missing = missing_slices(gpu.profiles, present, layout.devices)
        except LayoutImpossible as reason:
            self.remarks[gpu.uuid] = str(reason)
            return
        self.remarks.pop(gpu.uuid, None)
        if missing and self._jobs.start(f"layout-{gpu.uuid}", lambda: self._make(gpu.uuid, missing)):
            self._situation.making.add(gpu.uuid)

    async def _make(self, gpu_uuid: str, missing: list[tuple[str, int]]) -> None:
        """Recorded as ours before the hardware is touched: a crash in between leaves no foreign slice."""
        try:
            try:
                await self._make_all(gpu_uuid, missing)
            except Refusal as refusal:
                self._seen.trouble(gpu_uuid, refusal.sentence)
            # its slices are known before it counts as made
            await self._seen.look_at_agent()
        finally:
            self._situation.making.discard(gpu_uuid)

    async def _make_all(self, gpu_uuid: str, missing: list[tuple[str, int]]) -> None:
        boot_id = self._situation.boot_id or ""
        cuts = [
            Cut(gpu_uuid=gpu_uuid, start=start, profile=name, boot_id=boot_id, made_at=self._clock())
            for name, start in missing
        ]
        await self._store.write("layout", lambda tx: tx.add_cuts(cuts))
        self._situation.note_cuts(*cuts)
        async with self._cutting.lock(gpu_uuid):
            for name, start in missing:
                self._on_step("layout.before")
                await self._agent.ensure_slice(gpu_uuid, name, start)
                self._on_step("layout.after")

    async def _forget_cuts(self) -> None:
        """Slices of an earlier boot, or destroyed by somebody else: one that appears there is foreign."""
        assert self._seen.inventory is not None
        inventory = self._seen.inventory
        there = {(gpu.uuid, piece.profile, piece.start) for gpu in inventory.gpus for piece in gpu.slices}
        settled = self._clock() - timedelta(seconds=_SETTLED_S)
        for key, cut in list(self._situation.cuts.items()):
            old = cut.boot_id != inventory.boot_id
            if old or (key not in there and cut.made_at < settled):
                await self._cutting.forget(*key)
