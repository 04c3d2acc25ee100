"""The agent's verbs over one NVML session, called one after the other by one thread."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from allotment_spawner.core.inventory import NodeInventory, Slice
from allotment_spawner.gpu.cdi import CdiEntries
from allotment_spawner.gpu.journal import Journal
from allotment_spawner.gpu.nvml.events import XidWatcher
from allotment_spawner.gpu.nvml.reader import NvmlReader
from allotment_spawner.gpu.partitioner import Partitioner

__all__ = ["Observation", "Verbs"]


@dataclass(frozen=True, slots=True)
class Observation:
    """An inventory, and the GPUs whose events say that they cannot be trusted any more."""

    inventory: NodeInventory
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
        cdi: CdiEntries | None,
        boot_id: Callable[[], str],
    ) -> None:
        self._reader = reader
        self._partitioner = partitioner
        self._journal = journal
        self._xids = xids
        self._cdi = cdi
        self._boot_id = boot_id

    def observe(self, skip: Collection[int] = ()) -> Observation:
        """Read every GPU whose index is not in `skip`. NVMLError only when the driver itself fails."""
        self._journal.boot(self._boot_id())
        inventory = self._reader.inventory(skip)
        for gpu in inventory.gpus:
            if gpu.problem is None:
                self._xids.watch(gpu.index, gpu.uuid)
        faults = {uuid: f"the driver reported Xid {xid}" for uuid, xid in self._xids.drain().items()}
        return Observation(inventory, faults)

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
