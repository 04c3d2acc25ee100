"""What people have lately asked for: how likely each profile is to be wanted next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

__all__ = ["Demand"]

STEPS = 16
"""Demand is kept in 16ths: what is worked out for it stays good while it hardly changes."""


class Demand:
    """Weights by profile name; a name that is not listed weighs `other`. Immutable."""

    __slots__ = ("other", "weights")

    def __init__(self, weights: Mapping[str, float], *, other: float = 0.0) -> None:
        """ValueError if a weight is negative."""
        if other < 0 or any(weight < 0 for weight in weights.values()):
            raise ValueError("A demand weight cannot be negative.")
        self.weights: Mapping[str, float] = MappingProxyType(dict(weights))
        self.other = other

    def shares(self, names: Iterable[str]) -> tuple[float, ...]:
        """The weights of these profiles, scaled to a sum of 1; equal shares when all weigh nothing."""
        raw = [self.weights.get(name, self.other) for name in names]
        total = sum(raw)
        if total > 0:
            return tuple(weight / total for weight in raw)
        return tuple(1 / len(raw) for _ in raw)

    @classmethod
    def uniform(cls) -> Demand:
        """Nothing is known: all profiles weigh the same."""
        return cls({}, other=1.0)

    @classmethod
    def from_recent(cls, counts: Mapping[str, float]) -> Demand:
        """From how often each profile was asked for lately; only the proportions matter.

        What nobody asked for keeps a little weight, so that it stays possible.
        """
        total = sum(counts.values())
        if total <= 0:
            return cls.uniform()
        return cls({name: max(1, round(STEPS * count / total)) for name, count in counts.items()}, other=1.0)
