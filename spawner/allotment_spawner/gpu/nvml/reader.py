"""Reads a node's inventory; one GPU that fails is reported with its problem, the others go on."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from allotment_spawner.core.inventory import Gpu, NodeInventory, Profile
from allotment_spawner.gpu.nvml.board import Identity, Owns, identify, mig_is_on, process_name, read_board
from allotment_spawner.gpu.nvml.calls import discover_profiles, is_code, trouble
from allotment_spawner.gpu.nvml.islands import islands

__all__ = ["NvmlReader"]

_RETRIES = 2
"""Somebody else may cut while we read: an instance that vanished mid-way is read again."""


class NvmlReader:
    """One long-lived NVML session; its calls are made one after the other.

    `nvml` is the pynvml module or the simulator. `on_gpu(index, uuid)` is called before a GPU is
    touched (uuid None while it is not known), so that a hang can be blamed on that GPU.
    """

    def __init__(
        self,
        *,
        nvml: Any,
        node: str,
        boot_id: Callable[[], str],
        simulated: bool,
        owns: Owns,
        on_gpu: Callable[[int, str | None], None] = lambda _index, _uuid: None,
    ) -> None:
        self._nvml = nvml
        self._node = node
        self._boot_id = boot_id
        self._simulated = simulated
        self._owns = owns
        self._on_gpu = on_gpu
        self._known: dict[int, Identity] = {}
        self._profiles: dict[str, tuple[Profile, ...]] = {}
        self._islands: dict[int, int] = {}

    def inventory(self, skip: Collection[int] = ()) -> NodeInventory:
        """Everything now, except the GPUs whose index is in `skip` (they hang)."""
        indexes = [i for i in range(self._nvml.nvmlDeviceGetCount()) if i not in skip]
        gpus = [self._gpu(index) for index in indexes]
        self._link([gpu.index for gpu in gpus if gpu.problem is None])
        return NodeInventory(
            node=self._node,
            boot_id=self._boot_id(),
            simulated=self._simulated,
            driver_version=self._driver(),
            gpus=tuple(replace(gpu, island=self._islands.get(gpu.index, gpu.index)) for gpu in gpus),
        )

    def find(
        self, gpu_uuid: str, skip: Collection[int] = ()
    ) -> tuple[Any, Identity, tuple[Profile, ...]] | None:
        """(board handle, identity, profiles; none while MIG is off) of a GPU, or None."""
        indexes = [i for i in range(self._nvml.nvmlDeviceGetCount()) if i not in skip]
        # Where it was last seen comes first; the others only if it is not there any more.
        for index in sorted(indexes, key=lambda i: i not in self._known or self._known[i].uuid != gpu_uuid):
            board, identity = self._open(index)
            if identity.uuid == gpu_uuid:
                mig = mig_is_on(self._nvml, board)
                return board, identity, self._discover(board, gpu_uuid) if mig else ()
        return None

    def board(self, index: int) -> tuple[Any, str]:
        """(handle, UUID) of the GPU at an index. Raises NVMLError."""
        board, identity = self._open(index)
        return board, identity.uuid

    def uuid_at(self, index: int) -> str:
        """The GPU last seen at an index, or a word that says that it is not known."""
        known = self._known.get(index)
        return known.uuid if known is not None else _unknown(index)

    def processes(self, board: Any) -> list[tuple[int, str | None, tuple[int, int]]]:
        """(pid, name, (instance id, compute id)) of everything on a board. Raises NVMLError."""
        return [
            (int(p.pid), process_name(self._nvml, p.pid), (int(p.gpuInstanceId), int(p.computeInstanceId)))
            for p in self._nvml.nvmlDeviceGetComputeRunningProcesses(board)
        ]

    def _driver(self) -> str | None:
        try:
            return str(self._nvml.nvmlSystemGetDriverVersion())
        except self._nvml.NVMLError:
            return None

    def _open(self, index: int) -> tuple[Any, Identity]:
        known = self._known.get(index)
        self._on_gpu(index, known.uuid if known else None)
        board = self._nvml.nvmlDeviceGetHandleByIndex(index)
        uuid = str(self._nvml.nvmlDeviceGetUUID(board))
        if known is None or known.uuid != uuid:
            # Indexes move when a GPU falls off the bus; nothing cached is trusted then.
            self._islands = {}
            known = self._known[index] = identify(self._nvml, board, index)
        self._on_gpu(index, uuid)
        return board, known

    def _discover(self, board: Any, uuid: str) -> tuple[Profile, ...]:
        if uuid not in self._profiles:
            self._profiles[uuid] = discover_profiles(self._nvml, board)
        return self._profiles[uuid]

    def _gpu(self, index: int) -> Gpu:
        for attempt in range(_RETRIES):
            try:
                board, identity = self._open(index)
                mig = mig_is_on(self._nvml, board)
                profiles = self._discover(board, identity.uuid) if mig else ()
                return read_board(self._nvml, board, identity, profiles, mig=mig, owns=self._owns)
            except self._nvml.NVMLError as error:
                again = is_code(error, self._nvml, "NOT_FOUND", "INVALID_ARGUMENT")
                if attempt + 1 == _RETRIES or not again:
                    return self._broken(index, error)
        raise AssertionError("unreachable")

    def _broken(self, index: int, error: Exception) -> Gpu:
        known = self._known.get(index) or Identity(_unknown(index), index, "unknown", 0, None)
        return Gpu(
            uuid=known.uuid,
            index=index,
            model=known.model,
            memory_bytes=known.memory_bytes,
            mig=False,
            axis=0,
            compute_capability=known.capability,
            problem=trouble(self._nvml, error),
        )

    def _link(self, indexes: list[int]) -> None:
        # Links are read once: they change only with a reboot or when a GPU leaves the bus.
        if any(i not in self._islands for i in indexes):
            handles = {i: self._nvml.nvmlDeviceGetHandleByIndex(i) for i in indexes}
            self._islands = islands(self._nvml, handles)


def _unknown(index: int) -> str:
    return f"GPU-unknown-{index}"
