"""What sessions cost, minute by minute in whole numbers: from what is promised, not by the product's code."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from zoneinfo import ZoneInfo

__all__ = ["Hours", "MoneyOracle", "Price", "half_even"]

Interval = tuple[int, int]
"""Microseconds since 1970; the end is not in it."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MINUTE = 60 * 10**6
_HOUR = 60 * _MINUTE
_FOR_EVER = 10**18
_THURSDAY = 3


@dataclass(frozen=True)
class Hours:
    """Another price at some hours: days on which it begins (0 is Monday), minutes of the day."""

    days: frozenset[int]
    start: int
    end: int
    millionths: int
    """Per hour, in millionths of the currency."""


@dataclass(frozen=True)
class Price:
    zone: str
    millionths: int
    hours: tuple[Hours, ...]

    def at(self, minute: int) -> int:
        """Millionths an hour in this minute since 1970."""
        local = minute + _offset(self.zone, minute // 15)
        weekday, clock = (local // 1440 + _THURSDAY) % 7, local % 1440
        for one in self.hours:
            if self._holds(one, weekday, clock):
                return one.millionths
        return self.millionths

    @staticmethod
    def _holds(one: Hours, weekday: int, clock: int) -> bool:
        whole = (one.end - one.start) % 1440 or 1440
        for ago in (0, 1):
            since = clock - one.start + 1440 * ago
            if (weekday - ago) % 7 in one.days and 0 <= since < whole:
                return True
        return False


@lru_cache(maxsize=100_000)
def _offset(zone: str, quarter: int) -> int:
    """Minutes east of Greenwich in this quarter of an hour since 1970."""
    found = (_EPOCH + timedelta(minutes=15 * quarter)).astimezone(ZoneInfo(zone)).utcoffset()
    assert found is not None
    return round(found.total_seconds() / 60)


def half_even(numerator: int, denominator: int) -> int:
    """Rounded to a whole number; denominator above 0."""
    whole, rest = divmod(numerator, denominator)
    if 2 * rest > denominator or (2 * rest == denominator and whole % 2):
        return whole + 1
    return whole


def micros(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(microseconds=1)


class MoneyOracle:
    """One session: from when on, and when what it needs was out of order (None: it still is)."""

    def __init__(
        self, price: Price, start: datetime, outages: Iterable[tuple[datetime, datetime | None]]
    ) -> None:
        self._price = price
        self._start = micros(start)
        self._outages = [
            (micros(began), _FOR_EVER if ended is None else micros(ended)) for began, ended in outages
        ]

    def millionths(self, until: datetime) -> int:
        """Cost to then, in millionths, rounded once, half to even."""
        total = Fraction(0)
        for begin, end in self._billable(micros(until)):
            total += self._priced(begin, end)
        return half_even(total.numerator, total.denominator)

    def microseconds(self, until: datetime) -> int:
        return sum(end - begin for begin, end in self._billable(micros(until)))

    def _billable(self, until: int) -> list[Interval]:
        """Between two neighbouring instants at which anything happens all is billed, or nothing."""
        marks = {self._start, until}
        for began, ended in self._outages:
            marks.update((began, ended))
        inside = sorted(mark for mark in marks if self._start <= mark <= until)
        return [pair for pair in pairwise(inside) if not self._out_of_order(pair[0])]

    def _out_of_order(self, instant: int) -> bool:
        return any(began <= instant < ended for began, ended in self._outages)

    def _priced(self, begin: int, end: int) -> Fraction:
        """Millionths of this interval, exact."""
        total, here = 0, begin
        while here < end:
            minute = here // _MINUTE
            after = min((minute + 1) * _MINUTE, end)
            total += self._price.at(minute) * (after - here)
            here = after
        return Fraction(total, _HOUR)
