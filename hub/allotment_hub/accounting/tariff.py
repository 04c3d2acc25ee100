"""What an hour costs at each instant, and what a time span costs, exactly."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

__all__ = ["PLACES", "Segment", "Span", "Tariff", "Window", "midnight", "priced", "rounded"]

Span = tuple[datetime, datetime]
"""From and to, aware; the end is not in it."""

PLACES = 6
"""Digits of money after the point."""

_MINUTES = 24 * 60
_HOUR_US = 3600 * 10**6


@dataclass(frozen=True, slots=True)
class Window:
    """A rate for some hours of some days, by the wall clock of the tariff's zone.

    `days` are weekdays (0 is Monday) on which it begins; `start` and `end` minutes of the day. An end not
    after the start is on the next day: 22:00 to 06:00 on day 4 reaches into Saturday; 0 to 0 is a whole day.
    """

    days: frozenset[int]
    start: int
    end: int
    per_hour: Decimal

    def holds(self, weekday: int, minute: float) -> bool:
        if self.start < self.end:
            return weekday in self.days and self.start <= minute < self.end
        begun = weekday in self.days and minute >= self.start
        return begun or ((weekday - 1) % 7 in self.days and minute < self.end)


@dataclass(frozen=True, slots=True)
class Segment:
    start: datetime
    end: datetime
    per_hour: Decimal


@dataclass(frozen=True, slots=True)
class Tariff:
    """The rate schedule of one lease, copied at its grant: a later change of the catalogue alters nothing.

    At each instant the rate is that of the window that holds the wall clock's time in `zone`, else
    `per_hour`. `gpus` is the share of whole GPUs that the lease holds (a 1g.10gb of an A100: 0.125).
    """

    currency: str
    zone: str
    per_hour: Decimal
    windows: tuple[Window, ...] = ()
    gpus: Decimal = Decimal(0)

    def rate(self, at: datetime) -> Decimal:
        local = at.astimezone(ZoneInfo(self.zone))
        minute = local.hour * 60 + local.minute
        for window in self.windows:
            if window.holds(local.weekday(), minute):
                return window.per_hour
        return self.per_hour

    def segments(self, start: datetime, end: datetime) -> Iterator[Segment]:
        """Without a gap from `start` to `end`, neighbours of one rate joined; UTC."""
        begun, last = start.astimezone(UTC), end.astimezone(UTC)
        for edge in self._edges(begun, last):
            if self.rate(edge) != self.rate(begun):
                yield Segment(begun, edge, self.rate(begun))
                begun = edge
        if begun < last:
            yield Segment(begun, last, self.rate(begun))

    def cost(self, spans: Iterable[Span]) -> Decimal:
        """Of these spans in all, rounded once: to 6 places, half to even."""
        return rounded(self.exact(spans))

    def exact(self, spans: Iterable[Span]) -> Fraction:
        """The same before it is rounded: what adds up."""
        return sum((priced(self.segments(start, end), [(start, end)]) for start, end in spans), Fraction(0))

    def as_json(self) -> dict[str, Any]:
        """For the lease's `rates`; `from_json` reads it."""
        return {
            "currency": self.currency,
            "zone": self.zone,
            "per_hour": format(self.per_hour, "f"),
            "gpus": format(self.gpus, "f"),
            "windows": [
                {
                    "days": sorted(window.days),
                    "start": window.start,
                    "end": window.end,
                    "per_hour": format(window.per_hour, "f"),
                }
                for window in self.windows
            ],
        }

    @classmethod
    def from_json(cls, told: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> Tariff:
        """Also of leases from before there were schedules: a list of one constant rate."""
        if isinstance(told, Sequence):
            return cls(currency=told[0]["currency"], zone="UTC", per_hour=Decimal(told[0]["per_hour"]))
        windows = (
            Window(frozenset(one["days"]), one["start"], one["end"], Decimal(one["per_hour"]))
            for one in told["windows"]
        )
        return cls(
            currency=told["currency"],
            zone=told["zone"],
            per_hour=Decimal(told["per_hour"]),
            windows=tuple(windows),
            gpus=Decimal(told["gpus"]),
        )

    def _edges(self, start: datetime, end: datetime) -> list[datetime]:
        """Instants between the two at which the rate may change, in order."""
        if not self.windows:
            return []
        zone = ZoneInfo(self.zone)
        minutes = {edge for window in self.windows for edge in (window.start, window.end)}
        found: set[datetime] = set()
        day = start.astimezone(zone).date() - timedelta(days=1)
        while day <= end.astimezone(zone).date():
            for minute in minutes:
                found.update(_instants(day, minute, zone))
            found.update(_change_of_clock(day, zone))
            day += timedelta(days=1)
        return sorted(edge for edge in found if start < edge < end)


def priced(segments: Iterable[Segment], spans: Iterable[Span]) -> Fraction:
    """What these spans cost, as far as the segments reach; exact."""
    known, total = tuple(segments), Fraction(0)
    for start, end in spans:
        for part in known:
            here, there = max(start, part.start), min(end, part.end)
            if here < there:
                total += Fraction(part.per_hour) * ((there - here) // timedelta(microseconds=1))
    return total / _HOUR_US


def rounded(money: Fraction) -> Decimal:
    """To 6 places, half to even."""
    return Decimal(round(money * 10**PLACES)).scaleb(-PLACES)


def midnight(day: date, zone: str) -> datetime:
    """When this day begins in the zone, UTC; where its midnight does not exist, the first instant of it."""
    first = datetime.combine(day, time(), ZoneInfo(zone)).astimezone(UTC)
    if first.astimezone(ZoneInfo(zone)).date() == day:
        return first
    return next(iter(_change_of_clock(day - timedelta(days=1), ZoneInfo(zone))), first)


def _instants(day: date, minute: int, zone: ZoneInfo) -> set[datetime]:
    """When the wall clock shows this; twice in the night in which it is set back."""
    wall = datetime.combine(day, time(minute // 60 % 24, minute % 60), zone) + timedelta(
        days=minute // _MINUTES
    )
    return {wall.replace(fold=fold).astimezone(UTC) for fold in (0, 1)}


def _change_of_clock(day: date, zone: ZoneInfo) -> list[datetime]:
    """The instant in the two days from this day's midnight (UTC) at which the zone's clock is set, if any."""
    low = datetime.combine(day, time(), UTC)
    high = low + timedelta(days=2)
    if _offset(low, zone) == _offset(high, zone):
        return []
    while high - low > timedelta(seconds=1):
        middle = low + (high - low) // 2
        middle = middle.replace(microsecond=0)
        if _offset(middle, zone) == _offset(low, zone):
            low = middle
        else:
            high = middle
    return [high]


def _offset(at: datetime, zone: ZoneInfo) -> timedelta | None:
    return at.astimezone(zone).utcoffset()
