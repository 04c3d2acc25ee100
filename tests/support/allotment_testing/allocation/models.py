"""The MIG table of every known GPU model as the allocator's profiles, and fleets made of them."""

from __future__ import annotations

from functools import cache

from allotment_spawner.core.allocator import GpuState
from allotment_spawner.core.inventory import Profile
from allotment_spawner.gpu.simulator.models import model

__all__ = ["gpu", "profiles_of"]


@cache
def profiles_of(key: str) -> tuple[Profile, ...]:
    """What a GPU of this model reports; KeyError for an unknown model."""
    return tuple(
        Profile(
            name=row.name,
            profile_id=row.profile_id,
            memory_bytes=row.memory_bytes,
            compute_slices=row.compute_slices,
            size=row.size,
            starts=row.starts,
            max_instances=row.max_instances,
            media=row.media,
        )
        for row in model(key).profiles
    )


def gpu(number: int, key: str = "A100-80GB", *, mig: bool = True, island: int = 0) -> GpuState:
    """An empty GPU, eight to a node, in the pool "mig" or "whole"."""
    row = model(key)
    return GpuState(
        gpu_uuid=f"GPU-{number:04d}",
        node=f"node-{number // 8}",
        pool="mig" if mig else "whole",
        mig=mig,
        axis=row.axis if mig else 0,
        island=island,
        profiles=profiles_of(key) if mig else (),
        memory_bytes=row.memory_bytes,
    )
