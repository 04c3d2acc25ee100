"""What a listener of the stream gets of one round: each session with its devices, load and cost."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from allotment_spawner.core.lease import LeaseState
from allotment_spawner.money_wire import Money, QuoteBudget
from pydantic import BaseModel, ConfigDict

__all__ = ["DeviceReading", "Frame", "LeaseReading", "WorkloadReading"]


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
    """One round for any number of listeners: each session is put into JSON once, each person's text is
    put together once."""

    def __init__(self, *, at: datetime, every_s: float, leases: Sequence[LeaseReading]) -> None:
        self.at = at
        self.every_s = every_s
        self.leases = tuple(leases)
        self._parts: dict[str, str] = {}
        self._texts: dict[str | None, str] = {}

    def text(self, user: str | None) -> str:
        """{"at", "every_s", "leases"} as JSON: this person's sessions, or everybody's for None."""
        if user not in self._texts:
            mine = [self._part(one) for one in self.leases if user is None or one.user == user]
            head = f'{{"at":"{_rfc(self.at)}","every_s":{self.every_s:g},"leases":['
            self._texts[user] = head + ",".join(mine) + "]}"
        return self._texts[user]

    def _part(self, one: LeaseReading) -> str:
        if one.lease not in self._parts:
            self._parts[one.lease] = one.model_dump_json(ensure_ascii=True)
        return self._parts[one.lease]


def _rfc(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")
