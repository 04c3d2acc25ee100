"""The simulated machine's state: one JSON file, changed under a lock and replaced atomically."""

from __future__ import annotations

import fcntl
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from allotment_spawner.gpu.simulator.models import model
from allotment_spawner.gpu.simulator.spec import parse

__all__ = [
    "SimCompute",
    "SimEvent",
    "SimGpu",
    "SimHang",
    "SimInstance",
    "SimProcess",
    "SimState",
    "SimWork",
    "StateFile",
    "new_machine",
]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid")


class SimWork(_Part):
    """What a process does to its device. None: 100 percent of the SMs, as much bandwidth as SMs, power and
    heat that follow from them."""

    sm_percent: float | None = None
    bandwidth_percent: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    pcie_rx_bytes_per_s: float = 0.0
    pcie_tx_bytes_per_s: float = 0.0


class SimProcess(_Part):
    """A process on a device. `started` is the real process's start tick, None for a made-up pid."""

    pid: int
    device_uuid: str
    name: str
    used_bytes: int
    started: int | None = None
    work: SimWork = SimWork()


class SimCompute(_Part):
    serial: int
    ci_id: int
    profile_id: int
    uuid: str


class SimInstance(_Part):
    serial: int
    gi_id: int
    profile_id: int
    start: int
    size: int
    computes: list[SimCompute] = []


class SimHang(_Part):
    """Calls that do not return: `function` is an NVML name or "*"; `until` seconds since the epoch."""

    function: str
    until: float | None


class SimGpu(_Part):
    uuid: str
    model: str
    mig: bool
    mig_pending: bool
    peers: list[int]
    lost: bool = False
    hangs: list[SimHang] = []
    instances: list[SimInstance] = []
    energy_j: float = 0.0
    energy_at: float | None = None
    """Up to when it is counted, seconds since the epoch."""
    energy_writes: int = 0
    ecc_corrected: int = 0
    ecc_uncorrected: int = 0


class SimEvent(_Part):
    number: int
    gpu_uuid: str
    xid: int


class SimState(_Part):
    """Everything. `serial` counts up for ever, so no handle or UUID is used twice."""

    spec: str
    seed: str
    boot_id: str
    serial: int = 0
    revision: int = 0
    gpus: list[SimGpu] = []
    processes: list[SimProcess] = []
    latency: dict[str, float] = {}
    events: list[SimEvent] = []

    def next_serial(self) -> int:
        self.serial += 1
        return self.serial

    def derived_uuid(self, *parts: object) -> str:
        """A UUID that depends on this machine's seed only: the same after every restart."""
        return str(uuid.uuid5(uuid.UUID(self.seed), "/".join(map(str, parts))))

    def gpu(self, gpu_uuid: str) -> SimGpu | None:
        return next((g for g in self.gpus if g.uuid == gpu_uuid), None)


def new_machine(spec: str, *, seed: str | None = None) -> SimState:
    """A machine that was just switched on. ValueError for a malformed spec."""
    boards = parse(spec)
    state = SimState(spec=spec, seed=seed or str(uuid.uuid4()), boot_id=str(uuid.uuid4()))
    for index, board in enumerate(boards):
        peers = [
            other
            for other, peer in enumerate(boards)
            if other != index and peer.group == board.group and model(board.model).bridged
        ]
        state.gpus.append(
            SimGpu(
                uuid=f"GPU-{state.derived_uuid('gpu', index, board.model)}",
                model=board.model,
                mig=board.mig,
                mig_pending=board.mig,
                peers=peers,
            )
        )
    return state


class StateFile:
    """The file. Readers need no lock, since a writer replaces the file in one rename.

    Nothing is fsynced: a crash of a process cannot tear a rename, and a power cut takes the
    simulated machine down with the real one.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._cached: SimState | None = None

    @property
    def path(self) -> Path:
        return self._path

    def exists(self) -> bool:
        return self._path.exists()

    def create(self, spec: str, *, seed: str | None = None) -> None:
        """Make the machine, or keep the one that is there when it was made from the same spec.

        Another spec is other hardware: it starts anew with a new boot id, and UUIDs stay unique.
        """
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._locked():
            if self._path.exists():
                old = self._load()
                if old.spec == spec:
                    return
                fresh = new_machine(spec, seed=old.seed)
                fresh.serial, fresh.revision = old.serial, old.revision
                self._write(fresh)
            else:
                self._write(new_machine(spec, seed=seed))

    def read(self) -> SimState:
        """The state now; treat it as read-only."""
        stat = self._path.stat()
        seen = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
        if self._cached is None or seen != self._seen:
            self._cached = self._load()
            self._seen = seen
        return self._cached

    @contextmanager
    def change(self) -> Iterator[SimState]:
        """Change the state alone; an exception inside changes nothing."""
        with self._locked():
            state = self._load()
            yield state
            self._write(state)

    def _load(self) -> SimState:
        return SimState.model_validate_json(self._path.read_bytes())

    def _write(self, state: SimState) -> None:
        state.revision += 1
        scratch = self._path.with_name(self._path.name + ".new")
        scratch.write_text(state.model_dump_json(), encoding="utf-8")
        scratch.chmod(0o600)
        # The times of two quick writes can be equal, and an inode number comes back at once; so the
        # revision is the time that readers compare.
        os.utime(scratch, ns=(state.revision, state.revision))
        scratch.replace(self._path)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        lock = os.open(self._path.with_name(self._path.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)
