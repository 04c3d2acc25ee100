"""Which figures are kept, how exactly, and what becomes of them when many become one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

__all__ = ["DEVICE", "LAYOUTS", "REASONS", "WORKLOAD", "Field", "Kind", "Together", "reasons_of"]

Kind = Literal["workload", "device", "gpu"]
"""A session's processes; one of its devices; a card, whoever is on it."""
Together = Literal["mean", "sum", "any"]
"""Of many: mean and maximum; the sum; every bit that was ever set."""

_MIB: Final = 2**20
_STEPS_PER_OCTAVE: Final = 64


@dataclass(frozen=True, slots=True)
class Field:
    """One figure as a whole number: `code` and `value` are each other's inverse up to `exactness`."""

    name: str
    unit: str
    together: Together
    code: Callable[[float], int]
    value: Callable[[int], float]
    exactness: str


def _even(name: str, unit: str, step: float, together: Together = "mean") -> Field:
    return Field(
        name,
        unit,
        together,
        code=lambda value: round(value / step),
        value=lambda code: code * step,
        exactness=f"to {step:g}",
    )


def _relative(name: str, unit: str) -> Field:
    """0 stays 0; everything else is kept to about half a percent."""
    return Field(
        name,
        unit,
        "mean",
        code=lambda value: round(_STEPS_PER_OCTAVE * math.log2(1 + max(0.0, value))),
        value=lambda code: 2 ** (code / _STEPS_PER_OCTAVE) - 1,
        exactness="to 0.6 %",
    )


WORKLOAD: Final = (
    _even("cpu_cores_used", "cores", 0.01),
    _even("cpu_cores", "cores", 0.01),
    _even("memory_used_bytes", "bytes", _MIB),
    _even("memory_limit_bytes", "bytes", _MIB),
    _relative("disk_read_bytes_per_s", "bytes/s"),
    _relative("disk_write_bytes_per_s", "bytes/s"),
    _relative("network_rx_bytes_per_s", "bytes/s"),
    _relative("network_tx_bytes_per_s", "bytes/s"),
    _even("processes", "processes", 1),
)
"""Names are those of `WorkloadRates`. The order is part of the file: append only, and raise its VERSION."""

DEVICE: Final = (
    _even("sm_percent", "percent", 0.5),
    _even("memory_used_bytes", "bytes", _MIB),
    _even("memory_total_bytes", "bytes", _MIB),
    _even("memory_bandwidth_percent", "percent", 0.5),
    _even("power_w", "W", 0.5),
    _even("energy_j", "J", 0.1, "sum"),
    _even("temperature_c", "°C", 0.5),
    _even("sm_clock_hz", "Hz", 5e6),
    _relative("pcie_rx_bytes_per_s", "bytes/s"),
    _relative("pcie_tx_bytes_per_s", "bytes/s"),
    _even("clock_reasons", "reasons", 1, "any"),
    _even("ecc_corrected", "errors", 1, "sum"),
    _even("ecc_uncorrected", "errors", 1, "sum"),
    _even("xids", "errors", 1, "sum"),
    _even("processes", "processes", 1),
)
"""Names are those of `DeviceSample`; energy and ECC as growth since the last sample, Xids as their number."""

LAYOUTS: Final[dict[Kind, Sequence[Field]]] = {"workload": WORKLOAD, "device": DEVICE, "gpu": DEVICE}

REASONS: Final = (
    "other",
    "gpu_idle",
    "applications_clocks",
    "sw_power_cap",
    "hw_slowdown",
    "sync_boost",
    "sw_thermal_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
    "display_clock",
    "board_limit",
    "reliability",
)
"""Bit by bit, why a clock is held down; a name that is not here is "other"."""


def reasons_of(mask: int) -> tuple[str, ...]:
    """The names whose bits are set."""
    return tuple(name for bit, name in enumerate(REASONS) if mask & 1 << bit)
