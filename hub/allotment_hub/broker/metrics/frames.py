"""What a listener of the stream gets of one round: each session with its devices, load and cost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime

from allotment_spawner.core.lease import LeaseState
from allotment_spawner.money_wire import Money, QuoteBudget
from pydantic import BaseModel, ConfigDict

from allotment_hub.broker.store.records import Lease

__all__ = ["SLICE", "DeviceReading", "Frame", "LeaseReading", "WorkloadReading"]

SLICE = 20
"""So many sessions are looked at in one go."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class DeviceReading(_Frozen):
    """One GPU or slice of a session, as sampled last; None is unknown. Units as in their names, percent of
    0 to 100; `energy_j` and the ECC counters only grow."""

    uuid: str
    gpu_uuid: str
    profile: str | None
    model: str | None
    sm_percent: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    memory_bandwidth_percent: float | None = None
    power_w: float | None = None
    energy_j: float | None = None
    temperature_c: float | None = None
    sm_clock_hz: int | None = None
    pcie_rx_bytes_per_s: float | None = None
    pcie_tx_bytes_per_s: float | None = None
    clock_reasons: tuple[str, ...] | None = None
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    xids: tuple[int, ...] | None = None
    processes: int | None = None


class WorkloadReading(_Frozen):
    """CPU, memory, disk and network of a session's container or processes; None is unknown.
    `cpu_cores`: what it may use."""

    cpu_cores_used: float | None = None
    cpu_cores: float | None = None
    memory_used_bytes: int | None = None
    memory_limit_bytes: int | None = None
    disk_read_bytes_per_s: float | None = None
    disk_write_bytes_per_s: float | None = None
    network_rx_bytes_per_s: float | None = None
    network_tx_bytes_per_s: float | None = None
    processes: int | None = None


class LeaseReading(_Frozen):
    """A session that waits, runs or ends. `since`: when it came into its state. `budget`: the tightest
    hard one that it counts against, else the tightest. `ends_at`: announced, or a limit's."""

    lease: str
    user: str
    server: str
    flavor: str
    flavor_title: str
    environment: str
    state: LeaseState
    since: datetime
    simulated: bool
    price_per_hour: Money
    currency: str
    cost: Money | None
    charged_to: str | None
    budget: QuoteBudget | None
    ends_at: datetime | None
    devices: tuple[DeviceReading, ...]
    workload: WorkloadReading


class Frame:
    """One round for any number of listeners. Each session is looked at when somebody first wants to see it,
    and once; each person's text is put together once."""

    def __init__(
        self,
        *,
        at: datetime,
        every_s: float,
        leases: Sequence[Lease],
        reading: Callable[[Lease], LeaseReading],
    ) -> None:
        self.at = at
        self.every_s = every_s
        self.leases = tuple(leases)
        self.looked_at = 0
        """How many sessions were put into JSON."""
        self._reading = reading
        self._by_user: dict[str, list[Lease]] | None = None
        self._parts: dict[str, str] = {}
        self._texts: dict[str | None, str] = {}

    async def text(self, user: str | None) -> str:
        """{"at", "every_s", "leases"} as JSON: this person's sessions, or everybody's for None."""
        if user not in self._texts:
            mine = self.leases if user is None else self._of(user)
            for number, lease in enumerate(mine, start=1):
                self._look_at(lease)
                if number % SLICE == 0:
                    await asyncio.sleep(0)  # a thousand of them take a while: others may go on
            head = f'{{"at":"{_rfc(self.at)}","every_s":{self.every_s:g},"leases":['
            self._texts[user] = head + ",".join(self._parts[lease.id] for lease in mine) + "]}"
        return self._texts[user]

    def _of(self, user: str) -> Sequence[Lease]:
        if self._by_user is None:
            self._by_user = {}
            for lease in self.leases:
                self._by_user.setdefault(lease.user, []).append(lease)
        return self._by_user.get(user, ())

    def _look_at(self, lease: Lease) -> None:
        if lease.id not in self._parts:
            self._parts[lease.id] = self._reading(lease).model_dump_json(ensure_ascii=True)
            self.looked_at += 1


def _rfc(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")
