"""What simulated processes make of a board: utilisation, power, energy, heat, clocks (pure functions)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from allotment_spawner.gpu.simulator.state import SimGpu, SimProcess, SimWork

__all__ = [
    "SIMULATED_IDLE_C",
    "Figures",
    "Load",
    "advance_energy",
    "clock_mhz",
    "energy_j",
    "event_reasons",
    "figures",
    "load_of",
    "on_board",
    "power_w",
    "temperature_c",
]

SIMULATED_IDLE_C = 30.0
_C_AT_LIMIT = 50.0
_HOT_C = 87.0
_IDLE, _POWER_CAP, _THERMAL = 0x1, 0x4, 0x20
"""Bits of nvmlClocksEventReason*."""


@dataclass(frozen=True, slots=True)
class Figures:
    """A kind of board, from NVIDIA's data sheets: power in W, SM clock in MHz."""

    idle_w: float
    limit_w: float
    idle_mhz: int
    boost_mhz: int


@dataclass(frozen=True, slots=True)
class Load:
    """All processes of a device together. Percent 0 to 100, bytes per second."""

    sm_percent: float
    bandwidth_percent: float
    pcie_rx_bytes_per_s: float
    pcie_tx_bytes_per_s: float


def figures(model: str) -> Figures:
    """By the beginning of the model's name; unknown ones are like an A100."""
    table = {
        "A30": Figures(30, 165, 210, 1440),
        "H100-PCIe": Figures(60, 350, 345, 1755),
        "H100-NVL": Figures(60, 400, 345, 1785),
        "H100": Figures(70, 700, 345, 1980),
        "H200": Figures(75, 700, 345, 1980),
        "GH200": Figures(90, 900, 345, 1980),
        "B200": Figures(140, 1000, 120, 1965),
        "GB200": Figures(150, 1200, 120, 2062),
        "RTX-PRO-6000": Figures(60, 600, 180, 2430),
    }
    return next((f for name, f in table.items() if model.startswith(name)), Figures(55, 400, 210, 1410))


def on_board(gpu: SimGpu, processes: Sequence[SimProcess]) -> list[SimProcess]:
    """The processes on a board and on its slices."""
    devices = {gpu.uuid, *(c.uuid for i in gpu.instances for c in i.computes)}
    return [p for p in processes if p.device_uuid in devices]


def load_of(processes: Sequence[SimProcess], devices: Collection[str]) -> Load:
    """Everything on these devices. A process of which nothing is said keeps its device busy."""
    here = [p for p in processes if p.device_uuid in devices]
    return Load(
        sm_percent=min(100.0, sum(map(_sm, here))),
        bandwidth_percent=min(100.0, sum(map(_bandwidth, here))),
        pcie_rx_bytes_per_s=_sum(here, lambda work: work.pcie_rx_bytes_per_s),
        pcie_tx_bytes_per_s=_sum(here, lambda work: work.pcie_tx_bytes_per_s),
    )


def _sum(processes: Sequence[SimProcess], member: Callable[[SimWork], float]) -> float:
    return sum(member(p.work) for p in processes)


def _sm(process: SimProcess) -> float:
    return 100.0 if process.work.sm_percent is None else process.work.sm_percent


def _bandwidth(process: SimProcess) -> float:
    stated = process.work.bandwidth_percent
    return _sm(process) if stated is None else stated


def power_w(gpu: SimGpu, processes: Sequence[SimProcess]) -> float:
    """What the whole board draws: idle, and of each process what is said of it, else its share by load."""
    of = figures(gpu.model)
    sizes = {c.uuid: i.size for i in gpu.instances for c in i.computes}
    axis = max(8, sum(sizes.values()))
    here = on_board(gpu, processes)
    stated = sum(p.work.power_w for p in here if p.work.power_w is not None)
    derived = sum(
        (of.limit_w - of.idle_w) * _sm(p) / 100 * sizes.get(p.device_uuid, axis) / axis
        for p in here
        if p.work.power_w is None
    )
    return min(of.limit_w, max(of.idle_w, stated) + derived)


def temperature_c(gpu: SimGpu, processes: Sequence[SimProcess]) -> float:
    """The hottest that is said of a process; else by what the board draws."""
    stated = [p.work.temperature_c for p in on_board(gpu, processes) if p.work.temperature_c is not None]
    if stated:
        return max(stated)
    return round(SIMULATED_IDLE_C + _C_AT_LIMIT * power_w(gpu, processes) / figures(gpu.model).limit_w)


def clock_mhz(gpu: SimGpu, processes: Sequence[SimProcess]) -> int:
    """Boost while something runs, lower while it is held down."""
    of = figures(gpu.model)
    if not on_board(gpu, processes):
        return of.idle_mhz
    held = event_reasons(gpu, processes) & (_POWER_CAP | _THERMAL)
    return of.boost_mhz * 3 // 4 if held else of.boost_mhz


def event_reasons(gpu: SimGpu, processes: Sequence[SimProcess]) -> int:
    """Bits of nvmlClocksEventReason*: idle, at the power limit, too hot."""
    if not on_board(gpu, processes):
        return _IDLE
    capped = _POWER_CAP if power_w(gpu, processes) >= figures(gpu.model).limit_w else 0
    return capped | (_THERMAL if temperature_c(gpu, processes) >= _HOT_C else 0)


def energy_j(gpu: SimGpu, watts: float, now: float) -> float:
    """What the board has used by `now`, when it drew `watts` since `energy_at`; a clock set back adds 0."""
    since = now if gpu.energy_at is None else gpu.energy_at
    return gpu.energy_j + watts * max(0.0, now - since)


def advance_energy(gpu: SimGpu, watts: float, now: float) -> None:
    """Write that down, so that from `now` on the board may draw something else."""
    gpu.energy_j, gpu.energy_at = energy_j(gpu, watts, now), now
    gpu.energy_writes += 1
