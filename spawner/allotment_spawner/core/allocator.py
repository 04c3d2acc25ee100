"""Which device a request gets: place, or say why there is no room."""

from __future__ import annotations

from allotment_spawner.core.cards import count_cards, place_cards
from allotment_spawner.core.demand import Demand
from allotment_spawner.core.reasons import NoRoom, why_no_room
from allotment_spawner.core.request import Candidate, Request, Want, request_for
from allotment_spawner.core.slices import count_slices, place_slice
from allotment_spawner.core.snapshot import GpuState, IdleSlice, Placed, Placement, Snapshot

__all__ = [
    "Candidate",
    "Demand",
    "GpuState",
    "IdleSlice",
    "NoRoom",
    "Placed",
    "Placement",
    "Request",
    "Snapshot",
    "Want",
    "capacity",
    "place",
    "request_for",
]


def place(request: Request, snapshot: Snapshot, demand: Demand) -> Placement | NoRoom:
    """The first candidate that fits, placed where it costs later requests least.

    Never refuses what fits: an idle slice may be handed out or destroyed, a taken one never. Pure and
    deterministic: the same arguments give the same devices.
    """
    for candidate in request.candidates:
        if candidate.want.kind == "whole":
            found = place_cards(candidate, snapshot)
        else:
            found = place_slice(candidate, snapshot, demand)
        if found is not None:
            return found
    return why_no_room(request, snapshot)


def capacity(request: Request, snapshot: Snapshot) -> tuple[int, int]:
    """How many such requests could start (now, if everything usable were free)."""
    free = total = 0
    for candidate in request.candidates:
        count = count_cards if candidate.want.kind == "whole" else count_slices
        more_free, more_total = count(candidate, snapshot)
        free += more_free
        total += more_total
    return free, total
