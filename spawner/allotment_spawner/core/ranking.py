"""Which placement on a GPU is best, and how it compares with those on other GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from allotment_spawner.core.demand import Demand
from allotment_spawner.core.geometry import Axis, Geometry, mask
from allotment_spawner.core.inventory import Profile
from allotment_spawner.core.lookahead import Lookahead, Option
from allotment_spawner.core.snapshot import GpuState

__all__ = ["Choice", "Ranking", "ranking_for"]

REMEMBERED = 4_000
"""Looks of GPUs kept in memory for one profile and demand."""


class Choice(NamedTuple):
    """The best placement on one GPU. A smaller one is better, compared in this order.

    empty: it would break into a GPU that nobody uses; cut: no idle slice can be handed out as it is;
    cost: what later requests lose; waste: idle slices that must be destroyed; start: memory slice.
    """

    empty: bool
    cut: bool
    cost: float
    waste: int
    start: int


class Ranking:
    """Choices for one profile under one demand, remembered by the looks of a GPU."""

    __slots__ = ("_lookahead", "_mark", "_placements", "_remembered", "profile")

    def __init__(self, *, lookahead: Lookahead, profile: Profile) -> None:
        self.profile = profile
        self._lookahead = lookahead
        self._mark = f"|{profile.name}@"
        self._placements = tuple(mask(start, profile.size) for start in profile.starts)
        self._remembered: dict[str, Choice] = {}

    def best_of(
        self, alike: Sequence[list[GpuState]], pools: frozenset[str], best: Choice | None
    ) -> tuple[Choice, GpuState] | None:
        """The best placement on these GPUs of one model, if it is better than `best`.

        Of GPUs that look alike only the first is tried.
        """
        mark = self._mark
        ready = [gpus[0] for gpus in alike if mark in gpus[0].looks and gpus[0].pool in pools]
        found = self._first(ready, best)
        if found is not None and not found[0].empty:
            # An idle slice on a partly used GPU: nothing else can be better, so most GPUs of a big
            # fleet are not even looked at.
            return found
        others = [gpus[0] for gpus in alike if mark not in gpus[0].looks and gpus[0].pool in pools]
        return self._first(others, found[0] if found else best) or found

    def _first(self, gpus: list[GpuState], best: Choice | None) -> tuple[Choice, GpuState] | None:
        recall = self._remembered.get
        winner: GpuState | None = None
        for gpu in gpus:
            choice = recall(gpu.looks) or self._choice(gpu, best)
            if choice is not None and (best is None or choice < best):
                best, winner = choice, gpu
        return (best, winner) if best and winner else None

    def _choice(self, gpu: GpuState, best: Choice | None) -> Choice | None:
        """The best placement on this GPU; None when there is none, or none that can beat `best`."""
        taken = gpu.taken
        least = self._lookahead.least(taken, self._placements)
        if least is None or not gpu.usable or (self.profile.media and gpu.me_taken):
            return None
        if best is not None and (not taken, self._mark not in gpu.looks, least) > best[:3]:
            return None
        found = _choose(gpu, self.profile, self._lookahead.options(self.profile, taken))
        if found is not None:
            if len(self._remembered) >= REMEMBERED:
                self._remembered.clear()
            self._remembered[gpu.looks] = found
        return found


def _choose(gpu: GpuState, profile: Profile, options: tuple[Option, ...]) -> Choice | None:
    empty = not gpu.taken
    ready = {piece.start for piece in gpu.idle if piece.profile == profile.name}
    for option in options:
        if option.start in ready:
            return Choice(empty, False, option.cost, 0, option.start)
    if gpu.fixed_layout:
        return None
    if not gpu.idle:
        return Choice(empty, True, options[0].cost, 0, options[0].start)
    idle = [mask(piece.start, piece.size) for piece in gpu.idle]
    return min(
        Choice(empty, True, cost, sum(1 for piece in idle if piece & bits), start)
        for cost, start, bits in options
    )


@lru_cache(maxsize=64)
def _lookahead(axis: Axis, shares: tuple[float, ...]) -> Lookahead:
    return Lookahead(axis=axis, shares=shares)


@lru_cache(maxsize=512)
def _ranking(geometry: Geometry, shares: tuple[float, ...], profile: str) -> Ranking:
    lookahead = _lookahead(geometry.axis, shares)
    return Ranking(lookahead=lookahead, profile=geometry.profiles[profile])


def ranking_for(geometry: Geometry, demand: Demand, profile: Profile) -> Ranking:
    """The Ranking of this model, demand and profile; equal demand gives the same object."""
    return _ranking(geometry, demand.shares(geometry.names), profile.name)
