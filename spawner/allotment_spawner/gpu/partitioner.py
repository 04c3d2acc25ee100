"""Makes and removes slices by explicit placement, so that a crash at any step can be settled."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from ctypes import byref
from dataclasses import dataclass
from typing import Any

from allotment_spawner.core.errors import DeviceBusy
from allotment_spawner.core.inventory import Profile, Slice
from allotment_spawner.gpu import refusals
from allotment_spawner.gpu.cdi import CdiDevice, CdiEntries
from allotment_spawner.gpu.journal import Change, Journal
from allotment_spawner.gpu.nvml.board import Identity
from allotment_spawner.gpu.nvml.calls import Instance, compute_profile, instances, is_code
from allotment_spawner.gpu.nvml.reader import NvmlReader

__all__ = ["Partitioner"]


@dataclass(frozen=True, slots=True)
class _Target:
    """One GPU, opened for a change."""

    board: Any
    identity: Identity
    profiles: tuple[Profile, ...]


class Partitioner:
    """One change at a time (its caller is one worker). Every verb first settles what was left undone.

    `on_step` is called between any two effects; tests crash there.
    """

    def __init__(
        self,
        *,
        nvml: Any,
        reader: NvmlReader,
        journal: Journal,
        cdi: CdiEntries | None,
        on_step: Callable[[str], None] = lambda _step: None,
    ) -> None:
        self._nvml = nvml
        self._reader = reader
        self._journal = journal
        self._cdi = cdi
        self._on_step = on_step

    def ensure(self, gpu_uuid: str, profile: str, start: int, skip: Collection[int] = ()) -> Slice:
        """Make the slice, finish it, or return the one that stands there (and adopt it).

        DeviceBusy when something overlaps; FlavorUnavailable for an impossible wish;
        AgentUnavailable when the hardware failed in a way that says nothing about the outcome.
        """
        with self._translating(gpu_uuid):
            return self._ensure(self._open(gpu_uuid, skip), profile, start)

    def _ensure(self, target: _Target, profile: str, start: int) -> Slice:
        gpu_uuid = target.identity.uuid
        wanted = _legal(target, profile, start)
        change = Change(verb="ensure", gpu_uuid=gpu_uuid, profile=profile, start=start)
        present = self._present(target)
        there = _exactly(present, profile, start)
        if there is not None and (there.computes or self._journal.owns(gpu_uuid, profile, start)):
            if not self._journal.owns(gpu_uuid, profile, start):
                self._journal.finish(change, owned=True)
            if there.computes:
                return self._complete(target, there)
        elif blocking := [i for i in present if _overlaps(i, start, wanted.size)]:
            raise refusals.in_the_way(gpu_uuid, blocking)
        self._on_step("ensure:asserted")
        self._journal.begin(change)
        self._on_step("ensure:begun")
        try:
            made = self._make(target, wanted, start, there)
        except self._nvml.NVMLError as error:
            raise self._failed(target, change, error) from error
        self._journal.finish(change, owned=True)
        self._on_step("ensure:finished")
        return made

    def destroy(self, gpu_uuid: str, profile: str, start: int, skip: Collection[int] = ()) -> None:
        """Remove the slice; nothing there (or MIG off) is fine. DeviceBusy when it is in use or not ours."""
        with self._translating(gpu_uuid):
            self._destroy(self._open(gpu_uuid, skip), profile, start)

    def _destroy(self, target: _Target, profile: str, start: int) -> None:
        gpu_uuid = target.identity.uuid
        there = _exactly(self._present(target), profile, start)
        uuid = there.computes[0][2] if there is not None and there.computes else None
        change = Change(verb="destroy", gpu_uuid=gpu_uuid, profile=profile, start=start, uuid=uuid)
        if there is None:
            if self._journal.owns(gpu_uuid, profile, start):
                self._journal.finish(change, owned=False)
            return
        if not self._journal.owns(gpu_uuid, profile, start):
            raise refusals.not_ours(gpu_uuid, there)
        if holders := self._holders(target, there, board_too=False):
            raise refusals.in_use(gpu_uuid, there, holders)
        self._on_step("destroy:asserted")
        self._journal.begin(change)
        self._on_step("destroy:begun")
        try:
            self._remove(change, there)
        except self._nvml.NVMLError as error:
            raise self._failed(target, change, error) from error

    def settle(self, gpu_uuid: str, skip: Collection[int] = ()) -> None:
        """Finish or undo what a crash left half-done on this GPU."""
        if self._journal.pending(gpu_uuid):
            with self._translating(gpu_uuid):
                self._open(gpu_uuid, skip)

    @contextmanager
    def _translating(self, gpu_uuid: str) -> Iterator[None]:
        try:
            yield
        except self._nvml.NVMLError as error:
            raise refusals.failed(gpu_uuid, error, self._nvml) from error

    def _open(self, gpu_uuid: str, skip: Collection[int]) -> _Target:
        found = self._reader.find(gpu_uuid, skip)
        if found is None:
            raise refusals.no_such_gpu(gpu_uuid)
        target = _Target(*found)
        for change in self._journal.pending(gpu_uuid):
            self._settle(target, change)
        return target

    def _present(self, target: _Target) -> list[Instance]:
        return instances(self._nvml, target.board, target.profiles)

    def _settle(self, target: _Target, change: Change) -> None:
        there = _exactly(self._present(target), change.profile, change.start)
        if there is None:
            self._forget_entry(change.uuid)
            self._journal.finish(change, owned=False)
        elif change.verb == "ensure" and there.computes:
            self._complete(target, there)
            self._journal.finish(change, owned=True)
        else:
            try:
                self._remove(change, there)
            except self._nvml.NVMLError as error:
                if not is_code(error, self._nvml, "IN_USE") or not there.computes:
                    raise
                # Somebody works on it again: it stands, and is ours, as before the destroy.
                self._complete(target, there)
                self._journal.finish(change, owned=True)

    def _make(self, target: _Target, wanted: Profile, start: int, half: Instance | None) -> Slice:
        if half is None:
            placement = self._nvml.c_nvmlGpuInstancePlacement_t(start, wanted.size)
            handle = self._nvml.nvmlDeviceCreateGpuInstanceWithPlacement(
                target.board, wanted.profile_id, byref(placement)
            )
            self._on_step("ensure:instance made")
        else:
            handle = half.handle
        self._nvml.nvmlGpuInstanceCreateComputeInstance(handle, compute_profile(self._nvml, handle))
        self._on_step("ensure:compute made")
        there = _exactly(self._present(target), wanted.name, start)
        if there is None or not there.computes:
            # Somebody removed it between the two calls; the next request begins anew.
            raise self._nvml.NVMLError(self._nvml.NVML_ERROR_NOT_FOUND)
        return self._complete(target, there)

    def _complete(self, target: _Target, there: Instance) -> Slice:
        """Write the CDI entry (again) and describe the slice."""
        _, compute_id, uuid = there.computes[0]
        if self._cdi is not None:
            minor = int(self._nvml.nvmlDeviceGetMinorNumber(target.board))
            try:
                self._cdi.write(CdiDevice(uuid, minor, there.instance_id, compute_id))
            except OSError as error:
                raise refusals.no_entry(error) from error
        self._on_step("ensure:entry written")
        return Slice(uuid, there.profile.name, there.start, there.size, there.instance_id, ours=True)

    def _remove(self, change: Change, there: Instance) -> None:
        uuids = [change.uuid, *(uuid for _, _, uuid in there.computes)]
        for uuid in uuids:
            # Before the hardware: no container may be created on a device that is going.
            self._forget_entry(uuid)
        self._on_step("destroy:entry removed")
        for handle, _, _ in there.computes:
            self._nvml.nvmlComputeInstanceDestroy(handle)
            self._on_step("destroy:compute removed")
        self._nvml.nvmlGpuInstanceDestroy(there.handle)
        self._on_step("destroy:instance removed")
        self._journal.finish(change, owned=False)
        self._on_step("destroy:finished")

    def _forget_entry(self, uuid: str | None) -> None:
        if self._cdi is not None and uuid is not None:
            try:
                self._cdi.remove(uuid)
            except OSError as error:
                raise refusals.no_entry(error) from error

    def _failed(self, target: _Target, change: Change, error: Exception) -> Exception:
        """Tidy up as far as the hardware lets us, and say why it did not work."""
        gpu_uuid = target.identity.uuid
        busy = is_code(error, self._nvml, "IN_USE", "INSUFFICIENT_RESOURCES")
        try:
            there = _exactly(self._present(target), change.profile, change.start)
            refusal: Exception = refusals.failed(gpu_uuid, error, self._nvml)
            if busy:
                refusal = refusals.in_use(gpu_uuid, there, self._holders(target, there, board_too=True))
            self._settle(target, change)
        except self._nvml.NVMLError:
            # It stays in the journal; the next request on this GPU, or the next start, settles it.
            return refusals.failed(gpu_uuid, error, self._nvml)
        except DeviceBusy as again:
            return again
        return refusal

    def _holders(
        self, target: _Target, there: Instance | None, *, board_too: bool
    ) -> list[tuple[int, str | None]]:
        """(pid, name) of processes on the slice, and of those on the board itself if asked."""
        places = {(there.instance_id, ci_id) for _, ci_id, _ in there.computes} if there else set()
        board = self._reader.processes(target.board)
        slices = {i.instance_id for i in self._present(target)}
        return [
            (pid, name)
            for pid, name, place in board
            if place in places or (board_too and place[0] not in slices)
        ]


def _legal(target: _Target, profile: str, start: int) -> Profile:
    if not target.profiles:
        raise refusals.mig_is_off(target.identity.uuid)
    wanted = next((p for p in target.profiles if p.name == profile), None)
    if wanted is None or start not in wanted.starts:
        raise refusals.no_such_slice(target.identity.uuid, profile, start, target.profiles)
    return wanted


def _exactly(present: list[Instance], profile: str, start: int) -> Instance | None:
    return next((i for i in present if i.profile.name == profile and i.start == start), None)


def _overlaps(instance: Instance, start: int, size: int) -> bool:
    return instance.start < start + size and start < instance.start + instance.size
