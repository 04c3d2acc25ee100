"""How much a GPU is worth to the people who come next, and what a placement takes from it."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from allotment_spawner.core.geometry import Axis, mask
from allotment_spawner.core.inventory import Profile

__all__ = ["Lookahead", "Option"]

FULLNESS = 0.2
"""How much less a placement costs on a full GPU than on an empty one, in requests served. An emptier
GPU may drain and then holds the biggest profile again. 0.1 to 0.3 did equally well in tests/bench;
without it big fleets under light load break up too many GPUs."""


class Option(NamedTuple):
    """One legal placement beside the taken slices, with what it costs later requests."""

    cost: float
    start: int
    bits: int


class Lookahead:
    """Costs of placements on one axis under one demand, worked out once for each taken mask.

    The worth of a GPU is the expected number of requests it could serve, one after the other and each
    placed as well as possible, before it must turn one away:
    worth(taken) = sum over profiles of share * (1 + max over legal placements of worth(taken | bits)).
    A placement costs the worth it takes away. That weighs each profile's lost placements by demand,
    and also knows which of them had a substitute.
    """

    __slots__ = ("_axis", "_least", "_shares", "_worth")

    def __init__(self, *, axis: Axis, shares: tuple[float, ...]) -> None:
        """`shares` are the likelihoods of `axis.shapes`, with sum 1."""
        self._axis = axis
        self._shares = shares
        self._worth: dict[int, float] = {}
        self._least: dict[tuple[int, ...], dict[int, float | None]] = defaultdict(dict)

    def worth(self, taken: int) -> float:
        """Expected requests served before one is turned away; 0 when nothing fits."""
        known = self._worth.get(taken)
        if known is not None:
            return known
        total = 0.0
        for number, masks in self._axis.next_masks(taken):
            total += self._shares[number] * (1.0 + max(map(self.worth, masks)))
        self._worth[taken] = total
        return total

    def least(self, taken: int, placements: tuple[int, ...]) -> float | None:
        """The cost of the cheapest of these placements (masks) beside the taken slices; None if none fits."""
        known = self._least[placements]
        if taken not in known:
            after = [self.worth(taken | bits) for bits in placements if not bits & taken]
            known[taken] = self._cost(taken, max(after)) if after else None
        return known[taken]

    def options(self, profile: Profile, taken: int) -> tuple[Option, ...]:
        """The placements of `profile` that touch no slice of the mask `taken`, cheapest first."""
        found = []
        for start in profile.starts:
            bits = mask(start, profile.size)
            if not bits & taken:
                found.append(Option(self._cost(taken, self.worth(taken | bits)), start, bits))
        return tuple(sorted(found))

    def _cost(self, taken: int, worth_after: float) -> float:
        now = self.worth(taken) - FULLNESS * taken.bit_count() / self._axis.length
        # Rounded, so that sums in another order are not taken for a difference.
        return round(now - worth_after, 9)
