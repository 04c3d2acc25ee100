"""All GPUs at one moment, as the allocator sees them: what is taken, what is idle."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from allotment_spawner.core.geometry import Geometry, geometry_of, mask
from allotment_spawner.core.inventory import Profile

__all__ = ["GpuState", "IdleSlice", "Model", "Placed", "Placement", "Snapshot"]


class IdleSlice(NamedTuple):
    """A slice of ours that nobody uses: it may be handed out as it is, or destroyed."""

    profile: str
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class GpuState:
    """One GPU. Masks have bit i for memory slice i; a GPU without MIG is taken when `taken` is not 0."""

    gpu_uuid: str
    node: str
    pool: str
    mig: bool
    axis: int
    island: int
    profiles: tuple[Profile, ...]
    taken: int = 0
    """Memory slices that may not be used: leased, foreign, held."""
    me_taken: bool = False
    idle: tuple[IdleSlice, ...] = ()
    usable: bool = True
    """False: unhealthy or held as a whole."""
    fixed_layout: bool = False
    """A static pool: idle slices are reused as they are, nothing is cut or destroyed."""
    foreign: int = 0
    """The part of `taken` that will not come back by itself; counts only in `capacity`'s total."""
    leased: tuple[IdleSlice, ...] = ()
    """Slices of ours in use; needed only for the total of a static pool."""
    memory_bytes: int = 0
    """The card's memory; 0 is unknown, and then no whole card of a given memory is promised."""
    looks: str = field(init=False, repr=False, compare=False)
    """Everything but the model that decides where a slice may go. GPUs of one model that look alike
    get one answer; a string, because it keeps its hash."""

    def __post_init__(self) -> None:
        flags = f"{self.taken}|{self.me_taken}|{self.usable}|{self.fixed_layout}|{self.pool}"
        idle = "".join([f"|{piece.profile}@{piece.start}+{piece.size}" for piece in self.idle])
        object.__setattr__(self, "looks", flags + idle)


class Placed(NamedTuple):
    """One device of a placement; profile, start and size are None for a whole card.

    `destroy` lists idle slices that are in the way; `reuse` says that exactly this slice exists.
    """

    gpu_uuid: str
    profile: str | None
    start: int | None
    size: int | None
    reuse: bool = False
    destroy: tuple[IdleSlice, ...] = ()


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a request goes."""

    devices: tuple[Placed, ...]


class Model(NamedTuple):
    """The MIG GPUs of one model, those that look alike together: one answer serves them all."""

    geometry: Geometry
    alike: tuple[list[GpuState], ...]


@dataclass(frozen=True)
class Snapshot:
    """All GPUs at one moment; equal GPUs are grouped once and lazily."""

    gpus: tuple[GpuState, ...] = field(default=())

    @cached_property
    def models(self) -> tuple[Model, ...]:
        """MIG GPUs by model and looks, both in the order of their first GPU."""
        models: dict[int, dict[str, list[GpuState]]] = defaultdict(lambda: defaultdict(list))
        for gpu in self.gpus:
            if gpu.mig:
                # By id(): hashing all profiles of 1,000 GPUs would cost more than the decision. The
                # snapshot keeps the tuples alive, so an id means one tuple.
                models[id(gpu.profiles)][gpu.looks].append(gpu)
        found = []
        for alike in models.values():
            first = next(iter(alike.values()))[0]
            found.append(Model(geometry_of(first.axis, first.profiles), tuple(alike.values())))
        return tuple(found)

    def after(self, placement: Placement) -> Snapshot:
        """The snapshot once this placement is made. KeyError if it names a GPU that is not here."""
        placed = {device.gpu_uuid: device for device in placement.devices}
        missing = placed.keys() - {gpu.gpu_uuid for gpu in self.gpus}
        if missing:
            raise KeyError(*missing)
        return Snapshot(tuple(_with(g, placed[g.gpu_uuid]) if g.gpu_uuid in placed else g for g in self.gpus))

    def gpu(self, gpu_uuid: str) -> GpuState:
        """The GPU of this UUID; KeyError if there is none."""
        for gpu in self.gpus:
            if gpu.gpu_uuid == gpu_uuid:
                return gpu
        raise KeyError(gpu_uuid)


def _with(gpu: GpuState, device: Placed) -> GpuState:
    if device.profile is None or device.start is None or device.size is None:
        return replace(gpu, taken=gpu.taken | 1)
    made = IdleSlice(device.profile, device.start, device.size)
    media = any(profile.media for profile in gpu.profiles if profile.name == device.profile)
    return replace(
        gpu,
        taken=gpu.taken | mask(device.start, device.size),
        me_taken=gpu.me_taken or media,
        idle=_without(gpu.idle, (made, *device.destroy)),
        leased=(*gpu.leased, made),
    )


def _without(idle: tuple[IdleSlice, ...], gone: Iterable[IdleSlice]) -> tuple[IdleSlice, ...]:
    left = set(gone)
    return tuple(piece for piece in idle if piece not in left)
