"""Reads a DCGM exporter's metrics page: how busy GPUs and MIG slices are, by this machine's UUIDs.

Names and units: NVIDIA/dcgm-exporter's etc/*.csv (1.x to 4.8), DCGM's field identifiers (names of DCGM 4.6,
base units of 4.7), and the release notes of exporter 4.9, which shows the new ones by default. The name says
the unit; help texts do not ("in %" stands at ratios).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace

from allotment_spawner.core.inventory import Gpu, NodeInventory, Slice
from allotment_spawner.core.samples import DeviceSample
from allotment_spawner.gpu.nvml.reasons import clock_reasons

__all__ = ["filled", "readings"]

_BLANK = 140737488355328.0
"""DCGM's blank double, and less than its blank integers: values from here on mean "not known"."""
_BLANKS_32 = range(0x7FFFFFF0, 0x80000000)
"""The same for integers of 32 bits; a counter that passes through is unknown for one look."""
_ROW = re.compile(r"([A-Za-z_:][A-Za-z0-9_:]*)\{(.*)\}\s+(\S+)(?:\s+-?\d+)?")
_LABEL = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)="((?:[^"\\]|\\.)*)"')
_OF_SLICES = frozenset({"sm_percent", "memory_bandwidth_percent", "memory_used_bytes", "memory_total_bytes"})
"""Everything else that stands at a slice is its whole GPU's."""
_PERCENTS = frozenset({"sm_percent", "memory_bandwidth_percent"})
_WHOLE = frozenset(
    {"memory_used_bytes", "memory_total_bytes", "sm_clock_hz", "ecc_corrected", "ecc_uncorrected"}
)
_MIB, _KIB, _MHZ = 1 << 20, 1 << 10, 1_000_000


@dataclass(frozen=True, slots=True)
class _Field:
    """`factor` gives our unit. Of several fields of one member that with the lowest `rank` counts."""

    member: str
    factor: float = 1.0
    rank: int = 0


def _table() -> Mapping[str, _Field]:
    sm, bandwidth = "sm_percent", "memory_bandwidth_percent"
    rows: list[tuple[_Field, str]] = [
        # Of SMs with a warp, of cycles with memory traffic: ratios since always.
        (_Field(sm, 100), "DCGM_FI_PROF_SM_ACTIVE DCGM_FI_PROF_SM_UTIL_RATIO"),
        (_Field(sm, 100, 1), "DCGM_FI_PROF_GR_ENGINE_ACTIVE DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO"),
        (_Field(sm, 1, 2), "DCGM_FI_DEV_GPU_UTIL DCGM_GPU_UTILIZATION"),
        (_Field(sm, 100, 2), "DCGM_FI_DEV_GPU_UTIL_RATIO"),
        (_Field(bandwidth, 100), "DCGM_FI_PROF_DRAM_ACTIVE DCGM_FI_PROF_DRAM_UTIL_RATIO"),
        (_Field(bandwidth, 1, 2), "DCGM_FI_DEV_MEM_COPY_UTIL DCGM_MEM_COPY_UTILIZATION"),
        (_Field(bandwidth, 100, 2), "DCGM_FI_DEV_MEMORY_UTIL_RATIO"),
        (_Field("memory_used_bytes", _MIB, 1), "DCGM_FI_DEV_FB_USED DCGM_FB_USED"),
        (_Field("memory_used_bytes"), "DCGM_FI_DEV_FB_USED_BYTES"),
        (_Field("memory_total_bytes", _MIB, 1), "DCGM_FI_DEV_FB_TOTAL"),
        (_Field("memory_total_bytes"), "DCGM_FI_DEV_FB_CAPACITY_BYTES"),
        (_Field("power_w"), "DCGM_FI_DEV_POWER_USAGE DCGM_FI_DEV_BOARD_POWER_WATTS DCGM_POWER_USAGE"),
        (_Field("energy_j", 1e-3), "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION DCGM_TOTAL_ENERGY_CONSUMPTION"),
        (_Field("energy_j", 1, 1), "DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL"),
        (_Field("temperature_c"), "DCGM_FI_DEV_GPU_TEMP DCGM_FI_DEV_GPU_TEMP_CELSIUS DCGM_GPU_TEMP"),
        (_Field("sm_clock_hz", _MHZ, 1), "DCGM_FI_DEV_SM_CLOCK DCGM_SM_CLOCK"),
        (_Field("sm_clock_hz"), "DCGM_FI_DEV_SM_CLOCK_HERTZ"),
        (_Field("pcie_rx_bytes_per_s"), "DCGM_FI_PROF_PCIE_RX_BYTES"),
        (_Field("pcie_tx_bytes_per_s"), "DCGM_FI_PROF_PCIE_TX_BYTES"),
        (_Field("pcie_rx_bytes_per_s", _KIB, 1), "DCGM_FI_DEV_PCIE_RX_THROUGHPUT DCGM_PCIE_RX_THROUGHPUT"),
        (_Field("pcie_tx_bytes_per_s", _KIB, 1), "DCGM_FI_DEV_PCIE_TX_THROUGHPUT DCGM_PCIE_TX_THROUGHPUT"),
        (_Field("clock_reasons"), "DCGM_FI_DEV_CLOCKS_EVENT_REASONS DCGM_FI_DEV_CLOCK_THROTTLE_REASONS"),
        (_Field("ecc_corrected"), "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL DCGM_ECC_SBE_VOLATILE_TOTAL"),
        (_Field("ecc_uncorrected"), "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL DCGM_ECC_DBE_VOLATILE_TOTAL"),
    ]
    return {name: field for field, names in rows for name in names.split()}


_FIELDS = _table()


def readings(page: str, inventory: NodeInventory) -> dict[str, DeviceSample]:
    """Device UUID -> what the page tells of it. What it does not tell, or not sensibly, is None.

    A slice is found by its GPU's UUID and its instance id (`GPU_I_ID`); one that stands there with another
    profile (`GPU_I_PROFILE`) was there before ours, so its numbers are nobody's.
    """
    gpus = {gpu.uuid: gpu for gpu in inventory.gpus}
    found: dict[tuple[str, str], dict[str, tuple[int, float]]] = {}
    for name, labels, text in _rows(page):
        field = _FIELDS[name]
        gpu = gpus.get(labels.get("UUID") or labels.get("uuid") or "")
        device = None if gpu is None else _device(gpu, labels)
        if gpu is None or device is None or not _told(field.member, gpu, device):
            continue
        value = _value(name, field, text)
        if value is not None:
            kept = found.setdefault((gpu.uuid, device), {})
            if field.member not in kept or field.rank < kept[field.member][0]:
                kept[field.member] = (field.rank, value)
    return {device: _sample(gpu_uuid, device, kept) for (gpu_uuid, device), kept in found.items()}


def filled(sample: DeviceSample, more: DeviceSample) -> DeviceSample:
    """`sample` with what it lacks taken from `more`."""
    lacks = {f.name: getattr(more, f.name) for f in fields(sample) if getattr(sample, f.name) is None}
    return replace(sample, **lacks)


def _rows(page: str) -> Iterator[tuple[str, dict[str, str], str]]:
    """(upper-case name, labels, value) of the rows that concern us; a torn or foreign line is passed over."""
    for line in page.splitlines():
        name = line.partition("{")[0].upper()
        if name in _FIELDS and (match := _ROW.fullmatch(line.rstrip())) is not None:
            yield name, dict(_LABEL.findall(match[2])), match[3]


def _device(gpu: Gpu, labels: Mapping[str, str]) -> str | None:
    """UUID of the GPU or the slice that a row is about; None when we have no such slice."""
    instance = labels.get("GPU_I_ID", "")
    if not instance:
        return gpu.uuid
    profile = labels.get("GPU_I_PROFILE", "")
    for piece in gpu.slices:
        if str(piece.instance_id) == instance and profile in ("", *_names(piece)):
            return piece.uuid
    return None


def _names(piece: Slice) -> tuple[str, str]:
    """DCGM leaves the part about media engines out."""
    return piece.profile, re.split(r"[+-]", piece.profile)[0]


def _told(member: str, gpu: Gpu, device: str) -> bool:
    """Whether this is the device's own: utilisation in MIG mode is the slices', the rest the GPU's."""
    if device != gpu.uuid:
        return member in _OF_SLICES
    return not (gpu.mig and member in _PERCENTS)


def _value(name: str, field: _Field, text: str) -> float | None:
    try:
        raw = float(text)
    except ValueError:
        return None
    if not 0 <= raw < _BLANK or raw in _BLANKS_32:
        return None  # NaN fails every comparison
    factor = field.factor
    if name.startswith("DCGM_FI_DEV_") and name.endswith("_UTIL_RATIO") and "." not in text:
        # DCGM 4.6 had these names for the whole percents; ratios are written with decimals.
        factor = 1.0
    value = raw * factor
    if field.member not in _PERCENTS:
        return value
    # Ratios of counters that are read one after the other come out a little above 1 under full load.
    return min(value, 100.0) if value <= 105 else None


def _sample(gpu_uuid: str, device: str, kept: Mapping[str, tuple[int, float]]) -> DeviceSample:
    values: dict[str, object] = {}
    for member, (_, value) in kept.items():
        if member == "clock_reasons":
            values[member] = clock_reasons(int(value))
        else:
            values[member] = round(value) if member in _WHOLE else value
    return replace(DeviceSample(gpu_uuid=gpu_uuid, device_uuid=device), **values)  # type: ignore[arg-type]
