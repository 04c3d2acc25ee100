"""How hard devices and workloads work at one instant; None is unknown, never 0."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

__all__ = ["DeviceSample", "NodeSamples", "WorkloadSample"]


@dataclass(frozen=True, slots=True)
class DeviceSample:
    """One GPU (`device_uuid` is its own) or one slice of it. Percent are 0 to 100; counters only grow.

    On a GPU in MIG mode utilisation belongs to the slices: the GPU's own percents are unknown there, while
    power, energy, temperature, clock, PCIe, clock reasons, ECC and Xids belong to the whole GPU and are
    unknown for a slice. Source: NVML, GPM on Hopper and later, else a DCGM exporter.
    """

    gpu_uuid: str
    device_uuid: str
    sm_percent: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    memory_bandwidth_percent: float | None = None
    power_w: float | None = None
    energy_j: float | None = None
    """Counter since the driver was loaded."""
    temperature_c: float | None = None
    sm_clock_hz: int | None = None
    pcie_rx_bytes_per_s: float | None = None
    pcie_tx_bytes_per_s: float | None = None
    clock_reasons: tuple[str, ...] | None = None
    """Why the clock is held down ("sw_power_cap", "hw_thermal_slowdown", …); () is not at all."""
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    """Counters since the driver was loaded."""
    xids: tuple[int, ...] | None = None
    """Xid errors since the sample before."""
    processes: int | None = None


@dataclass(frozen=True, slots=True)
class NodeSamples:
    """What the agent answers. `unread`: GPU UUID -> why it could not be read this time; the rest is there."""

    node: str
    at: datetime
    simulated: bool
    devices: tuple[DeviceSample, ...]
    unread: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WorkloadSample:
    """One container or process group. Counters since its start."""

    lease: str
    cpu_s: float | None = None
    """Counter: seconds of CPU time, of all cores together."""
    memory_used_bytes: int | None = None
    """Without the page cache that could be given back."""
    memory_limit_bytes: int | None = None
    disk_read_bytes: int | None = None
    disk_write_bytes: int | None = None
    network_rx_bytes: int | None = None
    network_tx_bytes: int | None = None
    processes: int | None = None
    read_s: float | None = None
    """When the counters were read, on the monotonic clock of this process: an answer may wait for others."""
