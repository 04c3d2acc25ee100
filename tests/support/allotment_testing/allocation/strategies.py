"""Hypothesis strategies for GPUs in any state, and a search of legal placements that shares no code."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations, pairwise

from allotment_spawner.core.allocator import GpuState, IdleSlice, Snapshot
from allotment_spawner.core.inventory import Profile
from allotment_spawner.gpu.simulator.models import known_models, model
from hypothesis import strategies as st

from allotment_testing.allocation.models import profiles_of

__all__ = ["POOLS", "fleets", "gpus", "legal", "most", "occupied", "ordinary", "slices_of"]

POOLS = ("blue", "green")


def ordinary(key: str, *, media: bool = False) -> list[Profile]:
    """The profiles without a suffix; with `media` the `+me` ones too."""
    return [
        profile
        for profile in profiles_of(key)
        if profile.name.endswith("gb") or (media and profile.name.endswith("+me"))
    ]


def slices_of(start: int, size: int) -> set[int]:
    return set(range(start, start + size))


def occupied(gpu: GpuState) -> set[int]:
    """The memory slices that may not be used, as numbers."""
    return {number for number in range(16) if gpu.taken >> number & 1}


def legal(gpu: GpuState, profile: Profile) -> list[int]:
    """Every start where this profile may go on this GPU, by looking at each slice."""
    if not gpu.usable or (profile.media and gpu.me_taken):
        return []
    found = [start for start in profile.starts if not slices_of(start, profile.size) & occupied(gpu)]
    if gpu.fixed_layout:
        return [start for start in found if IdleSlice(profile.name, start, profile.size) in gpu.idle]
    return found


def most(starts: Iterable[int], size: int, busy: set[int]) -> int:
    """How many instances fit at once, by trying every subset."""
    free = [start for start in starts if not slices_of(start, size) & busy]
    for count in range(len(free), 0, -1):
        for chosen in combinations(free, count):
            if all(second - first >= size for first, second in pairwise(chosen)):
                return count
    return 0


@st.composite
def gpus(draw: st.DrawFn, number: int = 0, key: str | None = None) -> GpuState:
    """A MIG GPU of any model, cut anyhow: slices leased, idle or foreign, slices held for other reasons."""
    key = key or draw(st.sampled_from(known_models()))
    axis = model(key).axis
    busy, foreign = set[int](), set[int]()
    idle: list[IdleSlice] = []
    leased: list[IdleSlice] = []
    me_taken = media_made = False
    for profile, start, fate in draw(_pieces(key)):
        here = slices_of(start, profile.size)
        if here & (busy | {n for piece in idle for n in slices_of(piece.start, piece.size)}):
            continue
        if profile.media and media_made:
            continue
        media_made = media_made or profile.media
        if fate == "idle":
            idle.append(IdleSlice(profile.name, start, profile.size))
            continue
        busy |= here
        me_taken = me_taken or profile.media
        if fate == "leased":
            leased.append(IdleSlice(profile.name, start, profile.size))
        else:
            foreign |= here
    return GpuState(
        gpu_uuid=f"GPU-{number}",
        node="node-1",
        pool=draw(st.sampled_from(POOLS)),
        mig=True,
        axis=axis,
        island=0,
        profiles=profiles_of(key),
        taken=sum(1 << n for n in busy),
        me_taken=me_taken,
        idle=tuple(idle),
        usable=draw(st.integers(0, 9)) > 0,
        fixed_layout=draw(st.integers(0, 4)) == 0,
        foreign=sum(1 << n for n in foreign),
        leased=tuple(leased),
    )


@st.composite
def _pieces(draw: st.DrawFn, key: str) -> list[tuple[Profile, int, str]]:
    pieces = []
    for _ in range(draw(st.integers(0, 6))):
        profile = draw(st.sampled_from(ordinary(key, media=True)))
        start = draw(st.sampled_from(profile.starts))
        pieces.append((profile, start, draw(st.sampled_from(["leased", "idle", "idle", "foreign"]))))
    return pieces


@st.composite
def fleets(draw: st.DrawFn, key: str | None = None) -> Snapshot:
    """One to five MIG GPUs, of one model or of several."""
    count = draw(st.integers(1, 5))
    return Snapshot(tuple(draw(gpus(number, key)) for number in range(count)))
