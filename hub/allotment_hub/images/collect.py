"""Removing images: the broker first, so that nobody starts with one, then the machine, then the broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from allotment.errors import Refused

from allotment_hub.images.machine import MachineImage, MachineImages, StillUsed
from allotment_hub.images.plan import Known, Verdict

__all__ = ["Broker", "collect"]


class Broker(Protocol):
    """The client's way to change something."""

    def send(self, method: str, path: str, body: Any = None) -> Any: ...


def collect(
    verdict: Verdict,
    *,
    broker: Broker,
    machine: MachineImages,
    say: Callable[[str], None],
    on_step: Callable[[str], None] = lambda _step: None,
) -> int:
    """Carry a plan out; the number of images that are gone. Killed at any step, the next run finishes it.

    Whatever began to be used since the plan was made is refused by the broker or by the engine, and stays.
    """
    for known in verdict.lost:
        _tell(broker, known, gone=True)
    return sum(_remove(one, image, broker, machine, say, on_step) for one, image in verdict.goes)


def _remove(
    known: Known,
    image: MachineImage,
    broker: Broker,
    machine: MachineImages,
    say: Callable[[str], None],
    on_step: Callable[[str], None],
) -> bool:
    name = f"{known.environment} {image.image.version} ({known.label})"
    on_step("begin")
    try:
        broker.send("PUT", f"images/{known.digest}/removal")
    except Refused as refusal:
        say(f"{name} stays: {refusal}")
        return False
    on_step("begun")
    try:
        gone = machine.take_away(image, known.environment, known.reference)
    except StillUsed as error:
        on_step("used")
        _tell(broker, known, gone=False)
        say(f"{name} stays: {error}")
        return False
    on_step("taken")
    # what others on this machine still name is no image of ours any more
    _tell(broker, known, gone=True)
    on_step("told")
    say(f"{name} removed" if gone else f"{name} removed here; another installation on this machine keeps it")
    return True


def _tell(broker: Broker, known: Known, *, gone: bool) -> None:
    broker.send("DELETE", f"images/{known.digest}/removal?gone={str(gone).lower()}")
