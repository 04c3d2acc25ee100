"""Who comes when, wanting what, for how long: the same for every policy that is compared."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

from allotment_spawner.core.inventory import Profile

__all__ = ["LOADS", "MIXES", "Arrival", "Cell", "arrivals", "arrival_rate"]

MIXES: dict[str, dict[str, float]] = {
    "notebook": {"1g.10gb": 0.60, "2g.20gb": 0.25, "3g.40gb": 0.12, "7g.80gb": 0.03},
    "uniform": dict.fromkeys(("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"), 1 / 6),
    "small": {"1g.10gb": 0.70, "1g.20gb": 0.10, "2g.20gb": 0.20},
    "big": {"1g.10gb": 0.20, "2g.20gb": 0.20, "3g.40gb": 0.30, "4g.40gb": 0.10, "7g.80gb": 0.20},
}
"""Shares of requests by profile of an A100-80GB."""

LOADS = (0.85, 1.0, 1.2)
"""Memory slices asked for, over memory slices there are."""


class Cell(NamedTuple):
    """One setting of the benchmark."""

    gpus: int
    mix: str
    load: float


class Arrival(NamedTuple):
    """One request; times in mean holding times."""

    at: float
    profile: str
    holds: float


def arrival_rate(cell: Cell, profiles: dict[str, Profile], axis: int) -> float:
    """Arrivals per mean holding time that ask for `load` times all memory slices."""
    size = sum(share * profiles[name].size for name, share in MIXES[cell.mix].items())
    return cell.load * axis * cell.gpus / size


def arrivals(cell: Cell, seed: int, rate: float) -> Iterator[Arrival]:
    """Poisson arrivals with exponential holding times, without end; equal for equal arguments."""
    draw = random.Random(f"{cell}/{seed}")
    names = list(MIXES[cell.mix])
    shares = list(MIXES[cell.mix].values())
    at = 0.0
    while True:
        at += draw.expovariate(rate)
        yield Arrival(at, draw.choices(names, shares)[0], draw.expovariate(1.0))
