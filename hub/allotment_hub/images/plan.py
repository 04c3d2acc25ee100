"""Which images may leave this machine, and why the others stay (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from allotment_hub.images.machine import BuildLayer, MachineImage

__all__ = ["Known", "Stays", "Verdict", "old_layers", "plan"]

State = Literal["offered", "kept", "retired", "removing", "removed"]


@dataclass(frozen=True, slots=True)
class Known:
    """What the broker knows of an image; `used_by` are live sessions."""

    digest: str
    environment: str
    label: str
    reference: str
    state: State
    pinned: bool
    used_by: int


@dataclass(frozen=True, slots=True)
class Stays:
    known: Known
    why: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """`goes` may be removed; `lost` are gone already, which only the broker does not know yet."""

    goes: tuple[tuple[Known, MachineImage], ...]
    lost: tuple[Known, ...]
    stays: tuple[Stays, ...]

    @property
    def bytes_freed(self) -> int:
        """At most: layers that others share stay."""
        return sum(image.image.size_bytes or 0 for _, image in self.goes)


def plan(known: Sequence[Known], here: Mapping[str, MachineImage], *, keep: int) -> Verdict:
    """`known` newest first. `keep` startable versions of each environment stay, besides what is needed.

    Only images that this installation registered are looked at. What a killed removal left half done
    comes first.
    """
    goes: list[tuple[Known, MachineImage]] = []
    lost: list[Known] = []
    stays: list[Stays] = []
    counted: dict[str, int] = {}
    for one in known:
        image = here.get(one.digest)
        if image is None:
            if one.state == "removing":
                lost.append(one)
            continue
        if one.state == "removed":
            continue
        if one.state in ("offered", "kept"):
            counted[one.environment] = counted.get(one.environment, 0) + 1
        why = _why_it_stays(one, image, counted.get(one.environment, 0), keep)
        if why is None:
            goes.append((one, image))
        else:
            stays.append(Stays(one, why))
    goes.sort(key=lambda pair: pair[0].state != "removing")
    return Verdict(tuple(goes), tuple(lost), tuple(stays))


def old_layers(layers: Sequence[BuildLayer], *, prefix: str, version: str) -> list[BuildLayer]:
    """Those of other versions than this checkout builds, and those that lost their name to a newer build."""
    found = []
    for layer in layers:
        ours = all(name.startswith(f"{prefix}/") and "-packages:" in name for name in layer.tags)
        current = any(name.rpartition(":")[2].startswith(f"{version}-") for name in layer.tags)
        if ours and not current:
            found.append(layer)
    return found


def _why_it_stays(one: Known, image: MachineImage, count: int, keep: int) -> str | None:
    if one.used_by:
        return f"{one.used_by} live session{'s' * (one.used_by != 1)}"
    if image.containers:
        return f"container {image.containers[0]}"
    if one.state == "offered":
        return "offered"
    if one.pinned:
        return "pinned"
    if one.state == "kept" and count <= keep:
        return f"one of the newest {keep}"
    return None
