"""GPUs, slices and sessions as Prometheus metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from allotment_spawner.core.samples import DeviceSample
from prometheus_client.core import Metric

from allotment_hub.broker.metrics.families import Spec, counter, families, gauge
from allotment_hub.broker.metrics.frames import LeaseReading
from allotment_hub.broker.metrics.rounds import Round
from allotment_hub.broker.services.machine import GpuFacts, Machine

__all__ = ["device_families", "machine_families", "session_families"]

_DEVICE: Final = ("gpu", "device", "profile", "lease", "flavor")
_SESSION: Final = ("lease", "flavor", "environment")
"""Few and bounded: nothing that people name themselves, and no names of people."""

_DEVICES: Final[tuple[Spec[DeviceSample], ...]] = (
    Spec(
        "allotment_gpu_sm_utilization_ratio",
        "Share of time in which the device's multiprocessors were busy, 0 to 1.",
        lambda one: _ratio(one.sm_percent),
    ),
    Spec("allotment_gpu_memory_used_bytes", "Device memory in use.", lambda one: one.memory_used_bytes),
    Spec("allotment_gpu_memory_size_bytes", "Device memory in all.", lambda one: one.memory_total_bytes),
    Spec(
        "allotment_gpu_memory_bandwidth_utilization_ratio",
        "Share of the device memory's bandwidth in use, 0 to 1.",
        lambda one: _ratio(one.memory_bandwidth_percent),
    ),
    Spec("allotment_gpu_power_watts", "Power that the card draws.", lambda one: one.power_w),
    Spec(
        "allotment_gpu_energy_joules_total",
        "Energy that the card drew since its driver was loaded.",
        lambda one: one.energy_j,
        "counter",
    ),
    Spec("allotment_gpu_temperature_celsius", "Temperature of the card.", lambda one: one.temperature_c),
    Spec("allotment_gpu_sm_clock_hertz", "Clock of the multiprocessors.", lambda one: one.sm_clock_hz),
    Spec(
        "allotment_gpu_pcie_receive_bytes_per_second",
        "Traffic to the card over PCIe.",
        lambda one: one.pcie_rx_bytes_per_s,
    ),
    Spec(
        "allotment_gpu_pcie_transmit_bytes_per_second",
        "Traffic from the card over PCIe.",
        lambda one: one.pcie_tx_bytes_per_s,
    ),
    Spec(
        "allotment_gpu_ecc_corrected_errors_total",
        "Memory errors that were corrected since the driver was loaded.",
        lambda one: one.ecc_corrected,
        "counter",
    ),
    Spec(
        "allotment_gpu_ecc_uncorrected_errors_total",
        "Memory errors that could not be corrected since the driver was loaded.",
        lambda one: one.ecc_uncorrected,
        "counter",
    ),
    Spec("allotment_gpu_processes", "Processes on the device.", lambda one: one.processes),
)

_SESSIONS: Final[tuple[Spec[LeaseReading], ...]] = (
    Spec(
        "allotment_session_cpu_used_cores",
        "Cores that the session kept busy in the last round.",
        lambda one: one.workload.cpu_cores_used,
    ),
    Spec(
        "allotment_session_cpu_limit_cores",
        "Cores that the session may use.",
        lambda one: one.workload.cpu_cores,
    ),
    Spec(
        "allotment_session_memory_used_bytes",
        "Memory of the session without the page cache.",
        lambda one: one.workload.memory_used_bytes,
    ),
    Spec(
        "allotment_session_memory_limit_bytes",
        "Memory that the session may use.",
        lambda one: one.workload.memory_limit_bytes,
    ),
    Spec(
        "allotment_session_disk_read_bytes_per_second",
        "What the session reads from disks.",
        lambda one: one.workload.disk_read_bytes_per_s,
    ),
    Spec(
        "allotment_session_disk_write_bytes_per_second",
        "What the session writes to disks.",
        lambda one: one.workload.disk_write_bytes_per_s,
    ),
    Spec(
        "allotment_session_network_receive_bytes_per_second",
        "What the session receives over the network.",
        lambda one: one.workload.network_rx_bytes_per_s,
    ),
    Spec(
        "allotment_session_network_transmit_bytes_per_second",
        "What the session sends over the network.",
        lambda one: one.workload.network_tx_bytes_per_s,
    ),
    Spec("allotment_session_processes", "Processes of the session.", lambda one: one.workload.processes),
)


def device_families(
    machine: Machine, latest: Round, sessions: Sequence[LeaseReading], xids: Mapping[tuple[str, str], int]
) -> list[Metric]:
    """Each GPU and each slice; `lease` and `flavor` are empty while nobody has it."""
    found = list(_samples(machine, latest, {one.lease: one for one in sessions}))
    reasons = [
        ((*labels[:2], reason), 1.0) for labels, sample in found for reason in sample.clock_reasons or ()
    ]
    return [
        *families(_DEVICES, _DEVICE, found),
        gauge(
            "allotment_gpu_clock_reason",
            "1 for each reason why the card's clock is held down now.",
            ("gpu", "device", "reason"),
            reasons,
        ),
        counter(
            "allotment_gpu_xid_errors_total",
            "Xid errors of the driver since the broker's start.",
            ("gpu",),
            [((uuid,), float(count)) for uuid, count in _by_gpu(machine, xids).items()],
        ),
        counter(
            "allotment_gpu_xid_errors_by_number_total",
            "The same, each Xid for itself.",
            ("gpu", "xid"),
            [(key, float(count)) for key, count in xids.items()],
        ),
    ]


def _by_gpu(machine: Machine, xids: Mapping[tuple[str, str], int]) -> Counter[str]:
    """Also of GPUs without any, so that the first one can be seen as a growth."""
    found = Counter({facts.gpu.uuid: 0 for facts in machine.gpus})
    for (gpu_uuid, _), count in xids.items():
        found[gpu_uuid] += count
    return found


def machine_families(machine: Machine, shown_as: Mapping[str, bool]) -> list[Metric]:
    """What GPUs there are and how their slices are used. `shown_as`: GPU -> whether it is healthy."""
    info = [
        ((facts.gpu.uuid, str(facts.gpu.index), facts.gpu.model, _pool(facts), _mode(facts)), 1.0)
        for facts in machine.gpus
    ]
    slices = Counter((piece.slice.profile, piece.state) for facts in machine.gpus for piece in facts.slices)
    whole = Counter(facts.whole[0] for facts in machine.gpus if facts.whole is not None)
    return [
        gauge(
            "allotment_gpu_info", "The GPUs of this machine.", ("gpu", "index", "model", "pool", "mode"), info
        ),
        gauge(
            "allotment_gpu_healthy",
            "1 while the GPU can be used, 0 while it is unhealthy or missing.",
            ("gpu",),
            [((uuid,), float(healthy)) for uuid, healthy in shown_as.items()],
        ),
        gauge(
            "allotment_gpu_slices",
            "Slices of GPUs by profile and what is done with them.",
            ("profile", "state"),
            [(key, float(count)) for key, count in slices.items()],
        ),
        gauge(
            "allotment_gpu_whole_cards",
            "GPUs that are leased as a whole, by what is done with them.",
            ("state",),
            [((state,), float(count)) for state, count in whole.items()],
        ),
    ]


def session_families(sessions: Sequence[LeaseReading], *, name_people: bool) -> list[Metric]:
    """Sessions that run; `user` is there only where the operators asked for it."""
    labels = (*_SESSION, "user") if name_people else _SESSION
    found = [(_session(one, name_people=name_people), one) for one in sessions if one.state == "active"]
    priced = [((*values, one.currency), one) for values, one in found]
    money: tuple[Spec[LeaseReading], ...] = (
        Spec(
            "allotment_session_price",
            "Price of an hour as it is now.",
            lambda one: float(one.price_per_hour),
        ),
        Spec(
            "allotment_session_cost",
            "What the session has cost so far.",
            lambda one: None if one.cost is None else float(one.cost),
        ),
    )
    return [*families(_SESSIONS, labels, found), *families(money, (*labels, "currency"), priced)]


def _session(one: LeaseReading, *, name_people: bool) -> tuple[str, ...]:
    labels = (one.lease, one.flavor, one.environment)
    return (*labels, one.user) if name_people else labels


def _samples(
    machine: Machine, latest: Round, sessions: Mapping[str, LeaseReading]
) -> Iterator[tuple[tuple[str, ...], DeviceSample]]:
    for facts in machine.gpus:
        parts = [(facts.gpu.uuid, "")]
        parts += [(piece.slice.uuid, piece.slice.profile) for piece in facts.slices if piece.slice.uuid]
        for uuid, profile in parts:
            sample = latest.devices.get(uuid)
            if sample is not None:
                held = sessions.get(latest.holders.get(uuid, ""))
                lease, flavor = ("", "") if held is None else (held.lease, held.flavor)
                yield (facts.gpu.uuid, uuid, profile, lease, flavor), sample


def _pool(facts: GpuFacts) -> str:
    return "" if facts.pool is None else facts.pool.name


def _mode(facts: GpuFacts) -> str:
    return "mig" if facts.gpu.mig else "whole"


def _ratio(percent: float | None) -> float | None:
    return None if percent is None else percent / 100
