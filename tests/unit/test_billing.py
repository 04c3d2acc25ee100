"""Billable spans, days and entries, by example; tests/broker replays whole lives."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from allotment_hub.accounting.billing import Charge, Posted, Run, charges, day_of, give_back
from allotment_hub.accounting.tariff import Tariff, Window, midnight

D = Decimal
HOURLY = Tariff("EUR", "UTC", D(1))
NIGHT = Tariff("EUR", "UTC", D(1), (Window(frozenset(range(7)), 22 * 60, 6 * 60, D(3)),))


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


START = at("2026-03-02 22:00")


def hours(number: float) -> timedelta:
    return timedelta(hours=number)


def test_spans_leave_outages_out_however_they_overlap() -> None:
    outages = (
        (START + hours(4), START + hours(5)),
        (START + hours(1), START + hours(2)),
        (START + hours(1.5), START + hours(3)),
        (START + hours(1.6), START + hours(1.7)),
        (START + hours(8), None),
        (START + hours(0.5), START + hours(0.5)),
        (START + hours(0.7), START + hours(0.2)),
        (START - hours(9), START - hours(8)),
    )
    run = Run(HOURLY, START, outages)
    assert run.spans(START, START + hours(10)) == [
        (START, START + hours(1)),
        (START + hours(3), START + hours(4)),
        (START + hours(5), START + hours(8)),
    ]
    assert run.seconds(START + hours(10)) == 5 * 3600
    assert run.cost(START + hours(10)) == 5
    assert run.spans(START + hours(1), START + hours(3)) == []
    assert run.cost(START - hours(1)) == 0


def test_days_are_posted_when_they_are_over_and_the_last_one_at_the_end() -> None:
    run = Run(HOURLY, START)
    assert charges(run, Posted(), until=at("2026-03-02 23:59"), over=False) == []
    first = Charge("2026-03-02", START, at("2026-03-03 00:00"), D(2), D(7200))
    assert charges(run, Posted(), until=at("2026-03-03 00:00"), over=False) == [first]
    assert charges(run, Posted(), until=at("2026-03-03 00:00"), over=True) == [first]
    posted = Posted(D(2), D(7200), frozenset({"2026-03-02"}))
    assert charges(run, posted, until=at("2026-03-03 05:00"), over=False) == []
    last = Charge("2026-03-03", at("2026-03-03 00:00"), at("2026-03-03 05:00"), D(5), D(18000))
    assert charges(run, posted, until=at("2026-03-03 05:00"), over=True) == [last]
    assert charges(run, Posted(), until=at("2026-03-03 05:00"), over=True) == [first, last]


def test_nothing_is_posted_for_a_day_out_of_order_or_before_it_began() -> None:
    run = Run(HOURLY, START, ((START, None),))
    assert charges(run, Posted(), until=START + hours(90), over=True) == []
    assert charges(Run(HOURLY, START), Posted(), until=START - hours(90), over=True) == []


def test_what_was_posted_too_much_is_made_up_for_and_else_given_back() -> None:
    run = Run(NIGHT, START, ((START, START + hours(1)),))
    posted = Posted(D(6), D(7200), frozenset({"2026-03-02"}))
    assert [one.amount for one in charges(run, posted, until=at("2026-03-04 00:00"), over=False)] == [
        D(3) + D(6 * 3) + D(16) + D(6) - D(6)
    ]
    [back] = charges(run, posted, until=at("2026-03-02 23:30"), over=True)
    assert (back.amount, back.seconds) == (D("-4.5"), D(-5400))


def test_what_an_outage_that_shrank_left_unposted_is_in_the_last_entry() -> None:
    """It was open when the day was posted, and the clock was set back before it ended."""
    run = Run(HOURLY, START, ((START, START + hours(0.5)),))
    posted = Posted(D(0), D(0), frozenset({"2026-03-02"}))
    assert [one.amount for one in charges(run, posted, until=at("2026-03-02 23:30"), over=True)] == [D(1)]


def test_only_the_last_minutes_are_given_back() -> None:
    run = Run(NIGHT, at("2026-03-02 21:00"), ((START, START + hours(0.25)),))
    back = give_back(run, until=START + hours(0.5), minutes=60)
    assert back is not None
    assert (back.amount, back.seconds) == (D("-1.25"), -D(45 * 60))
    short = give_back(run, until=at("2026-03-02 21:06"), minutes=60)
    assert short is not None
    assert (short.amount, short.from_at) == (D("-0.1"), run.start)
    assert give_back(run, until=START + hours(0.5), minutes=0) is None


@pytest.mark.parametrize("zone", ["America/St_Johns", "America/Santiago", "Pacific/Apia", "Europe/Berlin"])
def test_every_instant_lies_in_the_day_that_holds_it(zone: str) -> None:
    """St. John's set its clock back at one past midnight until 2011; Apia left out a day of that year."""
    for begin in ("2010-11-06", "2011-12-28", "2026-09-05", "2026-10-24"):
        for quarter in range(4 * 24 * 4):
            instant = at(f"{begin} 00:00") + timedelta(minutes=15 * quarter, seconds=40)
            day = day_of(instant, zone)
            assert midnight(day, zone) <= instant < midnight(day + timedelta(days=1), zone)
