"""Medians and bootstrap intervals of paired rounds."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

__all__ = ["Compared", "compare"]

RESAMPLES = 10_000


@dataclass(frozen=True, slots=True)
class Compared:
    """Seconds of ours and stock's, and their ratio with a 95 % bootstrap interval over rounds."""

    ours_s: float
    stock_s: float
    ratio: float
    low: float
    high: float
    rounds: int


def compare(ours: Sequence[float], stock: Sequence[float], *, seed: int = 0) -> Compared:
    """Round i of `ours` and of `stock` ran next to each other, so rounds are drawn as pairs."""
    if len(ours) != len(stock) or not ours:
        raise ValueError("as many rounds of one as of the other, and at least one")
    draw = random.Random(seed)
    count = len(ours)
    ratios = []
    for _ in range(RESAMPLES):
        picked = [draw.randrange(count) for _ in range(count)]
        ratios.append(median(ours[i] for i in picked) / median(stock[i] for i in picked))
    ratios.sort()
    return Compared(
        ours_s=median(ours),
        stock_s=median(stock),
        ratio=median(ours) / median(stock),
        low=ratios[int(0.025 * RESAMPLES)],
        high=ratios[int(0.975 * RESAMPLES) - 1],
        rounds=count,
    )
