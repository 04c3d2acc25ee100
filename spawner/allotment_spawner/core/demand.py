"""What people have lately asked for: how much each profile's placements are worth keeping."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

__all__ = ["Demand"]

PRIOR = 0.5
"""Requests that every profile is assumed to have had, so that none is worth nothing."""


class Demand:
    """Weights by profile name; a name that is not listed weighs `other`. Immutable."""

    __slots__ = ("memo", "other", "weights")

    def __init__(self, weights: Mapping[str, float], *, other: float = 0.0) -> None:
        if other < 0 or any(weight < 0 for weight in weights.values()):
            raise ValueError("A demand weight cannot be negative.")
        self.weights: Mapping[str, float] = MappingProxyType(dict(weights))
        self.other = other
        self.memo: dict[tuple[Any, ...], Any] = {}
        """Scores worked out for these weights; they die with them."""

    def weight(self, profile: str) -> float:
        """How much one placement of this profile is worth."""
        return self.weights.get(profile, self.other)

    @classmethod
    def uniform(cls) -> Demand:
        """Nothing is known: all profiles weigh the same."""
        return cls({}, other=1.0)

    @classmethod
    def from_recent(cls, counts: Mapping[str, float]) -> Demand:
        """From how often each profile was asked for lately. Only the proportions matter."""
        total = sum(counts.values()) + PRIOR * (len(counts) + 1)
        return cls({name: (count + PRIOR) / total for name, count in counts.items()}, other=PRIOR / total)
