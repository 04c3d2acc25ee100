"""What one round of sampling found, and rates from counters; None is unknown, never 0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from allotment_spawner.core.samples import DeviceSample, WorkloadSample

__all__ = ["AGENT", "DCGM", "ENGINE", "FILE", "Round", "WorkloadRates", "rate", "rates_of"]

AGENT = "agent"
ENGINE = "engine"
DCGM = "dcgm"
FILE = "file"
"""Keys of `Round.missing` besides GPU UUIDs."""


@dataclass(frozen=True, slots=True)
class WorkloadRates:
    """One session at one instant. Rates are means since the round before; `cpu_cores` is what it may use."""

    cpu_cores_used: float | None = None
    cpu_cores: float | None = None
    memory_used_bytes: int | None = None
    memory_limit_bytes: int | None = None
    disk_read_bytes_per_s: float | None = None
    disk_write_bytes_per_s: float | None = None
    network_rx_bytes_per_s: float | None = None
    network_tx_bytes_per_s: float | None = None
    processes: int | None = None


@dataclass(frozen=True, slots=True)
class Round:
    """One look at everything. What did not answer is in `missing` (what: why) and nowhere else."""

    at: datetime
    devices: Mapping[str, DeviceSample] = field(default_factory=dict)
    """Device UUID, of slices and of whole GPUs."""
    gpus: Mapping[str, DeviceSample] = field(default_factory=dict)
    """GPU UUID: the card itself, also in MIG mode."""
    workloads: Mapping[str, WorkloadRates] = field(default_factory=dict)
    """Lease id."""
    missing: Mapping[str, str] = field(default_factory=dict)
    simulated: bool = False
    holders: Mapping[str, str] = field(default_factory=dict)
    """Device UUID -> the lease that had it when the round began: what it did is nobody else's."""


def rate(before: float | None, now: float | None, seconds: float) -> float | None:
    """Growth a second. A counter that went back began anew (or a process took its share along): unknown."""
    if before is None or now is None or seconds <= 0 or now < before:
        return None
    return (now - before) / seconds


def rates_of(
    before: WorkloadSample | None, now: WorkloadSample, *, seconds: float, cpu_cores: float | None
) -> WorkloadRates:
    """`seconds` between the two; without an earlier sample all rates are unknown."""
    old = before or WorkloadSample(lease=now.lease)
    return WorkloadRates(
        cpu_cores_used=rate(old.cpu_s, now.cpu_s, seconds),
        cpu_cores=cpu_cores,
        memory_used_bytes=now.memory_used_bytes,
        memory_limit_bytes=now.memory_limit_bytes,
        disk_read_bytes_per_s=rate(old.disk_read_bytes, now.disk_read_bytes, seconds),
        disk_write_bytes_per_s=rate(old.disk_write_bytes, now.disk_write_bytes, seconds),
        network_rx_bytes_per_s=rate(old.network_rx_bytes, now.network_rx_bytes, seconds),
        network_tx_bytes_per_s=rate(old.network_tx_bytes, now.network_tx_bytes, seconds),
        processes=now.processes,
    )
