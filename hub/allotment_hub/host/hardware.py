"""Which GPUs this installation has: real ones where a driver answers, else simulated ones, said plainly."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass

from allotment_spawner.gpu.simulator.spec import parse

from allotment_hub.host.errors import HostError

__all__ = ["DEFAULT_SIMULATION", "GpuChoice", "choose_gpus", "driver_gpus"]

DEFAULT_SIMULATION = "sim:2xA100-80GB:mig,2xA100-80GB:whole"
_ASK = "import pynvml; pynvml.nvmlInit(); print('gpus', pynvml.nvmlDeviceGetCount())"


@dataclass(frozen=True, slots=True)
class GpuChoice:
    """`gpus` as in runtime.json: "nvml", "none" or "sim:…"."""

    gpus: str
    sentence: str


def choose_gpus(wanted: str) -> GpuChoice:
    """`wanted` is "auto", "none" or "sim:…"; `HostError` when a simulated machine is misspelt."""
    if wanted == "none":
        return GpuChoice(gpus="none", sentence="No GPUs: only CPU flavors can be used.")
    if wanted.startswith("sim:"):
        try:
            boards = parse(wanted)
        except ValueError as error:
            raise HostError(f"--gpus: {error}.") from None
        many = f"{len(boards)} simulated GPU{'' if len(boards) == 1 else 's'}"
        return GpuChoice(gpus=wanted, sentence=f"{many} ({wanted[4:]}); nothing computes.")
    count, problem = driver_gpus()
    if count:
        return GpuChoice(gpus="nvml", sentence=f"{count} NVIDIA GPU{'s' if count > 1 else ''}.")
    return GpuChoice(
        gpus=DEFAULT_SIMULATION,
        sentence=f"{problem} The GPUs are SIMULATED ({DEFAULT_SIMULATION[4:]}); nothing computes.",
    )


def driver_gpus(*, timeout_s: float = 20.0) -> tuple[int, str]:
    """How many GPUs the driver reports, or 0 and why. In a process of its own: a driver can hang."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _ASK], check=False, capture_output=True, text=True, timeout=timeout_s
        )
    except subprocess.TimeoutExpired:
        return 0, f"The NVIDIA driver did not answer within {timeout_s:.0f} seconds."
    words = done.stdout.split()
    if done.returncode != 0 or len(words) != 2:
        return 0, "No NVIDIA driver answers on this machine."
    count = int(words[1])
    return count, "" if count else "The NVIDIA driver reports no GPU."
