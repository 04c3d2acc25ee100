"""What a node's hardware looks like: GPUs, profiles, slices, processes (plain data)."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Gpu", "GpuProcess", "NodeInventory", "Profile", "Slice", "contradiction"]


@dataclass(frozen=True, slots=True)
class Profile:
    """One MIG profile of one GPU, as the driver reports it.

    `starts` are the legal first memory slices; an instance occupies [start, start + size).
    """

    name: str
    profile_id: int
    memory_bytes: int
    compute_slices: int
    size: int
    starts: tuple[int, ...]
    max_instances: int
    media: bool = False
    """True for `+me` profiles, of which a GPU has at most one instance."""


@dataclass(frozen=True, slots=True)
class Slice:
    """One GPU instance. `uuid` is None while it has no compute instance (half-made).

    `ours` is False for what somebody else cut: it is left alone until `ensure_slice` adopts it.
    """

    uuid: str | None
    profile: str
    start: int
    size: int
    instance_id: int
    ours: bool = False


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process on a device; `device_uuid` is the slice's UUID on a MIG GPU, else the GPU's."""

    pid: int
    device_uuid: str
    name: str | None = None
    used_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Gpu:
    """One physical GPU. `axis` is the number of memory slices, 0 while MIG is off."""

    uuid: str
    index: int
    model: str
    memory_bytes: int
    mig: bool
    axis: int
    profiles: tuple[Profile, ...] = ()
    slices: tuple[Slice, ...] = ()
    processes: tuple[GpuProcess, ...] = ()
    island: int = 0
    """GPUs with the same number are joined by NVLink."""
    compute_capability: str | None = None
    problem: str | None = None
    """Why the device is unusable; None when it is healthy."""


@dataclass(frozen=True, slots=True)
class NodeInventory:
    """Everything an agent knows of its node at one moment."""

    node: str
    boot_id: str
    simulated: bool
    driver_version: str | None
    gpus: tuple[Gpu, ...]


def contradiction(found: NodeInventory) -> str | None:
    """What cannot be in this inventory, in words; None for one that can be believed.

    Devices are told apart by UUID and place, so one that is there twice or outside of its axis makes
    every conclusion wrong.
    """
    uuids = [gpu.uuid for gpu in found.gpus]
    uuids += [piece.uuid for gpu in found.gpus for piece in gpu.slices if piece.uuid is not None]
    if len(set(uuids)) < len(uuids):
        return "one device is there twice"
    for gpu in found.gpus:
        places = [(piece.profile, piece.start) for piece in gpu.slices]
        if len(set(places)) < len(places):
            return f"two slices of GPU {gpu.index} are at the same place"
        if any(one.start < 0 or one.size < 1 or one.start + one.size > gpu.axis for one in gpu.slices):
            return f"a slice of GPU {gpu.index} lies outside of it"
    return None
