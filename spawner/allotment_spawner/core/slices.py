"""One slice of a MIG GPU: the free placement that costs later requests least."""

from __future__ import annotations

from typing import NamedTuple

from allotment_spawner.core.demand import Demand
from allotment_spawner.core.geometry import Geometry, mask, most_disjoint
from allotment_spawner.core.inventory import Profile
from allotment_spawner.core.profiles import choose, largest
from allotment_spawner.core.request import Candidate, Want
from allotment_spawner.core.snapshot import GpuState, IdleSlice, Placed, Placement, Snapshot

__all__ = ["count_slices", "place_slice", "profile_for"]


class Option(NamedTuple):
    """One legal placement beside the taken slices, with what it costs later requests."""

    cost: float
    start: int
    bits: int


def profile_for(want: Want, geometry: Geometry) -> Profile | None:
    """The profile of this GPU model that serves the want, or None."""
    profiles = geometry.profiles.values()
    if want.kind == "largest":
        best = largest(profiles)
        fits = best is not None and choose((best,), want.memory_gb, want.compute_slices)
        return best if fits else None
    return choose(profiles, want.memory_gb, want.compute_slices)


def options(geometry: Geometry, profile: Profile, taken: int, demand: Demand) -> tuple[Option, ...]:
    """The placements of `profile` that touch no slice of `taken`, cheapest first."""
    key = (geometry, profile.name, taken)
    known: tuple[Option, ...] | None = demand.memo.get(key)
    if known is not None:
        return known
    weights = [demand.weight(name) for name in geometry.names]
    found = []
    for start in profile.starts:
        bits = mask(start, profile.size)
        if not bits & taken:
            lost = geometry.lost(taken, bits)
            found.append(Option(sum(w * n for w, n in zip(weights, lost, strict=True)), start, bits))
    result = tuple(sorted(found))
    demand.memo[key] = result
    return result


def place_slice(candidate: Candidate, snapshot: Snapshot, demand: Demand) -> Placement | None:
    """The best legal placement on any GPU of the candidate's pools, or None.

    In this order: never on an empty GPU while a partly used one fits; an idle slice as it is before
    cutting; the least demand-weighted number of legal placements lost to others; the fuller GPU; the
    fewest idle slices destroyed; the first GPU.
    """
    chosen: dict[Geometry, Profile | None] = {}
    best: tuple[bool, bool, float, int, int] | None = None
    winner: tuple[GpuState, Profile, int, bool] | None = None
    for geometry, gpus in snapshot.groups:
        gpu = gpus[0]
        if gpu.pool not in candidate.pools:
            continue
        if geometry not in chosen:
            chosen[geometry] = profile_for(candidate.want, geometry)
        profile = chosen[geometry]
        if profile is None or (profile.media and gpu.me_taken):
            continue
        empty = not gpu.taken
        fullness = -gpu.taken.bit_count()
        for cost, start, bits in options(geometry, profile, gpu.taken, demand):
            reuse = any(piece.profile == profile.name and piece.start == start for piece in gpu.idle)
            if gpu.fixed_layout and not reuse:
                continue
            waste = 0 if reuse else sum(1 for p in gpu.idle if mask(p.start, p.size) & bits)
            rank = (empty, not reuse, cost, fullness, waste)
            if best is None or rank < best:
                best, winner = rank, (gpu, profile, start, reuse)
    if winner is None:
        return None
    gpu, profile, start, reuse = winner
    destroy = () if reuse else in_the_way(gpu, profile, start)
    return Placement((Placed(gpu.gpu_uuid, profile.name, start, profile.size, reuse, destroy),))


def in_the_way(gpu: GpuState, profile: Profile, start: int) -> tuple[IdleSlice, ...]:
    """Idle slices to destroy before `profile` can be cut at `start`: overlapping ones, and, for a
    `+me` profile, the idle `+me` slice, since a GPU has one at most."""
    bits = mask(start, profile.size)
    media = {p.name for p in gpu.profiles if p.media} if profile.media else set()
    return tuple(p for p in gpu.idle if mask(p.start, p.size) & bits or p.profile in media)


def count_slices(candidate: Candidate, snapshot: Snapshot) -> tuple[int, int]:
    """How many such slices fit (now, if everything usable were free)."""
    free = total = 0
    for geometry, gpus in snapshot.groups:
        if gpus[0].pool not in candidate.pools:
            continue
        profile = profile_for(candidate.want, geometry)
        if profile is None:
            continue
        for gpu in gpus:
            if gpu.fixed_layout:
                now = sum(1 for piece in gpu.idle if piece.profile == profile.name)
                ever = now + sum(1 for piece in gpu.leased if piece.profile == profile.name)
            else:
                now = most_disjoint(profile.starts, profile.size, gpu.taken)
                ever = most_disjoint(profile.starts, profile.size, gpu.foreign)
            if profile.media:
                now, ever = min(now, 0 if gpu.me_taken else 1), min(ever, 1)
            free += now
            total += ever
    return free, total
