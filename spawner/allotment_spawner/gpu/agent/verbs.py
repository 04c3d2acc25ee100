"""The agent's verbs over one NVML session, called one after the other by one thread."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from allotment_spawner.core.inventory import NodeInventory, Slice
from allotment_spawner.core.samples import DeviceSample
from allotment_spawner.gpu.cdi import CdiEntries
from allotment_spawner.gpu.journal import Journal
from allotment_spawner.gpu.nvml.events import XidWatcher
from allotment_spawner.gpu.nvml.reader import NvmlReader
from allotment_spawner.gpu.nvml.samples import Sampler
from allotment_spawner.gpu.partitioner import Partitioner

__all__ = ["Observation", "Sampled", "Verbs"]


@dataclass(frozen=True, slots=True)
class Observation:
    """An inventory, and the GPUs whose events say that they cannot be trusted any more."""

    inventory: NodeInventory
    faults: dict[str, str]
    """GPU UUID -> reason."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """One GPU's samples, or why there are none; and what its events say of GPUs."""

    devices: tuple[DeviceSample, ...]
    unread: dict[str, str]
    """GPU UUID -> why it cannot be read."""
    faults: dict[str, str]
    """GPU UUID -> reason."""


class Verbs:
    """Real or simulated GPUs."""

    def __init__(
        self,
        *,
        reader: NvmlReader,
        partitioner: Partitioner,
        journal: Journal,
        xids: XidWatcher,
        sampler: Sampler,
        cdi: CdiEntries | None,
        boot_id: Callable[[], str],
    ) -> None:
        self._reader = reader
        self._partitioner = partitioner
        self._journal = journal
        self._xids = xids
        self._sampler = sampler
        self._cdi = cdi
        self._boot_id = boot_id

    def observe(self, skip: Collection[int] = ()) -> Observation:
        """Read every GPU whose index is not in `skip`. NVMLError only when the driver itself fails."""
        self._journal.boot(self._boot_id())
        inventory = self._reader.inventory(skip)
        for gpu in inventory.gpus:
            if gpu.problem is None:
                self._xids.watch(gpu.index, gpu.uuid)
        return Observation(inventory, self._faults())

    def count(self) -> int:
        """How many GPUs there are. NVMLError when the driver itself fails."""
        return self._sampler.count()

    def sample(self, index: int) -> Sampled:
        """How hard the GPU at this index and its slices work."""
        devices, unread = self._sampler.sample(index)
        # An event that was read here is gone for `observe`, also when this process dies before that.
        return Sampled(devices, unread, self._faults())

    def _faults(self) -> dict[str, str]:
        return {uuid: f"the driver reported Xid {xid}" for uuid, xid in self._xids.drain().items()}

    def ensure(self, gpu_uuid: str, profile: str, start: int, skip: Collection[int] = ()) -> Slice:
        self._journal.boot(self._boot_id())
        return self._partitioner.ensure(gpu_uuid, profile, start, skip)

    def destroy(self, gpu_uuid: str, profile: str, start: int, skip: Collection[int] = ()) -> None:
        self._journal.boot(self._boot_id())
        self._partitioner.destroy(gpu_uuid, profile, start, skip)

    def settle(self, gpu_uuid: str, skip: Collection[int] = ()) -> None:
        """Finish or undo what a crash left half-done on this GPU."""
        self._journal.boot(self._boot_id())
        self._partitioner.settle(gpu_uuid, skip)

    def unsettled(self) -> list[str]:
        """UUIDs of GPUs with a change that was begun and not finished."""
        self._journal.boot(self._boot_id())
        return self._journal.unsettled()

    def boot_id(self) -> str:
        return self._boot_id()

    def tidy(self, inventory: NodeInventory, *, complete: bool) -> None:
        """Remove CDI entries of slices that are gone; nothing while a GPU could not be read."""
        if self._cdi is not None and complete and all(gpu.problem is None for gpu in inventory.gpus):
            self._cdi.prune(s.uuid for gpu in inventory.gpus for s in gpu.slices if s.uuid is not None)
