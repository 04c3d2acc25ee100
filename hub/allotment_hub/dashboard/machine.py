"""What operators see of the machine: each GPU on its axis, and what is wrong with its remedy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from allotment_hub.dashboard.words import gigabytes

__all__ = ["Finding", "GpuCard", "Part", "cards", "findings"]

_STATE_WORDS: Final = {
    "leased": "leased",
    "idle": "idle",
    "foreign": "not ours",
    "cutting": "being cut",
    "quarantined": "quarantined",
    "held": "held",
    "free": "free",
    "blocked": "not available",
}


@dataclass(frozen=True, slots=True)
class Part:
    """One piece of a GPU's axis, from memory slice `start` on. Free space has no profile."""

    start: int
    size: int
    state: str
    state_word: str
    name: str
    holder: str | None
    since: datetime | None
    note: str | None
    lease: str | None


@dataclass(frozen=True, slots=True)
class GpuCard:
    index: int
    uuid: str
    model: str
    memory: str
    pool: str | None
    mode: str
    problem: str | None
    axis: int
    parts: tuple[Part, ...]
    in_use: str


@dataclass(frozen=True, slots=True)
class Finding:
    """`what` is wrong and what to do about it."""

    what: str
    remedy: str


def cards(fleet: Mapping[str, Any]) -> list[GpuCard]:
    """One card a GPU of the fleet view (as plain data, `model_dump()`)."""
    return [_card(gpu) for gpu in fleet["gpus"]]


def _card(gpu: Mapping[str, Any]) -> GpuCard:
    parts = tuple(_slices(gpu)) if gpu["mig"] else (_whole(gpu),)
    taken = sum(part.size for part in parts if part.state != "free" and part.state != "idle")
    axis = gpu["axis"] if gpu["mig"] else 1
    return GpuCard(
        index=gpu["index"],
        uuid=gpu["uuid"],
        model=gpu["model"],
        memory=gigabytes(gpu["memory_bytes"]) or "unknown memory",
        pool=gpu["pool"],
        mode="MIG" if gpu["mig"] else "whole",
        problem=gpu["problem"],
        axis=axis,
        parts=parts,
        in_use=f"{taken} of {axis} memory slices in use" if gpu["mig"] else parts[0].state_word,
    )


def _slices(gpu: Mapping[str, Any]) -> Iterator[Part]:
    """The slices in order, with the free space between them; overlaps are drawn as they are reported."""
    at = 0
    for one in sorted(gpu["slices"], key=lambda found: (found["start"], found["size"])):
        if one["start"] > at:
            yield _free(at, one["start"] - at)
        yield Part(
            start=one["start"],
            size=one["size"],
            state=one["state"],
            state_word=_STATE_WORDS[one["state"]],
            name=one["profile"],
            holder=one["user"],
            since=one["since"],
            note=one["note"],
            lease=one["lease"],
        )
        at = max(at, one["start"] + one["size"])
    if at < gpu["axis"]:
        yield _free(at, gpu["axis"] - at)


def _free(start: int, size: int) -> Part:
    return Part(start, size, "free", "free", "free", None, None, None, None)


def _whole(gpu: Mapping[str, Any]) -> Part:
    whole = gpu["whole"] or {"state": "free", "lease": None, "user": None, "since": None, "note": None}
    return Part(
        start=0,
        size=1,
        state=whole["state"],
        state_word=_STATE_WORDS[whole["state"]],
        name="whole GPU",
        holder=whole["user"],
        since=whole.get("since"),
        note=whole["note"],
        lease=whole["lease"],
    )


def findings(fleet: Mapping[str, Any]) -> list[Finding]:
    """Everything that an operator should look at; empty when all is well."""
    return [*_services(fleet), *_gpus(fleet["gpus"]), *_strays(fleet["strays"])]


def _services(fleet: Mapping[str, Any]) -> Iterator[Finding]:
    if not fleet["agent"]["ok"]:
        yield Finding(
            f"The agent does not answer: {fleet['agent']['problem'] or 'no reason is known'}",
            "Running sessions go on; nothing new is cut. The supervisor restarts the agent; "
            "if this stays, read logs/agent.log and run allot doctor.",
        )
    if not fleet["engine"]["ok"]:
        yield Finding(
            f"The engine {fleet['engine']['name']} does not answer: "
            f"{fleet['engine']['problem'] or 'no reason is known'}",
            "No session is taken for stopped meanwhile. Start the engine; allot doctor says what it lacks.",
        )


def _gpus(gpus: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    for gpu in gpus:
        name = f"GPU {gpu['index']} ({gpu['uuid']})"
        if gpu["problem"]:
            yield Finding(
                f"{name} is not offered: {gpu['problem']}",
                "Look at it with nvidia-smi; once it is healthy again the agent takes it back.",
            )
        for process in gpu["processes"]:
            if not process["explained"]:
                yield Finding(
                    f"{name}: process {process['pid']} ({process['name'] or 'name unknown'}) "
                    f"uses {process['device_uuid']} and belongs to no lease",
                    "The device is not offered while it runs. Find out whose it is: ps -o user,cmd -p "
                    f"{process['pid']}; end it, and the device comes back by itself.",
                )
        held = [one for one in (*gpu["slices"], gpu["whole"]) if one and one["state"] == "quarantined"]
        for one in held:
            yield Finding(
                f"{name}: {one.get('profile', 'the whole GPU')} is quarantined"
                + (f": {one['note']}" if one["note"] else ""),
                "Its last session could not be shown to be gone. The broker tries again by itself; "
                "end what is left of it to help.",
            )


def _strays(strays: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    for stray in strays:
        yield Finding(
            f"{stray['engine_ref']} bears this installation's label but has no lease: {stray['note']}",
            "Its device is held. Stop it when you know that nobody needs it.",
        )
