"""Why there is no room, in a sentence a student understands."""

from __future__ import annotations

from dataclasses import dataclass

from allotment_spawner.core.cards import eligible_cards
from allotment_spawner.core.geometry import mask
from allotment_spawner.core.inventory import Profile
from allotment_spawner.core.request import Candidate, Request, Want
from allotment_spawner.core.slices import profile_for
from allotment_spawner.core.snapshot import GpuState, Snapshot

__all__ = ["NoRoom", "why_no_room"]


@dataclass(frozen=True, slots=True)
class NoRoom:
    """`rule` is a machine word; `never` is True when waiting cannot help, whatever ends.

    Rules: no_pool, no_such_device, layout_without_it, too_few_on_a_node (never); devices_unusable,
    fragmented, all_in_use (waiting may help).
    """

    rule: str
    sentence: str
    never: bool


def why_no_room(request: Request, snapshot: Snapshot) -> NoRoom:
    """The reason of the first candidate for which waiting may help, else of the first."""
    reasons = [_why(candidate, snapshot) for candidate in request.candidates]
    if not reasons:
        return NoRoom("no_pool", "No GPU pool is open for this choice.", True)
    return min(reasons, key=lambda reason: reason.never)


def _why(candidate: Candidate, snapshot: Snapshot) -> NoRoom:
    if not any(gpu.pool in candidate.pools for gpu in snapshot.gpus):
        what = "whole GPU" if candidate.want.kind == "whole" else "GPU in MIG mode"
        return NoRoom("no_pool", f"There is no {what} that may be used for this choice.", True)
    if candidate.want.kind == "whole":
        return _why_no_cards(candidate, snapshot)
    return _why_no_slice(candidate, snapshot)


def _why_no_cards(candidate: Candidate, snapshot: Snapshot) -> NoRoom:
    want = candidate.want
    cards = eligible_cards(candidate, snapshot)
    size = f" with {want.memory_gb} GB" if want.memory_gb else ""
    if not cards:
        return NoRoom("no_such_device", f"This site has no whole GPU{size} to hand out.", True)
    per_node = {gpu.node: 0 for gpu in cards}
    for gpu in cards:
        per_node[gpu.node] += 1
    if max(per_node.values()) < want.count:
        most = max(per_node.values())
        sentence = f"No machine here has {want.count} whole GPUs{size}; the most on one machine is {most}."
        return NoRoom("too_few_on_a_node", sentence, True)
    usable = [gpu for gpu in cards if gpu.usable]
    if len(usable) < want.count:
        return NoRoom("devices_unusable", "The GPUs for this are out of order at the moment.", False)
    free = sum(1 for gpu in usable if not gpu.taken)
    if want.count > 1:
        sentence = f"{want.count} whole GPUs on one machine are needed; {free} of {len(cards)} are free."
        return NoRoom("all_in_use", sentence, False)
    return NoRoom("all_in_use", _in_use(len(cards), "whole GPU"), False)


def _why_no_slice(candidate: Candidate, snapshot: Snapshot) -> NoRoom:
    want = candidate.want
    fitting: list[tuple[GpuState, Profile]] = []
    for geometry, alike in snapshot.models:
        profile = profile_for(want, geometry)
        if profile is None:
            continue
        for gpus in alike:
            if gpus[0].pool in candidate.pools:
                # GPUs that look alike differ in nothing that is asked below, but in what is leased.
                fitting.extend((gpu, profile) for gpu in (gpus if gpus[0].fixed_layout else gpus[:1]))
    if not fitting:
        return NoRoom("no_such_device", f"No GPU here has {_wish(want)}.", True)
    offered = [(gpu, profile) for gpu, profile in fitting if _layout_has(gpu, profile.name)]
    if not offered:
        sentence = f"The fixed layout of the GPUs here holds no {fitting[0][1].name}."
        return NoRoom("layout_without_it", sentence, True)
    usable = [(gpu, profile) for gpu, profile in offered if gpu.usable]
    if not usable:
        return NoRoom("devices_unusable", "The GPUs for this are out of order at the moment.", False)
    names = " or ".join(sorted({profile.name for _, profile in usable}))
    if any(_would_fit_if_moved(gpu, profile) for gpu, profile in usable):
        sentence = f"The free parts of the GPUs do not lie where a {names} slice can be cut."
        return NoRoom("fragmented", sentence, False)
    return NoRoom("all_in_use", f"Every {names} slice that fits here is in use.", False)


def _would_fit_if_moved(gpu: GpuState, profile: Profile) -> bool:
    """Whether enough of the slices where this profile may lie are free, only not side by side."""
    if gpu.fixed_layout or (profile.media and gpu.me_taken):
        return False
    reach = 0
    for start in profile.starts:
        reach |= mask(start, profile.size)
    return (reach & ~gpu.taken).bit_count() >= profile.size


def _layout_has(gpu: GpuState, name: str) -> bool:
    if not gpu.fixed_layout or any(piece.profile == name for piece in (*gpu.idle, *gpu.leased)):
        return True
    known = sum(mask(piece.start, piece.size) for piece in gpu.leased)
    # Taken, and we are not told by what: it may be this profile, so do not say "never".
    return bool(gpu.taken & ~(known | gpu.foreign))


def _in_use(number: int, what: str) -> str:
    return f"The {what} is in use." if number == 1 else f"All {number} {what}s are in use."


def _wish(want: Want) -> str:
    if want.kind == "profile":
        return f"the MIG profile {want.profile}"
    if want.kind == "largest":
        return "a slice as big as the whole card"
    compute = "1 compute slice" if want.compute_slices == 1 else f"{want.compute_slices} compute slices"
    return f"a slice with {want.memory_gb} GB and {compute}" if want.memory_gb else f"a slice with {compute}"
