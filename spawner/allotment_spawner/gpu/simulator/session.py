"""What every simulated NVML call shares: handles, errors, latency, hangs and lost boards."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any

import pynvml

from allotment_spawner.gpu.simulator.models import GpuModel, model
from allotment_spawner.gpu.simulator.state import SimCompute, SimGpu, SimInstance, SimState, StateFile

__all__ = ["Session", "fail", "find_compute"]

_POLL_S = 0.01
# A handle is a pointer whose value holds a kind in its top byte and a number below: a board's
# index, or the serial of an instance. Serials never repeat, so a stale handle finds nothing.
_SHIFT = 48
_KINDS = {"board": 1, "gi": 2, "ci": 3, "mig": 4}
_TYPES = {
    "board": pynvml.c_nvmlDevice_t,
    "mig": pynvml.c_nvmlDevice_t,
    "gi": pynvml.c_nvmlGpuInstance_t,
    "ci": pynvml.c_nvmlComputeInstance_t,
}


def fail(code: int) -> Exception:
    """The NVMLError subclass for a code, ready to be raised."""
    error: Exception = pynvml.NVMLError(code)
    return error


class Session:
    """One NVML session on the simulated machine.

    `pause(seconds)` waits for latency; it is also called again and again while a call hangs.
    """

    def __init__(
        self,
        *,
        state: StateFile,
        pause: Callable[[float], None] = time.sleep,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._state = state
        self._pause = pause
        self._now = now
        self._open = False

    def handle(self, kind: str, number: int) -> Any:
        """A ctypes pointer of the type NVML uses for this kind of thing."""
        value = (_KINDS[kind] << _SHIFT) | number
        return ctypes.cast(ctypes.c_void_p(value), _TYPES[kind])

    def decode(self, handle: Any) -> tuple[str, int]:
        """(kind, number); INVALID_ARGUMENT for what is no handle of ours."""
        value = ctypes.cast(handle, ctypes.c_void_p).value or 0
        for kind, tag in _KINDS.items():
            if value >> _SHIFT == tag:
                return kind, value & ((1 << _SHIFT) - 1)
        raise fail(pynvml.NVML_ERROR_INVALID_ARGUMENT)

    def enter(self, function: str, index: int | None = None) -> SimState:
        """Begin a call: wait as long as the machine makes it wait, then give the state."""
        if not self._open:
            raise fail(pynvml.NVML_ERROR_UNINITIALIZED)
        state = self._state.read()
        delay = state.latency.get(function, state.latency.get("*", 0.0))
        if delay > 0:
            self._pause(delay)
        while index is not None and self._hangs(state, function, index):
            self._pause(_POLL_S)
            state = self._state.read()
        if index is None:
            return state
        if not 0 <= index < len(state.gpus):
            raise fail(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        if state.gpus[index].lost:
            raise fail(pynvml.NVML_ERROR_GPU_IS_LOST)
        return state

    def _hangs(self, state: SimState, function: str, index: int) -> bool:
        if index >= len(state.gpus):
            return False
        return any(
            hang.function in ("*", function) and (hang.until is None or self._now() < hang.until)
            for hang in state.gpus[index].hangs
        )

    def board(self, function: str, handle: Any) -> tuple[SimState, int, SimGpu, GpuModel]:
        """Begin a call on a whole board; INVALID_ARGUMENT for a MIG device's handle."""
        kind, index = self.decode(handle)
        if kind != "board":
            raise fail(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        state = self.enter(function, index)
        gpu = state.gpus[index]
        return state, index, gpu, model(gpu.model)

    def instance(self, function: str, handle: Any) -> tuple[SimState, int, SimGpu, SimInstance]:
        """Begin a call on a GPU instance; NOT_FOUND when it is gone."""
        kind, serial = self.decode(handle)
        if kind != "gi":
            raise fail(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        before = _find_instance(self._state.read(), serial)
        state = self.enter(function, before[0] if before else None)
        found = _find_instance(state, serial)
        if found is None:
            raise fail(pynvml.NVML_ERROR_NOT_FOUND)
        index, instance = found
        return state, index, state.gpus[index], instance

    def compute(self, function: str, handle: Any) -> tuple[SimState, int, SimGpu, SimInstance, SimCompute]:
        """Begin a call on a compute instance, by its own or its MIG device's handle."""
        kind, serial = self.decode(handle)
        if kind not in ("ci", "mig"):
            raise fail(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        found = find_compute(self._state.read(), serial)
        state = self.enter(function, found[0] if found else None)
        found = find_compute(state, serial)
        if found is None:
            raise fail(pynvml.NVML_ERROR_NOT_FOUND)
        index, instance, compute = found
        return state, index, state.gpus[index], instance, compute


def _find_instance(state: SimState, serial: int) -> tuple[int, SimInstance] | None:
    for index, gpu in enumerate(state.gpus):
        for instance in gpu.instances:
            if instance.serial == serial:
                return index, instance
    return None


def find_compute(state: SimState, serial: int) -> tuple[int, SimInstance, SimCompute] | None:
    """(board index, GPU instance, compute instance) of a serial, or None."""
    for index, gpu in enumerate(state.gpus):
        for instance in gpu.instances:
            for compute in instance.computes:
                if compute.serial == serial:
                    return index, instance, compute
    return None
