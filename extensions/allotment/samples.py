"""How hard sessions work, as the broker's stream of samples tells it (`GET metrics/stream`)."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from pydantic import BaseModel, ConfigDict

__all__ = ["BudgetLeft", "DeviceLoad", "Samples", "SessionLoad", "WorkloadLoad"]


class _Reply(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class DeviceLoad(_Reply):
    """One GPU or slice. Units as in the names, percent of 0 to 100; None is unknown."""

    uuid: str
    gpu_uuid: str
    profile: str | None = None
    model: str | None = None
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


class WorkloadLoad(_Reply):
    """CPU, memory, disk and network of a session; `cpu_cores` is what it may use."""

    cpu_cores_used: float | None = None
    cpu_cores: float | None = None
    memory_used_bytes: int | None = None
    memory_limit_bytes: int | None = None
    disk_read_bytes_per_s: float | None = None
    disk_write_bytes_per_s: float | None = None
    network_rx_bytes_per_s: float | None = None
    network_tx_bytes_per_s: float | None = None
    processes: int | None = None


class BudgetLeft(_Reply):
    """A budget that the session counts against; amounts in the site's currency or in GPU-hours."""

    id: str
    scope: str
    name: str
    unit: str
    limit: Decimal
    left: Decimal
    hard: bool
    period: str
    until: datetime | None = None
    lasts_s: float | None = None


class SessionLoad(_Reply):
    """One session that waits, runs or ends; `since` is when it came into its state."""

    lease: str
    user: str
    server: str
    flavor: str
    flavor_title: str
    environment: str
    state: str
    since: datetime
    simulated: bool = False
    price_per_hour: Decimal
    currency: str
    cost: Decimal | None = None
    charged_to: str | None = None
    budget: BudgetLeft | None = None
    ends_at: datetime | None = None
    devices: tuple[DeviceLoad, ...] = ()
    workload: WorkloadLoad = WorkloadLoad()


class Samples(_Reply):
    """One round, taken every `every_s` seconds."""

    at: datetime
    every_s: float
    leases: tuple[SessionLoad, ...] = ()
