"""Ways to choose a placement: the allocator, and first-fit, best-fit and worst-fit."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple, Protocol

from allotment_spawner.core.allocator import (
    Demand,
    GpuState,
    IdleSlice,
    NoRoom,
    Placed,
    Placement,
    Request,
    Snapshot,
    place,
    request_for,
)
from allotment_spawner.core.geometry import mask
from allotment_spawner.core.inventory import Profile
from allotment_spawner.core.profiles import nominal_memory_gb

__all__ = ["BASELINES", "Allocator", "Policy", "Spot", "SimpleFit", "request_of"]

DRIVER_ORDER = {
    "1g.10gb": (6, 4, 5, 0, 1, 2, 3),
    "1g.20gb": (4, 0, 2, 6),
    "2g.20gb": (4, 0, 2),
    "3g.40gb": (4, 0),
}
"""Where NVIDIA's driver has been seen to put instances when it is not told where (first ones first)."""


class Spot(NamedTuple):
    """A device that a policy chose: GPU number, and the slice on it."""

    gpu: int
    profile: str
    start: int
    bits: int


class Policy(Protocol):
    """Chooses among free legal placements, and hears when a device is given back."""

    def choose(self, profile: str) -> Spot | None:
        """Take a device for a request that wants this profile, or None when it fits nowhere."""

    def release(self, spot: Spot) -> None:
        """The device is free again."""


class SimpleFit:
    """One of the textbook policies over identical GPUs; the first legal start, the first GPU on a tie."""

    def __init__(
        self,
        *,
        gpus: int,
        profiles: tuple[Profile, ...],
        prefer: Callable[[int], int] | None,
        driver_order: bool,
    ) -> None:
        """`prefer` maps a GPU's number of taken slices to a rank, smallest first; None takes the first GPU.

        `driver_order`: starts in the order that the driver uses, else from the lowest.
        """
        self._taken = [0] * gpus
        self._prefer = prefer
        self._spots: dict[str, list[tuple[int, int]]] = {}
        for profile in profiles:
            starts = DRIVER_ORDER.get(profile.name, profile.starts) if driver_order else profile.starts
            self._spots[profile.name] = [(start, mask(start, profile.size)) for start in starts]
        self._first: dict[tuple[str, int], tuple[int, int] | None] = {}

    def _first_legal(self, profile: str, taken: int) -> tuple[int, int] | None:
        key = (profile, taken)
        if key not in self._first:
            legal = ((start, bits) for start, bits in self._spots[profile] if not bits & taken)
            self._first[key] = next(legal, None)
        return self._first[key]

    def choose(self, profile: str) -> Spot | None:
        best: tuple[int, Spot] | None = None
        for number, taken in enumerate(self._taken):
            found = self._first_legal(profile, taken)
            if found is None:
                continue
            rank = self._prefer(taken) if self._prefer else 0
            if best is None or rank < best[0]:
                best = (rank, Spot(number, profile, *found))
                if self._prefer is None:
                    break
        if best is None:
            return None
        self._taken[best[1].gpu] |= best[1].bits
        return best[1]

    def release(self, spot: Spot) -> None:
        self._taken[spot.gpu] &= ~spot.bits


def request_of(profile: Profile) -> Request:
    """A flavor's wish that this profile serves."""
    memory = nominal_memory_gb(profile)
    return request_for("slice", memory, profile.compute_slices, 1, frozenset({"mig"}), frozenset())


class Allocator:
    """`place` as the product calls it: idle slices stay cut, demand is what the last requests were."""

    RECENT = 200

    def __init__(self, *, gpus: list[GpuState]) -> None:
        self.gpus = gpus
        self._number = {gpu.gpu_uuid: number for number, gpu in enumerate(gpus)}
        profiles = next(gpu.profiles for gpu in gpus if gpu.mig)
        self._requests = {profile.name: request_of(profile) for profile in profiles}
        self._recent: deque[str] = deque(maxlen=self.RECENT)
        self._demand = Demand.uniform()

    def choose(self, profile: str) -> Spot | None:
        self._hear(profile)
        answer = self.decide(self._requests[profile])
        return self.take(answer.devices[0]) if isinstance(answer, Placement) else None

    def decide(self, request: Request) -> Placement | NoRoom:
        """What `place` says to the fleet as it is now."""
        return place(request, Snapshot(tuple(self.gpus)), self._demand)

    def take(self, device: Placed) -> Spot:
        """Hold this device: a slice, or a whole card (which is slice 0)."""
        number = self._number[device.gpu_uuid]
        gpu = self.gpus[number]
        profile, start, size = device.profile or "", device.start or 0, device.size or 1
        gone = {*device.destroy, IdleSlice(profile, start, size)}
        idle = tuple(piece for piece in gpu.idle if piece not in gone)
        spot = Spot(number, profile, start, mask(start, size))
        self.gpus[number] = replace(gpu, taken=gpu.taken | spot.bits, idle=idle)
        return spot

    def release(self, spot: Spot) -> None:
        gpu = self.gpus[spot.gpu]
        idle = gpu.idle
        if gpu.mig:
            idle = tuple(sorted((*idle, IdleSlice(spot.profile, spot.start, spot.bits.bit_count()))))
        self.gpus[spot.gpu] = replace(gpu, taken=gpu.taken & ~spot.bits, idle=idle)

    def _hear(self, profile: str) -> None:
        self._recent.append(profile)
        self._demand = Demand.from_recent(Counter(self._recent))


def _baselines() -> Iterator[tuple[str, Callable[[int, tuple[Profile, ...]], SimpleFit]]]:
    preferences: dict[str, Callable[[int], int] | None] = {
        "first-fit": None,
        "best-fit": lambda taken: -taken.bit_count(),
        "worst-fit": int.bit_count,
    }
    for name, prefer in preferences.items():
        for driver_order in (False, True):

            def make(
                gpus: int,
                profiles: tuple[Profile, ...],
                prefer: Callable[[int], int] | None = prefer,
                driver_order: bool = driver_order,
            ) -> SimpleFit:
                return SimpleFit(gpus=gpus, profiles=profiles, prefer=prefer, driver_order=driver_order)

            yield f"{name}/{'driver' if driver_order else 'low'}", make


BASELINES = dict(_baselines())
"""Each with the lowest legal start first ("low") and with the driver's own order of starts ("driver")."""
