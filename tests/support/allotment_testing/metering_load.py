"""Sessions at work: what devices and containers would tell of them, with the noise that real ones have."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from allotment_hub.broker.metrics.rounds import Round, WorkloadRates
from allotment_hub.broker.store.records import Device, Lease
from allotment_spawner.core.samples import DeviceSample

from allotment_testing.sample_makers import a_lease

__all__ = ["Session", "cards_of", "round_of", "sessions"]

GIB = 2**30


@dataclass
class Session:
    """One session on a whole card. A third train, a third work now and then, a third sit idle."""

    number: int
    chance: random.Random
    energy_j: float = 0.0
    busy: bool = False
    memory: float = field(default=0.0)

    @property
    def lease(self) -> Lease:
        uuid = f"GPU-{self.number:08d}-0000-0000-0000-000000000000"
        return a_lease(self.number, devices=[Device(uuid, "node", None, None, None, uuid)])

    def step(self, every_s: float) -> tuple[DeviceSample, WorkloadRates]:
        """The next sample, `every_s` seconds later."""
        chance, kind = self.chance, self.number % 3
        if kind == 0:
            self.busy = True
        elif kind == 1 and chance.random() < every_s / 300:
            self.busy = not self.busy
            self.memory = chance.uniform(2, 60)
        return self._device(every_s), self._workload()

    def _device(self, every_s: float) -> DeviceSample:
        chance, uuid = self.chance, f"GPU-{self.number:08d}-0000-0000-0000-000000000000"
        sm = min(100.0, max(0.0, chance.gauss(88, 7))) if self.busy else 0.0
        power_w = 60 + chance.gauss(0, 0.7) + sm * 3 + (chance.gauss(0, 12) if self.busy else 0)
        self.energy_j += power_w * every_s
        return DeviceSample(
            gpu_uuid=uuid,
            device_uuid=uuid,
            sm_percent=sm,
            memory_used_bytes=int((self.memory if self.busy else 0.5) * GIB),
            memory_total_bytes=80 * GIB,
            memory_bandwidth_percent=sm * chance.uniform(0.4, 0.6),
            power_w=power_w,
            energy_j=self.energy_j,
            temperature_c=round(34 + sm / 3 + chance.gauss(0, 0.5)),
            sm_clock_hz=int((1410 if self.busy else 210) * 1e6),
            pcie_rx_bytes_per_s=chance.lognormvariate(18, 1) if self.busy else 0.0,
            pcie_tx_bytes_per_s=chance.lognormvariate(15, 1) if self.busy else 0.0,
            clock_reasons=("sw_power_cap",) if self.busy and chance.random() < 0.2 else (),
            ecc_corrected=0,
            ecc_uncorrected=0,
            xids=(),
            processes=int(self.busy),
        )

    def _workload(self) -> WorkloadRates:
        chance, busy = self.chance, self.busy
        return WorkloadRates(
            cpu_cores_used=max(0.0, chance.gauss(4, 1)) if busy else max(0.0, chance.gauss(0.02, 0.01)),
            cpu_cores=8,
            memory_used_bytes=int((6 + chance.gauss(0, 0.3) if busy else 0.4) * GIB),
            memory_limit_bytes=64 * GIB,
            disk_read_bytes_per_s=chance.lognormvariate(17, 1.5) if busy else 0.0,
            disk_write_bytes_per_s=chance.lognormvariate(10, 2) if busy else 0.0,
            network_rx_bytes_per_s=chance.lognormvariate(8, 1),
            network_tx_bytes_per_s=chance.lognormvariate(8, 1),
            processes=14 if busy else 6,
        )


def sessions(count: int, *, seed: int = 1) -> list[Session]:
    return [Session(number, random.Random(seed * 1_000_003 + number)) for number in range(count)]


def round_of(at: datetime, working: Sequence[Session], every_s: float) -> Round:
    """One round of all of them."""
    stepped = {one.lease.id: one.step(every_s) for one in working}
    devices = {device.device_uuid: device for device, _ in stepped.values()}
    rates = {lease: rates for lease, (_, rates) in stepped.items()}
    holders = {device.device_uuid: lease for lease, (device, _) in stepped.items()}
    return Round(at, devices, devices, rates, holders=holders)


def cards_of(working: Sequence[Session], every_s: float) -> Iterator[DeviceSample]:
    """The devices alone, as an agent answers."""
    return (one.step(every_s)[0] for one in working)
