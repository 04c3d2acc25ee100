"""Xid events: what came since the last sample, and which of them mean that a GPU cannot be trusted."""

from __future__ import annotations

from typing import Any

from allotment_spawner.gpu.nvml.calls import is_code

__all__ = ["APPLICATION_XIDS", "XidWatcher"]

APPLICATION_XIDS = frozenset({13, 31, 43, 45, 68, 109})
"""Caused by the program that ran, not by the GPU: no reason to distrust it."""
_MOST = 256
_KEPT = 64
"""Xids of one GPU that nobody has taken; a GPU that reports more is not told apart any better."""


class XidWatcher:
    """Registers every GPU once and keeps two books of what came: one for its health, one for samples.

    The driver gives each event once, so whoever asks first reads it into both.
    """

    def __init__(self, *, nvml: Any) -> None:
        self._nvml = nvml
        self._set: Any = None
        self._registered: set[str] = set()
        self._heard: set[str] = set()
        self._critical: dict[str, int] = {}
        self._all: dict[str, list[int]] = {}

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
        else:
            self._heard.add(uuid)
        self._registered.add(uuid)

    def drain(self) -> dict[str, int]:
        """GPU UUID -> the first critical Xid since the last call. Never waits."""
        self._read()
        found, self._critical = self._critical, {}
        return found

    def take(self, uuid: str) -> tuple[int, ...] | None:
        """Every Xid of a GPU since the last call, oldest first; None where they cannot be heard."""
        self._read()
        return tuple(self._all.pop(uuid, ())) if uuid in self._heard else None

    def _read(self) -> None:
        if self._set is None:
            return
        for _ in range(_MOST):
            try:
                event = self._nvml.nvmlEventSetWait_v2(self._set, 0)
            except self._nvml.NVMLError:
                # TIMEOUT is the normal end; any other failure shows in the GPU's own calls.
                break
            self._note(self._uuid(event.device), int(event.eventData))

    def _note(self, uuid: str | None, xid: int) -> None:
        if uuid is None:
            return
        kept = self._all.setdefault(uuid, [])
        if len(kept) < _KEPT:
            kept.append(xid)
        if xid not in APPLICATION_XIDS:
            self._critical.setdefault(uuid, xid)

    def _uuid(self, board: Any) -> str | None:
        try:
            return str(self._nvml.nvmlDeviceGetUUID(board))
        except self._nvml.NVMLError:
            # A board that is lost cannot say its name; its own reading reports GPU_IS_LOST.
            return None
