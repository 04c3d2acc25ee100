"""A loss model: who finds no device goes away, and is not seen again."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

from allotment_testing.allocation.arrivals import Cell, arrival_rate, arrivals
from allotment_testing.allocation.models import gpu, profiles_of
from allotment_testing.allocation.policies import BASELINES, Allocator, Policy, Spot

__all__ = ["MODEL", "OURS", "Outcome", "run_cell", "simulate"]

MODEL = "A100-80GB"
AXIS = 8
WARM_UP = 4.0
"""Mean holding times before anything is counted; the fleet starts empty."""
OURS = "allotment"


class Outcome(NamedTuple):
    """Percent of requests that found a device, and of memory slices in use over time."""

    accepted: float
    used: float


def simulate(policy: Policy, cell: Cell, seed: int, *, count: int) -> Outcome:
    """Play `count` arrivals after the warm-up."""
    profiles = {profile.name: profile for profile in profiles_of(MODEL)}
    leaving: list[tuple[float, int, Spot]] = []
    begun: float | None = None
    now = slices = area = 0.0
    seen = accepted = 0
    for number, arrival in enumerate(arrivals(cell, seed, arrival_rate(cell, profiles, AXIS))):
        if begun is None and arrival.at >= WARM_UP:
            begun, area, now = arrival.at, 0.0, arrival.at
        while leaving and leaving[0][0] <= arrival.at:
            at, _, spot = heappop(leaving)
            area += slices * max(0.0, at - now)
            now = max(now, at)
            slices -= spot.bits.bit_count()
            policy.release(spot)
        area += slices * (arrival.at - now)
        now = arrival.at
        if seen == count:
            break
        chosen = policy.choose(arrival.profile)
        seen += begun is not None
        if chosen is not None:
            accepted += begun is not None
            slices += chosen.bits.bit_count()
            heappush(leaving, (arrival.at + arrival.holds, number, chosen))
    assert begun is not None
    return Outcome(100 * accepted / seen, 100 * area / (AXIS * cell.gpus * (now - begun)))


def run_cell(cell: Cell, seed: int, *, count: int) -> dict[str, Outcome]:
    """Every policy on the same arrivals."""
    fleet = [gpu(number, MODEL) for number in range(cell.gpus)]
    outcomes = {OURS: simulate(Allocator(gpus=fleet), cell, seed, count=count)}
    for name, make in BASELINES.items():
        outcomes[name] = simulate(make(cell.gpus, profiles_of(MODEL)), cell, seed, count=count)
    return outcomes
