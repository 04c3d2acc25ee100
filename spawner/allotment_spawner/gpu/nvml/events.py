"""Xid events: which of them mean that a GPU can no longer be trusted."""

from __future__ import annotations

from typing import Any

from allotment_spawner.gpu.nvml.calls import is_code

__all__ = ["APPLICATION_XIDS", "XidWatcher"]

APPLICATION_XIDS = frozenset({13, 31, 43, 45, 68, 109})
"""Caused by the program that ran, not by the GPU: no reason to distrust it."""
_MOST = 256


class XidWatcher:
    """Registers every GPU once and hands out what came since the last call."""

    def __init__(self, *, nvml: Any) -> None:
        self._nvml = nvml
        self._set: Any = None
        self._registered: set[str] = set()

    def watch(self, index: int, uuid: str) -> None:
        """Begin to listen for a GPU. Boards that have no events are simply not heard."""
        if uuid in self._registered:
            return
        try:
            if self._set is None:
                self._set = self._nvml.nvmlEventSetCreate()
            board = self._nvml.nvmlDeviceGetHandleByIndex(index)
            self._nvml.nvmlDeviceRegisterEvents(board, self._nvml.nvmlEventTypeXidCriticalError, self._set)
        except self._nvml.NVMLError as error:
            if not is_code(error, self._nvml, "NOT_SUPPORTED", "FUNCTION_NOT_FOUND", "NO_PERMISSION"):
                return
        self._registered.add(uuid)

    def drain(self) -> dict[str, int]:
        """GPU UUID -> the first critical Xid since the last call. Never waits."""
        found: dict[str, int] = {}
        if self._set is None:
            return found
        for _ in range(_MOST):
            try:
                event = self._nvml.nvmlEventSetWait_v2(self._set, 0)
            except self._nvml.NVMLError:
                # TIMEOUT is the normal end; any other failure shows in the GPU's own calls.
                break
            if int(event.eventData) in APPLICATION_XIDS:
                continue
            uuid = self._uuid(event.device)
            if uuid is not None:
                found.setdefault(uuid, int(event.eventData))
        return found

    def _uuid(self, board: Any) -> str | None:
        try:
            return str(self._nvml.nvmlDeviceGetUUID(board))
        except self._nvml.NVMLError:
            # A board that is lost cannot say its name; its own reading reports GPU_IS_LOST.
            return None
