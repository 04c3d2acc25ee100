"""How long a decision takes on a busy fleet of 1,000 GPUs."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from allotment_spawner.core.allocator import GpuState, IdleSlice, NoRoom, Placement, Request, request_for
from allotment_spawner.core.geometry import mask
from allotment_spawner.core.profiles import is_plain

from allotment_testing.allocation.arrivals import Cell, arrival_rate, arrivals
from allotment_testing.allocation.models import gpu, profiles_of
from allotment_testing.allocation.policies import Allocator, Spot

__all__ = ["FLEET", "Times", "decision_times"]

FLEET = 1000
WHOLE = 104
"""Cards with MIG off, in NVLink islands of eight; the rest are half A100s, half H100s with MIG on."""
WARM_UP = 5.0


class Times(NamedTuple):
    """Microseconds. `cpu` is this thread's time, `wall` also holds what other programs took."""

    fleet: str
    decisions: int
    no_room: int
    states: int
    """Different (model, taken, idle) states of a GPU when timing began."""
    cpu_p50: float
    cpu_p99: float
    cpu_max: float
    wall_p50: float
    wall_p99: float
    cold: float
    """One decision when every GpuState is made anew too, median."""


class _Timed(Allocator):
    def __init__(self, *, gpus: list[GpuState]) -> None:
        super().__init__(gpus=gpus)
        self.times: list[tuple[int, int]] = []
        self.no_room = 0

    def decide(self, request: Request) -> Placement | NoRoom:
        wall, cpu = time.perf_counter_ns(), time.thread_time_ns()
        answer = super().decide(request)
        self.times.append((time.thread_time_ns() - cpu, time.perf_counter_ns() - wall))
        self.no_room += isinstance(answer, NoRoom)
        return answer


def _fleet() -> list[GpuState]:
    cards = [gpu(number, mig=False, island=number // 8) for number in range(WHOLE)]
    halves = ("A100-80GB", "H100-SXM-80GB")
    return cards + [gpu(number, halves[number % 2]) for number in range(WHOLE, FLEET)]


def _shatter(state: GpuState, draw: random.Random) -> GpuState:
    """A GPU cut at random, of which about half is in use and a quarter idle: no policy leaves it so."""
    taken, idle, used = 0, [], 0
    profiles = [profile for profile in state.profiles if is_plain(profile.name)][:-1]
    for _ in range(draw.randrange(12)):
        profile = draw.choice(profiles)
        start = draw.choice(profile.starts)
        bits = mask(start, profile.size)
        if bits & used:
            continue
        used |= bits
        fate = draw.random()
        if fate < 0.6:
            taken |= bits
        elif fate < 0.9:
            idle.append(IdleSlice(profile.name, start, profile.size))
    return replace(state, taken=taken, idle=tuple(sorted(idle)))


def decision_times(*, decisions: int, seed: int, shattered: bool) -> Times:
    """Time decisions on a fleet that is filled at load 1.0 with the notebook mix and whole cards.

    A decision is `place` on a new Snapshot: grouping the 1,000 GPUs is part of it. `shattered`: the
    MIG GPUs are cut at random first (again every 1,000 decisions), instead of being filled by `place`.
    """
    cell = Cell(FLEET - WHOLE, "notebook", 1.0)
    profiles = {profile.name: profile for profile in profiles_of("A100-80GB")}
    policy = _Timed(gpus=_fleet())
    draw = random.Random(seed)
    cards = [request_for("whole", None, 1, count, frozenset({"whole"}), frozenset()) for count in (1, 2, 4)]
    leaving: list[tuple[float, int, Spot]] = []
    states = 0
    for number, arrival in enumerate(arrivals(cell, seed, arrival_rate(cell, profiles, 8))):
        while leaving and leaving[0][0] <= arrival.at:
            policy.release(heappop(leaving)[2])
        if not shattered and arrival.at < WARM_UP:
            policy.times.clear()
            policy.no_room = 0
        elif shattered and number % 1000 == 0:
            policy.gpus = [_shatter(state, draw) if state.mig else state for state in policy.gpus]
            leaving = [entry for entry in leaving if not policy.gpus[entry[2].gpu].mig]
            heapify(leaving)
        if not policy.times:
            states = len({(id(state.profiles), state.looks) for state in policy.gpus})
        if len(policy.times) >= decisions:
            break
        for spot in _start(policy, arrival.profile, draw.choice(cards) if draw.random() < 0.03 else None):
            heappush(leaving, (arrival.at + arrival.holds, number, spot))
    return _summary(policy, "shattered" if shattered else "packed", states)


def _start(policy: _Timed, profile: str, cards: Request | None) -> list[Spot]:
    if cards is None:
        spot = policy.choose(profile)
        return [] if spot is None else [spot]
    answer = policy.decide(cards)
    return [policy.take(device) for device in answer.devices] if isinstance(answer, Placement) else []


def _summary(policy: _Timed, fleet: str, states: int) -> Times:
    cpu = sorted(times[0] / 1000 for times in policy.times)
    wall = sorted(times[1] / 1000 for times in policy.times)
    return Times(
        fleet=fleet,
        decisions=len(cpu),
        no_room=policy.no_room,
        states=states,
        cpu_p50=cpu[len(cpu) // 2],
        cpu_p99=cpu[int(len(cpu) * 0.99)],
        cpu_max=cpu[-1],
        wall_p50=wall[len(wall) // 2],
        wall_p99=wall[int(len(wall) * 0.99)],
        cold=_cold(policy),
    )


def _cold(policy: _Timed) -> float:
    request = request_for("slice", 10, 1, 1, frozenset({"mig"}), frozenset())
    taken = []
    for _ in range(20):
        begun = time.thread_time_ns()
        policy.gpus = [replace(state) for state in policy.gpus]
        policy.decide(request)
        taken.append((time.thread_time_ns() - begun) / 1000)
    return sorted(taken)[len(taken) // 2]
