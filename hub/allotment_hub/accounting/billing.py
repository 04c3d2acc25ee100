"""What a session owes: its spans without outages, by days; each entry is the rest of what is not posted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from zoneinfo import ZoneInfo

from allotment_hub.accounting.tariff import Span, Tariff, midnight, rounded

__all__ = ["Charge", "Outage", "Posted", "Run", "charges", "day_of", "give_back", "in_seconds"]

Outage = tuple[datetime, datetime | None]
"""From and to; None is still going on."""

_US = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Run:
    """A session that ran, or runs, from `start`; `outages` in any order, they may overlap."""

    tariff: Tariff
    start: datetime
    outages: tuple[Outage, ...] = ()

    def spans(self, start: datetime, end: datetime) -> list[Span]:
        """What is billable in [start, end), in order and without overlaps; an open outage has no end."""
        here, found = max(start, self.start), []
        for began, ended in sorted(self.outages, key=lambda outage: outage[0]):
            if ended is not None and ended <= began:
                continue
            if here < min(began, end):
                found.append((here, min(began, end)))
            here = max(here, end if ended is None else ended)
        if here < end:
            found.append((here, end))
        return found

    def cost(self, until: datetime) -> Decimal:
        """C(until), rounded once."""
        return self.tariff.cost(self.spans(self.start, until))

    def seconds(self, until: datetime) -> Decimal:
        return in_seconds(self.spans(self.start, until))


@dataclass(frozen=True, slots=True)
class Posted:
    """Sums of a lease's entries of usage, with what they were too much; `days` have one already."""

    amount: Decimal = Decimal(0)
    seconds: Decimal = Decimal(0)
    days: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Charge:
    """What is to be posted for a day; below 0 only the last one, for what was posted too much."""

    day: str
    from_at: datetime
    to_at: datetime
    amount: Decimal
    seconds: Decimal


def charges(run: Run, posted: Posted, *, until: datetime, over: bool) -> list[Charge]:
    """For every day that is over at `until`, and, when the session is `over`, for its last day.

    Each is what the session has cost to the end of that day less all that is posted, so that outages
    that were recorded late, days that were left out and clocks that were set change no sum. While it
    would be below 0 nothing is posted: the following days make up for it, or the end gives it back.
    """
    amount, seconds = posted.amount, posted.seconds
    cost, billable = Fraction(0), Decimal(0)
    made: list[Charge] = []
    for day, first, last, whole in _days(run, until):
        spans = run.spans(first, last)
        cost += run.tariff.exact(spans)
        billable += in_seconds(spans)
        if not whole and not over:
            break
        if day in posted.days and not over:
            continue
        owed = max(rounded(cost) - amount, Decimal(0))
        used = max(billable - seconds, Decimal(0))
        if owed or used:
            made.append(Charge(day, first, last, owed, used))
            amount, seconds = amount + owed, seconds + used
    if over:
        too_much = _too_much(run, until, rounded(cost) - amount, billable - seconds)
        made.extend(() if too_much is None else (too_much,))
    return made


def _too_much(run: Run, until: datetime, owed: Decimal, used: Decimal) -> Charge | None:
    if owed >= 0 and used >= 0:
        return None
    end = max(run.start, until)
    day = day_of(end, run.tariff.zone)
    # of the day on which it is found out, so that this period's budget has it back, not one long over
    first = max(run.start, midnight(day, run.tariff.zone))
    return Charge(day.isoformat(), first, end, min(owed, Decimal(0)), min(used, Decimal(0)))


def give_back(run: Run, *, until: datetime, minutes: int) -> Charge | None:
    """What the last minutes before `until` have cost, as a charge below 0; None when there is nothing."""
    first = max(run.start, until - timedelta(minutes=minutes))
    amount = run.cost(first) - run.cost(until)
    seconds = run.seconds(first) - run.seconds(until)
    if not amount and not seconds:
        return None
    return Charge(day_of(until, run.tariff.zone).isoformat(), first, until, amount, seconds)


def day_of(at: datetime, zone: str) -> date:
    """The day of the zone that holds this instant: from its midnight to the next one's."""
    day = at.astimezone(ZoneInfo(zone)).date()
    # where the clock is set back over midnight the date alone is not enough
    if at < midnight(day, zone):
        return day - timedelta(days=1)
    return day + timedelta(days=1) if at >= midnight(day + timedelta(days=1), zone) else day


def in_seconds(spans: Iterable[Span]) -> Decimal:
    """Exact, to the microsecond."""
    return Decimal(sum((end - start) // _US for start, end in spans)).scaleb(-6)


def _days(run: Run, until: datetime) -> Iterator[tuple[str, datetime, datetime, bool]]:
    """Day, from, to, and whether it is over at `until`; none when `until` is before the start."""
    if until <= run.start:
        return
    zone = run.tariff.zone
    day = day_of(run.start, zone)
    first = run.start.astimezone(UTC)
    while first < until:
        after = midnight(day + timedelta(days=1), zone)
        if first < after:
            yield day.isoformat(), first, min(after, until), after <= until
        day, first = day + timedelta(days=1), max(first, after)
