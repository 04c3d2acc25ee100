"""Drives a simulated machine from outside: load, faults, hangs, latency, reboot."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from pathlib import Path

from allotment_spawner.gpu.simulator.models import model
from allotment_spawner.gpu.simulator.processes import FIRST_MADE_UP_PID, alive, start_tick
from allotment_spawner.gpu.simulator.state import (
    SimEvent,
    SimGpu,
    SimHang,
    SimProcess,
    SimState,
    SimWork,
    StateFile,
)
from allotment_spawner.gpu.simulator.work import advance_energy, power_w

__all__ = ["HANGING_CALL", "SimControl"]

HANGING_CALL = {
    "*": "*",
    "inventory": "nvmlDeviceGetComputeRunningProcesses",
    "ensure_slice": "nvmlDeviceCreateGpuInstanceWithPlacement",
    "destroy_slice": "nvmlGpuInstanceDestroy",
    "sample": "nvmlDeviceGetPowerUsage",
}
"""Verb of the agent -> the NVML call that hangs for it."""
_KEPT_EVENTS = 100
_FATAL_XIDS = frozenset({79, 119, 120})
"""The GPU has fallen off the bus, or its processor does not answer: every call fails after these."""


class SimControl:
    """Acts on the state file only, so it works whether or not an agent runs.

    GPUs are named by UUID or by index ("0"). LookupError for what the machine does not have;
    FileNotFoundError when there is no simulated machine.
    """

    def __init__(self, state_path: Path, *, now: Callable[[], float] = time.time) -> None:
        if not state_path.exists():
            raise FileNotFoundError(f"there is no simulated machine at {state_path}")
        self._state = StateFile(state_path)
        self._now = now

    def state(self) -> SimState:
        """The machine now (read-only)."""
        return self._state.read()

    def uuid_of(self, gpu: str) -> str:
        """The UUID of a GPU that was named by index or UUID."""
        return _find(self._state.read(), gpu).uuid

    def processes(self) -> list[SimProcess]:
        """Processes on the devices now."""
        return alive(self._state.read().processes)

    def load(
        self,
        device_uuid: str,
        pid: int | None = None,
        used_bytes: int = 1 << 30,
        name: str = "python",
        work: SimWork | None = None,
    ) -> int:
        """Put a process on a slice (by UUID) or a GPU (by index or UUID); returns its pid.

        `work` is what it does to the device; the same pid on the same device again replaces that.

        Without `pid` one is made up, and it stays until `unload`. A real pid counts only while that
        process exists. LookupError when there is no such device or process.
        """
        with self._state.change() as state:
            device_uuid = _uuid(state, device_uuid)
            if device_uuid not in _devices(state):
                raise LookupError(f"the simulated machine has no device {device_uuid}")
            started = None
            if pid is not None and pid < FIRST_MADE_UP_PID:
                started = start_tick(pid)
                if started is None:
                    raise LookupError(f"there is no process {pid}")
            number = pid if pid is not None else FIRST_MADE_UP_PID + state.next_serial()
            self._count_energy(state)
            state.processes = [
                p for p in alive(state.processes) if (p.pid, p.device_uuid) != (number, device_uuid)
            ]
            state.processes.append(
                SimProcess(
                    pid=number,
                    device_uuid=device_uuid,
                    name=name,
                    used_bytes=used_bytes,
                    started=started,
                    work=work or SimWork(),
                )
            )
            return number

    def _count_energy(self, state: SimState) -> None:
        """Before the load changes: what was drawn until now was drawn by the load before."""
        for gpu in state.gpus:
            advance_energy(gpu, power_w(gpu, alive(state.processes)), self._now())

    def unload(self, device_uuid: str | None = None, pid: int | None = None) -> int:
        """Take processes away (all, or those on a device, or one pid); returns how many."""
        with self._state.change() as state:
            device_uuid = None if device_uuid is None else _uuid(state, device_uuid)
            stay = [
                p
                for p in state.processes
                if (device_uuid is not None and p.device_uuid != device_uuid)
                or (pid is not None and p.pid != pid)
            ]
            gone = len(state.processes) - len(stay)
            self._count_energy(state)
            state.processes = stay
            return gone

    def fault(self, gpu: str, xid: int) -> None:
        """The driver reports this Xid; after 79, 119 and 120 the GPU is lost."""
        with self._state.change() as state:
            board = _find(state, gpu)
            state.events = [
                *state.events[-_KEPT_EVENTS:],
                SimEvent(number=state.next_serial(), gpu_uuid=board.uuid, xid=xid),
            ]
            board.lost = board.lost or xid in _FATAL_XIDS

    def ecc(self, gpu: str, *, corrected: int = 0, uncorrected: int = 0) -> None:
        """So many more memory errors, counted since the driver was loaded."""
        with self._state.change() as state:
            board = _find(state, gpu)
            board.ecc_corrected += corrected
            board.ecc_uncorrected += uncorrected

    def hang(self, gpu: str, verb: str = "*", seconds: float | None = None) -> None:
        """Calls of this verb ("inventory", "sample", "ensure_slice", "destroy_slice", "*" or an NVML
        function) on this GPU do not return: for `seconds`, or until `unhang`."""
        with self._state.change() as state:
            until = None if seconds is None else self._now() + seconds
            _find(state, gpu).hangs.append(SimHang(function=HANGING_CALL.get(verb, verb), until=until))

    def unhang(self, gpu: str) -> None:
        """Calls on this GPU return again."""
        with self._state.change() as state:
            _find(state, gpu).hangs = []

    def latency(self, seconds: float, function: str = "*") -> None:
        """Every call (or this NVML function) takes so long; 0 takes it away."""
        with self._state.change() as state:
            state.latency.pop(function, None)
            if seconds > 0:
                state.latency[function] = seconds

    def set_mig_mode(self, gpu: str, on: bool) -> None:
        """As after a mode switch and a reset by the operator. ValueError while instances exist."""
        with self._state.change() as state:
            board = _find(state, gpu)
            if board.instances:
                raise ValueError(f"{board.uuid} has MIG instances; destroy them first")
            board.mig = board.mig_pending = on

    def reboot(self) -> str:
        """Switch off and on: new boot id (returned), no instances, no processes, hangs or faults.

        MIG mode stays only where the model keeps it (Ampere); `set_mig_mode` switches it on again.
        """
        with self._state.change() as state:
            state.boot_id = str(uuid.uuid4())
            state.processes, state.events = [], []
            for board in state.gpus:
                board.instances, board.hangs, board.lost = [], [], False
                board.energy_j, board.energy_at, board.ecc_corrected, board.ecc_uncorrected = 0.0, None, 0, 0
                board.mig = board.mig_pending and model(board.model).mig_survives_reboot
                board.mig_pending = board.mig
            return state.boot_id


def _find(state: SimState, gpu: str) -> SimGpu:
    if gpu.isdigit() and int(gpu) < len(state.gpus):
        return state.gpus[int(gpu)]
    found = state.gpu(gpu)
    if found is None:
        raise LookupError(f"the simulated machine has no GPU {gpu}")
    return found


def _uuid(state: SimState, device: str) -> str:
    """GPUs may be named by index, too."""
    return _find(state, device).uuid if device.isdigit() else device


def _devices(state: SimState) -> set[str]:
    slices = {c.uuid for g in state.gpus for i in g.instances for c in i.computes}
    return slices | {g.uuid for g in state.gpus}
