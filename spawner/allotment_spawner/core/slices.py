"""One slice of a MIG GPU: the free placement that costs later requests least."""

from __future__ import annotations

from allotment_spawner.core.demand import Demand
from allotment_spawner.core.geometry import Geometry, mask, most_disjoint
from allotment_spawner.core.inventory import Profile
from allotment_spawner.core.profiles import choose, largest
from allotment_spawner.core.ranking import Choice, ranking_for
from allotment_spawner.core.request import Candidate, Want
from allotment_spawner.core.snapshot import GpuState, IdleSlice, Placed, Placement, Snapshot

__all__ = ["count_slices", "place_slice", "profile_for"]


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
    best: Choice | None = None
    winner: tuple[GpuState, Profile] | None = None
    for geometry, alike in snapshot.models:
        profile = profile_for(candidate.want, geometry)
        if profile is None:
            continue
        found = ranking_for(geometry, demand, profile).best_of(alike, candidate.pools, best)
        if found is not None:
            best, winner = found[0], (found[1], profile)
    if best is None or winner is None:
        return None
    gpu, profile = winner
    destroy = _in_the_way(gpu, profile, best.start) if best.cut else ()
    placed = Placed(gpu.gpu_uuid, profile.name, best.start, profile.size, not best.cut, destroy)
    return Placement((placed,))


def _in_the_way(gpu: GpuState, profile: Profile, start: int) -> tuple[IdleSlice, ...]:
    """Idle slices to destroy before `profile` can be cut at `start`: overlapping ones, and, for a
    `+me` profile, the idle `+me` slice, since a GPU has one at most."""
    bits = mask(start, profile.size)
    media = {p.name for p in gpu.profiles if p.media} if profile.media else set()
    return tuple(p for p in gpu.idle if mask(p.start, p.size) & bits or p.profile in media)


def count_slices(candidate: Candidate, snapshot: Snapshot) -> tuple[int, int]:
    """How many such slices fit (now, if everything usable were free)."""
    free = total = 0
    for geometry, alike in snapshot.models:
        profile = profile_for(candidate.want, geometry)
        if profile is None:
            continue
        for gpu in (gpu for gpus in alike for gpu in gpus):
            if gpu.usable and gpu.pool in candidate.pools:
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
