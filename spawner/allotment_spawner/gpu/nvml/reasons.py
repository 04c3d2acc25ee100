"""Why a GPU's clock is held down: words for the bits that NVML and DCGM give."""

from __future__ import annotations

__all__ = ["clock_reasons"]

_REASONS = {
    0x1: "gpu_idle",
    0x2: "applications_clocks",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock",
    0x200: "board_limit",
    0x400: "reliability",
}
"""nvmlClocksEventReason*; the last two have only the older name, nvmlClocksThrottleReason*."""


def clock_reasons(mask: int) -> tuple[str, ...]:
    """Words for the bits of a mask, lowest bit first; a bit without a name is like "bit_11"."""
    bits = (bit for bit in range(mask.bit_length()) if mask >> bit & 1)
    return tuple(_REASONS.get(1 << bit, f"bit_{bit}") for bit in bits)
