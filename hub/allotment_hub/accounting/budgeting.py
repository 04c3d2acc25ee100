"""Budgets: when a period begins and ends, what is left of it, and for how long that pays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Final, Literal
from zoneinfo import ZoneInfo

from allotment_hub.accounting.tariff import PLACES, Tariff, midnight

__all__ = [
    "BEGINNING",
    "Period",
    "Pieces",
    "Standing",
    "Terms",
    "Unit",
    "burn",
    "choose",
    "lasts",
    "period_at",
    "together",
]

Period = Literal["week", "month", "term", "total"]
Unit = Literal["money", "gpu_hours"]
Pieces = tuple[tuple[int, int], ...]
"""Microseconds and the rate in millionths per hour, one after the other from now on; the last seven days of
them repeat."""

BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)
"""From when on a budget for good counts."""

_DAY_US: Final = 24 * 3600 * 10**6
_WEEK_US: Final = 7 * _DAY_US
_AHEAD: Final = timedelta(days=14)
_HOUR_US: Final = 3600 * 10**6
_UNIT: Final = Decimal(1).scaleb(-PLACES)


@dataclass(frozen=True, slots=True)
class Terms:
    """How long one period of a budget is. A term needs both days, and the last one belongs to it."""

    period: Period
    starts_on: date | None = None
    ends_on: date | None = None


def period_at(terms: Terms, at: datetime, zone: str) -> tuple[datetime, datetime | None]:
    """From and to of the period that holds `at`, by the zone's wall clock; `to` None: it has no end.

    Of a term always the term, also before and after it. A total counts from its first day, if it has one.
    """
    today = at.astimezone(ZoneInfo(zone)).date()
    if terms.period == "total":
        return (BEGINNING if terms.starts_on is None else midnight(terms.starts_on, zone)), None
    if terms.period == "term":
        assert terms.starts_on is not None
        assert terms.ends_on is not None
        return midnight(terms.starts_on, zone), midnight(terms.ends_on + timedelta(days=1), zone)
    if terms.period == "week":
        first = today - timedelta(days=today.weekday())
        return midnight(first, zone), midnight(first + timedelta(days=7), zone)
    first = today.replace(day=1)
    return midnight(first, zone), midnight((first + timedelta(days=31)).replace(day=1), zone)


@dataclass(frozen=True, slots=True)
class Standing:
    """One budget at one moment, for one person or group. Money, or GPU-hours with 6 places."""

    unit: Unit
    hard: bool
    amount: Decimal
    changes: Decimal
    used: Decimal
    since: datetime
    until: datetime | None

    @property
    def limit(self) -> Decimal:
        return self.amount + self.changes

    @property
    def left(self) -> Decimal:
        """Below 0 when it is overdrawn."""
        return self.limit - self.used

    def in_force(self, at: datetime) -> bool:
        return self.since <= at and (self.until is None or at < self.until)

    def reached(self, percent: int) -> bool:
        """Whether this much of it is used; of nothing at all, as soon as anything is."""
        return self.used > 0 and self.used * 100 >= self.limit * percent

    def lacks(self, shortest: timedelta, rate: Decimal) -> Decimal:
        """What is missing to pay `rate` per hour for this long; 0 or less: nothing. Rounded up, so that
        this sum is enough."""
        need = rate * (shortest // timedelta(microseconds=1)) / _HOUR_US
        return (need - self.left).quantize(_UNIT, rounding="ROUND_CEILING")


def burn(tariff: Tariff, unit: Unit, now: datetime) -> Pieces:
    """What one lease uses up, for the next two weeks."""
    if unit == "gpu_hours":
        return ((_WEEK_US, _millionths(tariff.gpus)),)
    if not tariff.windows:
        return ((_WEEK_US, _millionths(tariff.per_hour)),)
    return tuple(
        ((part.end - part.start) // timedelta(microseconds=1), _millionths(part.per_hour))
        for part in tariff.segments(now, now + _AHEAD)
    )


def together(many: Iterable[Pieces]) -> Pieces:
    """Several at once. All must have been made for the same moment."""
    total: Pieces = ((_WEEK_US, 0),)
    for pieces in many:
        total = _sum(total, pieces)
    return total


def lasts(left: Decimal, pieces: Pieces) -> timedelta | None:
    """How long this pays, to the microsecond; None: nothing is used up, so there is no end."""
    rest = int((max(left, Decimal(0)) * 10**PLACES).to_integral_value(rounding="ROUND_FLOOR")) * _HOUR_US
    gone = 0
    for length, rate in pieces:
        if rate and rest < length * rate:
            return timedelta(microseconds=gone + rest // rate)
        rest -= length * rate
        gone += length
    return _in_weeks(rest, gone, _last_week(pieces))


def _in_weeks(rest: int, gone: int, week: Pieces) -> timedelta | None:
    """Week after week the same: whole ones at once, then into the one in which it runs out."""
    cost = sum(length * rate for length, rate in week)
    if cost == 0:
        return None
    gone += rest // cost * _WEEK_US
    rest %= cost
    for length, rate in week:
        if rate and rest < length * rate:
            return _bounded(gone + rest // rate)
        rest -= length * rate
        gone += length
    return _bounded(gone)


def _bounded(us: int) -> timedelta:
    """A century is as good as any longer time, and a timedelta holds no more than a million of them."""
    return timedelta(microseconds=min(us, 5218 * _WEEK_US))


def _last_week(pieces: Pieces) -> Pieces:
    found: list[tuple[int, int]] = []
    missing = _WEEK_US
    for length, rate in reversed(pieces):
        found.append((min(length, missing), rate))
        missing -= min(length, missing)
        if missing == 0:
            break
    return tuple(reversed(found))


def _sum(first: Pieces, second: Pieces) -> Pieces:
    length = max(sum(one for one, _ in first), sum(one for one, _ in second))
    edges = sorted({*_edges(first, length), *_edges(second, length), length})
    ones, twos = _rates(first, edges), _rates(second, edges)
    found: list[tuple[int, int]] = []
    begun = 0
    for edge, one, two in zip(edges, ones, twos, strict=True):
        if found and found[-1][1] == one + two:
            found[-1] = (found[-1][0] + edge - begun, one + two)
        else:
            found.append((edge - begun, one + two))
        begun = edge
    return tuple(found)


def _repeated(pieces: Pieces, length: int) -> list[tuple[int, int]]:
    """At least this long."""
    found = list(pieces)
    have = sum(one for one, _ in pieces)
    while have < length:
        found.extend(_last_week(pieces))
        have += _WEEK_US
    return found


def _edges(pieces: Pieces, length: int) -> list[int]:
    found, here = [], 0
    for one, _ in _repeated(pieces, length):
        here += one
        if 0 < here < length:
            found.append(here)
    return found


def _rates(pieces: Pieces, edges: Sequence[int]) -> list[int]:
    """The rate that holds right before each edge."""
    found: list[int] = []
    parts = iter(_repeated(pieces, edges[-1]))
    end, rate = 0, 0
    for edge in edges:
        while end < edge:
            length, rate = next(parts)
            end += length
        found.append(rate)
    return found


def _millionths(rate: Decimal) -> int:
    return int((rate * 10**PLACES).to_integral_value(rounding="ROUND_HALF_EVEN"))


def choose(may: Mapping[str, Decimal]) -> str | None:
    """Which group's budget a start counts against: group -> the share of the shortest time that lacks there
    (0 or less: it can pay). The first by name that can pay, else the one that lacks least."""
    if not may:
        return None
    return min(sorted(may), key=lambda name: max(may[name], Decimal(0)))
