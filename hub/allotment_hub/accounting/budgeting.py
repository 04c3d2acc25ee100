"""Budgets: when a period begins and ends, what is left of it, and for how long that pays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import reduce
from typing import Final, Literal
from zoneinfo import ZoneInfo

from allotment_hub.accounting.tariff import PLACES, Tariff, Window, midnight

__all__ = [
    "BEGINNING",
    "Pattern",
    "Period",
    "Pieces",
    "Standing",
    "Terms",
    "Unit",
    "burn",
    "choose",
    "lasts",
    "pattern",
    "period_at",
    "together",
]

Period = Literal["week", "month", "term", "total"]
Unit = Literal["money", "gpu_hours"]
Pieces = tuple[tuple[int, int], ...]
"""Microseconds and the rate in millionths per hour, one after the other from now on; the last seven days of
them repeat."""

Pattern = tuple[tuple[int, int], ...]
"""Microseconds and the number of the window that holds, -1 for none."""

BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)
"""From when on a budget for good counts."""

_US: Final = timedelta(microseconds=1)
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


def pattern(zone: str, windows: Sequence[Window], now: datetime) -> Pattern:
    """When which of these windows holds, for the next two weeks."""
    numbered = tuple(
        Window(window.days, window.start, window.end, Decimal(number))
        for number, window in enumerate(windows)
    )
    when = Tariff(currency="", zone=zone, per_hour=Decimal(-1), windows=numbered)
    return tuple(
        ((part.end - part.start) // _US, int(part.per_hour)) for part in when.segments(now, now + _AHEAD)
    )


def burn(tariff: Tariff, unit: Unit, when: Pattern, gone: timedelta = timedelta()) -> Pieces:
    """What one lease uses up. `when` is the pattern of its windows, made `gone` ago."""
    if unit == "gpu_hours":
        return ((_WEEK_US, _millionths(tariff.gpus)),)
    rates = [*(_millionths(window.per_hour) for window in tariff.windows), _millionths(tariff.per_hour)]
    found: list[tuple[int, int]] = []
    skip = gone // _US
    for length, number in when:
        left, skip = length - skip, max(skip - length, 0)
        if left > 0:
            found.append((left, rates[number]))
    return tuple(found)


def together(many: Iterable[Pieces]) -> Pieces:
    """Several at once. All must have been made for the same moment."""
    return reduce(_sum, many, ((_WEEK_US, 0),))


def lasts(left: Decimal, *many: Pieces) -> timedelta | None:
    """How long this pays all of these, to the microsecond; None: nothing is used up, so there is no end."""
    rest = int((max(left, Decimal(0)) * 10**PLACES).to_integral_value(rounding="ROUND_FLOOR")) * _HOUR_US
    pieces = many[0] if len(many) == 1 else together(many)
    gone = 0
    for length, rate in pieces:
        if rest < length * rate:
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
        if rest < length * rate:
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
    """Piece by piece, for as long as the longer one."""
    for constant, other in ((first, second), (second, first)):
        if len(constant) == 1:
            more = constant[0][1]
            return tuple((length, rate + more) for length, rate in other)
    length = max(sum(one for one, _ in first), sum(one for one, _ in second))
    ones, twos = _repeated(first), _repeated(second)
    one, rate = next(ones)
    two, more = next(twos)
    found: list[tuple[int, int]] = []
    while length > 0:
        step = min(one, two, length)
        found.append((step, rate + more))
        one, two, length = one - step, two - step, length - step
        if not one:
            one, rate = next(ones)
        if not two:
            two, more = next(twos)
    return tuple(found)


def _repeated(pieces: Pieces) -> Iterator[tuple[int, int]]:
    """Without an end."""
    yield from pieces
    week = _last_week(pieces)
    while True:
        yield from week


def _millionths(rate: Decimal) -> int:
    return int((rate * 10**PLACES).to_integral_value(rounding="ROUND_HALF_EVEN"))


def choose(may: Mapping[str, Decimal]) -> str | None:
    """Which group's budget a start counts against: group -> the share of the shortest time that lacks there
    (0 or less: it can pay). The first by name that can pay, else the one that lacks least."""
    if not may:
        return None
    return min(sorted(may), key=lambda name: max(may[name], Decimal(0)))
