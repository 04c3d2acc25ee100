"""Samples devices and sessions round by round; what does not answer is missing in that round."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Protocol

from allotment_spawner.core.lease import LeaseState
from allotment_spawner.core.samples import DeviceSample, NodeSamples, WorkloadSample
from allotment_spawner.engines.base import Sampler, Workload

from allotment_hub.broker.metrics.rounds import AGENT, DCGM, ENGINE, FILE, Round, WorkloadRates, rates_of
from allotment_hub.broker.metrics.sources import Source
from allotment_hub.broker.services.book import Book
from allotment_hub.broker.services.changes import Changes
from allotment_hub.broker.services.observe import Observations
from allotment_hub.broker.store.records import Lease

__all__ = ["Collector", "FillIn", "Keeper"]

_log = logging.getLogger(__name__)
_ALONE, _FIRST, _SECOND = 0.8, 0.5, 0.3
"""Of the time between two rounds, what a source may take; the exporter is asked after the agent."""
_MOST_XIDS = 64
_OLDEST_ROUNDS = 3
"""A rate over more rounds than this says nothing of now."""

Devices = Callable[[], Awaitable[NodeSamples]]
_Filled = Mapping[str, DeviceSample]
_Sampled = Mapping[str, WorkloadSample]
FillIn = Callable[[Sequence[DeviceSample]], Awaitable[_Filled]]
"""Fills in what NVML could not tell; answers the samples that it changed, by device UUID."""


class Keeper(Protocol):
    """What writes rounds down; must return at once."""

    def keep(self, taken: Round, leases: Sequence[Lease]) -> str | None:
        """Why earlier rounds could not be written; None when all is well."""


class Collector:
    """`latest` is the last whole round; `changed` wakes after each. Nothing waits for this but itself."""

    def __init__(
        self,
        *,
        every_s: float,
        devices: Devices,
        sampler: Sampler | None,
        fill_in: FillIn | None,
        keeper: Keeper | None,
        book: Book,
        observations: Observations,
        cores: Callable[[Lease], float | None],
        clock: Callable[[], datetime],
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        """`sampler` None: sessions cannot be sampled here. `keeper` None: nothing is written down. `steady`:
        seconds, for rates and for pacing."""
        self.every_s = every_s
        self._devices = devices
        self._sampler = sampler
        self._fill_in = fill_in
        self._keeper = keeper
        self._book = book
        self._seen = observations
        self._cores = cores
        self._clock = clock
        self._steady = steady
        share = _ALONE if fill_in is None else _FIRST
        self._agent: Source[NodeSamples] = Source(name="agent", limit_s=every_s * share, late=self._note_xids)
        self._exporter: Source[_Filled] = Source(name="DCGM exporter", limit_s=every_s * _SECOND)
        self._engine: Source[_Sampled] = Source(name="engine", limit_s=every_s * _ALONE)
        self._before: dict[str, tuple[float, WorkloadSample]] = {}
        self._late_xids: dict[str, tuple[int, ...]] = {}
        self.latest = Round(at=clock())
        self.changed = Changes()
        self.each: list[Callable[[Round], None]] = []
        """Called with every round, for what only a single one tells; `changed` may pass over some."""
        self.rounds = 0
        self.took_s = 0.0  # the last round
        self.missed: Counter[str] = Counter()
        """Rounds without an answer, by AGENT, ENGINE, DCGM, FILE or GPU UUID."""

    async def run(self) -> None:
        """Rounds at a steady pace until cancelled; one that takes too long makes the next ones fall out."""
        began, number = self._steady(), 0
        try:
            while True:
                try:
                    await self.once()
                except Exception:  # noqa: BLE001 - one bad round must not stop all later ones
                    _log.exception("a round of samples failed; the next one tries again")
                number = max(number + 1, int((self._steady() - began) / self.every_s))
                await asyncio.sleep(max(0.0, began + number * self.every_s - self._steady()))
        finally:
            for source in (self._agent, self._engine, self._exporter):
                await source.close()

    async def once(self) -> Round:
        """One round: ask all, at the same time, keep what answered."""
        at, began = self._clock(), self._steady()
        leases, holders = self._book.in_state(LeaseState.ACTIVE), _holders(self._book.all())
        missing: dict[str, str] = {}
        (devices, simulated), workloads = await asyncio.gather(
            self._all_devices(missing), self._all_workloads(leases, missing)
        )
        gpus = {uuid: sample for uuid, sample in devices.items() if sample.gpu_uuid == uuid}
        taken = Round(at, devices, gpus, workloads, missing, simulated, holders)
        why = None if self._keeper is None else self._keeper.keep(taken, leases)
        if why is not None:
            missing[FILE] = why
        self.latest = taken
        self.rounds += 1
        self.missed.update(missing.keys())
        for told in self.each:
            told(taken)
        self.took_s = self._steady() - began
        self.changed.bump()
        return taken

    async def _all_devices(self, missing: dict[str, str]) -> tuple[Mapping[str, DeviceSample], bool]:
        node, why = await self._agent.ask(self._devices)
        if node is None:
            missing[AGENT] = why or ""
            return {}, self.latest.simulated
        missing.update(node.unread)
        found = {sample.device_uuid: self._with_late_xids(sample) for sample in node.devices}
        fill_in = self._fill_in
        if fill_in is not None:
            more, why = await self._exporter.ask(lambda: fill_in(node.devices))
            if why is not None:
                missing[DCGM] = why
            found.update(more or {})
        return found, node.simulated

    def _note_xids(self, late: NodeSamples) -> None:
        """What an answer told that came too late: the driver gives each error once, and a GPU that fails is
        what makes it late."""
        for sample in late.devices:
            if sample.xids:
                known = self._late_xids.get(sample.device_uuid, ())
                self._late_xids[sample.device_uuid] = (known + sample.xids)[:_MOST_XIDS]

    def _with_late_xids(self, sample: DeviceSample) -> DeviceSample:
        late = self._late_xids.pop(sample.device_uuid, None)
        return sample if late is None else replace(sample, xids=late + (sample.xids or ()))

    async def _all_workloads(
        self, leases: Sequence[Lease], missing: dict[str, str]
    ) -> Mapping[str, WorkloadRates]:
        sampler = self._sampler
        wanted = [one for lease in leases for one in self._running(lease)]
        if sampler is None or not wanted:
            self._before = {}
            return {}
        found, why = await self._engine.ask(lambda: sampler.sample(wanted))
        if found is None:
            missing[ENGINE] = why or ""
            return {}
        back_s = self._steady()
        read = {
            lease.id: (_read_s(found[lease.id], back_s), found[lease.id])
            for lease in leases
            if lease.id in found
        }
        rates = {
            lease.id: self._rates(read[lease.id], self._cores(lease)) for lease in leases if lease.id in read
        }
        kept = {lease.id for lease in leases}
        self._before = {lease: old for lease, old in self._before.items() if lease in kept} | read
        return rates

    def _running(self, lease: Lease) -> list[Workload]:
        return [one for one in self._seen.workloads.get(lease.id, ()) if one.state == "running"]

    # `read` and what is kept of the round before: when the counters were read, and what they said
    def _rates(self, read: tuple[float, WorkloadSample], cores: float | None) -> WorkloadRates:
        now, sample = read
        at, before = self._before.get(sample.lease, (now, None))
        if now - at > _OLDEST_ROUNDS * self.every_s:
            before = None
        return rates_of(before, sample, seconds=now - at, cpu_cores=cores)


def _holders(leases: Sequence[Lease]) -> dict[str, str]:
    return {device.uuid: lease.id for lease in leases for device in lease.devices if device.uuid is not None}


def _read_s(sample: WorkloadSample, back_s: float) -> float:
    """An answer that waited for one slow container tells of a moment before it came back."""
    return back_s if sample.read_s is None else sample.read_s
