"""The parts of a broker that sample devices and sessions, and keep what they found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from allotment_spawner.engines.base import Sampler
from allotment_spawner.gpu.client import Agent

from allotment_hub.broker.metrics.collector import Collector
from allotment_hub.broker.metrics.exporter import DcgmExporter
from allotment_hub.broker.metrics.keeper import FileKeeper
from allotment_hub.broker.metrics.series import Series
from allotment_hub.broker.services.book import Book
from allotment_hub.broker.services.observe import Observations
from allotment_hub.broker.store.records import Lease
from allotment_hub.paths import Paths
from allotment_hub.site import Site

__all__ = ["MetricParts"]


@dataclass
class MetricParts:
    """`sampler` None: sessions cannot be sampled here."""

    site: Site
    paths: Paths
    agent: Agent
    sampler: Sampler | None
    book: Book
    observations: Observations
    clock: Callable[[], datetime]
    on_step: Callable[[str], None]

    @cached_property
    def collector(self) -> Collector:
        return Collector(
            every_s=self.site.metrics.every_s,
            devices=self.agent.samples,
            sampler=self.sampler,
            fill_in=None if self.exporter is None else self.exporter.fill_in,
            keeper=self.keeper,
            book=self.book,
            observations=self.observations,
            cores=_cores,
            clock=self.clock,
        )

    @cached_property
    def exporter(self) -> DcgmExporter | None:
        """None where site.yaml names none."""
        url = self.site.metrics.dcgm_url
        return None if url is None else DcgmExporter(url=url, inventory=lambda: self.observations.inventory)

    @cached_property
    def keeper(self) -> FileKeeper:
        return FileKeeper(path=self.paths.metrics_file, settings=self.site.metrics, on_step=self.on_step)

    @cached_property
    def series(self) -> Series:
        return Series(path=self.paths.metrics_file, settings=self.site.metrics, clock=self.clock)

    async def close(self) -> None:
        """Write what was handed over, and let the threads go."""
        self.series.close()
        await self.keeper.close()
        if self.exporter is not None:
            await self.exporter.close()


def _cores(lease: Lease) -> float | None:
    """What it may use, as it was granted."""
    cpu = (lease.launch or {}).get("cpu")
    return None if cpu is None else float(cpu)
