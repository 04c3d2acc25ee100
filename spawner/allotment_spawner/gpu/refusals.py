"""Why a slice was not made or removed: one sentence and one next step for each reason."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from allotment_spawner.core.errors import AgentUnavailable, DeviceBusy, FlavorUnavailable
from allotment_spawner.core.inventory import Profile
from allotment_spawner.gpu.nvml.calls import Instance, error_word

__all__ = [
    "failed",
    "in_the_way",
    "in_use",
    "marked",
    "mig_is_off",
    "no_answer",
    "no_entry",
    "no_such_gpu",
    "no_such_slice",
    "not_ours",
]


def no_such_gpu(gpu_uuid: str) -> FlavorUnavailable:
    return FlavorUnavailable(
        f"This machine has no GPU {gpu_uuid}.",
        "Choose another size; if a GPU is missing, tell your operator.",
    )


def mig_is_off(gpu_uuid: str) -> FlavorUnavailable:
    return FlavorUnavailable(
        f"GPU {gpu_uuid} is not in MIG mode, so it cannot be divided.",
        "Choose a whole GPU, or ask your operator to switch MIG on for this pool.",
    )


def no_such_slice(gpu_uuid: str, profile: str, start: int, profiles: Sequence[Profile]) -> FlavorUnavailable:
    offered = ", ".join(f"{p.name} at {'/'.join(map(str, p.starts))}" for p in profiles)
    return FlavorUnavailable(
        f"GPU {gpu_uuid} has no slice {profile} at {start}; it offers {offered}.", "Choose another size."
    )


def _describe(instance: Instance) -> str:
    end = instance.start + instance.size - 1
    return f"{instance.profile.name} at memory slices {instance.start} to {end}"


def in_the_way(gpu_uuid: str, blocking: Sequence[Instance]) -> DeviceBusy:
    return DeviceBusy(
        f"On GPU {gpu_uuid} that place is taken by {' and '.join(_describe(i) for i in blocking)}.",
        "Try again when that slice is free; an operator sees it with `allot gpus`.",
        gpu_uuid=gpu_uuid,
    )


def not_ours(gpu_uuid: str, there: Instance) -> DeviceBusy:
    return DeviceBusy(
        f"The slice {_describe(there)} on GPU {gpu_uuid} was made by somebody else, so it is left alone.",
        "An operator can remove it with nvidia-smi, or give it to a pool with a declared layout.",
        gpu_uuid=gpu_uuid,
    )


def in_use(gpu_uuid: str, there: Instance | None, holders: Sequence[tuple[int, str | None]]) -> DeviceBusy:
    what = f"the slice {_describe(there)}" if there else "the device"
    if holders:
        who = ", ".join(f"process {pid}" + (f" ({name})" if name else "") for pid, name in holders)
        step = "Try again when it has ended."
    else:
        who = "a program that the driver does not name (often nvidia-persistenced, DCGM or a profiler)"
        step = "Try again; if it goes on, ask your operator to stop that program."
    return DeviceBusy(
        f"{what[0].upper()}{what[1:]} on GPU {gpu_uuid} is held by {who}.",
        step,
        gpu_uuid=gpu_uuid,
        pids=[pid for pid, _ in holders],
    )


def failed(gpu_uuid: str, error: Exception, nvml: Any) -> AgentUnavailable:
    word = error_word(error, nvml)
    if word == "NO_PERMISSION":
        return AgentUnavailable(
            "The agent may not divide GPUs: the driver answered NO_PERMISSION.",
            "Ask your operator to run allotment-agent as root on machines with real GPUs.",
            gpu_uuid=gpu_uuid,
            nvml=word,
        )
    return AgentUnavailable(
        f"GPU {gpu_uuid} answered {word}, so what happened to its slices is not known.",
        "Try again in a minute; if it goes on, tell your operator.",
        gpu_uuid=gpu_uuid,
        nvml=word,
    )


def no_entry(error: OSError) -> AgentUnavailable:
    return AgentUnavailable(
        f"The device's CDI entry could not be written: {error.strerror} ({error.filename}).",
        "Ask your operator to check that folder; the agent's --cdi-dir names it.",
    )


def marked(gpu_uuid: str, reason: str) -> AgentUnavailable:
    return AgentUnavailable(
        f"GPU {gpu_uuid} is marked unhealthy: {reason}.",
        "Choose another size, or ask your operator to look at that GPU.",
        gpu_uuid=gpu_uuid,
    )


def no_answer(verb: str, seconds: float) -> AgentUnavailable:
    return AgentUnavailable(
        f"The agent's {verb} did not end within {seconds:g} s, so the state of the devices is not known.",
        "Try again in a minute; if it goes on, tell your operator.",
        verb=verb,
    )
