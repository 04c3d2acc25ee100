"""Inventory, leases and workloads put together: what every device is used for right now (pure)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from allotment_spawner.core.geometry import mask
from allotment_spawner.core.inventory import Gpu, GpuProcess, NodeInventory, Slice
from allotment_spawner.core.lease import LeaseState
from allotment_spawner.core.snapshot import GpuState, IdleSlice, Snapshot
from allotment_spawner.engines.base import Workload

from allotment_hub.broker.services.pools import pool_of
from allotment_hub.broker.store.records import Device, Lease
from allotment_hub.site import Pool

__all__ = ["GpuFacts", "Machine", "Sight", "SliceFact", "put_together"]


@dataclass(frozen=True, slots=True)
class Sight:
    """Everything that is put together, from one moment."""

    inventory: NodeInventory
    pools: Sequence[Pool]
    holders: Mapping[str, Sequence[Lease]]
    ours: Collection[tuple[str, str, int]]
    """Slices that we made in this boot: (gpu_uuid, profile, start)."""
    workloads: Mapping[str, Sequence[Workload]]
    strays: Sequence[Workload]
    troubles: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class SliceFact:
    """One slice; `state` as in the fleet view; `lease` where one holds it."""

    slice: Slice
    state: str
    lease: Lease | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """One GPU. `state` is what the allocator sees, None when it is in no pool."""

    gpu: Gpu
    pool: Pool | None
    problem: str | None
    slices: tuple[SliceFact, ...]
    whole: tuple[str, Lease | None, str | None] | None
    processes: tuple[tuple[GpuProcess, bool], ...]
    state: GpuState | None


@dataclass(frozen=True)
class Machine:
    gpus: tuple[GpuFacts, ...]
    snapshot: Snapshot

    def facts(self, gpu_uuid: str) -> GpuFacts | None:
        return next((facts for facts in self.gpus if facts.gpu.uuid == gpu_uuid), None)


def put_together(sight: Sight) -> Machine:
    """The machine as scheduler, fleet page and explanations see it: one derivation for all three."""
    stray_devices = {device for workload in sight.strays for device in workload.devices}
    shared: dict[tuple[object, ...], tuple[object, ...]] = {}
    facts = []
    for gpu in sight.inventory.gpus:
        # equal profile tuples become one object: the allocator groups GPUs by its identity
        profiles = shared.setdefault(gpu.profiles, gpu.profiles)
        same = replace(gpu, profiles=profiles)  # type: ignore[arg-type]
        facts.append(_Gpu(sight, same, stray_devices).facts())
    states = tuple(one.state for one in facts if one.state is not None)
    return Machine(tuple(facts), Snapshot(states))


class _Gpu:
    """The derivation for one GPU."""

    def __init__(self, sight: Sight, gpu: Gpu, stray_devices: set[str]) -> None:
        self._sight = sight
        self._gpu = gpu
        self._stray = stray_devices
        self._pool, self._pool_problem = pool_of(gpu, sight.pools)
        self._held: list[tuple[Lease, Device]] = [
            (lease, device)
            for lease in sight.holders.get(gpu.uuid, ())
            for device in lease.devices
            if device.gpu_uuid == gpu.uuid
        ]
        self._by_device = {device.uuid: lease for lease, device in self._held if device.uuid is not None}

    def facts(self) -> GpuFacts:
        gpu = self._gpu
        processes = tuple((process, self._explained(process)) for process in gpu.processes)
        held = 0
        for _, device in self._held:
            held |= self._bits(device)
        slices = tuple(self._slice(piece, held) for piece in gpu.slices)
        problem = gpu.problem or self._pool_problem or self._sight.troubles.get(gpu.uuid)
        problem = problem or self._stranger(slices)
        return GpuFacts(
            gpu=gpu,
            pool=self._pool,
            problem=problem,
            slices=slices,
            whole=None if gpu.mig else self._whole(),
            processes=processes,
            state=None if self._pool is None else self._state(self._pool, held, slices, problem),
        )

    def _bits(self, device: Device) -> int:
        if device.start is None or device.size is None or not self._gpu.mig:
            return (1 << max(self._gpu.axis, 1)) - 1
        return mask(device.start, device.size)

    def _explained(self, process: GpuProcess) -> bool:
        lease = self._by_device.get(process.device_uuid)
        if lease is None:
            return False
        pids = {pid for workload in self._sight.workloads.get(lease.id, ()) for pid in workload.pids}
        # an engine that cannot list pids explains whatever runs on the lease's own device
        return not pids or process.pid in pids

    def _slice(self, piece: Slice, held: int) -> SliceFact:
        for lease, device in self._held:
            if device.profile == piece.profile and device.start == piece.start:
                return SliceFact(piece, _state_of(lease), lease, lease.note)
        ours = (self._gpu.uuid, piece.profile, piece.start) in self._sight.ours
        if not ours and (self._pool is None or self._pool.foreign == "leave"):
            return SliceFact(piece, "foreign", None, "Not made by Allotment; it is left alone.")
        if held & mask(piece.start, piece.size):
            return SliceFact(piece, "cutting", None, "It makes room for a lease.")
        if piece.uuid is None:
            return SliceFact(piece, "held", None, "Half made; the agent finishes or removes it.")
        pids = [process.pid for process in self._gpu.processes if process.device_uuid == piece.uuid]
        if pids:
            return SliceFact(piece, "held", None, f"Process {pids[0]} uses it and no lease explains that.")
        if piece.uuid in self._stray:
            return SliceFact(piece, "held", None, "A workload whose lease is not known has it.")
        return SliceFact(piece, "idle")

    def _stranger(self, slices: Sequence[SliceFact]) -> str | None:
        """A process on a MIG GPU that is on none of its slices: the GPU as a whole is held."""
        if not self._gpu.mig:
            return None
        known = {fact.slice.uuid for fact in slices}
        for process in self._gpu.processes:
            if process.device_uuid not in known:
                return f"Process {process.pid} uses GPU {self._gpu.index} outside of its slices."
        return None

    def _whole(self) -> tuple[str, Lease | None, str | None]:
        for lease, _ in self._held:
            return (_state_of(lease), lease, lease.note)
        for process in self._gpu.processes:
            return ("blocked", None, f"Process {process.pid} uses it and no lease explains that.")
        if self._gpu.uuid in self._stray:
            return ("blocked", None, "A workload whose lease is not known has it.")
        return ("free", None, None)

    def _state(self, pool: Pool, held: int, slices: Sequence[SliceFact], problem: str | None) -> GpuState:
        gpu = self._gpu
        taken, foreign, leased = held, 0, []
        media = {profile.name for profile in gpu.profiles if profile.media}
        me_taken = any(device.media or device.start is None for _, device in self._held)
        idle = []
        for fact in slices:
            piece = IdleSlice(fact.slice.profile, fact.slice.start, fact.slice.size)
            bits = mask(piece.start, piece.size)
            if fact.state == "idle":
                idle.append(piece)
                continue
            taken |= bits
            me_taken = me_taken or piece.profile in media
            if fact.state == "foreign":
                foreign |= bits
            elif fact.lease is not None:
                leased.append(piece)
        if not gpu.mig:
            state, _, _ = self._whole()
            taken = 0 if state == "free" else 1
        return GpuState(
            gpu_uuid=gpu.uuid,
            node=self._sight.inventory.node,
            pool=pool.name,
            mig=gpu.mig,
            axis=gpu.axis,
            island=gpu.island,
            profiles=gpu.profiles,
            taken=taken,
            me_taken=me_taken,
            idle=tuple(idle),
            usable=problem is None,
            fixed_layout=pool.layout != "dynamic",
            foreign=foreign,
            leased=tuple(leased),
            memory_bytes=gpu.memory_bytes,
        )


def _state_of(lease: Lease) -> str:
    if lease.state is LeaseState.QUEUED:
        return "cutting"
    if lease.state is LeaseState.ENDING and lease.note is not None:
        return "quarantined"
    return "leased"
