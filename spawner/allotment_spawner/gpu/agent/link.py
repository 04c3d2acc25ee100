"""What the front and its worker say to each other: one JSON object a line over a socket pair."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from allotment_spawner.core.inventory import NodeInventory, Slice
from allotment_spawner.core.samples import DeviceSample
from allotment_spawner.gpu.messages import Problem

__all__ = ["FromWorker", "Ready", "Task", "Touching"]


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Task(_Message):
    """One verb for the worker; no call may touch the GPUs whose indexes are in `skip`."""

    verb: Literal["observe", "ensure", "destroy", "settle", "count", "sample"]
    gpu_uuid: str = ""
    profile: str = ""
    start: int = 0
    index: int = 0
    """Of the GPU to sample."""
    skip: list[int] = []


class Ready(_Message):
    """The worker's first word: it holds an NVML session."""

    boot_id: str
    unsettled: list[str]
    """UUIDs of GPUs with a change that a crash left half-done."""


class Touching(_Message):
    """The GPU that the calls from now on touch, so that a hang can be blamed on it."""

    index: int
    uuid: str | None


class FromWorker(_Message):
    """One line of the worker; exactly one member that is not about the verb's result is set.

    `fatal`: a sentence for the operator, the hardware cannot be opened. `done`: the verb ended
    (with `inventory` and `faults`; or `slice`; or `count`; or `devices`, `unread` and `faults`; or
    nothing, by the verb).
    """

    ready: Ready | None = None
    fatal: str | None = None
    touching: Touching | None = None
    problem: Problem | None = None
    done: bool = False
    inventory: NodeInventory | None = None
    faults: dict[str, str] = {}
    slice: Slice | None = None
    count: int = 0
    devices: tuple[DeviceSample, ...] = ()
    unread: dict[str, str] = {}
