"""One slice of a MIG GPU: the free placement that costs later requests least."""

from __future__ import annotations

from typing import NamedTuple

from allotment_spawner.core.demand import Demand
from allotment_spawner.core.geometry import Geometry, mask, most_disjoint
from allotment_spawner.core.inventory import Profile
from allotment_spawner.core.lookahead import Lookahead, lookahead_for
from allotment_spawner.core.profiles import choose, largest
from allotment_spawner.core.request import Candidate, Want
from allotment_spawner.core.snapshot import GpuState, IdleSlice, Placed, Placement, Snapshot

__all__ = ["count_slices", "place_slice", "profile_for"]


class Rank(NamedTuple):
    """What makes one placement better than another; the smallest is taken.

    empty: it would break into a GPU nobody uses; cut: no idle slice can be handed out as it is;
    cost: what later requests lose; waste: idle slices that must be destroyed.
    """

    empty: bool
    cut: bool
    cost: float
    waste: int


def profile_for(want: Want, geometry: Geometry) -> Profile | None:
    """The profile of this GPU model that serves the want, or None."""
    profiles = geometry.profiles.values()
    if want.kind == "profile":
        return geometry.profiles.get(want.profile or "")
    if want.kind == "largest":
        best = largest(profiles)
        return best and choose((best,), want.memory_gb, want.compute_slices)
    return choose(profiles, want.memory_gb, want.compute_slices)


def place_slice(candidate: Candidate, snapshot: Snapshot, demand: Demand) -> Placement | None:
    """The best legal placement on any GPU of the candidate's pools, or None; the first GPU on a tie."""
    known: dict[Geometry, tuple[Profile | None, Lookahead]] = {}
    best: Rank | None = None
    winner: tuple[GpuState, Profile, int] | None = None
    for geometry, gpus in snapshot.groups:
        gpu = gpus[0]
        if gpu.pool not in candidate.pools or not gpu.usable:
            continue
        if geometry not in known:
            known[geometry] = (profile_for(candidate.want, geometry), lookahead_for(geometry, demand))
        profile, lookahead = known[geometry]
        if profile is None or (profile.media and gpu.me_taken):
            continue
        if best is not None and not gpu.taken and not best.empty:
            continue
        choice = _best_on(gpu, profile, lookahead)
        if choice is not None and (best is None or choice[0] < best):
            best, winner = choice[0], (gpu, profile, choice[1])
    if best is None or winner is None:
        return None
    gpu, profile, start = winner
    destroy = _in_the_way(gpu, profile, start) if best.cut else ()
    return Placement((Placed(gpu.gpu_uuid, profile.name, start, profile.size, not best.cut, destroy),))


def _best_on(gpu: GpuState, profile: Profile, lookahead: Lookahead) -> tuple[Rank, int] | None:
    """The best placement on this GPU: its rank and its start."""
    options = lookahead.options(profile, gpu.taken)
    if not options:
        return None
    empty = not gpu.taken
    if not gpu.idle:
        return None if gpu.fixed_layout else (Rank(empty, True, options[0].cost, 0), options[0].start)
    ready = {piece.start for piece in gpu.idle if piece.profile == profile.name}
    if ready:
        for cost, start, _ in options:
            if start in ready:
                return Rank(empty, False, cost, 0), start
    if gpu.fixed_layout:
        return None
    masks = [mask(piece.start, piece.size) for piece in gpu.idle]
    return min(
        (Rank(empty, True, cost, sum(1 for idle in masks if idle & bits)), start)
        for cost, start, bits in options
    )


def _in_the_way(gpu: GpuState, profile: Profile, start: int) -> tuple[IdleSlice, ...]:
    """Idle slices to destroy before `profile` can be cut at `start`: overlapping ones, and, for a
    `+me` profile, the idle `+me` slice, since a GPU has one at most."""
    bits = mask(start, profile.size)
    media = {p.name for p in gpu.profiles if p.media} if profile.media else set()
    return tuple(p for p in gpu.idle if mask(p.start, p.size) & bits or p.profile in media)


def count_slices(candidate: Candidate, snapshot: Snapshot) -> tuple[int, int]:
    """How many such slices fit (now, if everything usable were free)."""
    free = total = 0
    for geometry, gpus in snapshot.groups:
        if gpus[0].pool not in candidate.pools or not gpus[0].usable:
            continue
        profile = profile_for(candidate.want, geometry)
        if profile is None:
            continue
        for gpu in gpus:
            now, ever = _count_on(gpu, profile)
            free += now
            total += ever
    return free, total


def _count_on(gpu: GpuState, profile: Profile) -> tuple[int, int]:
    if gpu.fixed_layout:
        now = sum(1 for piece in gpu.idle if piece.profile == profile.name)
        ever = now + sum(1 for piece in gpu.leased if piece.profile == profile.name)
    else:
        now = most_disjoint(profile.starts, profile.size, gpu.taken)
        ever = most_disjoint(profile.starts, profile.size, gpu.foreign)
    if profile.media:
        return min(now, 0 if gpu.me_taken else 1), min(ever, 1)
    return now, ever
