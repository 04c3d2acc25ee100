"""Paired comparisons with confidence intervals that hold for all of them together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt
from statistics import fmean, stdev
from typing import NamedTuple

from scipy.stats import t as student  # type: ignore[import-untyped]

__all__ = ["CONFIDENCE", "Compared", "compare"]

CONFIDENCE = 0.95


class Compared(NamedTuple):
    """Ours against the baseline with the best mean; the interval is of the mean paired difference."""

    ours: float
    best: str
    theirs: float
    difference: float
    low: float
    high: float
    low_alone: float
    high_alone: float
    """The interval without correction, for a reader who looks at this one comparison only."""

    @property
    def verdict(self) -> str:
        """better or worse if the corrected interval leaves 0 out, else same."""
        return "better" if self.low > 0 else "worse" if self.high < 0 else "same"


def compare(ours: Sequence[float], baselines: Mapping[str, Sequence[float]], *, comparisons: int) -> Compared:
    """Seed i of every list saw the same arrivals. Bonferroni over `comparisons`; larger is better.

    The best baseline is chosen after the fact, by its mean: that can only make it look better.
    ValueError with fewer than two seeds.
    """
    if len(ours) < 2:
        raise ValueError("An interval needs at least two seeds.")
    best = max(baselines, key=lambda name: fmean(baselines[name]))
    differences = [mine - theirs for mine, theirs in zip(ours, baselines[best], strict=True)]
    mean = fmean(differences)
    error = stdev(differences) / sqrt(len(differences))
    corrected = error * _quantile(1 - CONFIDENCE, comparisons, len(ours))
    alone = error * _quantile(1 - CONFIDENCE, 1, len(ours))
    return Compared(
        ours=fmean(ours),
        best=best,
        theirs=fmean(baselines[best]),
        difference=mean,
        low=mean - corrected,
        high=mean + corrected,
        low_alone=mean - alone,
        high_alone=mean + alone,
    )


def _quantile(error: float, comparisons: int, seeds: int) -> float:
    return float(student.ppf(1 - error / comparisons / 2, seeds - 1))
