"""What the hardware allows: which instances fit beside which (pure functions of the state)."""

from __future__ import annotations

from allotment_spawner.gpu.simulator.models import ComputeProfile, GpuModel, SimProfile
from allotment_spawner.gpu.simulator.state import SimGpu, SimInstance

__all__ = ["fits", "instance_number", "mig_devices", "remaining", "remaining_computes"]


def fits(board: GpuModel, gpu: SimGpu, profile: SimProfile, start: int) -> bool:
    """Whether a GPU instance of this profile can be made at a legal `start` now."""
    others = [(i, board.profile(i.profile_id)) for i in gpu.instances]
    if any(i.start < start + profile.size and start < i.start + i.size for i, _ in others):
        return False
    if sum(i.profile_id == profile.profile_id for i, _ in others) >= profile.max_instances:
        return False
    present = [p for _, p in others if p is not None]
    if sum(p.compute_slices for p in present) + profile.compute_slices > _compute_total(board):
        return False
    if profile.media and any(p.media for p in present):
        return False
    # `+me.all` holds every media engine, so only profiles without any may stand beside it.
    if profile.all_media and any(not p.name.endswith("-me") for p in present):
        return False
    return profile.name.endswith("-me") or not any(p.all_media for p in present)


def _compute_total(board: GpuModel) -> int:
    return max(p.compute_slices for p in board.profiles)


def remaining(board: GpuModel, gpu: SimGpu, profile: SimProfile) -> int:
    """How many more instances of this profile can be made, placed greedily from the left."""
    trial = gpu.model_copy(update={"instances": list(gpu.instances)})
    for start in profile.starts:
        if fits(board, trial, profile, start):
            trial.instances.append(
                SimInstance(serial=0, gi_id=0, profile_id=profile.profile_id, start=start, size=profile.size)
            )
    return len(trial.instances) - len(gpu.instances)


def remaining_computes(profile: SimProfile, instance: SimInstance, wanted: ComputeProfile) -> int:
    """How many more compute instances of `wanted` fit into the GPU instance."""
    by_id = {c.profile_id: c for c in profile.compute}
    used = sum(by_id[c.profile_id].compute_slices for c in instance.computes)
    of_kind = sum(c.profile_id == wanted.profile_id for c in instance.computes)
    by_slices = (profile.compute_slices - used) // wanted.compute_slices
    return max(0, min(by_slices, wanted.max_instances - of_kind))


def instance_number(axis: int, start: int, size: int) -> int:
    """The GPU-instance id: nodes of a binary tree over the axis, whole = 0, halves = 1 and 2, ..."""
    return axis // size - 1 + start // size


def mig_devices(gpu: SimGpu) -> list[int | None]:
    """Serial of the compute instance at each MIG index; None is a hole (a half-made instance).

    An index is a rank, so it shifts when an instance before it goes.
    """
    serials: list[int | None] = []
    for instance in sorted(gpu.instances, key=lambda i: i.gi_id):
        serials.extend(c.serial for c in instance.computes)
        if not instance.computes:
            serials.append(None)
    return serials
