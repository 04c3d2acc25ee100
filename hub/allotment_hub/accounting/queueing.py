"""The one queue: who is next, and when a waiting lease could start, from history only."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

__all__ = ["MIN_SAMPLES", "Expected", "Option", "QueueItem", "expected_start", "order", "remaining"]

MIN_SAMPLES = 5
"""Fewer ended sessions than this are no history: the answer is None, not a guess."""

_EARLY, _LATE = 0.1, 0.9
_CLASSES = ("interactive",)


@dataclass(frozen=True, slots=True)
class QueueItem:
    """One queued lease. `seq` is its number of arrival, kept when a new attempt takes it over."""

    id: str
    queue_class: str
    seq: int


@dataclass(frozen=True, slots=True)
class Option:
    """Devices that would serve: slices `mask` of one GPU, in the way of which are `blockers` (lease ids)."""

    gpu_uuid: str
    mask: int
    blockers: frozenset[str]


@dataclass(frozen=True, slots=True)
class Expected:
    earliest: datetime
    latest: datetime


def order(queue: Collection[QueueItem], now: datetime) -> list[QueueItem]:
    """Best class first, within a class first come first served. `now` is for classes that age."""
    del now

    def key(item: QueueItem) -> tuple[int, int]:
        known = item.queue_class in _CLASSES
        return (_CLASSES.index(item.queue_class) if known else len(_CLASSES), item.seq)

    return sorted(queue, key=key)


def remaining(durations: Sequence[float], age_s: float, quantile: float) -> float | None:
    """Seconds that a session of this age still runs, at a quantile of the sessions that got this old.

    `durations` (seconds) must be sorted. None when fewer than `MIN_SAMPLES` ever got this old.
    """
    first = bisect_right(durations, age_s)
    older = len(durations) - first
    if older < MIN_SAMPLES:
        return None
    return durations[first + min(older - 1, int(quantile * older))] - age_s


def expected_start(
    options: Sequence[Option],
    ages_s: Mapping[str, float],
    durations: Sequence[float],
    *,
    needed: int,
    now: datetime,
) -> Expected | None:
    """When the `needed`-th option that does not overlap an earlier one comes free (80 % of the time).

    `ages_s`: how long each active lease has run; a blocker that is missing there is about to free or to
    start and cannot be told. None without history: an honest "unknown".
    """
    early = _nth_free(options, ages_s, durations, needed, _EARLY)
    late = _nth_free(options, ages_s, durations, needed, _LATE)
    if early is None or late is None:
        return None
    return Expected(now + timedelta(seconds=min(early, late)), now + timedelta(seconds=max(early, late)))


def _nth_free(
    options: Sequence[Option],
    ages_s: Mapping[str, float],
    durations: Sequence[float],
    needed: int,
    quantile: float,
) -> float | None:
    left: dict[str, float | None] = {
        lease: remaining(durations, age, quantile) for lease, age in ages_s.items()
    }
    timed: list[tuple[float, int, Option]] = []
    for number, option in enumerate(options):
        waits = [left.get(blocker) for blocker in option.blockers]
        known = [wait for wait in waits if wait is not None]
        if len(known) == len(waits):
            timed.append((max(known, default=0.0), number, option))
    taken: dict[str, int] = {}
    found = 0
    for wait, _, option in sorted(timed, key=lambda entry: entry[:2]):
        if taken.get(option.gpu_uuid, 0) & option.mask:
            continue
        taken[option.gpu_uuid] = taken.get(option.gpu_uuid, 0) | option.mask
        found += 1
        if found >= needed:
            return wait
    return None
