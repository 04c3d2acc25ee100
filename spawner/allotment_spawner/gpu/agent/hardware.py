"""Opens the hardware that `--gpus` names: the driver, a simulated machine, or none."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pynvml

from allotment_spawner.gpu.agent.setup import Setup
from allotment_spawner.gpu.agent.verbs import Verbs
from allotment_spawner.gpu.cdi import CdiEntries
from allotment_spawner.gpu.journal import Journal
from allotment_spawner.gpu.nvml.calls import error_word
from allotment_spawner.gpu.nvml.events import XidWatcher
from allotment_spawner.gpu.nvml.none import NoGpus
from allotment_spawner.gpu.nvml.reader import NvmlReader
from allotment_spawner.gpu.nvml.samples import Sampler
from allotment_spawner.gpu.partitioner import Partitioner
from allotment_spawner.gpu.simulator.module import SimulatedNvml
from allotment_spawner.gpu.simulator.state import StateFile

__all__ = ["HardwareMissing", "Hooks", "open_hardware", "simulator_state"]

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class HardwareMissing(Exception):
    """One sentence for the operator: why the agent cannot start."""


def simulator_state(state_dir: Path) -> Path:
    """Where a simulated machine's state is."""
    return state_dir / "sim.json"


def _nothing(*_arguments: object) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Hooks:
    """What tests put in: crash points, waiting, durability, time; and the worker's note of its GPU."""

    on_step: Callable[[str], None] = _nothing
    on_gpu: Callable[[int, str | None], None] = _nothing
    pause: Callable[[float], None] = time.sleep
    sync: Callable[[int], None] = os.fsync
    clock: Callable[[], float] = time.monotonic


def open_hardware(setup: Setup, hooks: Hooks | None = None) -> Verbs:
    """Ready verbs. HardwareMissing with one clear sentence when there is nothing to open."""
    with_hooks = hooks or Hooks()
    setup.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    simulated = setup.gpus.startswith("sim:")
    if simulated:
        state = StateFile(simulator_state(setup.state_dir))
        nvml, boot_id = _simulated(setup.gpus, state, with_hooks), lambda: state.read().boot_id
    elif setup.gpus == "nvml":
        nvml, boot_id = _real(), _real_boot_id
    elif setup.gpus == "none" or setup.gpus == "none":
        nvml, boot_id = NoGpus(), _real_boot_id
    else:
        raise HardwareMissing(f"--gpus takes nvml, none or sim:COUNTxMODEL:mode, not {setup.gpus!r}.")
    # Simulated devices have no device nodes, so they get no CDI entry.
    cdi = CdiEntries(folder=setup.cdi_dir) if setup.cdi_dir is not None and not simulated else None
    journal = Journal(path=setup.state_dir / "journal.json", sync=with_hooks.sync)
    reader = NvmlReader(
        nvml=nvml,
        node=setup.node,
        boot_id=boot_id,
        simulated=simulated,
        owns=journal.owns,
        on_gpu=with_hooks.on_gpu,
    )
    xids = XidWatcher(nvml=nvml)
    partitioner = Partitioner(nvml=nvml, reader=reader, journal=journal, cdi=cdi, on_step=with_hooks.on_step)
    return Verbs(
        reader=reader,
        partitioner=partitioner,
        journal=journal,
        xids=xids,
        sampler=Sampler(nvml=nvml, reader=reader, xids=xids, clock=with_hooks.clock),
        cdi=cdi,
        boot_id=boot_id,
    )


def _real_boot_id() -> str:
    return _BOOT_ID.read_text(encoding="ascii").strip()


def _simulated(spec: str, state: StateFile, hooks: Hooks) -> Any:
    try:
        state.create(spec)
    except ValueError as error:
        raise HardwareMissing(f"--gpus: {error}.") from error
    nvml = SimulatedNvml(state=state, pause=hooks.pause)
    nvml.nvmlInit()
    return nvml


def _real() -> Any:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        word = error_word(error, pynvml)
        reason = {
            "LIBRARY_NOT_FOUND": "the NVIDIA driver's library (libnvidia-ml.so.1) is not on this machine",
            "DRIVER_NOT_LOADED": "the NVIDIA driver is not loaded",
            "NO_PERMISSION": "this user may not talk to the NVIDIA driver",
            "LIB_RM_VERSION_MISMATCH": "the NVIDIA driver was updated and the machine needs a restart",
        }.get(word, f"the NVIDIA driver answered {word}")
        raise HardwareMissing(
            f"No GPU can be used: {reason}. Use --gpus none, or --gpus sim:2xA100-80GB for simulated ones."
        ) from error
    return pynvml
